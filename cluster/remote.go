package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
)

// Remote is a batch.Remote that sends the items of a run to workers and receives their results. A Remote is safe for concurrent use.
// The Cluster's Logger gets warnings.
type Remote struct {
	job       JobConfig
	collector *Collector // nil until Start
	watch     *watch
	stop      context.CancelFunc // ends the receiving
	wg        sync.WaitGroup

	recall  chan struct{} // has room for one: items that no worker has are to be taken back
	stopped chan error    // gives one of the waiting items the error with which the run ends

	mu   sync.Mutex
	open map[int64]*handed
	gone chan struct{} // closed when no result will come,
	err  error         // because of this
}

// NewRemote returns a Remote for a job. Call Start before Do and Recorded.
func NewRemote(job JobConfig) *Remote {
	return &Remote{job: job, recall: make(chan struct{}, 1), stopped: make(chan error), open: make(map[int64]*handed), gone: make(chan struct{})}
}

// Job returns the name of the job.
func (r *Remote) Job() string { return r.job.Name }

// Start starts or resumes the job with at.Collect, and starts to receive results. Start returns the errors of Collect.
func (r *Remote) Start(ctx context.Context, at *Cluster) (err error) {
	if r.collector, err = at.Collect(ctx, r.job); err != nil {
		return err
	}
	r.watch = newWatch(ctx, at)
	life, stop := context.WithCancel(context.WithoutCancel(ctx)) // results are received also while the run is cut short
	r.stop = stop
	r.wg.Go(func() { r.receive(life) })
	r.wg.Go(func() { r.withdraw(life) })
	r.wg.Go(func() { r.awaitWorkers(life) })
	return nil
}

// withdraw takes back items that no worker has, each time it is asked to: items may be handed over while others are taken back.
func (r *Remote) withdraw(ctx context.Context) {
	for first := true; ; first = false {
		select {
		case <-r.recall:
		case <-ctx.Done():
			return
		}
		if first {
			r.wg.Go(func() { r.giveUp(ctx) })
		}
		if err := r.collector.Withdraw(ctx); err != nil && ctx.Err() == nil {
			r.collector.link.log.Warn("items that wait for a worker cannot be withdrawn", "error", err)
		}
	}
}

// giveUp stops the receiving of a run that is stopping when Redis has not answered for finishWithin: results may then never come.
// The items stay in Redis for the next run.
func (r *Remote) giveUp(ctx context.Context) {
	for r.watch.silence() < finishWithin {
		if wake.In(ctx, watchInterval, nil) != nil {
			return
		}
	}
	r.collector.link.log.Warn(fmt.Sprintf("Redis at %s has not responded for %s: the next run collects the results of unfinished items", r.watch.at, finishWithin))
	_ = r.collector.Close() // Close calls it again, and reports the same
}

// awaitWorkers ends the run when all workers have stopped for a cause.
func (r *Remote) awaitWorkers(ctx context.Context) {
	for wake.In(ctx, watchInterval, nil) == nil {
		if why := r.watch.job(r.job.Name).Stopped; why != "" {
			select {
			case r.stopped <- fmt.Errorf("%w: %s", ErrNoWorkers, why):
			case <-ctx.Done():
			}
			return
		}
	}
}

// handed is an item that workers have.
type handed struct {
	hash   work.Hash
	done   chan struct{} // closed when the item is finished:
	answer *batch.Answer // with this,
	err    error         // or this
}

// receive gives every outcome to the Do that waits for it. It parses outcomes here and not in the waiting goroutines: parsing needs
// much of the stack, and thousands of goroutines wait.
func (r *Remote) receive(ctx context.Context) {
	err := ErrClosed
	for o, last := range r.collector.Results(ctx) {
		if last != nil {
			err = last
			break
		}
		r.mu.Lock()
		h := r.open[o.Number]
		delete(r.open, o.Number)
		r.mu.Unlock()
		if h != nil {
			h.answer, h.err = parseOutcome(&o, h.hash)
			close(h.done)
		}
	}
	r.err = err
	close(r.gone)
}

