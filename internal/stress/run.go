package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// run is one run of a level.
type run struct {
	cfg      Config
	level    *level
	outer    context.Context // the caller's
	ctx      context.Context // ends with the run, or when it is stuck
	abort    context.CancelCauseFunc
	start    time.Time
	endpoint Endpoint // without Base and Scheduler for the simulator
	sched    *sluice.Scheduler
	pool     *pool.Pool
	wire     wire
	added    provider.Added
	calm     *backend // does not fail
	serial   atomic.Uint64
	dir      string        // of checkpoints; "" is none
	patience time.Duration // of the next step

	mu sync.Mutex
	findings
	lane
}

// findings are what a run has found so far.
type findings struct {
	now      *step
	steps    []*step
	counts   map[string]int // by the name of the row
	panicked string         // the first panic
	deadlock string         // the first
	outage   struct{ from, to time.Time }
	leftOut  []Omission
	recovery *step // nil: there was none
}

// lane is what events tell of the lane of the simulator.
type lane struct {
	backoff time.Time // a call waits by itself until then
	free    bool      // after the last event of a slot, one is free, and a call waits
	filled  bool      // all slots were in use once: before, the Scheduler increases the concurrency
	refused bool      // the provider rejected a call: pauses and rates hold calls back from then on
}

// newRun makes all that a run needs.
func newRun(ctx context.Context, cfg Config, l *level) (*run, error) {
	r := &run{cfg: cfg, level: l, outer: ctx, start: time.Now(), patience: patience, findings: findings{counts: make(map[string]int)}}
	r.ctx, r.abort = context.WithCancelCause(ctx)
	var err error
	if cfg.Endpoint != nil {
		r.endpoint = *cfg.Endpoint
		r.calm = &backend{RoundTripper: cfg.Endpoint.Base}
		r.sched, err = cfg.Endpoint.Scheduler(sluice.ObserverFunc(r.observe))
	} else {
		known, _ := provider.Lookup("sim")
		r.endpoint = Endpoint{Provider: known, Target: provider.Target{Endpoint: known.PromptEndpoint("sim"), Model: "sim"}}
		if r.calm, err = simulator(sim.Config{Seed: cfg.Seed, Latency: cfg.Latency, Jitter: 0.2, OutputTokens: 16}); err != nil {
			return nil, err
		}
		r.sched, err = sluice.New(sluice.Config{
			Name: "sim", Limits: sluice.Limits{Concurrency: cfg.Slots}, Observer: sluice.ObserverFunc(r.observe),
		})
	}
	if err != nil {
		return nil, err
	}
	r.wire.to(r.calm)
	c := pool.Config{
		Scheduler: r.sched, Observer: cfg.Observer, DrainTimeout: -1,
		MaxActive: r.scaled(12), MaxQueue: max(100, r.scaled(40)), MaxQueuePriority: max(30, r.scaled(20)),
	}
	if l.name == chaos {
		if r.dir, err = os.MkdirTemp("", "sluice-stress-"); err == nil {
			c.Store, err = pool.NewFileStore(r.dir)
		}
		if err != nil {
			err = fmt.Errorf("the directory for checkpoints cannot be created: %w", errors.Join(err, r.sched.Close()))
			return nil, fault.New(fault.Disk, err, "set TMPDIR to another directory for temporary files")
		}
	}
	r.pool, err = pool.New(c)
	return r, err
}

// observe passes on the events of the Scheduler, and notes how long calls wait by themselves, and whether a slot stays free.
func (r *run) observe(e sluice.Event) {
	r.mu.Lock()
	switch e.Type {
	case limits.EventThrottled, limits.EventAttemptFailed:
		if until := e.At.Add(e.Wait); until.After(r.backoff) {
			r.backoff = until
		}
		r.refused = r.refused || e.Type == limits.EventThrottled
	case limits.EventBreaker, limits.EventCooldownStarted:
		r.refused = true
	case limits.EventSlotWaiting, limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventSlotCancelled:
		r.filled = r.filled || e.InFlight >= e.Slots
		if r.free && e.Type != limits.EventSlotAcquired && r.filled && !r.refused {
			r.counts["lost_wakeups"]++
		}
		r.free = e.Waiting > 0 && e.InFlight < e.Slots
	}
	r.mu.Unlock()
	if r.cfg.Observer != nil {
		r.cfg.Observer.Observe(e)
	}
}

