package pool_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// badCallbacks are what a member's call may do wrong.
var badCallbacks = map[string]func(ctx context.Context, m *pool.Member, p *sluice.Permit) sluice.Outcome{
	"panics":     func(context.Context, *pool.Member, *sluice.Permit) sluice.Outcome { panic("a bug") },
	"panics nil": func(context.Context, *pool.Member, *sluice.Permit) sluice.Outcome { panic(nil) },
	"ends its goroutine": func(context.Context, *pool.Member, *sluice.Permit) sluice.Outcome {
		runtime.Goexit()
		return sluice.Outcome{}
	},
	"blocks until it is cancelled": func(ctx context.Context, _ *pool.Member, _ *sluice.Permit) sluice.Outcome {
		<-ctx.Done()
		return sluice.Outcome{Kind: sluice.Network, Err: ctx.Err()}
	},
	"closes its member": func(_ context.Context, m *pool.Member, _ *sluice.Permit) sluice.Outcome {
		m.Close()
		return sluice.Outcome{}
	},
	"releases its permit itself": func(_ context.Context, _ *pool.Member, p *sluice.Permit) sluice.Outcome {
		p.Release(sluice.Outcome{})
		return sluice.Outcome{}
	},
	"releases late": func(_ context.Context, m *pool.Member, p *sluice.Permit) sluice.Outcome {
		go func() {
			time.Sleep(time.Second)
			if m.Release(p, sluice.Outcome{}) == nil || p.TryRelease(sluice.Outcome{}) {
				panic("the late release took")
			}
		}()
		return sluice.Outcome{}
	},
	"makes another call": func(ctx context.Context, m *pool.Member, _ *sluice.Permit) sluice.Outcome {
		m.Do(ctx, sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome { return sluice.Outcome{} })
		return sluice.Outcome{}
	},
}

func TestABadCallbackHarmsNoOtherMember(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, 2, pool.Config{})
				m, other := register(t, p, "bad"), register(t, p, "other")
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { recover() }() // a permit that is released twice
					m.Do(ctx, sluice.Call{}, func(ctx context.Context, p *sluice.Permit) sluice.Outcome { return bad(ctx, m, p) })
				})
				for range 10 {
					call(t, other, sluice.Call{}, time.Second)
				}
				if s := other.State(); s.TotalWait != 0 || s.Calls != 10 {
					t.Errorf("the other: %+v", s)
				}
				cancel()
				wg.Wait()
				if m.State().Phase == pool.Executing || m.State().Phase == pool.WaitingForSlot {
					t.Errorf("the bad one: %+v", m.State())
				}
				held, err := other.Acquire(t.Context(), sluice.Call{})
				second, err2 := other.Acquire(t.Context(), sluice.Call{})
				if err != nil || err2 != nil {
					t.Fatalf("the slots are not whole: %v, %v", err, err2)
				}
				other.Release(held, sluice.Outcome{})
				other.Release(second, sluice.Outcome{})
				m.Close()
				other.Close()
			})
		})
	}
}

func TestACallbackThatNeverEndsTakesOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 2, pool.Config{})
		m, other := register(t, p, "stuck"), register(t, p, "other")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			m.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
				<-stop
				return sluice.Outcome{}
			})
		})
		synctest.Wait()
		if err := m.Close(); err == nil {
			t.Error("it was closed with an open call, without a word")
		}
		for range 3 {
			call(t, other, sluice.Call{}, time.Hour)
		}
		if m := p.Metrics(); m.Active != 1 || m.Orphans != 1 || m.Members != 1 {
			t.Errorf("%+v", m)
		}
		close(stop)
		wg.Wait()
		if m := p.Metrics(); m.Active != 0 || m.Orphans != 0 || m.Calls != 4 {
			t.Errorf("%+v", m)
		}
		other.Close()
	})
}

