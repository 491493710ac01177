package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
)

// step is a part that runs, and what is measured of it.
type step struct {
	r      *run
	name   string
	n, of  int
	start  time.Time
	until  time.Time // no call is begun after it
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	took      time.Duration // guarded by run.mu
	started   int           // calls
	completed int
	cancelled int // on purpose
	failed    int
	firstErr  error // of the failed ones
	dropped   int   // arrivals
	arrived   int
	waited    []time.Duration // for slots, of calls that had to
	longest   time.Duration
	total     time.Duration // of all waits
	waits     int
	jain      []float64
	used      float64 // slots that were in use at the samples in which something waited
	slots     float64 // and slots that there were
}

func newStep(r *run, name string, d time.Duration) *step {
	s := &step{r: r, name: name, start: time.Now()}
	s.until = s.start.Add(d)
	s.ctx, s.cancel = context.WithCancelCause(r.ctx)
	return s
}

// goes runs fn beside the others of the step.
func (s *step) goes(fn func()) {
	s.wg.Go(func() { s.r.guard(fn) })
}

// over reports whether the step's time is.
func (s *step) over() bool { return s.ctx.Err() != nil || !time.Now().Before(s.until) }

// left is how much of the step's time is left.
func (s *step) left() time.Duration { return time.Until(s.until) }

// sleep waits, unless the step ends before.
func (s *step) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// rest waits for the end of the step's time.
func (s *step) rest() { s.sleep(s.ctx, s.left()) }

// patience is how long the calls of a step may take beyond its time, and after a step where that was not enough.
const (
	patience       = 90 * time.Second
	littlePatience = 10 * time.Second
)

// errImpatient is the cause of a step's context that patience ended.
var errImpatient = errors.New("cancelled")

// wait waits until all that the step began has ended. What does not is cancelled; what does not end then is stuck.
func (s *step) wait() {
	defer s.cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.wg.Wait()
	}()
	late := time.NewTimer(s.left() + s.r.patience)
	defer late.Stop()
	select {
	case <-done:
		return
	case <-s.ctx.Done():
	case <-late.C:
		s.cancel(fmt.Errorf("%w: it was not over %s after its part", errImpatient, s.r.patience))
		s.r.patience = littlePatience
	}
	last := time.NewTimer(abandonAfter)
	defer last.Stop()
	select {
	case <-done:
	case <-last.C:
		s.r.stuck(fmt.Sprintf("members of %q did not end when they were cancelled", s.name))
	}
}

// member registers a member and runs fn with it, beside the others of the step.
func (s *step) member(id string, cfg pool.MemberConfig, fn func(*agent)) *agent {
	a := &agent{s: s, id: id, over: make(chan struct{})}
	s.goes(func() {
		defer close(a.over)
		m, err := s.r.pool.Register(id, cfg)
		if err != nil {
			s.fail(err)
			return
		}
		a.Member = m
		defer func() {
			if err := m.Close(); err != nil {
				s.fail(err)
			}
		}()
		fn(a.begin())
	})
	return a
}

// agent is a member at work.
type agent struct {
	*pool.Member
	s    *step
	id   string
	luck *rand.Rand
	over chan struct{} // closed when it is at its end, also if it could not be registered
	done atomic.Int64  // calls that were completed

	before int64 // of them, before its equals were all there
	tasks  int   // that were done in its place
}

func (a *agent) begin() *agent {
	a.luck = a.s.r.luck(a.s.r.serial.Add(1))
	return a
}

// call makes a call, and counts it.
func (a *agent) call(ctx context.Context, c callConfig) error {
	err := a.s.call(ctx, a.Member, c)
	if err == nil {
		a.done.Add(1)
	}
	return err
}

// calls makes one call after the other until the step's time is over.
func (a *agent) calls() {
	for !a.s.over() {
		a.call(a.s.ctx, callConfig{})
	}
}

// upTo is a random duration below most.
func (a *agent) upTo(most time.Duration) time.Duration {
	return time.Duration(a.luck.Float64() * float64(most))
}

// fail notes a failure that is no call's, and not of the user's doing.
func (s *step) fail(err error) {
	if s.r.outer.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	s.failedLocked(err)
}

// drop counts arrivals, and those that found no free worker.
func (s *step) drop(found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived++
	if !found {
		s.dropped++
	}
}

// callConfig shapes a call. The zero value is an ordinary one.
type callConfig struct {
	byPlan bool // where it is cancelled, that was meant

	// after is called behind each try, while the permit is held, with how long the answer took. It may make another outcome
	// of it.
	after func(o sluice.Outcome, took time.Duration, p *sluice.Permit) sluice.Outcome
}

