package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
)

// sharedStatus is what is shared by way of an engine, as --json prints it.
type sharedStatus struct {
	cluster.Status
	Jobs []jobStatus `json:"jobs"` // Runs with `--distribute`.
}

// jobStatus is a batch that many hosts work on.
type jobStatus struct {
	Job       string         `json:"job"`               // Run.
	Version   int            `json:"version,omitempty"` // Version of the run's keys, if unsupported.
	Queued    int            `json:"queued"`            // Items that wait for a worker.
	Held      int            `json:"held"`              // Items in progress at workers.
	Delayed   int            `json:"delayed"`           // Items in backoff.
	Results   int            `json:"results"`           // Results that are not yet recorded.
	Done      int            `json:"done"`              // Finished items.
	Poisoned  int            `json:"poisoned"`          // Items abandoned because workers were lost.
	Repeated  int            `json:"repeated"`          // Ignored duplicate results.
	Collector *processStatus `json:"collector"`         // Process that records results.
	Workers   []workerStatus `json:"workers"`           // Workers of the run.
}

// processStatus is a process on some host.
type processStatus struct {
	Host  string `json:"host"`  // Host name.
	PID   int    `json:"pid"`   // Process ID.
	Alive bool   `json:"alive"` // The process renews its lease.
}

// workerStatus is one that works on a job.
type workerStatus struct {
	Host   string `json:"host"`    // Host name.
	PID    int    `json:"pid"`     // Process ID.
	Held   int    `json:"held"`    // Items in progress at the worker.
	SeenMS int64  `json:"seen_ms"` // Time since the last heartbeat.
}

const (
	sharedEvery   = 2 * time.Second  // members say so often that they are there
	sharedTimeout = 30 * time.Second // to look through the keys of an engine with millions of others takes seconds
)

// runShared says what is shared by way of the engine.
func (o *statusOptions) runShared(ctx context.Context, s *term.Streams) error {
	ctx, end := signals.Interruptible(ctx)
	defer end()
	sh, err := o.shared.open(ctx, s, "status", false)
	if err != nil {
		return err
	}
	defer sh.Close()
	for {
		st, err := statusOf(ctx, sh)
		switch {
		case o.watch && ctx.Err() != nil:
			s.Out.Redraw(nil)
			return fault.Exit(fault.ExitInterrupted)
		case err != nil:
			s.Out.Redraw(nil)
			return account.RedisError(err, "--redis")
		case !o.watch:
			return o.printShared(s, st)
		}
		if width, _, tty := s.Out.Size(); tty && !o.asJSON {
			s.Out.Redraw(clipped(st.block(), width-1))
		} else if err := o.printShared(s, st); errors.Is(err, syscall.EPIPE) {
			return nil // who read has seen enough
		} else if err != nil {
			return err
		}
		_ = wake.In(ctx, sharedEvery, nil)
	}
}

// statusOf reads the state of what is shared.
func statusOf(ctx context.Context, sh *account.Shared) (*sharedStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	st := &sharedStatus{Jobs: []jobStatus{}}
	var err error
	if st.Status, err = sh.Status(ctx); err != nil {
		return nil, err
	}
	jobs, err := sh.Jobs(ctx)
	for _, j := range jobs {
		st.Jobs = append(st.Jobs, newJobStatus(&j))
	}
	return st, err
}

func newJobStatus(j *cluster.JobStatus) jobStatus {
	one := jobStatus{Job: j.Name, Workers: []workerStatus{}}
	if j.Version != cluster.Version {
		one.Version = j.Version
		return one
	}
	one.Queued, one.Held, one.Delayed, one.Results = j.Queued, j.Held, j.Delayed, j.Results
	one.Done, one.Poisoned, one.Repeated = j.Done, j.Poisoned, j.Repeated
	if c := j.Collector; c.Host != "" || c.PID != 0 {
		one.Collector = &processStatus{c.Host, c.PID, c.Alive}
	}
	for _, w := range j.Workers {
		one.Workers = append(one.Workers, workerStatus{w.Host, w.PID, w.Held, w.Idle.Milliseconds()})
	}
	return one
}

