package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// call makes one call of so long.
func call(tb testing.TB, m *pool.Member, c sluice.Call, takes time.Duration) {
	tb.Helper()
	if _, err := m.Do(tb.Context(), c, func(context.Context, *sluice.Permit) sluice.Outcome {
		time.Sleep(takes)
		return sluice.Outcome{}
	}); err != nil {
		tb.Errorf("member %s: %v", m.ID(), err)
	}
}

func TestTenMembersShareThreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 3, pool.Config{})
		var open, most atomic.Int32
		var wg sync.WaitGroup
		for i := range 10 {
			m := register(t, p, fmt.Sprint("m", i))
			wg.Go(func() {
				defer m.Close()
				_, err := m.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
					n := open.Add(1)
					defer open.Add(-1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					time.Sleep(time.Second)
					return sluice.Outcome{}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if m := p.Metrics(); most.Load() != 3 || m.Calls != 10 || m.Active != 0 || m.Slots != 3 {
			t.Errorf("%d at once, %+v", most.Load(), m)
		}
	})
}

func TestFiveInParallelFillTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 5, pool.Config{})
		if n := p.Metrics().Slots; n != 5 {
			t.Errorf("%d slots before the first call", n)
		}
		var wg sync.WaitGroup
		for i := range 5 {
			m := register(t, p, fmt.Sprint("m", i))
			wg.Go(func() {
				defer m.Close()
				call(t, m, sluice.Call{}, time.Second)
			})
		}
		time.Sleep(500 * time.Millisecond)
		if m := p.Metrics(); m.Active < 4 || m.Phases[pool.Executing] != m.Active {
			t.Errorf("%+v", m)
		}
		wg.Wait()
		if m := p.Metrics(); m.TotalWait != 0 || m.AverageWait != 0 {
			t.Errorf("they waited: %+v", m)
		}
	})
}

func TestSlotsThatWereNeverUsedAreTriedOutFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := freshPool(t, 5, pool.Config{})
		var wg sync.WaitGroup
		for i := range 5 {
			m := register(t, p, fmt.Sprint("m", i))
			wg.Go(func() {
				defer m.Close()
				call(t, m, sluice.Call{}, 2*time.Second)
			})
		}
		synctest.Wait()
		if m := p.Metrics(); m.Active == 0 || m.Active > 3 || m.Waiting != 5-m.Active {
			t.Errorf("at first: %+v", m)
		}
		time.Sleep(time.Second)
		if m := p.Metrics(); m.Active != 5 {
			t.Errorf("after a second: %+v", m)
		}
		wg.Wait()
	})
}

func TestACancelledWaitLeavesNoTraceButItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		a, b := register(t, p, "a"), register(t, p, "b")
		held, err := a.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, sluice.Call{})
			done <- err
		}()
		time.Sleep(3 * time.Second)
		if m := p.Metrics(); m.Waiting != 1 || b.State().Phase != pool.WaitingForSlot {
			t.Errorf("while it waits: %+v, %+v", m, b.State())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it returned %v", err)
		}
		if m := p.Metrics(); m.Waiting != 0 || m.TotalWait != 3*time.Second || m.LongestWait != 3*time.Second || m.Waits != 2 || m.AverageWait != 1500*time.Millisecond {
			t.Errorf("after: %+v", m)
		}
		if s := b.State(); s.TotalWait != 3*time.Second || s.Calls != 0 || !errors.Is(s.Err, context.Canceled) {
			t.Errorf("after: %+v", s)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = b.Do(ctx, sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome { panic("it has no slot") })
		if s := b.State(); !errors.Is(err, context.DeadlineExceeded) || s.TotalWait != 4*time.Second {
			t.Errorf("a cancelled Do: %v, %+v", err, s)
		}
		a.Release(held, sluice.Outcome{})
		a.Close()
		b.Close()
	})
}

func TestWhoCancelledFirstNeverHasASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		a, b := register(t, p, "a"), register(t, p, "b")
		defer a.Close()
		defer b.Close()
		for range 1000 {
			held, err := a.Acquire(t.Context(), sluice.Call{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := b.Acquire(ctx, sluice.Call{})
				done <- err
			}()
			synctest.Wait()
			cancel()
			a.Release(held, sluice.Outcome{})
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("it has a slot, and %v", err)
			}
		}
	})
}

func TestASlotTimeoutIsNotTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{SlotTimeout: 10 * time.Second})
		a, b, c := register(t, p, "a"), register(t, p, "b"), register(t, p, "c")
		held, _ := a.Acquire(t.Context(), sluice.Call{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := b.Acquire(t.Context(), sluice.Call{ID: "b1"})
			e, ok := errors.AsType[*sluice.SlotTimeoutError](err)
			if !ok || e.Wait != 10*time.Second || e.Position != 1 || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first that waited: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := c.Do(t.Context(), sluice.Call{MaxWait: 5 * time.Second}, nil)
			e, ok := errors.AsType[*sluice.SlotTimeoutError](err)
			if !ok || !errors.Is(err, sluice.ErrSlotTimeout) || e.Wait != 5*time.Second || e.Position != 2 {
				t.Errorf("one with a MaxWait of its own: %v", err)
			}
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := a.Acquire(ctx, sluice.Call{})
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sluice.ErrSlotTimeout) {
				t.Errorf("the caller's deadline: %v", err)
			}
		})
		wg.Wait()
		a.Release(held, sluice.Outcome{})
		if got := p.Metrics().TotalWait; got != 16*time.Second {
			t.Errorf("they waited %v", got)
		}
		for _, m := range []*pool.Member{a, b, c} {
			m.Close()
		}
	})
}

func TestTwoFailuresAndASuccessAreThreeCallsWithNothingHeldBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		m, other := register(t, p, "m"), register(t, p, "other")
		tries := 0
		var between []pool.Phase
		tally, err := m.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
			if s := m.State(); s.Phase != pool.Executing {
				t.Errorf("in a call it is %s", s.Phase)
			}
			tries++
			time.Sleep(time.Second)
			if tries == 3 {
				return sluice.Outcome{Usage: sluice.Usage{Input: 3, Output: 4}, HasUsage: true}
			}
			go func() {
				held, err := other.Acquire(t.Context(), sluice.Call{Priority: limits.Critical})
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(40 * time.Second) // more than any backoff
				between = append(between, m.State().Phase)
				other.Release(held, sluice.Outcome{})
			}()
			synctest.Wait()
			return sluice.Outcome{Kind: sluice.ServerError}
		})
		if err != nil || tally.Attempts != 3 {
			t.Errorf("%+v, %v", tally, err)
		}
		if len(between) != 2 || between[0] != pool.WaitingForSlot || between[1] != pool.WaitingForSlot {
			t.Errorf("between its tries it is %v", between)
		}
		s := m.State()
		if s.Calls != 3 || s.Tokens != 7 || s.Phase != pool.ProcessingResult || s.TotalWait != 80*time.Second {
			t.Errorf("%+v", s)
		}
		if n := p.Metrics(); n.Calls != 5 || n.Waiting != 0 || n.Active != 0 {
			t.Errorf("%+v", n)
		}
		m.Close()
		other.Close()
	})
}

func TestCallsAndPhasesOfMembersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 2, pool.Config{})
		a, b := register(t, p, "a", pool.MemberConfig{Kind: "reviewer", Tenant: "team", Priority: limits.High}), register(t, p, "b")
		if m := p.Metrics(); m.Members != 2 || m.Phases[pool.Initializing] != 2 {
			t.Errorf("at first: %+v", m)
		}
		call(t, a, sluice.Call{}, time.Second)
		call(t, a, sluice.Call{}, 0)
		time.Sleep(time.Minute)
		held, _ := b.Acquire(t.Context(), sluice.Call{})
		if m := p.Metrics(); m.Calls != 2 || m.Phases[pool.ProcessingResult] != 1 || m.Phases[pool.Executing] != 1 {
			t.Errorf("before the third is sent: %+v", m)
		}
		sent := time.Now()
		held.Sent()
		time.Sleep(time.Second)
		if m := p.Metrics(); m.Calls != 3 || b.State().LastCall != sent {
			t.Errorf("while it is on its way: %+v, %+v", m, b.State())
		}
		b.Release(held, sluice.Outcome{})
		s := a.State()
		if s.ID != "a" || s.Kind != "reviewer" || s.Tenant != "team" || s.Priority != limits.High || s.Calls != 2 || len(p.Members()) != 2 {
			t.Errorf("%+v", s)
		}
		a.Close()
		b.Fail(errors.New("no more"))
		if m := p.Metrics(); m.Members != 0 || len(m.Phases) != 0 || m.Completed != 1 || m.Failed != 1 || m.Calls != 3 || len(p.Members()) != 0 {
			t.Errorf("in the end: %+v", m)
		}
		if a.State().Phase != pool.Completed || b.State().Phase != pool.Failed || b.State().Err.Error() != "no more" {
			t.Errorf("in the end: %+v, %+v", a.State(), b.State())
		}
		if got, want := p.Metrics().String(), "0 of 2 slots · 0 waiting · 3 requests · mean wait 0s · 0 members"; got != want {
			t.Errorf("in one line: %s", got)
		}
	})
}

