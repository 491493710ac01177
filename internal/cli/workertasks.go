package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/work"
)

// taskSource is where a worker's tasks come from: all jobs of a cluster, or one. It is safe for concurrent use.
type taskSource struct {
	s    *streams
	o    *workerOptions
	from *cluster.Worker
	look *jobWatch

	abandoned context.Context // ends when results are not even handed over; set before the first task

	news chan struct{} // something happened

	lane func(model string) sluice.LaneSnapshot // how a model's lane is; set before the first task

	mu     sync.Mutex
	open   map[*batch.Task]cluster.Task // that were given, and are not done
	models map[string]int               // how many of them are not answered
	seen   map[string]time.Time         // when a model was last asked for
	left   map[string]time.Time         // since when a model that pauses here is left to others
	terms  map[string]*jobTerms         // by name and settings of the job
	warned map[string]bool
	idle   time.Time // when there last was something to do
}

// jobTerms are the terms of a job, or what is wrong with them.
type jobTerms struct {
	terms *batch.Terms
	err   error
}

func newTaskSource(ctx context.Context, s *streams, at *cluster.Cluster, o *workerOptions) (*taskSource, error) {
	var cfg cluster.WorkConfig
	if o.job != "" {
		cfg.Jobs = []string{o.job}
	}
	w, err := at.Work(ctx, cfg)
	if err != nil {
		return nil, explainJob(err, o.job)
	}
	return &taskSource{
		s: s, o: o, from: w, look: watchJobs(ctx, at), abandoned: ctx, idle: time.Now(), news: make(chan struct{}, 1),
		models: make(map[string]int), seen: make(map[string]time.Time), left: make(map[string]time.Time),
		open: make(map[*batch.Task]cluster.Task), terms: make(map[string]*jobTerms), warned: make(map[string]bool),
	}, nil
}

// A worker has so many tasks of a model beside twice those that are in flight: what it begins next. Others are left to others, and
// asked for again soon, or, where the model pauses here for longer, later: see leave.
const (
	ready     = 32
	leftAbove = 5 * time.Second
	leftFor   = 30 * time.Second
	leftSoon  = time.Second
	recently  = time.Minute // a model was asked for: while there are several, none holds up the others
)

// All gives tasks until ctx ends, or what --max-items and --idle-exit say is so.
func (t *taskSource) All(ctx context.Context) iter.Seq2[*batch.Task, error] {
	return func(yield func(*batch.Task, error) bool) {
		f := t.fetch(ctx)
		defer f.stop()
		for n := 0; t.o.maxItems == 0 || n < t.o.maxItems; n++ {
			task, err := t.next(ctx, f)
			if task == nil && err == nil {
				return
			}
			if !yield(task, err) || err != nil {
				return
			}
		}
	}
}

// next returns a task that can be done. Neither a task nor an error is the end.
func (t *taskSource) next(ctx context.Context, f *fetching) (*batch.Task, error) {
	for {
		got, ok := t.await(ctx, f)
		switch {
		case !ok:
			return nil, nil
		case got.err != nil && ctx.Err() != nil:
			return nil, nil
		case got.err != nil:
			return nil, explainJob(got.err, t.o.job)
		}
		task, err := t.read(ctx, got.task)
		if task != nil || err != nil {
			return task, err
		}
	}
}

// await waits for a task to be fetched. It says false at the end of ctx, and when there was nothing to do for long enough.
func (t *taskSource) await(ctx context.Context, f *fetching) (*fetched, bool) {
	for {
		select {
		case got := <-f.tasks:
			if !got.claim() {
				continue // it is given back
			}
			close(got.taken)
			t.mu.Lock()
			t.idle = time.Now()
			t.mu.Unlock()
			return got, true
		default:
		}
		t.mu.Lock()
		if len(t.open) > 0 {
			t.idle = time.Now() // it is, at the earliest, from now on
		}
		left := t.o.idleExit - time.Since(t.idle)
		t.mu.Unlock()
		if t.o.idleExit > 0 && left <= 0 || t.wait(ctx, left) != nil {
			return nil, false
		}
	}
}

// wait waits until something happens, or so long; 0 and less is for ever. It lets the worker place what it has put aside.
func (t *taskSource) wait(ctx context.Context, long time.Duration) error {
	if long > 0 {
		defer time.AfterFunc(long, t.poke).Stop()
	}
	return work.Await(ctx, t.news)
}

// poke says that something happened.
func (t *taskSource) poke() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// begins waits until a task for a model can be begun soon. It says for how long to leave it to others where that is not so.
func (t *taskSource) begins(ctx context.Context, model string) (later time.Duration, err error) {
	for {
		now := time.Now()
		lane := t.lane(model)
		t.mu.Lock()
		t.seen[model] = now
		maps.DeleteFunc(t.seen, func(_ string, at time.Time) bool { return now.Sub(at) > recently })
		maps.DeleteFunc(t.left, func(model string, _ time.Time) bool { return t.seen[model].IsZero() })
		several, room := len(t.seen) > 1, t.models[model] < 2*lane.InFlight+ready
		pause := lane.Until.Sub(now)
		if pause <= leftAbove {
			delete(t.left, model)
		} else if t.left[model].IsZero() {
			t.left[model] = now
		}
		since := now.Sub(t.left[model])
		t.mu.Unlock()
		switch {
		case pause > leftAbove:
			return leave(pause, since), nil
		case room:
			return 0, nil
		case several:
			return leftSoon, nil
		}
		if err := t.wait(ctx, lanesAge); err != nil { // whether it pauses shows by then
			return 0, err
		}
	}
}

