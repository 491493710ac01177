package sluice_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
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
		one := sluice.Limits{Concurrent: 1}
		s := open(t, sluice.Config{Limits: one, Account: one})
		for _, lane := range []string{"a", "b"} { // the account's limits hold over both
			defer acquire(t, s, sluice.Call{Lane: lane}).Release(sluice.Outcome{})
			granted := make(chan *sluice.Permit)
			go func() { granted <- acquire(t, s, sluice.Call{Lane: lane}) }()
			synctest.Wait()
			if p := s.TryAcquire(sluice.Call{Lane: "c"}); p != nil {
				t.Fatal("a permit was given above the limits")
			}
			now := sluice.Limits{Concurrent: s.Snapshot().Lanes[0].InFlight + 1}
			if lane == "b" {
				now.Concurrent += 2
			}
			if err := s.SetLimits(now, now); err != nil {
				t.Fatal(err)
			}
			defer (<-granted).Release(sluice.Outcome{})
			more := sluice.Limits{Concurrent: now.Concurrent + 1}
			if err := s.SetLimits(more, more); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestLimitsThatAreNoneChangeNothing(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60}})
	acquire(t, s, sluice.Call{Lane: "m"}).Release(sluice.Outcome{})
	for _, err := range []error{s.SetLimits(sluice.Limits{RPM: -1}, sluice.Limits{}), s.SetLimits(sluice.Limits{}, sluice.Limits{Burst: -1})} {
		if err == nil {
			t.Error("no error")
		}
	}
	if b := budgetOf(t, s, sluice.Requests); b.Limit != 60 {
		t.Errorf("the limit is %d", b.Limit)
	}
	shared := open(t, sluice.Config{Ledger: &ledgerDouble{}})
	if err := shared.SetLimits(sluice.Limits{}, sluice.Limits{RPM: 5}); err == nil {
		t.Error("account limits beside a Ledger: no error")
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
	if len(events) < 4 || events[0].Type != sluice.EventStarted || events[len(events)-1].Type != sluice.EventClosed {
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
