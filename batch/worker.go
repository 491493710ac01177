package batch

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Tasks gives a Worker its tasks, and takes their answers. It must be safe for concurrent use.
type Tasks interface {
	// All gives tasks with their Terms, until there are no more or ctx ends. Its error ends intake. All must wait in work.Await only, so
	// that tasks that were put aside continue.
	All(ctx context.Context) iter.Seq2[*Task, error]

	// Holds is called before each attempt, and reports whether this Worker may make it. Otherwise, Done gets no Answer.
	Holds(t *Task) bool

	// Done takes the answer of a task; nil if this Worker no longer holds it. It must be quick. A task without a call of Done remains,
	// for example for another Worker.
	Done(t *Task, a *Answer)
}

// Worker makes the calls of Tasks. Drain and Progress are safe for concurrent use.
type Worker struct {
	live   *live
	tasks  Tasks
	parser *parser // of the feeding goroutine

	mu    sync.Mutex
	open  map[int64]*workerTask // by its place in the Runner's source
	taken int64
}

// workerTask is a task that is open.
type workerTask struct {
	*Task
	item work.Item
}

// UnservedError stops a Worker if no upstream of its Config serves the model of a task.
type UnservedError struct {
	Problem string
	Advice  string
}

// Error says what is not served.
func (e *UnservedError) Error() string { return "this worker cannot run a task: " + e.Problem }

// Hint says what can be done.
func (e *UnservedError) Hint() string { return e.Advice }

// FaultCode is the code of the error in the catalogue of errors.
func (e *UnservedError) FaultCode() string { return fault.Provider }

// NewWorker returns a Worker. It takes of cfg what says where calls go and who looks on: Provider, Registry, BaseURL, Key,
// Scheduler, Upstreams, Price, Transport, ExtraHeader, Model, Workers, Observer and Logger. The Terms of a task limit its attempts.
func NewWorker(cfg Config, tasks Tasks) (*Worker, error) {
	switch {
	case cfg.Scheduler == nil && cfg.Upstreams == nil:
		return nil, &FieldError{Field: "Scheduler", Err: errMissing}
	case tasks == nil:
		return nil, errors.New("batch: NewWorker needs tasks")
	}
	cfg.complete()
	w := &Worker{
		live: newLive(&cfg), tasks: tasks, open: make(map[int64]*workerTask),
		parser: &parser{cfg: &cfg, models: make(map[string]*model)},
	}
	runner, err := work.New(work.Config{
		Handler: work.NewCalls(work.CallsConfig{Route: w.live.send, Attempt: w.attempt}),
		Feed:    w.feed, Reload: w.again, Lanes: anyLanes, Queue: held, Workers: cfg.Workers, Accept: w.live.accept, OnResult: w.done,
		Observer: cfg.Observer, Name: "worker", Logger: cfg.Logger,
	})
	w.live.runner = runner
	return w, err
}

// held is the number of tasks of a lane that wait for a goroutine, in addition to those that wait for a permit. It is small, because
// other workers may be free.
const held = 16

// anyLanes is a number of lanes that is never met, so that items of a full lane are put aside and do not delay others.
const anyLanes = 1 << 20

// Run does tasks until there are no more, and returns what work.Runner.Run returns, an *UnreachableError, or an *UnservedError.
func (w *Worker) Run(ctx context.Context) (work.Report, error) {
	rep, err := w.live.runner.Run(ctx)
	if gone, ok := errors.AsType[*UnreachableError](err); ok {
		gone.Recorded = rep.Done + rep.Failed
		err = gone
	}
	return rep, err
}

// Drain stops intake and lets open calls finish. It returns at once.
func (w *Worker) Drain() { w.live.runner.Drain() }

// Progress says how many tasks were done.
func (w *Worker) Progress() work.Report { return w.live.runner.Report() }

// feed gives the items of tasks.
func (w *Worker) feed(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		for t, err := range w.tasks.All(ctx) {
			if err != nil {
				yield(work.Item{}, err)
				return
			}
			item, err := w.item(t)
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// item makes the item of a task.
func (w *Worker) item(t *Task) (work.Item, error) {
	est, err := provider.Estimate(t.Endpoint, t.Body)
	item := work.Item{ID: t.ID, Hash: t.Hash, Lane: t.Model, Cost: est.Cost, Size: len(t.Body), Again: t.Again, Withdrawn: t.Withdrawn}
	if err != nil {
		item.Given = &work.Given{Err: &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.BadRequest, Err: err}}}
		return w.take(t, item), nil
	}
	rq := request{endpoint: t.Endpoint}
	bad := w.parser.recognise(&rq, []byte(t.Model))
	if bad == nil {
		bad = w.parser.fits(&rq)
	}
	if bad != nil {
		return item, &UnservedError{Problem: bad.Text, Advice: cmp.Or(bad.Hint, "start this worker with a --provider or upstreams that serve the model")}
	}
	to, err := w.live.route(rq.provider)
	item.Lane, item.Data = rq.model, &call{endpoint: t.Endpoint, body: t.Body, bound: t.Bound, stream: est.Stream, terms: t.Terms, route: to}
	return w.take(t, item), err
}

// take notes a task that is open, and numbers its item.
func (w *Worker) take(t *Task, item work.Item) work.Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken++
	item.Seq = w.taken
	w.open[w.taken] = &workerTask{t, item}
	return item
}

// attempt makes an attempt at a task, if it may still be started here.
func (w *Worker) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	w.mu.Lock()
	t := w.open[item.Seq].Task
	w.mu.Unlock()
	if !w.tasks.Holds(t) {
		return work.Result{Data: item.Data}, sluice.Outcome{
			Kind: sluice.Network, Err: sluice.ErrWithdrawn, Unsent: true, Abandoned: true, Final: true,
		}
	}
	return w.live.attempt(ctx, permit, item)
}

// again returns the item of a task that was put aside, while its model paused and others went on.
func (w *Worker) again(seq, _ int64) (work.Item, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[seq].item, nil
}

// done hands over what came of a task.
func (w *Worker) done(r *work.Result) {
	w.mu.Lock()
	t := w.open[r.Seq]
	delete(w.open, r.Seq)
	w.mu.Unlock()
	if errors.Is(r.Err, sluice.ErrWithdrawn) {
		w.tasks.Done(t.Task, nil)
		return
	}
	a := &Answer{
		Input: r.Hash.String(), Kind: r.Kind, Scope: work.ScopeOf(r.Err), Message: message(r.Err), Tally: r.Tally,
		Response: r.Response, Charge: r.Charge,
	}
	if c, ok := t.item.Data.(*call); ok {
		a.Unmetered = c.unmetered
	}
	w.tasks.Done(t.Task, a)
}
