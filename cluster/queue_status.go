package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JobStatus is the state of a job.
type JobStatus struct {
	Name      string         `json:"job"`               // Run.
	Version   int            `json:"version,omitempty"` // Version of the run's keys, if unsupported. -1 is not a job. The following fields are empty.
	Queued    int            `json:"queued"`            // Items that wait for a worker.
	Held      int            `json:"held"`              // Items in progress at workers.
	Delayed   int            `json:"delayed"`           // Items in backoff.
	Results   int            `json:"results"`           // Results that are not yet recorded.
	Done      int            `json:"done"`              // Finished items. This includes abandoned items.
	Poisoned  int            `json:"poisoned"`          // Items abandoned because workers were lost.
	Repeated  int            `json:"repeated"`          // Ignored duplicate results.
	Collector *Collecting    `json:"collector"`         // Process that records results. nil means that none has started.
	Workers   []WorkerStatus `json:"workers"`           // Workers of the run. They are sorted by host and process ID.
	Stopped   string         `json:"-"`                 // Error that stopped the last worker. It is empty while a worker is alive.
}

// Collecting is the state of a job's Collector.
type Collecting struct {
	Host  string `json:"host"`  // Host name.
	PID   int    `json:"pid"`   // Process ID.
	Alive bool   `json:"alive"` // The process renews its lease.
}

// WorkerStatus is the state of a job's worker.
type WorkerStatus struct {
	Host   string `json:"host"`    // Host name.
	PID    int    `json:"pid"`     // Process ID.
	Held   int    `json:"held"`    // Items in progress at the worker.
	SeenMS int64  `json:"seen_ms"` // Time since the last heartbeat.
	Alive  bool   `json:"-"`       // SeenMS is below 6 s, the lease after which other workers get the worker's items.
}

// Jobs returns the state of all jobs, sorted by name.
func (c *Cluster) Jobs(ctx context.Context) ([]JobStatus, error) {
	got, err := c.client.do(ctx, "ZRANGE", registry, "0", "-1")
	if err != nil {
		return nil, c.at.refused(ctx, err)
	}
	names := got.texts()
	slices.Sort(names)
	jobs := []JobStatus{}
	for _, name := range names {
		got, err := c.client.eval(ctx, scriptLook, keysOf(name), []string{strconv.Itoa(Version)})
		if isForeign(err) {
			jobs = append(jobs, JobStatus{Name: name, Version: -1, Workers: []WorkerStatus{}})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("engine: job %q: %w", name, err)
		}
		answer := got.list
		if answer[0].text == "gone" {
			continue
		}
		j := JobStatus{Name: name, Version: int(answer[1].number()), Workers: []WorkerStatus{}}
		if j.Version == Version {
			j.Version = 0
			for i, n := range []*int{&j.Queued, &j.Held, &j.Delayed, &j.Results, &j.Done, &j.Poisoned, &j.Repeated} {
				*n = int(answer[2+i].number())
			}
			if c := (Collecting{Host: answer[9].text, PID: int(answer[10].number()), Alive: answer[11].number() == 1}); c != (Collecting{}) {
				j.Collector = &c
			}
			j.Workers = parseWorkers(answer[12:15], c.terms.orUsual().lease)
			j.Stopped = answer[15].text
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// parseWorkers reads an answer's end: the instant in ms; of each worker, its name, and last sign of life, process and host;
// pairs of a worker's name and how many tasks it has.
func parseWorkers(answer []reply, lease time.Duration) []WorkerStatus {
	signs := answer[1].texts()
	held := map[string]int{}
	for _, pair := range answer[2].list {
		if p := pair.list; len(p) == 2 {
			held[p[0].text] = int(p[1].number())
		}
	}
	workers := []WorkerStatus{}
	for i := 1; i < len(signs); i += 2 {
		f := strings.SplitN(signs[i], " ", 3)
		if len(f) < 3 {
			continue
		}
		at, _ := strconv.ParseInt(f[0], 10, 64)
		pid, _ := strconv.Atoi(f[1])
		seen := answer[0].number() - at
		workers = append(workers, WorkerStatus{Host: f[2], PID: pid, Held: held[signs[i-1]], SeenMS: seen, Alive: seen < lease.Milliseconds()})
	}
	slices.SortFunc(workers, func(a, b WorkerStatus) int {
		if a.Host != b.Host {
			return strings.Compare(a.Host, b.Host)
		}
		return a.PID - b.PID
	})
	return workers
}
