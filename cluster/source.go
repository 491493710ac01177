package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// SourceConfig configures a Source. Only Lane is required.
type SourceConfig struct {
	// Job is the name of the only job to serve. "" means all jobs, including future ones.
	Job string

	// MaxItems is the number of items after which All stops. 0 means no limit.
	MaxItems int

	// IdleExit is the time without items after which All stops. 0 means no limit.
	IdleExit time.Duration

	// Lane returns the state of a model's lane. During a cooldown above 5 s, the Source leaves the lane's items to other workers.
	Lane func(model string) limits.LaneSnapshot
}

// Source supplies a batch.Worker with items of jobs. A Source is safe for concurrent use. The Cluster's Logger gets warnings.
type Source struct {
	cfg   SourceConfig
	from  *Worker
	watch *watch

	life context.Context // of results that wait for Redis: Done has no context

	news chan struct{} // has room for one: something happened

	mu     sync.Mutex
	open   map[*batch.Task]Task // given and not finished
	models map[string]int       // number of open tasks without a result
	seen   map[string]time.Time // when a model was last asked for
	left   map[string]time.Time // since when a model that pauses here is left to other workers
	terms  map[string]*jobTerms // by name and settings of the job
	warned map[string]bool
	idle   time.Time // when there last was a task
}

// jobTerms are the terms of a job, or the error in them.
type jobTerms struct {
	terms *batch.Terms
	err   error
}

// TermsError is returned by Source.All if the job SourceConfig.Job has settings that this program cannot use.
type TermsError struct {
	Job string // name of the job
	Err error  // cause
}

// Error returns the name of the job and the cause.
func (e *TermsError) Error() string { return fmt.Sprintf("job %s: %v", e.Job, e.Err) }

// Unwrap returns the underlying error.
func (e *TermsError) Unwrap() error { return e.Err }

// Hint returns advice.
func (e *TermsError) Hint() string { return oneRelease }

// FaultCode is the code of the error in the catalogue of errors.
func (e *TermsError) FaultCode() string { return fault.Job }

// Source returns a Source, which must be closed. When ctx ends, Done stops waiting for Redis, and Close returns tasks to the queue.
func (c *Cluster) Source(ctx context.Context, cfg SourceConfig) (*Source, error) {
	var jobs []string
	if cfg.Job != "" {
		jobs = []string{cfg.Job}
	}
	w, err := c.Work(ctx, jobs...)
	if err != nil {
		return nil, err
	}
	return &Source{
		life: ctx, cfg: cfg, from: w, watch: newWatch(ctx, c), idle: time.Now(), news: make(chan struct{}, 1),
		models: make(map[string]int), seen: make(map[string]time.Time), left: make(map[string]time.Time),
		open: make(map[*batch.Task]Task), terms: make(map[string]*jobTerms), warned: make(map[string]bool),
	}, nil
}

// A worker holds twice the tasks of a model that are in flight, and ready more. It leaves further tasks to other workers, and asks
// for them again soon, or later if the model pauses here for longer: see leave.
const (
	ready     = 32
	leftAbove = 5 * time.Second
	leftFor   = 30 * time.Second
	leftSoon  = time.Second
	recently  = time.Minute // a model asked for within it counts: with several, none holds up the others
	lookAgain = 250 * time.Millisecond
)

// All yields tasks until ctx ends, or until MaxItems or IdleExit is reached. After an error, All stops. Pass every task to Done.
func (s *Source) All(ctx context.Context) iter.Seq2[*batch.Task, error] {
	return func(yield func(*batch.Task, error) bool) {
		f := s.fetch(ctx)
		defer f.stop()
		for n := 0; s.cfg.MaxItems == 0 || n < s.cfg.MaxItems; n++ {
			task, err := s.next(ctx, f)
			if task == nil && err == nil {
				return
			}
			if !yield(task, err) || err != nil {
				return
			}
		}
	}
}

// next returns a task that can start. It returns neither a task nor an error at the end.
func (s *Source) next(ctx context.Context, f *fetching) (*batch.Task, error) {
	for {
		got, ok := s.await(ctx, f)
		switch {
		case !ok:
			return nil, nil
		case got.err != nil && ctx.Err() != nil:
			return nil, nil
		case got.err != nil:
			return nil, got.err
		}
		task, err := s.read(ctx, got.task)
		if task != nil || err != nil {
			return task, err
		}
	}
}

