package sluice_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

func TestAPauseHoldsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		held := acquire(t, s, sluice.Call{})
		if err := errors.Join(s.Pause(), s.Pause()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var waited time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			acquire(t, s, sluice.Call{}).Release(sluice.Outcome{})
			waited = time.Since(start)
		}()
		time.Sleep(time.Minute)
		held.Release(sluice.Outcome{}) // what is open goes on
		if p := s.TryAcquire(sluice.Call{}); p != nil {
			t.Error("a permit was given during a pause")
			p.Release(sluice.Outcome{})
		}
		time.Sleep(2 * time.Minute)
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		<-done
		if waited != 3*time.Minute {
			t.Errorf("the call waited %v, want the 3 minutes of the pause", waited)
		}
	})
}

func TestRaisedLimitsLetOutWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := sluice.Limits{Concurrency: 1}
		s := open(t, sluice.Config{Limits: one, Account: one})
		for _, lane := range []string{"a", "b"} { // the account's limits hold over both
			defer acquire(t, s, sluice.Call{Lane: lane}).Release(sluice.Outcome{})
			granted := make(chan *sluice.Permit)
			go func() { granted <- acquire(t, s, sluice.Call{Lane: lane}) }()
			synctest.Wait()
			if p := s.TryAcquire(sluice.Call{Lane: "c"}); p != nil {
				t.Fatal("a permit was given above the limits")
			}
			now := sluice.Limits{Concurrency: s.Snapshot().Lanes[0].InFlight + 1}
			if lane == "b" {
				now.Concurrency += 2
			}
			if err := s.SetLimits(now, now); err != nil {
				t.Fatal(err)
			}
			defer (<-granted).Release(sluice.Outcome{})
			more := sluice.Limits{Concurrency: now.Concurrency + 1}
			if err := s.SetLimits(more, more); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestLimitsThatAreNoneChangeNothing(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60}})
	acquire(t, s, sluice.Call{Lane: "m"}).Release(sluice.Outcome{})
	for _, err := range []error{s.SetLimits(sluice.Limits{RPM: -1}, sluice.Limits{}), s.SetLimits(sluice.Limits{}, sluice.Limits{Burst: -1}),
		s.SetPublished(map[string]sluice.Limits{"m": {TPM: -1}})} {
		if err == nil {
			t.Error("no error")
		}
	}
	if b := budgetOf(t, s, limits.Requests); b.Limit != 60 {
		t.Errorf("the limit is %d", b.Limit)
	}
	closed, err := sluice.New(sluice.Config{})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := closed.Pause(); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("paused after its end: %v", err)
	}
}

func TestAnObserverHearsOfBeginAndEnd(t *testing.T) {
	var events []sluice.Event
	s, err := sluice.New(sluice.Config{Name: "acme", Observer: sluice.ObserverFunc(func(e sluice.Event) { events = append(events, e) })})
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, s, sluice.Call{}).Release(sluice.Outcome{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(events) < 4 || events[0].Type != limits.EventStarted || events[len(events)-1].Type != limits.EventClosed {
		t.Fatalf("events %v", events)
	}
	for _, e := range events {
		if e.Account != "acme" || e.At.IsZero() {
			t.Errorf("%s is of account %q at %v", e.Type, e.Account, e.At)
		}
	}
}

func TestALaneIsPausedForWhatAProbeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		start := time.Now()
		for _, o := range []sluice.Outcome{
			{Kind: sluice.UsageWindow, Until: start.Add(5 * time.Hour)},
			{Kind: sluice.UsageWindow, Until: start.Add(time.Hour)}, // never shortened
		} {
			if err := s.PauseLane("a", o); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.PauseLane("b", sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := s.PauseLane("a", sluice.Outcome{Kind: sluice.Auth}); err == nil {
			t.Error("a lane was paused for a refused key")
		}
		acquire(t, s, sluice.Call{Lane: "c"}).Release(sluice.Outcome{})
		acquire(t, s, sluice.Call{Lane: "b"}).Release(sluice.Outcome{})
		if waited := time.Since(start); waited < time.Minute || waited > time.Minute+time.Second {
			t.Errorf("lane b waited %v, want the minute that was asked for", waited)
		}
		acquire(t, s, sluice.Call{Lane: "a"}).Release(sluice.Outcome{})
		if waited := time.Since(start); waited != 5*time.Hour {
			t.Errorf("lane a waited %v, want the 5 hours to its reset", waited)
		}
	})
}

func TestWeightsChangeWhileCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var mu sync.Mutex
		served := make(map[string]int)
		var calls sync.WaitGroup
		for _, tenant := range []string{"a", "b"} {
			for range 100 {
				calls.Go(func() {
					_, err := s.Do(t.Context(), sluice.Call{Tenant: tenant}, func(context.Context, *sluice.Permit) sluice.Outcome {
						time.Sleep(100 * time.Millisecond)
						mu.Lock()
						served[tenant]++
						mu.Unlock()
						return sluice.Outcome{}
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		both := func() (a, b int) {
			mu.Lock()
			defer mu.Unlock()
			return served["a"], served["b"]
		}
		time.Sleep(4010 * time.Millisecond)
		a, b := both()
		if a+b != 40 || a < 19 || a > 21 {
			t.Errorf("equal tenants were served %d and %d", a, b)
		}
		if err := s.SetWeights(map[string]float64{"b": 3}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if a2, b2 := both(); a2+b2 != 80 || a2-a < 9 || a2-a > 12 {
			t.Errorf("with weights of 1 and 3 they were served %d and %d", a2-a, b2-b)
		}
		for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			if err := s.SetWeights(map[string]float64{"a": bad, "b": bad, "c": bad, "d": bad}); err == nil || !strings.Contains(err.Error(), `["a"]`) {
				t.Errorf("weights of %v: %v", bad, err)
			}
		}
		calls.Wait()
	})
}

func TestEarliestKnowsPausesAndBudgetsAndNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 60, Concurrency: 100}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if d := s.Earliest(sluice.Call{Lane: "m"}); d != 0 {
			t.Errorf("a lane without calls says %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if p, err := s.Acquire(ctx, sluice.Call{Lane: "m"}); err == nil {
					p.Release(sluice.Outcome{})
				}
			})
		}
		synctest.Wait()
		if d := s.Earliest(sluice.Call{Lane: "m"}); d <= 0 || d > 2*time.Second {
			t.Errorf("with 50 that wait, the next permit is said to come in %v", d)
		}
		if d := s.Delay(sluice.Call{Lane: "m"}); d < 15*time.Second || d > time.Minute { // what the bucket may hold is tried at three times its rate
			t.Errorf("behind 50 that wait, the wait is said to be %v", d)
		}
		if err := s.PauseLane("m", sluice.Outcome{Kind: sluice.UsageWindow, Wait: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if d := s.Earliest(sluice.Call{Lane: "m"}); d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("a pause of an hour is said to be one of %v", d)
		}
		cancel()
		calls.Wait()
	})
}