func TestACallThatNeverLeftIsNotCounted(t *testing.T) {
	p := newPool(t, 1, pool.Config{})
	m := register(t, p, "m")
	defer m.Close()
	held, _ := m.Acquire(t.Context(), sluice.Call{})
	m.Release(held, sluice.Outcome{Unsent: true})
	held.Sent() // too late
	if n, s := p.Metrics(), m.State(); n.Calls != 0 || s.Calls != 0 || !s.LastCall.IsZero() {
		t.Errorf("%+v, %+v", n, s)
	}
	call(t, m, sluice.Call{}, 0)
	if n := p.Metrics(); n.Calls != 1 {
		t.Errorf("%+v", n)
	}
}

func TestAReleaseByAnotherIsDetectedWhoeverHoldsSlots(t *testing.T) {
	p := newPool(t, 3, pool.Config{})
	a, b := register(t, p, "a"), register(t, p, "b")
	defer a.Close()
	defer b.Close()
	ofA, _ := a.Acquire(t.Context(), sluice.Call{})
	ofB, _ := b.Acquire(t.Context(), sluice.Call{})
	again, _ := b.Acquire(t.Context(), sluice.Call{})
	foreign, err := p.Register("foreign", pool.MemberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	refused := func(m *pool.Member, held *sluice.Permit, what string) {
		t.Helper()
		before := p.Metrics().Active
		err := m.Release(held, sluice.Outcome{})
		if !errors.Is(err, pool.ErrNotHeld) || !strings.Contains(err.Error(), strconv.Quote(m.ID())) || p.Metrics().Active != before {
			t.Errorf("%s: %v, %d active of %d", what, err, p.Metrics().Active, before)
		}
	}
	refused(b, ofA, "by another, while both hold slots")
	refused(foreign, ofA, "by one who holds none")
	b.Release(ofB, sluice.Outcome{})
	refused(b, ofB, "twice, by one who has another permit")
	refused(a, ofB, "twice, by another")
	refused(foreign, ofB, "twice, by another who holds none")
	b.Release(again, sluice.Outcome{})
	a.Release(ofA, sluice.Outcome{})
	refused(a, ofA, "twice, while nobody holds one")
	refused(b, again, "twice, while nobody holds one, again")
	a.Do(t.Context(), sluice.Call{}, func(_ context.Context, held *sluice.Permit) sluice.Outcome {
		refused(a, held, "of a try, which Do gives back")
		refused(b, held, "of a try, by another")
		return sluice.Outcome{}
	})
}

func TestIdsAreTakenOnce(t *testing.T) {
	p := newPool(t, 1, pool.Config{})
	m := register(t, p, "reviewer-1")
	_, err := p.Register("reviewer-1", pool.MemberConfig{})
	if !errors.Is(err, pool.ErrDuplicate) || !strings.Contains(err.Error(), `"reviewer-1"`) {
		t.Errorf("registered twice: %v", err)
	}
	if err := p.Run(t.Context(), "reviewer-1", pool.MemberConfig{}, nil); !errors.Is(err, pool.ErrDuplicate) {
		t.Errorf("run beside: %v", err)
	}
	if _, err := p.Register("", pool.MemberConfig{}); err == nil {
		t.Error("an empty id is taken")
	}
	call(t, m, sluice.Call{}, 0)
	m.Close()
	again := register(t, p, "reviewer-1")
	if s := again.State(); s.Calls != 0 || m.State().Calls != 1 {
		t.Errorf("the next of that id: %+v", s)
	}
	if m.Close(); p.Metrics().Members != 1 {
		t.Error("the first one closed the second")
	}
	again.Close()
}

func TestClosedMembersMakeNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		a, b := register(t, p, "a"), register(t, p, "b")
		held, _ := a.Acquire(t.Context(), sluice.Call{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.Acquire(t.Context(), sluice.Call{}); err != pool.ErrClosed {
				t.Errorf("one that waits for a slot: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := b.Do(t.Context(), sluice.Call{}, nil); err != pool.ErrClosed {
				t.Errorf("a Do that waits: %v", err)
			}
		})
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if _, err := b.Acquire(t.Context(), sluice.Call{}); err != pool.ErrClosed {
			t.Errorf("one that asks: %v", err)
		}
		a.Release(held, sluice.Outcome{})
		tries := 0
		_, err := a.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
			if tries++; tries == 1 {
				if err := a.Close(); err == nil {
					t.Error("it was closed within a call without a word")
				}
			}
			return sluice.Outcome{Kind: sluice.ServerError}
		})
		if err != pool.ErrClosed || tries != 1 {
			t.Errorf("a Do whose member is closed between tries: %v after %d", err, tries)
		}
	})
}
