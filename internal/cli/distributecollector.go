package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/work"
)

// collector is the Remote of a run whose calls workers make: it hands them over, and takes what comes of them. It is safe for
// concurrent use.
type collector struct {
	s    *streams
	job  cluster.JobConfig
	end  *cluster.Collector // nil until begin
	look *jobWatch
	life context.Context // of the receiving,
	stop context.CancelFunc
	wg   sync.WaitGroup

	recall chan struct{} // what no worker has is to be taken back; has room for one

	mu   sync.Mutex
	open map[int64]*handed
	gone chan struct{} // closed when no more will come,
	err  error         // because of this
}

func newCollector(s *streams, job cluster.JobConfig) *collector {
	return &collector{s: s, job: job, recall: make(chan struct{}, 1), open: make(map[int64]*handed), gone: make(chan struct{})}
}

// begin becomes the collector of the job, and begins to receive.
func (c *collector) begin(ctx context.Context, at *cluster.Cluster) (err error) {
	if c.end, err = at.Collect(ctx, c.job); err != nil {
		return explainJob(err, c.job.Name)
	}
	for _, doubt := range at.Doubts() {
		c.s.errorf("sluice: warning: %s\n", doubt)
	}
	c.look = watchJobs(ctx, at)
	c.life, c.stop = context.WithCancel(context.WithoutCancel(ctx)) // what comes while the run is cut short is received, too
	c.wg.Go(func() { c.receive(c.life) })
	c.wg.Go(func() { c.withdraw(c.life) })
	return nil
}

// withdraw takes back what no worker has, whenever that is asked for: a call may be handed over while others are taken back.
func (c *collector) withdraw(ctx context.Context) {
	for first := true; ; first = false {
		select {
		case <-c.recall:
		case <-ctx.Done():
			return
		}
		if first {
			c.wg.Go(func() { c.giveUp(ctx) })
		}
		if err := c.end.Withdraw(ctx); err != nil && ctx.Err() == nil {
			c.s.errorf("sluice: warning: calls that no worker has cannot be taken back: %s\n", err)
		}
	}
}

