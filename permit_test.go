package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

func TestAWaitForASlotEndsAndSaysWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		held := acquire(t, s, sluice.Call{Lane: "m"})
		var wg sync.WaitGroup
		for _, c := range []sluice.Call{{ID: "urgent", Priority: limits.High}, {ID: "first"}, {ID: "low", Priority: limits.Low}} {
			c.Lane, c.MaxWait = "m", 20*time.Second
			wg.Go(func() {
				if _, err := s.Acquire(t.Context(), c); !errors.Is(err, sluice.ErrSlotTimeout) {
					t.Errorf("%s: %v", c.ID, err)
				}
			})
			synctest.Wait()
		}
		_, err := s.Acquire(t.Context(), sluice.Call{ID: "late", Lane: "m", MaxWait: 5 * time.Second})
		e, ok := errors.AsType[*sluice.SlotTimeoutError](err)
		if !ok || *e != (sluice.SlotTimeoutError{Call: "late", Lane: "m", Wait: 5 * time.Second, Position: 3}) {
			t.Fatalf("%v", err)
		}
		if !strings.Contains(err.Error(), `call "late": no slot became free in 5s, at position 3 of the queue of lane "m"`) {
			t.Errorf("it says: %v", err)
		}
		for _, c := range []struct {
			call sluice.Call
			want string
		}{
			{sluice.Call{Member: "coder"}, `member "coder": no slot became free in 1s, at position 3`},
			{sluice.Call{ID: "7", Member: "coder"}, `member "coder", call "7": no slot became free in 1s, at position 3`},
		} {
			c.call.Lane, c.call.MaxWait = "m", time.Second
			if _, err := s.Acquire(t.Context(), c.call); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("of %q and %q it says: %v", c.call.Member, c.call.ID, err)
			}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("it passes for the caller's own deadline")
		}
		wg.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, sluice.Call{Lane: "m", MaxWait: 5 * time.Second}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sluice.ErrSlotTimeout) {
			t.Errorf("the caller's deadline: %v", err)
		}
		held.Release(sluice.Outcome{})
		if l := lane(t, s); l.InFlight != 0 || l.Waiting != 0 {
			t.Errorf("left: %+v", l)
		}
	})
}

func TestEachTryOfACallMayWaitForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		tries := 0
		_, err := s.Do(t.Context(), sluice.Call{Lane: "m", MaxWait: 5 * time.Second}, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
			if tries++; tries == 1 {
				time.Sleep(time.Minute) // its own time is not bounded
				go func() {             // takes the slot while the call backs off, and keeps it
					p := acquire(t, s, sluice.Call{Lane: "m"})
					time.Sleep(30 * time.Second)
					p.Release(sluice.Outcome{})
				}()
				return sluice.Outcome{Kind: sluice.ServerError}
			}
			return sluice.Outcome{}
		})
		if !errors.Is(err, sluice.ErrSlotTimeout) || tries != 1 {
			t.Errorf("%d tries: %v", tries, err)
		}
		time.Sleep(time.Minute)
	})
}

// holder notes what it is told, and how many of its permits the Scheduler counts then.
type holder struct {
	s              *sluice.Scheduler
	sent, released []int
	left           []bool
	used           []sluice.Usage
}

func (h *holder) Sent(*sluice.Permit, time.Time) {
	h.sent = append(h.sent, h.s.Snapshot().Lanes[0].InFlight)
}

func (h *holder) Released(_ *sluice.Permit, left bool, _ sluice.Kind, used sluice.Usage) {
	h.released = append(h.released, h.s.Snapshot().Lanes[0].InFlight)
	h.left = append(h.left, left)
	h.used = append(h.used, used)
}

func TestAHolderIsToldBeforeAnotherHasTheSlot(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
	h := &holder{s: s}
	p := acquire(t, s, sluice.Call{})
	p.SetHolder(h)
	p.Sent()
	if !p.TryRelease(sluice.Outcome{Usage: sluice.Usage{Output: 7}, HasUsage: true}) || p.TryRelease(sluice.Outcome{}) {
		t.Error("it was not given back once")
	}
	if len(h.sent) != 1 || len(h.released) != 1 || h.released[0] != 1 || !h.left[0] || h.used[0].Output != 7 {
		t.Errorf("told %+v", h)
	}
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "released twice") {
			t.Errorf("a second Release: %v", r)
		}
	}()
	p.Release(sluice.Outcome{})
}