func TestAPermitReleasedAfterCloseComesBack(t *testing.T) {
	p := newPool(t, 1, pool.Config{})
	m := register(t, p, "m")
	held, _ := m.Acquire(t.Context(), sluice.Call{})
	m.Close()
	if n := p.Metrics(); n.Active != 1 || n.Orphans != 1 {
		t.Errorf("%+v", n)
	}
	if err := m.Release(held, used(5)); err != nil {
		t.Error(err)
	}
	if err := m.Release(held, used(5)); !errors.Is(err, pool.ErrNotHeld) {
		t.Error(err)
	}
	if n := p.Metrics(); n.Active != 0 || n.Orphans != 0 || n.Calls != 1 || n.Tokens != 5 {
		t.Errorf("%+v", n)
	}
	for range 3 { // what the collector finds of it later is no release
		runtime.GC()
	}
	if n := p.Metrics(); n.Active != 0 || n.Calls != 1 {
		t.Errorf("%+v", n)
	}
}

func TestForgottenCallsAreCountedOnce(t *testing.T) {
	p := newPool(t, 4, pool.Config{})
	m := register(t, p, "m")
	forget := func() {
		held, err := m.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		held.Sent()
		if _, err := m.Acquire(t.Context(), sluice.Call{}); err != nil { // and one that is not marked
			t.Fatal(err)
		}
		var open *sluice.Permit // which the closure of the call knows
		m.Do(t.Context(), sluice.Call{}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
			open = p
			open.Sent()
			return sluice.Outcome{Open: true}
		})
	}
	forget()
	m.Close()
	if n := p.Metrics(); n.Orphans != 3 || n.Active != 3 {
		t.Errorf("%+v", n)
	}
	collect(t, func() bool { return p.Metrics().Orphans == 0 })
	if n := p.Metrics(); n.Calls != 3 || m.State().Calls != 3 || n.Active != 0 {
		t.Errorf("%+v", n)
	}
}

// moody is an Observer that panics at events of a type, so many times.
type moody struct {
	mu   sync.Mutex
	at   limits.EventType
	left int
}

func (o *moody) Observe(e sluice.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Type == o.at && o.left > 0 {
		o.left--
		panic("the observer")
	}
}

func TestAnObserverThatPanicsLeavesNothingBehind(t *testing.T) {
	for _, at := range []limits.EventType{
		limits.EventSlotWaiting, limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventSlotCancelled,
		limits.EventMemberRegistered, limits.EventMemberClosed,
	} {
		t.Run(string(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &moody{at: at}
				s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}, Observer: o})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				p, err := pool.New(pool.Config{Scheduler: s, Observer: o})
				if err != nil {
					t.Fatal(err)
				}
				o.left = 2
				for range 4 {
					func() {
						defer func() { recover() }()
						if m, err := p.Register("m", pool.MemberConfig{}); err == nil {
							m.Close()
						} else {
							t.Error(err)
						}
					}()
					func() {
						defer func() { recover() }()
						if err := p.Run(t.Context(), "m", pool.MemberConfig{}, callTwice); errors.Is(err, pool.ErrDuplicate) {
							t.Error(err)
						}
					}()
				}
				if o.left != 0 {
					t.Error("nothing of the kind was observed")
				}
				if m := p.Metrics(); m.Active != 0 || m.Waiting != 0 || m.Running != 0 || m.Orphans != 0 || m.Members != 0 {
					t.Errorf("left: %+v", m)
				}
				if l := s.Snapshot().Lanes; len(l) > 0 && (l[0].InFlight != 0 || l[0].Waiting != 0) {
					t.Errorf("left: %+v", l[0])
				}
			})
		})
	}
}

// callTwice has a slot, and waits for another until its time is over.
func callTwice(ctx context.Context, m *pool.Member) error {
	held, err := m.Acquire(ctx, sluice.Call{})
	if err != nil {
		return err
	}
	defer m.Release(held, sluice.Outcome{})
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = m.Do(ctx, sluice.Call{}, nil)
	return err
}