// giveUp ends the receiving of a run that ends once its engine has not answered for finishWithin: nobody knows then whether
// what workers have will come. It stays where it is, for the next run.
func (c *collector) giveUp(ctx context.Context) {
	tick := time.NewTicker(jobsEvery)
	defer tick.Stop()
	for c.look.silence() < finishWithin {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	c.s.errorf("sluice: the engine at %s has not answered for %s: what was handed out is left to the next run\n", c.look.at, span(finishWithin))
	_ = c.end.Close() // it is closed again, which says the same
}

// handed is a call that workers were handed.
type handed struct {
	hash   work.Hash
	done   chan struct{} // closed when it is over:
	answer *batch.Answer // with this,
	err    error         // or this
}

// receive gives every outcome to whoever waits for it. It reads them here, and not in the goroutine that waits: reading takes
// much of the stack, and of those there are thousands.
func (c *collector) receive(ctx context.Context) {
	err := cluster.ErrClosed
	for o, last := range c.end.Results(ctx) {
		if last != nil {
			err = last
			break
		}
		c.mu.Lock()
		h := c.open[o.Number]
		delete(c.open, o.Number)
		c.mu.Unlock()
		if h != nil {
			h.answer, h.err = c.read(&o, h.hash)
			close(h.done)
		}
	}
	c.err = explainJob(err, c.job.Name)
	close(c.gone)
}

// Do hands a call over and waits for its outcome.
func (c *collector) Do(ctx context.Context, t *batch.Task) (*batch.Answer, error) {
	number := int64(t.Number - 1)
	h := &handed{hash: t.Hash, done: make(chan struct{})}
	c.mu.Lock()
	c.open[number] = h
	c.mu.Unlock()
	if err := c.add(ctx, number, t); err != nil {
		c.mu.Lock()
		delete(c.open, number)
		c.mu.Unlock()
		if long, ok := errors.AsType[*cluster.TooLargeError](err); ok {
			return &batch.Answer{Kind: sluice.BadRequest, Message: long.Error()}, nil
		}
		return nil, explainJob(err, c.job.Name)
	}
	for withdrawn := t.Withdrawn; ; {
		select {
		case <-h.done:
			return h.answer, h.err
		case <-withdrawn:
			select {
			case c.recall <- struct{}{}:
			default: // whoever takes back has not begun yet
			}
			withdrawn = nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.gone:
			return nil, c.err
		}
	}
}

// add hands a task over. As it crosses, its body is there once more, and is not kept here.
func (c *collector) add(ctx context.Context, number int64, t *batch.Task) error {
	payload := batch.AppendTask(nil, t)
	t.Body = nil
	return c.end.Add(ctx, cluster.Task{Number: number, Payload: payload})
}

// read reads an outcome. Whatever stands in it is of a store that others can write to.
func (c *collector) read(o *cluster.Outcome, hash work.Hash) (*batch.Answer, error) {
	switch {
	case o.Withdrawn:
		return nil, batch.ErrWithdrawn
	case o.Poison:
		return &batch.Answer{Kind: sluice.Internal, Message: fmt.Sprintf("given up: %d workers were lost while they had it, the last was %s", o.Deliveries, o.Worker)}, nil
	}
	a, err := batch.ParseAnswer(o.Payload)
	switch {
	case err != nil:
		return &batch.Answer{Kind: sluice.Internal, Message: fmt.Sprintf("what worker %s made of it cannot be read: %v", o.Worker, err)}, nil
	case a.Refused:
	case a.Input != hash.String():
		return &batch.Answer{Kind: sluice.Internal, Message: "the answer is that of another request, which the line had when the job was begun: try it again"}, nil
	}
	return a, nil
}

// Recorded lets go of results that are on the disk.
func (c *collector) Recorded(numbers []int) {
	all := make([]int64, len(numbers))
	for i, n := range numbers {
		all[i] = int64(n - 1)
	}
	c.end.Recorded(all...)
}

// finishWithin is how long a run that is done, or is to end, waits for its engine: longer than a restart takes, and not for ever.
const finishWithin = 10 * time.Second

// close ends it. A job of which nothing is left is removed; what else there is stays for the next run.
func (c *collector) close(ctx context.Context, done bool) error {
	if c == nil || c.end == nil {
		return nil
	}
	var err error
	if done {
		last, cancel := context.WithTimeout(ctx, finishWithin)
		if c.end.Finish(last) != nil {
			err = fmt.Errorf("job %s is done, and its engine is not there to be told: run the same again to have the job removed", c.job.Name)
		}
		cancel()
	}
	err = errors.Join(err, c.end.Close())
	c.stop()
	c.wg.Wait()
	c.look.close()
	return err
}

// status is how the calls stand that workers make; nil where they are made here.
func (c *collector) status(throttles int) *farStatus {
	if c == nil || c.end == nil {
		return nil
	}
	j, open := c.look.job(c.job.Name), c.end.Counts().Queued
	st := &farStatus{inFlight: min(j.Held, open), throttles: throttles, away: c.look.gone()} // results came since that look
	st.waiting = open - st.inFlight
	for _, w := range j.Workers {
		if w.Alive {
			st.workers++
		}
	}
	return st
}

// explainJob gives an error of a job its exit code and a hint.
func explainJob(err error, job string) error {
	e := &exitError{code: exitFailed, err: err}
	held, isHeld := errors.AsType[*cluster.HeldError](err)
	switch {
	case isHeld:
		e.code, e.err = exitUsage, fmt.Errorf("job %q is collected by process %d on host %s", job, held.PID, held.Host)
		e.hint = "wait for that run to end, or stop it; or give this one a name and an output of its own: --job NAME -o OUT.jsonl"
	case errors.Is(err, cluster.ErrOtherInput):
		e.code, e.err = exitUsage, fmt.Errorf("job %q was begun with another input or other settings, and has calls or results that nobody recorded", job)
		e.hint = "run it as it was begun, to record them; or take another name to begin anew: --job NAME"
	case errors.Is(err, cluster.ErrFenced):
		e.err = fmt.Errorf("another run has taken job %q over, while this one was not heard of", job)
		e.hint = "what is recorded is kept; that other run goes on with the rest. Run one at a time"
	case isAny[*cluster.VersionError](err):
		e.code, e.hint = exitUsage, "use one release of sluice on all hosts"
	case isAny[*cluster.Error](err):
		return explainEngine(err, "--redis")
	default:
		return err
	}
	return e
}