// printShared prints it: as one document, as one line of several, or for people.
func (o *statusOptions) printShared(s *term.Streams, st *sharedStatus) error {
	switch {
	case o.asJSON && o.watch:
		return s.JSONLine(st)
	case o.asJSON:
		return s.JSON(st)
	}
	for _, line := range escaped(st.block()) {
		if _, err := fmt.Fprintln(s.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// block says it in lines.
func (st *sharedStatus) block() []string {
	e := &st.Engine
	kept := "no append-only file"
	switch {
	case e.Durable:
		kept = "append-only file"
	case e.Version == "": // then it tells nothing of what it keeps, either
		kept = "append-only file unknown"
	}
	lines := []string{fmt.Sprintf("%s: %s %s, %s, %s", st.URL, e.Name, cmp.Or(e.Version, "version unknown"), e.Mode, kept)}
	row := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-10s %s", name, fmt.Sprintf(format, args...)))
	}
	if len(st.Accounts)+len(st.Jobs) == 0 {
		row("shared", "no jobs, and no accounts used in the last two days")
	}
	for i := range st.Accounts {
		a := &st.Accounts[i]
		lines = append(lines, "account "+a.Account)
		if a.Format != "" {
			row("keys", "the keys in Redis have the unknown version %s", a.Format)
		}
		if len(a.Members) == 0 {
			row("member", "none now")
		}
		for _, m := range a.Members {
			row("member", "%s", memberWords(&m, st.At))
		}
		for k := range a.Lanes {
			row("lane", "%s", sharedLaneWords(&a.Lanes[k]))
		}
	}
	for i := range st.Jobs {
		st.Jobs[i].rows(func(line string) { lines = append(lines, line) }, row)
	}
	return lines
}

// memberWords says who a member is.
func memberWords(m *cluster.Member, now time.Time) string {
	text := fmt.Sprintf("%s at %s (pid %d", cmp.Or(m.Role, "somebody"), cmp.Or(m.Host, "-"), m.PID)
	if m.Version != "" {
		text += ", " + m.Version
	}
	return text + "), for " + prose.Span(now.Sub(m.Since))
}

// sharedLaneWords says how a lane stands.
func sharedLaneWords(l *cluster.LaneStatus) string {
	text := cmp.Or(l.Lane, "all together") + ": " + prose.Count(l.Open, "call") + " in flight"
	if l.Slots > 0 {
		text = fmt.Sprintf("%s: %d of %d slots", cmp.Or(l.Lane, "all together"), l.Open, l.Slots)
	}
	if l.Waiting > 0 {
		text += fmt.Sprintf(", %s in line", prose.Count(l.Waiting, "member"))
	}
	switch {
	case l.CooldownMS > 0:
		text += fmt.Sprintf(", pauses for %s (%s)", prose.Span(time.Duration(l.CooldownMS)*time.Millisecond), l.Why)
	case l.Probing:
		text += ", tests the limit"
	}
	for _, b := range l.Budgets {
		text += fmt.Sprintf("; %s paced at %s, %s available", b.Dimension, prose.Group(math.Round(b.Pace)), prose.Group(math.Floor(b.Level)))
	}
	return text
}

// rows says how a job stands.
func (j *jobStatus) rows(line func(string), row func(name, format string, args ...any)) {
	line("job " + j.Job)
	if j.Version != 0 {
		row("keys", "the keys in Redis have the unknown version %d", j.Version)
		return
	}
	switch c := j.Collector; {
	case c == nil:
		row("collector", "none")
	case c.Alive:
		row("collector", "%s (pid %d)", c.Host, c.PID)
	default:
		row("collector", "process %[2]d on %[1]s ended: resume the run with the same command and the same files", c.Host, c.PID)
	}
	row("items", "%s queued, %s at workers, %s delayed, %s with unrecorded results; %s done", prose.Group(j.Queued), prose.Group(j.Held), prose.Group(j.Delayed),
		prose.Group(j.Results), prose.Group(j.Done))
	if j.Poisoned > 0 {
		row("given up", "%s, because workers died while processing them", prose.Count(j.Poisoned, "item"))
	}
	if len(j.Workers) == 0 {
		row("worker", "none")
	}
	for _, w := range j.Workers {
		row("worker", "%s (pid %d): %s, seen %s ago", w.Host, w.PID, prose.Count(w.Held, "item"), prose.Span(time.Duration(w.SeenMS)*time.Millisecond))
	}
}
