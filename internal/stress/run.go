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
	cfg    Config
	outer  context.Context // the caller's
	ctx    context.Context // ends with the run, or when it is stuck
	abort  context.CancelCauseFunc
	start  time.Time
	end    endpoint
	sched  *sluice.Scheduler
	pool   *pool.Pool
	wire   wire
	calm   backend // answers well
	serial atomic.Uint64
	dir    string // of checkpoints; "" is none

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

	phases, phasesAdvanced   int
	reviews, reviewsFinished int
	damaged                  int // checkpoints
	checkpoints              int
	recovery                 *step // nil: there was none
}

// endpoint is what a call is made of.
type endpoint struct {
	provider provider.Provider
	target   provider.Target
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
	r := &run{cfg: cfg, outer: ctx, start: time.Now()}
	r.ctx, r.abort = context.WithCancelCause(ctx)
	var err error
	if cfg.Endpoint != nil {
		r.end = endpoint{cfg.Endpoint.Provider, cfg.Endpoint.Target}
		r.calm = &remote{base: cfg.Endpoint.Base}
		r.sched, err = cfg.Endpoint.Scheduler(sluice.ObserverFunc(r.observe))
	} else {
		known, _ := provider.Lookup("sim")
		r.end = endpoint{known, provider.Target{Endpoint: known.PromptEndpoint("sim"), Model: "sim"}}
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
	c := pool.Config{Scheduler: r.sched, Observer: cfg.Observer, MaxActive: 12, DrainTimeout: -1}
	if cfg.Level == Chaos {
		if r.dir, err = os.MkdirTemp("", "sluice-stress-"); err != nil {
			return nil, errors.Join(err, r.sched.Close())
		}
		if c.Store, err = pool.NewFileStore(r.dir); err != nil {
			return nil, errors.Join(err, r.sched.Close())
		}
	}
	r.pool, err = pool.New(c)
	return r, err
}

// observe passes on what the Scheduler tells, and keeps how long calls wait by themselves.
func (r *run) observe(e sluice.Event) {
	if e.Wait > 0 && (e.Type == sluice.EventAttemptFailed || e.Type == sluice.EventThrottled) {
		r.mu.Lock()
		if until := e.At.Add(e.Wait); until.After(r.backoff) {
			r.backoff = until
		}
		r.mu.Unlock()
	}
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

// firstCall finds out whether there is a provider.
func (r *run) firstCall() error {
	m, err := r.pool.Register("first", pool.MemberConfig{Kind: "first"})
	if err != nil {
		return err
	}
	defer m.Close()
	s := newStep(r, "first call", 0)
	defer s.cancel()
	if err := s.call(r.ctx, m, callConfig{}); err != nil {
		return fmt.Errorf("the first call of all: %w", err)
	}
	r.mu.Lock()
	r.steps = append(r.steps, s)
	r.mu.Unlock()
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