// call makes one call of a member, and counts what becomes of it.
func (s *step) call(ctx context.Context, m *pool.Member, c callConfig) error {
	r := s.r
	n := r.serial.Add(1)
	body := r.body(n)
	estimate, _ := provider.Estimate(r.endpoint.Target.Endpoint, body)
	w := wait{s: s, since: time.Now(), held: r.heldBack(), open: true}
	s.mu.Lock()
	s.started++
	s.mu.Unlock()
	_, err := m.Do(ctx, sluice.Call{
		ID: m.ID() + "/" + strconv.FormatUint(n, 10), Lane: r.endpoint.Target.Model, Cost: estimate.Cost,
	}, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
		w.ends()
		sent := time.Now()
		o := r.exchange(ctx, p, body, estimate.Cost)
		if c.after != nil {
			o = c.after(o, time.Since(sent), p)
		}
		w.begins()
		return o
	})
	if w.open && err != nil && !isCallError(err) {
		w.ends()
	}
	s.end(err, c.byPlan && (ctx.Err() != nil || errors.Is(err, pool.ErrClosed)), w.first)
	return err
}

func isCallError(err error) bool {
	_, ok := errors.AsType[*sluice.CallError](err)
	return ok
}

// exchange makes one try.
func (r *run) exchange(ctx context.Context, p *sluice.Permit, body []byte, cost sluice.Cost) sluice.Outcome {
	req, err := r.endpoint.Provider.NewRequest(ctx, r.endpoint.Target, body)
	if err != nil {
		return sluice.Outcome{Kind: sluice.BadRequest, Err: err, Unsent: true}
	}
	_, o := provider.Exchange(ctx, &r.wire, p, req, provider.ExchangeConfig{
		Provider: r.endpoint.Provider, Endpoint: r.endpoint.Target.Endpoint, Timeout: r.cfg.Timeout, Key: r.endpoint.Target.Key, Cost: cost,
	})
	return o
}

// wait is the waits of one call for slots: before its first try, and between its tries, its own backoff counted.
type wait struct {
	s     *step
	since time.Time
	held  time.Duration // run.heldBack then, of the first wait
	tries int
	open  bool
	first time.Duration // less the time in which the provider stood still, or something but slots held calls back
}

// begins begins the wait behind a try, which is none where there is no other.
func (w *wait) begins() { w.since, w.open = time.Now(), true }

// ends ends a wait.
func (w *wait) ends() {
	now := time.Now()
	d := now.Sub(w.since)
	w.tries++
	w.open = false
	if w.tries == 1 {
		w.first = d - w.s.r.outageOf(w.since, now) - (w.s.r.heldBack() - w.held)
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.waits++
	w.s.total += d
	w.s.longest = max(w.s.longest, d)
}

// leastWait is what is taken for a wait: below it, a slot was free.
const leastWait = time.Millisecond

// end counts what became of a call. first is how long it waited for its first slot, and for nothing else.
func (s *step) end(err error, byPlan bool, first time.Duration) {
	panicked, isPanic := errors.AsType[*sluice.PanicError](err)
	if isPanic {
		s.r.panicky(panicked.Value, panicked.Stack)
		_, meant := panicked.Value.(planned)
		byPlan = byPlan || meant
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first >= leastWait {
		s.waited = append(s.waited, first)
	}
	switch {
	case err == nil:
		s.completed++
	case byPlan || s.r.outer.Err() != nil: // or the user's doing
		s.cancelled++
	default:
		s.failedLocked(err)
	}
}

// failedLocked counts a failure, whose reason may be the step's end.
func (s *step) failedLocked(err error) {
	s.failed++
	if why := context.Cause(s.ctx); errors.Is(err, context.Canceled) && errors.Is(why, errImpatient) {
		err = why
	}
	if s.firstErr == nil {
		s.firstErr = err
	}
}

// body is the request of the n-th call, which no cache has an answer to.
func (r *run) body(n uint64) []byte {
	t := r.endpoint.Target
	b := provider.AppendPrompt(nil, t.Endpoint, t.Model, fmt.Appendf(nil, `"[%x-%d] Say one short sentence."`, r.cfg.Seed, n), nil)
	member, _ := r.endpoint.Provider.Bound(t.Endpoint)
	if member == "" {
		return append(b, '}')
	}
	path := strings.Split(member, ".")
	for i, name := range path {
		open := `{`
		if i == 0 {
			open = `,`
		}
		b = fmt.Appendf(b, "%s%q:", open, name)
	}
	b = strconv.AppendInt(b, mostTokens, 10)
	return append(b, strings.Repeat("}", len(path))...)
}

// mostTokens bounds the answer of a call, which may cost money.
const mostTokens = 16
