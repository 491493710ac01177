package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// run is one run of a level.
type run struct {
	cfg      Config
	outer    context.Context // the caller's
	ctx      context.Context // ends with the run, or when it is stuck
	abort    context.CancelCauseFunc
	start    time.Time
	endpoint Endpoint // without Base and Scheduler for the imitation
	sched    *sluice.Scheduler
	pool     *pool.Pool
	wire     wire
	calm     backend // answers well
	serial   atomic.Uint64
	dir      string        // of checkpoints; "" is none
	patience time.Duration // of the next step

	mu        sync.Mutex
	now       *step
	steps     []*step
	panics    int
	panicked  string // the first
	deadlocks int
	deadlock  string // what was stuck
	foreign   int    // releases by who did not hold the permit, and that took effect
	leaks     int
	waiters   int
	backoff   time.Time // a call waits by itself until then
	outages   []outage
	leftOut   []LeftOut

	free        bool // after the last event of a slot, one is free, and a call waits
	refused     bool // the provider asked to slow down: other things than slots hold calls back from then on
	lostWakeups int  // a call waited on while a slot was free

	phasesAdvanced           int
	reviews, reviewsFinished int
	damaged                  int // checkpoints
	checkpoints              int
	recovery                 *step // nil: there was none
}

// outage is a time in which the provider stood still on purpose.
type outage struct{ from, to time.Time }

// LeftOut is a part that was not run.
type LeftOut struct {
	Part string `json:"part"`
	Why  string `json:"why"`
}

// newRun makes all that a run needs.
func newRun(ctx context.Context, cfg Config) (*run, error) {
	r := &run{cfg: cfg, outer: ctx, start: time.Now(), patience: patience}
	r.ctx, r.abort = context.WithCancelCause(ctx)
	var err error
	if cfg.Endpoint != nil {
		r.endpoint = *cfg.Endpoint
		r.calm = &remote{base: cfg.Endpoint.Base}
		r.sched, err = cfg.Endpoint.Scheduler(sluice.ObserverFunc(r.observe))
	} else {
		known, _ := provider.Lookup("sim")
		r.endpoint = Endpoint{Provider: known, Target: provider.Target{Endpoint: known.PromptEndpoint("sim"), Model: "sim"}}
		if r.calm, err = newImitation(sim.Config{Seed: cfg.Seed, Latency: cfg.Latency, Jitter: 0.2, OutputTokens: 16}); err != nil {
			return nil, err
		}
		r.sched, err = sluice.New(sluice.Config{
			Name: "sim", Limits: sluice.Limits{Concurrent: cfg.Slots}, Observer: sluice.ObserverFunc(r.observe),
		})
	}
	if err != nil {
		return nil, err
	}
	r.wire.to(r.calm)
	c := pool.Config{
		Scheduler: r.sched, Observer: cfg.Observer, DrainTimeout: -1,
		MaxActive: scaled(cfg.Slots, 12), MaxQueue: max(100, scaled(cfg.Slots, 40)), MaxQueuePriority: max(30, scaled(cfg.Slots, 20)),
	}
	if cfg.Level == Chaos {
		if r.dir, err = os.MkdirTemp("", "sluice-stress-"); err == nil {
			c.Store, err = pool.NewFileStore(r.dir)
		}
		if err != nil {
			return nil, fmt.Errorf("a directory for checkpoints: %w", errors.Join(err, r.sched.Close()))
		}
	}
	r.pool, err = pool.New(c)
	return r, err
}

// observe passes on what the Scheduler tells, and keeps how long calls wait by themselves, and whether a slot is left free.
func (r *run) observe(e sluice.Event) {
	r.mu.Lock()
	switch e.Type {
	case sluice.EventThrottled, sluice.EventAttemptFailed:
		if until := e.At.Add(e.Wait); until.After(r.backoff) {
			r.backoff = until
		}
		r.refused = r.refused || e.Type == sluice.EventThrottled
	case sluice.EventBreaker, sluice.EventCooldownStarted:
		r.refused = true
	case sluice.EventSlotWaiting, sluice.EventSlotAcquired, sluice.EventSlotReleased, sluice.EventSlotCancelled:
		if r.free && e.Type != sluice.EventSlotAcquired && !r.refused {
			r.lostWakeups++
		}
		r.free = e.Waiting > 0 && e.InFlight < e.Slots
	}
	r.mu.Unlock()
	if r.cfg.Observer != nil {
		r.cfg.Observer.Observe(e)
	}
}

