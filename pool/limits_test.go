package pool_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// used is the outcome of a call that used so many tokens.
func used(tokens int) sluice.Outcome {
	return sluice.Outcome{Usage: sluice.Usage{Input: tokens / 2, Output: tokens - tokens/2}, HasUsage: true}
}

func TestResourcesSayNothingOfWhatIsNotLookedAt(t *testing.T) {
	strict, err := limits.ResourcePreset("strict") // which has memory and nodes, too
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(t, 1, pool.Config{Limits: strict})
	m := register(t, p, "a", pool.MemberConfig{Limits: strict})
	for _, cs := range []limits.ResourceChecks{p.Resources(), m.Resources()} {
		if len(cs) != 3 || cs[0].Resource != limits.ResourceTime || cs[1].Resource != limits.ResourceTokens || cs[2].Resource != limits.ResourceLLMCalls {
			t.Errorf("%s", cs)
		}
	}
}

func TestLimitsAreOfAMemberAndOfThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 4, pool.Config{Limits: limits.ResourceLimits{LLMCalls: new(int64(5)), Tokens: new(int64(1000))}})
		own := register(t, p, "own", pool.MemberConfig{Limits: limits.ResourceLimits{LLMCalls: new(int64(2))}})
		spender := register(t, p, "spender", pool.MemberConfig{Limits: limits.ResourceLimits{Tokens: new(int64(100))}})
		free := register(t, p, "free")
		none := register(t, p, "none", pool.MemberConfig{Limits: limits.ResourceLimits{LLMCalls: new(int64(0))}})
		do := func(m *pool.Member, tokens int) error {
			_, err := m.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome { return used(tokens) })
			return err
		}
		refused := func(m *pool.Member, whose string, r limits.Resource) {
			t.Helper()
			err := do(m, 0)
			e, ok := errors.AsType[*pool.LimitError](err)
			if !ok || !errors.Is(err, pool.ErrLimitExceeded) || e.Member != whose || e.Check.Resource != r || m.State().Err != err {
				t.Errorf("%s: %v", m.ID(), err)
			}
			if _, err := m.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, pool.ErrLimitExceeded) {
				t.Errorf("%s, by Acquire: %v", m.ID(), err)
			}
		}
		refused(none, "none", limits.ResourceLLMCalls)
		for range 2 {
			if err := do(own, 10); err != nil {
				t.Error(err)
			}
		}
		refused(own, "own", limits.ResourceLLMCalls)
		if err := do(spender, 99); err != nil {
			t.Error(err)
		}
		if cs := spender.Resources(); !cs.AnyWarning() || cs.AnyExceeded() {
			t.Errorf("at 99 of 100: %s", cs.Summary())
		}
		if err := do(spender, 5); err != nil { // a token is left; who can tell that it takes five?
			t.Error(err)
		}
		if cs := spender.Resources(); !cs.AnyExceeded() {
			t.Errorf("at 104 of 100: %s", cs.Summary())
		}
		refused(spender, "spender", limits.ResourceTokens)
		if err := do(free, 10); err != nil {
			t.Error(err)
		}
		refused(free, "", limits.ResourceLLMCalls)
		if cs := p.Resources(); len(cs) != 2 || cs[1].Used != 5 || cs[0].Used != 134 {
			t.Errorf("of the pool: %s", cs.Summary())
		}
		if m := p.Metrics(); m.Calls != 5 || m.Tokens != 134 || m.Waiting != 0 {
			t.Errorf("%+v", m)
		}
		for _, m := range []*pool.Member{own, spender, free, none} {
			m.Close()
		}
	})
}

func TestALimitOfTimeEndsWaitsAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{Limits: limits.ResourceLimits{Time: new(10 * time.Minute)}})
		m := register(t, p, "m", pool.MemberConfig{Limits: limits.ResourceLimits{Time: new(time.Minute)}})
		other := register(t, p, "other")
		held, _ := other.Acquire(t.Context(), sluice.Call{})
		start := time.Now()
		_, err := m.Acquire(t.Context(), sluice.Call{})
		e, ok := errors.AsType[*pool.LimitError](err)
		if !ok || e.Member != "m" || e.Check.Resource != limits.ResourceTime || time.Since(start) != time.Minute {
			t.Errorf("a wait: %v after %v", err, time.Since(start))
		}
		if _, err := m.Do(t.Context(), sluice.Call{}, nil); !errors.Is(err, pool.ErrLimitExceeded) {
			t.Errorf("afterwards: %v", err)
		}
		other.Release(held, sluice.Outcome{})
		_, err = other.Do(t.Context(), sluice.Call{}, func(ctx context.Context, _ *sluice.Permit) sluice.Outcome {
			<-ctx.Done()
			return sluice.Outcome{Kind: sluice.Network, Err: ctx.Err()}
		})
		if e, ok := errors.AsType[*pool.LimitError](err); !ok || e.Member != "" || time.Since(start) != 10*time.Minute {
			t.Errorf("an open call, by the pool's limit: %v after %v", err, time.Since(start))
		}
		if err := p.Run(t.Context(), "late", pool.MemberConfig{}, func(ctx context.Context, m *pool.Member) error { return ctx.Err() }); !errors.Is(err, pool.ErrLimitExceeded) {
			t.Errorf("Run after it: %v", err)
		}
		m.Close()
		other.Close()
	})
}

func TestTheCallersDeadlineIsNotTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		m := register(t, p, "m", pool.MemberConfig{Limits: limits.ResourceLimits{Time: new(time.Minute)}})
		held, _ := m.Acquire(t.Context(), sluice.Call{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Acquire(ctx, sluice.Call{}); err != context.DeadlineExceeded {
			t.Error(err)
		}
		m.Release(held, sluice.Outcome{})
		m.Close()
	})
}

// Many calls at once never make one more than allowed, in whatever order they wait, are sent and end.
func TestALimitOfCallsHoldsAtOnce(t *testing.T) {
	t.Run("of the pool", func(t *testing.T) { limitedAtOnce(t, 100, 30, 100) })
	t.Run("of each member", func(t *testing.T) { limitedAtOnce(t, 1000, 20, 80) })
}

func limitedAtOnce(t *testing.T, ofPool, ofMember, want int64) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 7, pool.Config{Limits: limits.ResourceLimits{LLMCalls: new(ofPool)}})
		var made, refused atomic.Int64
		var wg sync.WaitGroup
		var all []*pool.Member
		for i := range 4 {
			m := register(t, p, strings.Repeat("m", i+1), pool.MemberConfig{Limits: limits.ResourceLimits{LLMCalls: new(ofMember)}})
			all = append(all, m)
			for range 60 {
				wg.Go(func() {
					_, err := m.Do(t.Context(), sluice.Call{}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
						made.Add(1)
						time.Sleep(time.Second)
						p.Sent()
						time.Sleep(time.Second)
						return sluice.Outcome{}
					})
					if _, ok := err.(*pool.LimitError); ok { // itself, at whatever point it was refused
						refused.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if made.Load() != want || refused.Load() != 240-want || p.Metrics().Calls != want {
			t.Errorf("%d calls made, %d refused, %+v", made.Load(), refused.Load(), p.Metrics())
		}
		for _, m := range all {
			if n := m.State().Calls; n > ofMember {
				t.Errorf("%d calls of one", n)
			}
			m.Close()
		}
	})
}