// await waits for a fetched task. It returns false when ctx ends, and when IdleExit is reached.
func (s *Source) await(ctx context.Context, f *fetching) (*fetched, bool) {
	for {
		select {
		case got := <-f.tasks:
			if !got.claim() {
				continue // fetching gives it back
			}
			close(got.taken)
			s.mu.Lock()
			s.idle = time.Now()
			s.mu.Unlock()
			return got, true
		default:
		}
		s.mu.Lock()
		if len(s.open) > 0 {
			s.idle = time.Now() // idle time starts now at the earliest
		}
		left := s.cfg.IdleExit - time.Since(s.idle)
		s.mu.Unlock()
		if s.cfg.IdleExit > 0 && left <= 0 || s.wait(ctx, left) != nil {
			return nil, false
		}
	}
}

// wait waits for news, at most for long; 0 and less means no limit. The worker may start items that it has put aside meanwhile.
func (s *Source) wait(ctx context.Context, long time.Duration) error {
	if long > 0 {
		defer time.AfterFunc(long, func() { wake.Up(s.news) }).Stop()
	}
	return work.Await(ctx, s.news)
}

// begins waits until a task of a model can start soon. Otherwise it returns how long to leave the task to other workers.
func (s *Source) begins(ctx context.Context, model string) (later time.Duration, err error) {
	for {
		now := time.Now()
		lane := s.cfg.Lane(model)
		s.mu.Lock()
		s.seen[model] = now
		maps.DeleteFunc(s.seen, func(_ string, at time.Time) bool { return now.Sub(at) > recently })
		maps.DeleteFunc(s.left, func(model string, _ time.Time) bool { return s.seen[model].IsZero() })
		several, room := len(s.seen) > 1, s.models[model] < 2*lane.InFlight+ready
		pause := lane.Until.Sub(now)
		if pause <= leftAbove {
			delete(s.left, model)
		} else if s.left[model].IsZero() {
			s.left[model] = now
		}
		since := now.Sub(s.left[model])
		s.mu.Unlock()
		switch {
		case pause > leftAbove:
			return leave(pause, since), nil
		case room:
			return 0, nil
		case several:
			return leftSoon, nil
		}
		if err := s.wait(ctx, lookAgain); err != nil { // the snapshot shows a new pause by then
			return 0, err
		}
	}
}

// leave returns how long to leave a task to other workers whose model pauses here for pause, and has been left for since. Redis
// gives due tasks before new ones. With a constant leftFor, a worker that needs longer than that to put the model's tasks aside would
// never reach the tasks of another model. With this, two of three tasks that it is given are new.
func leave(pause, since time.Duration) time.Duration { return min(pause, leftFor+2*since) }

// read parses a fetched task. It returns nil for a task that cannot start here, after it was answered or given back.
func (s *Source) read(ctx context.Context, c Task) (*batch.Task, error) {
	terms, err := s.termsOf(c.Job)
	if err != nil {
		s.warnOnce(fmt.Sprintf("this worker leaves job %s to other workers: %v", c.Job.Name, err))
		if s.cfg.Job != "" {
			s.giveBack(c)
			return nil, &TermsError{Job: c.Job.Name, Err: err}
		}
		return nil, s.insist(ctx, s.from.Later(ctx, c, 5*time.Second))
	}
	task, err := batch.ParseTask(c.Payload)
	if err != nil {
		s.from.link.log.Warn(fmt.Sprintf("job %s, line %d: this worker rejects the task: %v", c.Job.Name, c.Number+1, err))
		refused := batch.Answer{Refused: true, Kind: sluice.BadRequest, Message: "a worker rejected the task: " + err.Error()}
		return nil, s.insist(ctx, s.from.Complete(ctx, c, batch.AppendAnswer(nil, &refused)))
	}
	switch leave, err := s.begins(ctx, task.Model); {
	case err != nil: // the run ends
		s.giveBack(c)
		return nil, nil
	case leave > 0:
		return nil, s.insist(ctx, s.from.Later(ctx, c, leave))
	}
	task.Terms, task.Withdrawn = terms, c.gone
	c.Payload = nil // the task has its own copy of the values
	s.mu.Lock()
	closed := s.open == nil
	if !closed {
		s.open[task] = c
		s.models[task.Model]++
	}
	s.mu.Unlock()
	if closed {
		s.giveBack(c)
		return nil, ErrClosed
	}
	return task, nil
}