// close ends what is left. A Scheduler whose calls are stuck may not end by itself: the program goes on without it.
func (r *run) close() {
	r.abort(nil)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.sched.Close()
	}()
	select {
	case <-closed:
	case <-time.After(abandonAfter):
	}
	if r.dir != "" {
		os.RemoveAll(r.dir)
	}
}

// abandonAfter is how long what was cancelled may take to end.
const abandonAfter = 5 * time.Second

// The first call of all may fail so often, and take so long.
const (
	firstTries  = 3
	firstWithin = time.Minute
)

// firstCall finds out whether there is a provider, and how fast it is.
func (r *run) firstCall() error {
	m, err := r.pool.Register("first", pool.MemberConfig{Kind: "first"})
	if err != nil {
		return err
	}
	defer m.Close()
	s := newStep(r, "first call", 0)
	defer s.cancel(nil)
	ctx, cancel := context.WithTimeout(s.ctx, firstWithin)
	defer cancel()
	tries, last := 0, error(nil)
	var took time.Duration
	err = s.call(ctx, m, callConfig{after: func(o sluice.Outcome, d time.Duration, _ *sluice.Permit) sluice.Outcome {
		took, last = d, o.Err
		if tries++; o.Kind != sluice.OK && tries == firstTries {
			cancel()
		}
		return o
	}})
	if err != nil && last != nil {
		err = last
	}
	if err != nil {
		return &UnreachableError{Err: err}
	}
	if r.cfg.Latency == 0 {
		r.cfg.Latency = max(took, time.Millisecond)
	}
	r.mu.Lock()
	r.steps = append(r.steps, s)
	r.mu.Unlock()
	return nil
}

// UnreachableError is why there was nobody to put load on.
type UnreachableError struct{ Err error }

// Error says what the first call came to.
func (e *UnreachableError) Error() string { return "the first call of all: " + e.Err.Error() }

// Unwrap returns what the first call came to.
func (e *UnreachableError) Unwrap() error { return e.Err }

// parts runs one part after the other. It fails if the first call of all does.
func (r *run) parts(parts []part) error {
	if err := r.firstCall(); err != nil {
		return err
	}
	for i, p := range parts {
		if r.ctx.Err() != nil {
			break
		}
		r.part(i, len(parts), p)
	}
	return nil
}

// part runs one part, and sees that nothing is left of it.
func (r *run) part(i, of int, p part) {
	s := newStep(r, p.name, time.Duration(p.share*float64(r.cfg.Duration)))
	s.n, s.of = i+1, of
	r.mu.Lock()
	r.now = s
	r.steps = append(r.steps, s)
	r.mu.Unlock()
	s.goes(func() { p.run(s) })
	s.wait()
	r.settle()
	r.mu.Lock()
	s.took = time.Since(s.start)
	r.mu.Unlock()
}

// stuck ends the run: something waits for what will not come.
func (r *run) stuck(what string) {
	r.mu.Lock()
	r.deadlocks++
	if r.deadlock == "" {
		r.deadlock = what
	}
	r.mu.Unlock()
	r.abort(errStuck)
}

var errStuck = errors.New("the run is stuck")

// planned is what callbacks panic with on purpose.
type planned struct{}

// panicky notes a panic that nobody planned.
func (r *run) panicky(v any, stack []byte) {
	if _, ok := v.(planned); ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panics++
	if r.panicked == "" {
		r.panicked = fmt.Sprintf("panic: %v\n%s", v, stack)
	}
}

// guard notes a panic of fn.
func (r *run) guard(fn func()) {
	defer func() {
		if v := recover(); v != nil {
			r.panicky(v, debug.Stack())
		}
	}()
	fn()
}

// luck returns a source of numbers of its own for whoever has that name.
func (r *run) luck(n uint64) *rand.Rand { return rand.New(rand.NewPCG(r.cfg.Seed, n)) }

// outageOf is for how long the provider stood still between two instants.
func (r *run) outageOf(from, to time.Time) (d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.outages {
		end := o.to
		if end.IsZero() || end.After(to) {
			end = to
		}
		begin := o.from
		if begin.Before(from) {
			begin = from
		}
		d += max(0, end.Sub(begin))
	}
	return d
}
