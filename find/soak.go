package find

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	mostSoaks     = 4
	longestRest   = time.Minute
	recheckGrants = 12
	pairTries     = 2
)

// pairs tells whether a bucket holds more than one call: after a rest, two at once. One refused twice: it does not.
func (s *search) pairs(ctx context.Context) error {
	r := s.limits[sluice.Requests]
	if r.Source != sluice.SourceMeasured || s.seen > 2 {
		return nil
	}
	for range pairTries {
		s.enter(PhaseRate, "two at once after a rest")
		if err := sleep(ctx, min(longestRest, seconds(3*60/r.Value))); err != nil {
			return err
		}
		two, err := s.p.burst(ctx, &s.tiny, 2)
		if err != nil {
			return err
		}
		if count(two, (*reply).refused) == 0 {
			return nil
		}
	}
	s.bucketOfOne = true
	s.log("two calls at once are refused however seldom they come")
	return nil
}

// soakCalls is how many real calls prove an answer. What headers say needs no proof but of the latency.
func (s *search) soakCalls() int {
	w, bound := s.answer()
	least, most := 8, 60
	switch {
	case bound == BoundRequests && s.limits[sluice.Requests].Source == sluice.SourceHeader, bound == BoundTokens && s.headed():
		most = 12
	case bound == BoundRequests || bound == BoundTokens:
		least = 20
	}
	return max(w, min(max(3*w, least), most))
}

// headed reports whether a header states the tokens' limit.
func (s *search) headed() bool {
	for _, d := range rates[1:] {
		if s.limits[d].Source == sluice.SourceHeader {
			return true
		}
	}
	return false
}

// soak runs the answer with real calls, and lowers it if they are refused.
func (s *search) soak(ctx context.Context) error {
	again := false
	for tries := 1; tries <= mostSoaks; tries++ {
		w, _ := s.answer()
		if err := s.rest(ctx, w); err != nil {
			return err
		}
		n := s.soakCalls()
		s.enter(PhaseSoak, "%s, %d real calls", workers(w), n)
		replies, err := s.work(ctx, w, n)
		if err != nil {
			return err
		}
		if err := failing(replies); err != nil {
			return err
		}
		s.learn(&s.real, replies...)
		if err := crowding(replies); err != nil && tries == mostSoaks {
			return err
		} else if err != nil {
			if err := s.recovery(ctx); err != nil {
				return err
			}
			continue
		}
		refused := count(replies, (*reply).refused)
		s.soaked = Soak{Workers: w, Calls: count(replies, (*reply).accepted) + refused, Refused: refused}
		s.seen = max(s.seen, overlap(replies))
		switch {
		case refused == 0 || s.bucketOfOne, again && float64(refused) <= 1+strayShare*float64(n):
			return nil
		case !again && refused <= max(1, n/10): // a stray perhaps
			again = true
			continue
		}
		if w == 1 {
			if refused < len(replies) {
				break
			}
			return s.untilOnePasses(ctx) // else none is safe
		}
		s.lower(w, replies)
		again = false
	}
	if s.soaked.Refused > 0 {
		s.note("%d of %d real calls were refused at the last: the provider allows less than it showed, or others use the same limit", s.soaked.Refused, s.soaked.Calls)
	}
	return nil
}

// lower takes refusals of a soak into account: the calls that were open when none more was let in, or a share of them.
func (s *search) lower(w int, replies []reply) {
	most := overlap(replies)
	accepted := count(replies, (*reply).accepted)
	lowered := min(w-1, max(1, int(math.Floor(float64(w)*float64(accepted)/float64(len(replies))))))
	open := count(replies, func(r *reply) bool { return r.refused() && r.outcome.Dimension == sluice.Concurrency }) > 0 // too many were
	if most < w && !s.slots.Known() && (open || accepted > len(replies)/2) {
		lowered = most
	}
	s.lowered = max(1, lowered)
	s.note("%d of %d real calls of %d workers were refused, although the limits allow them: the answer is no more than %d", count(replies, (*reply).refused), len(replies), w, s.lowered)
}

// rest lets buckets fill for the first calls of so many workers.
func (s *search) rest(ctx context.Context, w int) error {
	need := time.Duration(0)
	for _, d := range rates {
		if f := s.limits[d]; f.Known() && f.Value > 0 {
			need = max(need, seconds(float64(w)*s.cost(d)*60/f.Value))
		}
	}
	if need == 0 {
		return nil
	}
	return sleep(ctx, min(longestRest, need+time.Second))
}

// work runs n real calls by w workers. They begin at the pace that they will have, since a burst is not what is tested.
func (s *search) work(ctx context.Context, w, n int) ([]reply, error) {
	var (
		mu      sync.Mutex
		left    = n
		replies []reply
		failed  error
		wg      sync.WaitGroup
	)
	take := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0 && failed == nil
	}
	stagger := s.latency.mean() / float64(w)
	for i := range w {
		wg.Go(func() {
			if sleep(ctx, seconds(float64(i)*stagger)) != nil {
				return
			}
			for take() {
				r, err := s.p.call(ctx, &s.real)
				mu.Lock()
				if err != nil && failed == nil {
					failed = err
				}
				replies = append(replies, r)
				mu.Unlock()
				if r.refused() && sleep(ctx, min(max(r.outcome.Wait, time.Second), longestRest)) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return replies, failed
}

// recheck measures the rate that binds once more: a limit that has changed meanwhile is measured again.
func (s *search) recheck(ctx context.Context) error {
	for range 3 {
		changed, err := s.changed(ctx)
		if err != nil || !changed {
			return err
		}
		s.lowered = 0
		if err := s.soak(ctx); err != nil {
			return err
		}
	}
	s.note("the rate kept changing while it was measured: others may be using the same limit")
	return nil
}

// changed reports whether the rate of a measured limit is another than before.
func (s *search) changed(ctx context.Context) (bool, error) {
	for _, d := range rates {
		was := s.limits[d]
		if was.Source != sluice.SourceMeasured || s.tedious[d] || s.busy(d) > 1.5*float64(s.ceiling()) {
			continue
		}
		sh := s.by[d]
		s.enter(PhaseRecheck, "are %s refilled as before?", d)
		r, found, err := s.ask(ctx, &sh, question{least: recheckGrants, patient: true})
		if err != nil {
			return false, err
		}
		now := r.perSecond * 60 * s.takes(d, &sh)
		if !found || now == 0 || math.Abs(now-was.Value) <= 2*max(0.02, was.Margin+r.margin)*was.Value {
			continue
		}
		s.note("%s per minute were %.0f, and are %.0f now: the limit changed, or others use it at the same time", d, was.Value, now)
		_, err = s.measure(ctx, d, &sh, question{})
		return true, err
	}
	return false, nil
}