// insist passes on an error of Redis. The end of the run is not an error.
func (s *Source) insist(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// maxTerms is the number of jobs whose terms are kept.
const maxTerms = 100

// termsOf reads the terms of a job, once.
func (s *Source) termsOf(job *Job) (*batch.Terms, error) {
	key := job.Name + "\x00" + string(job.Settings)
	s.mu.Lock()
	known := s.terms[key]
	s.mu.Unlock()
	if known == nil {
		known = &jobTerms{}
		known.terms, known.err = batch.ParseTerms(job.Settings)
		s.mu.Lock()
		if len(s.terms) >= maxTerms {
			clear(s.terms)
		}
		s.terms[key] = known
		s.mu.Unlock()
	}
	return known.terms, known.err
}

// warnOnce logs a warning, once.
func (s *Source) warnOnce(text string) {
	s.mu.Lock()
	again := s.warned[text]
	s.warned[text] = true
	s.mu.Unlock()
	if !again {
		s.from.link.log.Warn(text)
	}
}

// Holds reports whether this Source still has a task, as Worker.Holds does.
func (s *Source) Holds(task *batch.Task) bool {
	s.mu.Lock()
	c, open := s.open[task]
	s.mu.Unlock()
	return open && s.from.Holds(c)
}

// Done sends the result of a task, and blocks while Redis is unreachable. If a is nil, Done drops the task without a result. After
// Close, Done does nothing, because Close returned the task to the queue.
func (s *Source) Done(task *batch.Task, a *batch.Answer) {
	s.mu.Lock()
	c, open := s.open[task]
	if !open {
		s.mu.Unlock()
		return
	}
	if s.models[task.Model]--; s.models[task.Model] == 0 {
		delete(s.models, task.Model)
	}
	s.mu.Unlock()
	wake.Up(s.news)
	var err error
	if a != nil {
		err = s.from.Complete(s.life, c, batch.AppendAnswer(nil, a))
	}
	if long, ok := errors.AsType[*TooLargeError](err); ok {
		a.Kind, a.Status, a.Payload = sluice.Internal, 0, nil
		a.Message = fmt.Sprintf("the result has %d bytes, which is too large for a worker to return", long.Bytes)
		err = s.from.Complete(s.life, c, batch.AppendAnswer(nil, a))
	}
	if err != nil {
		return // the run is cut short: Close gives the task back
	}
	s.mu.Lock()
	delete(s.open, task)
	s.idle = time.Now()
	s.mu.Unlock()
	wake.Up(s.news)
}

// giveBackTimeout is how long a worker that ends tries to give tasks back. Redis gives the remaining tasks to other workers when the
// lease of this one ends.
const giveBackTimeout = 3 * time.Second

// giveBack returns a task to Redis for other workers.
func (s *Source) giveBack(c Task) {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackTimeout)
	defer cancel()
	_ = s.from.Return(ctx, c) // else the lease ends
}

// Close returns unfinished tasks to the queue. returned is the number of these tasks. The cause is the error that stops the worker,
// such as a rejected API key, or nil for a normal stop. If the last worker stops with a cause, Remote.Do returns ErrNoWorkers.
func (s *Source) Close(cause error) (returned int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackTimeout)
	defer cancel()
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for _, c := range open {
		if err = s.from.Return(ctx, c); err != nil {
			err = fmt.Errorf("%d items could not be returned, and other workers get them in a few seconds: %w", len(open)-returned, err)
			break
		}
		returned++
	}
	s.watch.close()
	if cause != nil {
		s.from.stopped = strings.ToValidUTF8(cause.Error(), "")
	}
	return returned, errors.Join(err, s.from.Close())
}

// Status returns the reason why the Source has no tasks, or "" while the Source has tasks.
func (s *Source) Status() string {
	const idleAfter = 2 * time.Second
	s.mu.Lock()
	idle := len(s.open) == 0 && time.Since(s.idle) > idleAfter
	s.mu.Unlock()
	away, orphan := s.watch.away(), s.watch.orphan()
	switch {
	case away != "" || !idle:
		return away
	case orphan != "":
		return fmt.Sprintf("waiting for requests: the run of job %s has stopped, and must be started again", orphan)
	}
	return "waiting for a run that distributes requests"
}
