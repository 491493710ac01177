package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Version is the version of the keys of a job. Collectors and workers of different versions refuse each other.
const Version = 1

// Bounds of a batch's queue. The largest payload leaves room below the engine's own bound (proto-max-bulk-len, 512 MB) for
// batches of them; the bytes of a window are what an engine of a gigabyte can hold beside the results.
const (
	MaxPayload    = 8 << 20   // bytes of one task's payload, or of one result
	MaxWindow     = 100_000   // tasks that one job may have in the engine
	DefaultWindow = 16_384    // tasks
	MaxBytes      = 256 << 20 // bytes of the payloads of one job's tasks in the engine, and as many of its results
	MaxDeliveries = 3         // workers that a task may take down with it before it is given up as poison
)

// terms are how long a collector, or a worker with its tasks, is believed to live after a sign of life, and how often it gives
// one. A lease of three renewals outlives two lost ones.
type terms struct{ lease, renewal time.Duration }

func (t terms) orUsual() terms {
	if t == (terms{}) {
		return terms{lease: gate.Lease, renewal: gate.Heartbeat}
	}
	return t
}

// Task is one item of a distributed batch.
type Task struct {
	// Number is the item's place in the input, from 0. It names the task: one number is one result.
	// It must be below 1<<32, the engine's bound for a bitmap.
	Number int64

	// Payload is what a worker needs to do it, at most MaxPayload bytes.
	Payload []byte

	// Deliveries is the number of workers that were given the task, this one included. A worker that gave it back by Later or Return
	// is not counted. A collector leaves it alone.
	Deliveries int

	// ID is the task's place in the engine's stream. A collector leaves it alone.
	ID string

	// Job is what the task belongs to. A collector leaves it alone.
	Job *Job

	gone chan struct{} // of a Worker: closed when the task is not its own any more
}

// Job is what a worker knows of a batch.
type Job struct {
	Name     string
	Input    string // as in JobConfig
	Settings []byte // as in JobConfig

	served *served // by the Worker that knows it
}

// Outcome is what became of a task.
type Outcome struct {
	Number     int64
	Payload    []byte // what the worker gave to Complete; empty when Poison
	Poison     bool   // MaxDeliveries workers were lost while they had it: no worker gets it again
	Withdrawn  bool   // it was taken back before any worker had it
	Deliveries int    // as in Task
	Worker     string // of a poisoned task: who had it last
}

// ErrFenced is returned to a collector whose place another one has taken, after it had not renewed its lease. It can do nothing
// any more: neither add nor remove.
var ErrFenced = errors.New("another collector has taken over this job")

// ErrOtherInput is returned by Collect for a job that was begun with another JobConfig.Input, never finished, and of which the engine
// still has tasks or results.
var ErrOtherInput = errors.New("the job was begun with another input: finish it, or take another name")

// ErrNoWorkers ends a run whose last worker stopped for a cause, such as a key that was rejected.
var ErrNoWorkers = errors.New("every worker has stopped")

// ErrClosed is returned by a Ledger, Collector or Worker that is closed, also to who waited at it by then.
var ErrClosed = errors.New("closed")

// HeldError is returned by Collect while another collector of the job is alive.
type HeldError struct {
	Job  string
	Host string
	PID  int
}

// Error names the process that collects the job.
func (e *HeldError) Error() string {
	return fmt.Sprintf("job %q is collected by process %d on %s: wait until it ends, or stop it", e.Job, e.PID, e.Host)
}

// TooLargeError is returned by Add and Complete for a payload above MaxPayload. Other tasks are not touched.
type TooLargeError struct {
	Number int64 // of the task
	Bytes  int   // of its payload
}

// Error says how large the payload is, and how large it may be.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("item %d has %d bytes: the maximum in Redis is %d", e.Number, e.Bytes, MaxPayload)
}

// VersionError is returned by Collect and Next for a job that a Sluice of another protocol version has begun.
type VersionError struct {
	Job  string
	Has  int // the job's version
	Want int // ours
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("job %q is of protocol version %d, this Sluice speaks %d: use one release on every host", e.Job, e.Has, e.Want)
}
