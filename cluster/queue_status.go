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
	Name      string         // name of the job
	Version   int            // protocol version (-1: not a Sluice job); unless equal to Version, the following fields are empty
	Queued    int            // number of tasks that wait for a worker
	Held      int            // tasks at workers
	Delayed   int            // number of tasks returned with Later whose wait has not ended
	Results   int            // number of results not yet recorded
	Done      int            // number of results so far, including given-up tasks
	Poisoned  int            // number of tasks given up after MaxDeliveries lost workers
	Repeated  int            // number of duplicate results, which were dropped
	Collector Collecting     // Collector of the job
	Workers   []WorkerStatus // workers of the job, sorted by host and process ID
	Stopped   string         // error that stopped the last worker ("" if a worker is alive or the stop was normal)
}

// Collecting is the state of a job's Collector.
type Collecting struct {
	Host  string // host name
	PID   int    // process ID
	Alive bool   // the Collector's lease has not expired
}

// WorkerStatus is the state of a job's worker.
type WorkerStatus struct {
	Host  string        // host name
	PID   int           // process ID
	Held  int           // number of the job's tasks assigned to the worker
	Idle  time.Duration // time since the worker's last heartbeat
	Alive bool          // Idle is below 6 s, the lease after which other workers get the worker's tasks
}

// Jobs returns the state of all jobs, sorted by name.
func (c *Cluster) Jobs(ctx context.Context) ([]JobStatus, error) {
	got, err := c.client.do(ctx, "ZRANGE", registry, "0", "-1")
	if err != nil {
		return nil, c.at.refused(ctx, err)
	}
	names := got.texts()
	slices.Sort(names)
	var jobs []JobStatus
	for _, name := range names {
		got, err := c.client.eval(ctx, scriptLook, keysOf(name), []string{strconv.Itoa(Version)})
		if isForeign(err) {
			jobs = append(jobs, JobStatus{Name: name, Version: -1})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("engine: job %q: %w", name, err)
		}
		answer := got.list
		if answer[0].text == "gone" {
			continue
		}
		j := JobStatus{Name: name, Version: int(answer[1].number())}
		if j.Version == Version {
			for i, n := range []*int{&j.Queued, &j.Held, &j.Delayed, &j.Results, &j.Done, &j.Poisoned, &j.Repeated} {
				*n = int(answer[2+i].number())
			}
			j.Collector = Collecting{Host: answer[9].text, PID: int(answer[10].number()), Alive: answer[11].number() == 1}
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
	var workers []WorkerStatus
	for i := 1; i < len(signs); i += 2 {
		f := strings.SplitN(signs[i], " ", 3)
		if len(f) < 3 {
			continue
		}
		at, _ := strconv.ParseInt(f[0], 10, 64)
		pid, _ := strconv.Atoi(f[1])
		idle := time.Duration(answer[0].number()-at) * time.Millisecond
		workers = append(workers, WorkerStatus{Host: f[2], PID: pid, Held: held[signs[i-1]], Idle: idle, Alive: idle < lease})
	}
	slices.SortFunc(workers, func(a, b WorkerStatus) int {
		if a.Host != b.Host {
			return strings.Compare(a.Host, b.Host)
		}
		return a.PID - b.PID
	})
	return workers
}
