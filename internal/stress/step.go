package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
)

// step is a part that runs.
type step struct {
	r      *run
	n      int // its number
	start  time.Time
	until  time.Time // no call is begun after it
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu sync.Mutex
	tally
	waited   []time.Duration // for the first slot, of calls that had to wait
	firstErr error           // of the failed calls
}

func newStep(r *run, name string, d time.Duration) *step {
	s := &step{r: r, start: time.Now(), tally: tally{Part: Part{Name: name}}}
	s.until = s.start.Add(d)
	s.ctx, s.cancel = context.WithCancelCause(r.ctx)
	return s
}

// goes runs fn in a goroutine of the step.
func (s *step) goes(fn func()) {
	s.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				s.r.panicky(v, debug.Stack())
			}
		}()
		fn()
	})
}

// over reports whether the time of the step is over.
func (s *step) over() bool { return s.ctx.Err() != nil || s.left() <= 0 }

// left returns the remaining time of the step.
func (s *step) left() time.Duration { return time.Until(s.until) }

// sleep waits for d and reports true, unless the step ends before.
func (s *step) sleep(d time.Duration) bool {
	return wake.In(s.ctx, d, nil) == nil
}

// rest waits for the end of the step's time.
func (s *step) rest() { s.sleep(s.left()) }

// patience is the time that the calls of a step have after it, and after a step where that was not enough.
const (
	patience       = 90 * time.Second
	littlePatience = 10 * time.Second
)

// errImpatient is the cause of a step's context that patience ended.
var errImpatient = errors.New("cancelled")

// wait waits until all goroutines of the step have ended. It cancels them when patience is over; those that do not end then are stuck.
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
		s.cancel(fmt.Errorf("%w: the test step was unfinished %s after its planned end", errImpatient, s.r.patience))
		s.r.patience = littlePatience
	}
	last := time.NewTimer(abandonAfter)
	defer last.Stop()
	select {
	case <-done:
	case <-last.C:
		s.r.stuck(fmt.Sprintf("members of %q did not stop after they were cancelled", s.Name))
	}
}

// arrivals returns a function that gives an arrival to one of n workers. It drops an arrival that finds none free: one that waited
// for a worker would hide how late it is.
func (s *step) arrivals(n int) func(do func()) {
	busy := make(chan struct{}, n)
	return func(do func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Arrived++
		select {
		case busy <- struct{}{}:
			s.goes(func() {
				defer func() { <-busy }()
				do()
			})
		default:
			s.Dropped++
		}
	}
}

// agent is a member at work.
type agent struct {
	*pool.Member
	s    *step
	id   string
	luck *rand.Rand
	over chan struct{} // closed at its end, also if it could not be registered
	done atomic.Int64  // completed calls

	before int64 // of them, those before all its equals were there
	tasks  int   // that were done in its place
}

// member registers a member and runs fn with it in a goroutine of the step.
func (s *step) member(id, kind string, fn func(*agent)) *agent {
	a := &agent{s: s, id: id, over: make(chan struct{})}
	s.goes(func() {
		defer close(a.over)
		var err error
		if a.Member, err = s.r.pool.Register(id, pool.MemberConfig{Kind: kind}); err != nil {
			s.fail(err)
			return
		}
		defer func() {
			if err := a.Close(); err != nil {
				s.fail(err)
			}
		}()
		fn(a.begin())
	})
	return a
}

// members runs fn with as many members as on5 is on 5 slots.
func (s *step) members(name, kind string, on5 int, fn func(*agent)) []*agent {
	all := make([]*agent, s.r.scaled(on5))
	for i := range all {
		all[i] = s.member(fmt.Sprintf("%s-%d", name, i), kind, fn)
	}
	return all
}

func (a *agent) begin() *agent {
	a.luck = a.s.r.luck()
	return a
}

// call makes a call, and counts it if it is completed.
func (a *agent) call(ctx context.Context, after afterAttempt) error {
	err := a.s.call(ctx, a.Member, after)
	if err == nil {
		a.done.Add(1)
	}
	return err
}

// calls makes one call after the other until the step's time is over.
func (a *agent) calls() {
	for !a.s.over() {
		a.call(a.s.ctx, nil)
	}
}

// upTo returns a random duration below limit.
func (a *agent) upTo(limit time.Duration) time.Duration {
	return time.Duration(a.luck.Float64() * float64(limit))
}

// afterAttempt is called after each attempt of a call, while the permit is held, with the time that the response took. It may change
// the outcome. Nil does nothing.
type afterAttempt func(o sluice.Outcome, took time.Duration, p *sluice.Permit) sluice.Outcome