func TestACallIsNotSentAfterItsPermitIsBack(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
	h := &holder{s: s}
	p := acquire(t, s, sluice.Call{})
	p.SetHolder(h)
	p.Release(sluice.Outcome{Unsent: true})
	p.Sent()
	if len(h.sent) != 0 || len(h.released) != 1 || h.left[0] {
		t.Errorf("told %+v", h)
	}
	p = acquire(t, s, sluice.Call{})
	p.SetHolder(h)
	p.Release(sluice.Outcome{})
	p.Sent()
	if len(h.sent) != 1 || len(h.released) != 2 || !h.left[1] {
		t.Errorf("of a call that left and nobody said so, told %+v", h)
	}
}

func TestAWaitIsToldAlsoWhereItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		p, err := s.Acquire(t.Context(), sluice.Call{})
		if err != nil || p.Waited() != 0 {
			t.Errorf("at once: %v", err)
		}
		time.AfterFunc(10*time.Second, func() { p.Release(sluice.Outcome{}) })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, sluice.Call{}); err != context.DeadlineExceeded {
			t.Errorf("cancelled: %v", err)
		}
		if tally, err := s.Do(t.Context(), sluice.Call{MaxWait: 2 * time.Second}, nil); !errors.Is(err, sluice.ErrSlotTimeout) || tally.Wait() != 2*time.Second {
			t.Errorf("late, in Do: %v, %v", tally.Wait(), err)
		}
		gone := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(gone) })
		if _, err := s.Acquire(t.Context(), sluice.Call{Withdrawn: gone}); err != sluice.ErrWithdrawn {
			t.Errorf("withdrawn: %v", err)
		}
		next, err := s.Acquire(t.Context(), sluice.Call{})
		if err != nil || next.Waited() != 4*time.Second {
			t.Errorf("granted: %v", err)
		}
		next.Release(sluice.Outcome{})
	})
}

func TestASnapshotSaysWhatWasTold(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 5}, Account: sluice.Limits{RPM: 60}})
	if got := s.Snapshot(); got.Limits.Concurrency != 5 || got.Account.RPM != 60 || len(got.Lanes) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestASecondReleasePanicsAndNamesThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		p := acquire(t, s, sluice.Call{ID: "item 7", Lane: "gpt"})
		p.Release(ok)
		defer func() {
			msg := fmt.Sprint(recover())
			for _, want := range []string{"item 7", "gpt", "released twice"} {
				if !strings.Contains(msg, want) {
					t.Errorf("%q does not say %q", msg, want)
				}
			}
			if n := lane(t, s).InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
			acquire(t, s, sluice.Call{Lane: "gpt"}).Release(ok) // and the lock is free
		}()
		p.Release(ok)
	})
}

func TestTryAcquireTakesWhatIsFreeAndNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 2, TPM: 6000, Burst: time.Second}})
		start := time.Now()
		a, b := s.TryAcquire(sluice.Call{}), s.TryAcquire(sluice.Call{})
		if a == nil || b == nil || s.TryAcquire(sluice.Call{}) != nil {
			t.Error("not exactly two permits of two slots")
		}
		a.Release(ok)
		b.Release(ok)
		if s.TryAcquire(sluice.Call{Cost: sluice.Cost{MaxOutput: 7000}}) != nil {
			t.Error("a call above the limit got a permit")
		}
		p := s.TryAcquire(sluice.Call{Cost: sluice.Cost{MaxOutput: 90}})
		if p == nil || s.TryAcquire(sluice.Call{Cost: sluice.Cost{MaxOutput: 50}}) != nil {
			t.Error("100 tokens are there: 90 fit and 50 more do not")
		}
		if l := lane(t, s); l.Waiting != 0 || l.InFlight != 1 || time.Since(start) != 0 {
			t.Errorf("%+v after %v", l, time.Since(start))
		}
		p.Release(ok)
	})
}

func TestAnOpenAnswerKeepsItsPermitUntilItsReaderReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		var permit *sluice.Permit
		tally, err := s.Do(t.Context(), sluice.Call{}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
			permit = p
			return sluice.Outcome{Open: true}
		})
		if err != nil || tally.Attempts != 1 {
			t.Fatalf("%+v, %v", tally, err)
		}
		if lane(t, s).InFlight != 1 || s.TryAcquire(sluice.Call{}) != nil {
			t.Error("the slot of an open answer is free")
		}
		permit.Release(sluice.Outcome{HasUsage: true})
		if lane(t, s).InFlight != 0 {
			t.Error("the slot of a closed answer is held")
		}
	})
}