// Do submits an item, removes its body from t, and waits for the outcome. If no worker got the item, the error is batch.ErrWithdrawn.
func (r *Remote) Do(ctx context.Context, t *batch.Task) (*batch.Answer, error) {
	number := int64(t.Number - 1)
	h := &handed{hash: t.Hash, done: make(chan struct{})}
	r.mu.Lock()
	r.open[number] = h
	r.mu.Unlock()
	if err := r.add(ctx, number, t); err != nil {
		r.mu.Lock()
		delete(r.open, number)
		r.mu.Unlock()
		if long, ok := errors.AsType[*TooLargeError](err); ok {
			return &batch.Answer{Kind: sluice.BadRequest, Message: long.Error()}, nil
		}
		return nil, err
	}
	for withdrawn := t.Withdrawn; ; {
		select {
		case <-h.done:
			return h.answer, h.err
		case <-withdrawn:
			wake.Up(r.recall)
			withdrawn = nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err := <-r.stopped:
			return nil, err
		case <-r.gone:
			return nil, r.err
		}
	}
}

// add hands a task over, and drops its body: the payload has a copy.
func (r *Remote) add(ctx context.Context, number int64, t *batch.Task) error {
	payload := batch.AppendTask(nil, t)
	t.Body = nil
	return r.collector.Add(ctx, Task{Number: number, Payload: payload})
}

// parseOutcome parses an outcome. Others can write to Redis, so nothing in it is trusted.
func parseOutcome(o *Outcome, hash work.Hash) (*batch.Answer, error) {
	switch {
	case o.Withdrawn:
		return nil, batch.ErrWithdrawn
	case o.Poison:
		return &batch.Answer{Kind: sluice.Internal, Message: fmt.Sprintf("Sluice gave up: %d workers were lost while they processed the item, the last was %s", o.Deliveries, o.Worker)}, nil
	}
	a, err := batch.ParseAnswer(o.Payload)
	switch {
	case err != nil:
		return &batch.Answer{Kind: sluice.Internal, Message: fmt.Sprintf("the result of worker %s cannot be read: %v", o.Worker, err)}, nil
	case a.Refused:
	case a.Input != hash.String():
		return &batch.Answer{Kind: sluice.Internal, Message: "the line changed after the job started: the result belongs to the earlier request"}, nil
	}
	return a, nil
}

// Recorded removes the results of stored items from Redis. The numbers are values of batch.Task.Number.
func (r *Remote) Recorded(numbers []int) {
	all := make([]int64, len(numbers))
	for i, n := range numbers {
		all[i] = int64(n - 1)
	}
	r.collector.Recorded(all...)
}

// finishWithin is the longest wait for Redis at the end of a run: longer than a restart of Redis takes.
const finishWithin = 10 * time.Second

// Close stops the Remote. If done is true, Close removes the job from Redis, within 10 s. If done is false, the next run can resume
// the job. Close does nothing before Start, and on nil.
func (r *Remote) Close(ctx context.Context, done bool) error {
	if r == nil || r.collector == nil {
		return nil
	}
	var err error
	if done {
		last, cancel := context.WithTimeout(ctx, finishWithin)
		if r.collector.Finish(last) != nil {
			err = fmt.Errorf("job %s is done, but Redis does not respond: run the same command again to remove the job", r.job.Name)
		}
		cancel()
	}
	err = errors.Join(err, r.collector.Close())
	r.stop()
	r.wg.Wait()
	r.watch.close()
	return err
}

// RemoteStatus is the state of the items that a Remote has submitted.
type RemoteStatus struct {
	Workers  int    // live workers
	InFlight int    // items at workers
	Waiting  int    // number of items that wait for a worker
	Away     string // message if Redis has not responded for 3 s, otherwise ""
}

// Status returns the state of the submitted items. Before Start, and on nil, Status returns nil.
func (r *Remote) Status() *RemoteStatus {
	if r == nil || r.collector == nil {
		return nil
	}
	j, open := r.watch.job(r.job.Name), r.collector.queued()
	st := &RemoteStatus{InFlight: min(j.Held, open), Away: r.watch.away()} // results may have come since the watch looked
	st.Waiting = open - st.InFlight
	for _, w := range j.Workers {
		if w.Alive {
			st.Workers++
		}
	}
	return st
}