// close ends the run. A Scheduler with stuck calls may not end: it is left behind.
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

// abandonAfter is the time that cancelled calls have to end.
const abandonAfter = 5 * time.Second

// firstCall finds out whether there is a provider, and how fast it is. It makes at most three attempts in a minute.
func (r *run) firstCall() error {
	m, err := r.pool.Register("first", pool.MemberConfig{Kind: "first"})
	if err != nil {
		return err
	}
	defer m.Close()
	s := newStep(r, "first call", 0)
	defer s.cancel(nil)
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	tries, last := 0, error(nil)
	var took time.Duration
	err = s.call(ctx, m, func(o sluice.Outcome, d time.Duration, _ *sluice.Permit) sluice.Outcome {
		took, last = d, o.Err
		if tries++; o.Kind != sluice.OK && tries == 3 {
			cancel()
		}
		return o
	})
	if err != nil && last != nil {
		err = last
	}
	if err != nil {
		return unreachable(err)
	}
	if r.cfg.Latency == 0 {
		r.cfg.Latency = max(took, time.Millisecond)
	}
	r.mu.Lock()
	r.steps = append(r.steps, s)
	r.mu.Unlock()
	return nil
}

// unreachable returns the error of a run whose first call failed with err.
func unreachable(err error) error {
	refused, isRefused := errors.AsType[*provider.Error](err)
	late, isLate := errors.AsType[*provider.LateError](err)
	err = fmt.Errorf("the first request: %w", err)
	switch {
	case isRefused && refused.Kind == sluice.Auth:
		return fault.New(fault.KeyRejected, err, "check the key in the environment, or name another variable with --key-env")
	case isLate:
		return fault.New(fault.Unreachable, err, "raise --timeout above %s, or check --base-url, --model and the network", late.After)
	}
	return fault.New(fault.Unreachable, err, "check --base-url, --model and the network")
}

// parts runs one part after the other, and sees that each leaves nothing behind. It fails if the first call does.
func (r *run) parts() error {
	if err := r.firstCall(); err != nil {
		return err
	}
	for i, p := range r.level.parts {
		if r.ctx.Err() != nil {
			break
		}
		s := newStep(r, p.name, time.Duration(p.share*float64(r.cfg.Duration)))
		s.n = i + 1
		r.mu.Lock()
		r.now = s
		r.steps = append(r.steps, s)
		r.mu.Unlock()
		s.goes(func() { p.run(s) })
		s.wait()
		r.settle()
		s.mu.Lock()
		s.TookMS = time.Since(s.start).Milliseconds()
		s.mu.Unlock()
	}
	return nil
}

// stuck ends the run because of a deadlock.
func (r *run) stuck(why string) {
	r.mu.Lock()
	r.counts["deadlocks"]++
	if r.deadlock == "" {
		r.deadlock = why
	}
	r.mu.Unlock()
	r.abort(errors.New("the run makes no progress"))
}

// planned is the value of panics on purpose.
type planned struct{}

// panicky counts a panic, unless it is planned.
func (r *run) panicky(v any, stack []byte) {
	if _, ok := v.(planned); ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts["panics"]++
	if r.panicked == "" {
		r.panicked = fmt.Sprintf("panic: %v\n%s", v, stack)
	}
}

// count adds one to a count.
func (r *run) count(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[name]++
}

// luck returns a new source of random numbers.
func (r *run) luck() *rand.Rand { return rand.New(rand.NewPCG(r.cfg.Seed, r.serial.Add(1))) }

// outageIn returns how long the provider stood still between two instants.
func (r *run) outageIn(from, to time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.outage
	if o.from.IsZero() {
		return 0
	}
	if o.from.After(from) {
		from = o.from
	}
	if !o.to.IsZero() && o.to.Before(to) {
		to = o.to
	}
	return max(0, to.Sub(from))
}
