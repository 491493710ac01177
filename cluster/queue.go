package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/gate"
)

// Version is the protocol version of jobs. A Collector or Worker rejects jobs of other versions with a *VersionError.
const Version = 1

// Limits of a job in Redis. MaxPayload keeps several payloads below the maximum length of a value in Redis (proto-max-bulk-len,
// 512 MB). MaxBytes keeps a job within a Redis with 1 GB of memory.
const (
	MaxPayload    = 8 << 20   // maximum length of a task's payload or result, in bytes
	MaxWindow     = 100_000   // maximum value of JobConfig.Window, in tasks
	DefaultWindow = 16_384    // default value of JobConfig.Window, in tasks
	MaxBytes      = 256 << 20 // maximum total length of a job's payloads in Redis, and of the job's results, in bytes
	MaxDeliveries = 3         // number of lost workers after which a task is given up
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
	// Number is the position of the item in the input, from 0, and identifies the task in its job. Number must be below 1<<32, the
	// limit of a bitmap in Redis.
	Number int64

	// Payload is the content for the worker, at most MaxPayload bytes.
	Payload []byte

	// Deliveries is the number of workers that have received the task, including this worker. A worker that returned the task with
	// Later or Return does not count. Add ignores Deliveries.
	Deliveries int

	// ID is the ID of the task's entry in the Redis stream. Add ignores ID.
	ID string

	// Job is the job that contains the task. Add ignores Job.
	Job *Job

	gone chan struct{} // of a Worker: closed when the task is not its own any more
}

// Job describes a job to a Worker. The fields of a Job have the values of the JobConfig.
type Job struct {
	Name     string // name of the job
	Input    string // value of JobConfig.Input
	Settings []byte // settings for all tasks

	served *served // by the Worker that knows it
}

// Outcome is the result of a task, or the reason for a missing result.
type Outcome struct {
	Number     int64  // number of the task
	Payload    []byte // result that the worker passed to Complete; empty if Poison or Withdrawn is true
	Poison     bool   // the task was given up, because MaxDeliveries workers were lost with the task
	Withdrawn  bool   // Withdraw removed the task before a worker received it
	Deliveries int    // number of workers that received the task, as in Task.Deliveries
	Worker     string // last worker that received the task, if Poison is true
}

// ErrFenced is returned by a Collector that did not renew its lease in time, after another Collector has taken over the job. After
// ErrFenced, all methods of the Collector fail.
var ErrFenced error = &jobError{"another run took over the job while this run could not reach Redis", "let the other run finish the remaining items", fault.Failed}

// ErrOtherInput is returned by Collect if an unfinished job has another JobConfig.Input, and Redis still has tasks or results of the
// job.
var ErrOtherInput error = &jobError{"the job was started with another input or other settings, and has requests or results that are not recorded",
	"run the first command again to record them, or use another output", fault.Job}

// ErrNoWorkers is returned by Remote.Do after the last worker stopped because of an error, such as a rejected API key.
var ErrNoWorkers error = &jobError{"every worker has stopped", "correct the cause, start a worker, and run the same command again", fault.Failed}

// ErrClosed is returned by methods of a closed Ledger, Collector or Worker, including methods that are waiting during Close.
var ErrClosed = errors.New("closed")

// jobError is an error of a job, with its hint and its code.
type jobError struct{ text, hint, code string }

func (e *jobError) Error() string     { return e.text }
func (e *jobError) Hint() string      { return e.hint }
func (e *jobError) FaultCode() string { return e.code }

// HeldError is returned by Collect while another Collector of the job is alive.
type HeldError struct {
	Job  string // name of the job
	Host string // host name of the live Collector
	PID  int    // process ID of the live Collector
}

// Error names the job and the process of its Collector.
func (e *HeldError) Error() string {
	return fmt.Sprintf("job %q is in use by process %d on host %s", e.Job, e.PID, e.Host)
}

// Hint returns advice.
func (e *HeldError) Hint() string { return "wait for that run, stop it, or use another output" }

// FaultCode is the code of the error in the catalogue of errors.
func (e *HeldError) FaultCode() string { return fault.Job }

// TooLargeError is returned by Add and Complete for a payload above MaxPayload. A TooLargeError does not affect other tasks.
type TooLargeError struct {
	Number int64 // number of the task
	Bytes  int   // length of the payload
}

// Error returns the number of the task, and the actual and maximum length of the payload.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("item %d has %d bytes, above the maximum of %d bytes", e.Number, e.Bytes, MaxPayload)
}

// VersionError is returned by Collect and Next for a job with another protocol version.
type VersionError struct {
	Job  string // name of the job
	Has  int    // protocol version of the job
	Want int    // protocol version of this package
}

// Error returns the name of the job and both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("job %q has protocol version %d, but this program has version %d: use the same release on every host", e.Job, e.Has, e.Want)
}

// Hint returns advice.
func (e *VersionError) Hint() string { return oneRelease }

// FaultCode is the code of the error in the catalogue of errors.
func (e *VersionError) FaultCode() string { return fault.Job }

const oneRelease = "use the same release of Sluice on all hosts"