// call makes one call of a member, and counts its end and its waits for slots: before the first attempt, and between attempts with
// their backoff.
func (s *step) call(ctx context.Context, m *pool.Member, after afterAttempt) error {
	r := s.r
	n := r.serial.Add(1)
	body := r.body(n)
	estimate, _ := provider.Estimate(r.endpoint.Target.Endpoint, body)
	since, held := time.Now(), r.heldBack()
	waits, attempts := true, 0
	var first time.Duration // the first wait, for slots only
	granted := func() {
		now := time.Now()
		if attempts++; attempts == 1 {
			first = now.Sub(since) - r.outageIn(since, now) - (r.heldBack() - held)
		}
		waits = false
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waits++
		s.total += now.Sub(since)
		s.longest = max(s.longest, now.Sub(since))
	}
	s.mu.Lock()
	s.Requests++
	s.mu.Unlock()
	_, err := m.Do(ctx, sluice.Call{
		ID: m.ID() + "/" + strconv.FormatUint(n, 10), Lane: r.endpoint.Target.Model, Cost: estimate.Cost,
	}, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
		granted()
		sent := time.Now()
		o := r.exchange(ctx, p, body, estimate.Cost)
		if after != nil {
			o = after(o, time.Since(sent), p)
		}
		since, waits = time.Now(), true
		return o
	})
	if _, tried := errors.AsType[*sluice.CallError](err); waits && err != nil && !tried {
		granted() // or cancelled
	}
	s.end(ctx, err, first)
	return err
}

// exchange makes one attempt.
func (r *run) exchange(ctx context.Context, p *sluice.Permit, body []byte, cost sluice.Cost) sluice.Outcome {
	to := &r.endpoint.Target
	member, _ := r.endpoint.Provider.Bound(to.Endpoint)
	body, added := r.added.Complete(&r.endpoint.Provider, to.Endpoint, to.Model, body, member, false)
	req, err := r.endpoint.Provider.NewRequest(ctx, *to, body)
	if err != nil {
		return sluice.Outcome{Kind: sluice.BadRequest, Err: err, Unsent: true}
	}
	_, o := provider.Exchange(ctx, &r.wire, p, req, provider.ExchangeConfig{
		Provider: r.endpoint.Provider, Endpoint: to.Endpoint, Timeout: r.cfg.Timeout, Key: to.Key, Cost: cost, Added: added,
	})
	r.added.Refused(to.Model, &o)
	return o
}

// minWait is the shortest wait: below it, a slot was free.
const minWait = time.Millisecond

// end counts the end of a call. Its context ends before the step's only on purpose, as its member is closed only on purpose.
func (s *step) end(ctx context.Context, err error, first time.Duration) {
	meant := s.r.outer.Err() != nil || ctx.Err() != nil && s.ctx.Err() == nil || errors.Is(err, pool.ErrClosed)
	if panicked, ok := errors.AsType[*sluice.PanicError](err); ok {
		s.r.panicky(panicked.Value, panicked.Stack)
		meant = meant || panicked.Value == planned{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first >= minWait {
		s.waited = append(s.waited, first)
	}
	switch {
	case err == nil:
		s.Completed++
	case meant:
		s.Cancelled++
	default:
		s.failedLocked(err)
	}
}

// fail counts a failure outside calls, unless the user interrupted the run.
func (s *step) fail(err error) {
	if s.r.outer.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Requests++
	s.failedLocked(err)
}

// failedLocked counts a failure, whose reason may be the step's end.
func (s *step) failedLocked(err error) {
	s.Failed++
	if why := context.Cause(s.ctx); errors.Is(err, context.Canceled) && errors.Is(why, errImpatient) {
		err = why
	}
	if s.firstErr == nil {
		s.firstErr = err
	}
}

// late notes how late an arrival began.
func (s *step) late(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, d)
}

// body returns the request of the n-th call, which no cache has a response to. It asks for at most 16 tokens, which may cost money.
func (r *run) body(n uint64) []byte {
	t := r.endpoint.Target
	b := provider.AppendPrompt(nil, t.Endpoint, t.Model, fmt.Appendf(nil, `"[%x-%d] Say one short sentence."`, r.cfg.Seed, n), nil)
	member, _ := r.endpoint.Provider.Bound(t.Endpoint)
	if member == "" {
		return append(b, '}')
	}
	path := strings.ReplaceAll(member, ".", `":{"`)
	return fmt.Appendf(b, `,"%s":16%s`, path, strings.Repeat("}", 1+strings.Count(member, ".")))
}