// leave is for how long a task is left to others whose model pauses here for so long yet, and has been left for so long. What is due
// again is given before what is new: if all came back after leftFor, a worker that cannot put the model's tasks aside within that
// would never see those of another one behind them. As it is, two of three tasks that it is given are new.
func leave(pause, since time.Duration) time.Duration { return min(pause, leftFor+2*since) }

// read makes of what was fetched a task that can be done, or else nothing: then it is answered, or given back.
func (t *taskSource) read(ctx context.Context, c cluster.Task) (*batch.Task, error) {
	terms, err := t.termsOf(c.Job)
	if err != nil {
		t.warn("job %s is left to others: %v", c.Job.Name, err)
		if t.o.job != "" {
			t.giveBack(c)
			return nil, usageError(fmt.Errorf("job %s: %w", c.Job.Name, err), "use one release of sluice on all hosts")
		}
		const others = 5 * time.Second // for whom they are
		return nil, t.insist(ctx, t.from.Later(ctx, c, others))
	}
	task, err := batch.ParseTask(c.Payload)
	if err != nil {
		t.s.errorf("sluice: warning: job %s, line %d: a task is refused: %v\n", c.Job.Name, c.Number+1, err)
		refused := batch.Answer{Refused: true, Kind: sluice.BadRequest, Message: "a worker refused it: " + err.Error()}
		return nil, t.insist(ctx, t.from.Complete(ctx, c, batch.AppendAnswer(nil, &refused)))
	}
	switch leave, err := t.begins(ctx, task.Model); {
	case err != nil: // the end of the run
		t.giveBack(c)
		return nil, nil
	case leave > 0:
		return nil, t.insist(ctx, t.from.Later(ctx, c, leave))
	}
	task.Terms = terms
	c.Payload = nil // the task has what it needs of it
	t.mu.Lock()
	t.open[task] = c
	t.models[task.Model]++
	t.mu.Unlock()
	return task, nil
}

// insist passes on what an engine refused; the end of the run is none.
func (t *taskSource) insist(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// mostTerms bounds how many jobs' terms are kept.
const mostTerms = 100

// termsOf reads the terms of a job, once.
func (t *taskSource) termsOf(job *cluster.Job) (*batch.Terms, error) {
	key := job.Name + "\x00" + string(job.Settings)
	t.mu.Lock()
	known := t.terms[key]
	t.mu.Unlock()
	if known == nil {
		known = &jobTerms{}
		known.terms, known.err = batch.ParseTerms(job.Settings)
		t.mu.Lock()
		if len(t.terms) >= mostTerms {
			clear(t.terms)
		}
		t.terms[key] = known
		t.mu.Unlock()
	}
	return known.terms, known.err
}

// warn says something once.
func (t *taskSource) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.mu.Lock()
	again := t.warned[text]
	t.warned[text] = true
	t.mu.Unlock()
	if !again {
		t.s.errorf("sluice: warning: %s\n", text)
	}
}

// Done hands over what came of a task. While the engine is away it waits, and so does the worker.
func (t *taskSource) Done(task *batch.Task, a *batch.Answer) {
	t.mu.Lock()
	c := t.open[task]
	if t.models[task.Model]--; t.models[task.Model] == 0 {
		delete(t.models, task.Model)
	}
	t.mu.Unlock()
	t.poke()
	err := t.from.Complete(t.abandoned, c, batch.AppendAnswer(nil, a))
	if long, ok := errors.AsType[*cluster.TooLargeError](err); ok {
		a.Kind, a.Status, a.Payload = sluice.Internal, 0, nil
		a.Message = fmt.Sprintf("the answer has %d bytes, more than can be handed over", long.Bytes)
		err = t.from.Complete(t.abandoned, c, batch.AppendAnswer(nil, a))
	}
	if err != nil {
		return // the run is cut short: it is given back with the others
	}
	t.mu.Lock()
	delete(t.open, task)
	t.mu.Unlock()
	t.poke()
}

// lastWords is how long a worker that ends tries to give tasks back. Those that it cannot are given to others when it is not heard of.
const lastWords = 3 * time.Second

// giveBack returns a task for others.
func (t *taskSource) giveBack(c cluster.Task) error {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	return t.from.Return(ctx, c)
}

// close gives back what is open, and says how much that is.
func (t *taskSource) close() (returned int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	t.mu.Lock()
	open := t.open
	t.open = nil
	t.mu.Unlock()
	for _, c := range open {
		if err = t.from.Return(ctx, c); err != nil {
			err = fmt.Errorf("%d items could not be given back, and are given to others in a few seconds: %w", len(open)-returned, err)
			break
		}
		returned++
	}
	t.look.close()
	return returned, errors.Join(err, t.from.Close())
}

// note says what the worker waits for; "" when it does not.
func (t *taskSource) note() string {
	if gone := t.look.gone(); gone != "" {
		return gone
	}
	const atOnce = 2 * time.Second // that is no wait yet
	t.mu.Lock()
	idle := len(t.open) == 0 && time.Since(t.idle) > atOnce
	t.mu.Unlock()
	if !idle {
		return ""
	}
	if name := t.look.orphan(); name != "" {
		return fmt.Sprintf("waiting for calls: job %s is left, until its run is started again", name)
	}
	return "waiting for a run to hand out calls"
}
