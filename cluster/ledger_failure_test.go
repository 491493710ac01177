package cluster_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/limits"
)

// ledger opens one that is closed at the test's end.
func ledger(t *testing.T, at *cluster.Site, account string, cfg cluster.LedgerConfig) *cluster.Ledger {
	t.Helper()
	l := open(t, at).Ledger(account, cfg)
	l.Wait(2 * time.Second)
	t.Cleanup(func() { l.Close() })
	return l
}

// told is what a gate says of a limit when it begins.
func told(d limits.Dimension, rate, cap, start float64) limits.Correction {
	return limits.Correction{Lane: "m", Dimension: d, Lo: math.Inf(-1), Hi: math.Inf(1), Rate: rate, Cap: cap, Start: start}
}

func slots(limit, version int) limits.Correction {
	return limits.Correction{Lane: "m", Dimension: limits.Concurrency,
		Slots: limits.SlotLimit{Limit: float64(limit), Version: uint64(version)}}
}

// caller asks a ledger for calls of one request each.
type caller struct {
	t    *testing.T
	l    *cluster.Ledger
	id   uint64
	cost limits.Vector // of a call; zero is one request
}

func newCaller(t *testing.T, at *cluster.Site, account string) *caller {
	return &caller{t: t, l: ledger(t, at, account, cluster.LedgerConfig{})}
}

func (c *caller) correct(fixes ...limits.Correction) {
	c.t.Helper()
	for _, f := range fixes {
		if err := c.l.Correct(c.t.Context(), f); err != nil {
			c.t.Fatal(err)
		}
	}
}

// take asks for n calls at once, and returns the reply and the first call's id.
func (c *caller) take(n int) (limits.Reply, uint64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	asks, cost := limits.Asks{Lane: "m", Waiting: n}, c.cost
	if cost == (limits.Vector{}) {
		cost[limits.Requests] = 1
	}
	for range n {
		c.id++
		asks.Calls = append(asks.Calls, limits.Ask{ID: c.id, Cost: cost, Guarded: cost})
	}
	r, err := c.l.Take(ctx, asks)
	if err != nil {
		c.t.Fatal(err)
	}
	return r, c.id - uint64(n) + 1
}

func (c *caller) settle(id uint64) {
	c.t.Helper()
	if err := c.l.Settle(c.t.Context(), limits.Settlement{ID: id, Lane: "m"}); err != nil {
		c.t.Fatal(err)
	}
}

// until asks for n calls until all are granted, and reports how long that took.
func (c *caller) until(n int) time.Duration {
	c.t.Helper()
	began := time.Now()
	for n > 0 {
		r, _ := c.take(n)
		n -= r.Granted
		if n > 0 {
			time.Sleep(min(r.Wait, 100*time.Millisecond))
		}
	}
	return time.Since(began)
}

func TestALostReplyIsChargedOnce(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account, w := rand.Text(), at.Aside()
		a, b := newCaller(t, w, account), newCaller(t, at, account)
		a.correct(told(limits.Requests, 100, 100, 100))
		if r, _ := a.take(1); r.Granted != 1 {
			t.Fatalf("the first ask: %+v", r)
		}
		w.LoseAfter(0)
		time.AfterFunc(300*time.Millisecond, w.Restore)
		if r, _ := a.take(3); r.Granted != 3 || r.Marks[2][limits.Requests] != 4 {
			t.Errorf("an ask whose reply was lost at first: %+v, want three more charged", r)
		}
		if r, _ := b.take(1); r.Granted != 1 || r.Marks[0][limits.Requests] != 5 {
			t.Errorf("what another member sees: %+v, want five charged", r)
		}
	})
}

func TestALedgerThatComesBackWhileItsLeasesAreRenewedGoesOn(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := newCaller(t, at, rand.Text())
		c.l.Wait(patience)
		c.correct(slots(5, 0))
		if r, _ := c.take(3); r.Granted != 3 {
			t.Fatalf("three of five slots: %+v", r)
		}
		at.Hold(true)
		sent := c.l.Sent()
		eventually(t, "the leases are being renewed", func() bool { return c.l.Sent() > sent })
		back := make(chan error, 1)
		go func() { back <- c.l.Reenter() }()
		time.Sleep(100 * time.Millisecond) // it waits for the message that is under way
		at.Hold(false)
		if err := <-back; err != nil {
			t.Error(err)
		}
		if r, _ := c.take(3); r.Granted != 2 {
			t.Errorf("the last two of five slots: %+v", r)
		}
	})
}

func TestAnEmptiedEngineGrantsNothingForAWhile(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account := rand.Text()
		a, b := newCaller(t, at, account), newCaller(t, at, account)
		a.correct(told(limits.Requests, 50, 50, 50), slots(5, 0))
		if r, _ := a.take(3); r.Granted != 3 {
			t.Fatalf("three of five slots: %+v", r)
		}
		if r, _ := b.take(1); r.Granted != 1 {
			t.Fatalf("one of five slots: %+v", r)
		}
		time.Sleep(100 * time.Millisecond) // what a member says at an instant, it says again a heartbeat later
		began := time.Now()
		wipe(t, at, a.l.Account())
		b.until(1)
		if took := time.Since(began); took < 1900*time.Millisecond {
			t.Errorf("a new call was granted %v after the engine was emptied", took)
		}
		if r, _ := b.take(1); r.Granted != 0 || r.State.Slots.Limit != 5 || r.State.Open != 5 {
			t.Errorf("five slots are taken again: %+v", r)
		}
	})
}

// wipe removes the keys of an account.
func wipe(t *testing.T, at *cluster.Site, account string) {
	t.Helper()
	keys, _ := execute(t, at, "KEYS", account+"*").AsStrSlice()
	execute(t, at, append([]string{"DEL"}, keys...)...)
}

func TestAnEngineThatForgotItsLastWordsIsTold(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account := rand.Text()
		a := newCaller(t, at, account)
		a.correct(told(limits.Requests, 1, 50, 50), slots(8, 0))
		a.take(1)
		state := a.l.Account() + ":lane:m:state"
		forget := remember(t, at, state)
		if r, _ := a.take(4); r.Granted != 4 {
			t.Fatalf("four more: %+v", r)
		}
		a.correct(slots(6, 1), limits.Correction{Lane: "m", Pause: limits.Pause{Epoch: 3, Left: time.Millisecond}})
		a.take(1)
		forget()
		r, _ := a.take(1)
		if r.Granted != 0 || r.State.Slots.Limit != 6 || r.State.Pause.Epoch != 3 {
			t.Errorf("after the engine forgot a change of slots and a pause: %+v", r)
		}
		now, err := execute(t, at, "HGET", state, "spent").ToString()
		if err != nil || !strings.HasPrefix(now, "5 ") {
			t.Errorf("what was spent is %q, %v: want 5 requests", now, err)
		}
	})
}

func TestAnEngineThatForgotWhatWasSpentIsTold(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		a := newCaller(t, at, rand.Text())
		a.correct(told(limits.Requests, 1e-9, 50, 50))
		a.take(1)
		forget := remember(t, at, a.l.Account()+":lane:m:state")
		if r, _ := a.take(40); r.Granted != 40 {
			t.Fatalf("forty of fifty: %+v", r)
		}
		forget()
		a.until(9)
		if r, _ := a.take(1); r.Granted != 0 {
			t.Errorf("one of fifty more than there are: %+v", r)
		}
	})
}

// remember notes what is in a hash, and returns what has it be so again.
func remember(t *testing.T, at *cluster.Site, key string) (restore func()) {
	t.Helper()
	before, err := execute(t, at, "HGETALL", key).AsStrMap()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		set := []string{"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], unpack(ARGV))", "1", key}
		for name, value := range before {
			set = append(set, name, value)
		}
		execute(t, at, set...)
	}
}

// It has its own Redis, because other tests on a shared one would lose the script as well.
func TestTheScriptIsGivenToAnEngineThatLostIt(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, at *cluster.Site) {
		a := newCaller(t, at, rand.Text())
		a.take(1)
		time.Sleep(5 * time.Second) // one that is as young grants at once
		execute(t, at, "SCRIPT", "FLUSH")
		if took := a.until(1); took < 1900*time.Millisecond { // it was started anew, maybe, and others have slots
			t.Errorf("it grants after %v", took)
		}
	}
	t.Run("memory", func(t *testing.T) { inMemory(t, test) })
	t.Run("redis", func(t *testing.T) { test(t, cluster.SiteAt(newServer(t).url())) })
}

func TestKeysOfAnotherVersionAreRefused(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		l := ledger(t, at, rand.Text(), cluster.LedgerConfig{})
		if err := l.Check(t.Context()); err != nil {
			t.Fatalf("a ledger that nobody used: %v", err)
		}
		(&caller{t: t, l: l}).take(1)
		if err := l.Check(t.Context()); err != nil {
			t.Fatalf("a ledger of this version: %v", err)
		}
		execute(t, at, "HSET", l.Account()+":account", "format", "99")
		if err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("a ledger of another version: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := l.Take(ctx, limits.Asks{Lane: "m", Waiting: 1, Calls: []limits.Ask{{ID: 9}}}); err == nil {
			t.Errorf("a ledger of another version granted %+v", r)
		}
	})
}

func TestWhatIsSettledBeforeCloseIsHeard(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account := rand.Text()
		a, b := newCaller(t, at, account), newCaller(t, at, account)
		a.correct(slots(1, 0))
		_, id := a.take(1)
		a.settle(id)
		if err := a.l.Close(); err != nil {
			t.Fatal(err)
		}
		if r, _ := b.take(1); r.Granted != 1 {
			t.Errorf("the slot of a member that left: %+v", r)
		}
		if err := a.l.Settle(t.Context(), limits.Settlement{ID: id, Lane: "another"}); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("a settlement after Close: %v", err)
		}
	})
}

func TestAMemberThatLeavesIsWaitedForNoLonger(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account := rand.Text()
		a, b := newCaller(t, at, account), newCaller(t, at, account)
		a.correct(slots(1, 0))
		_, id := a.take(1)
		if r, _ := b.take(1); r.Granted != 0 {
			t.Fatalf("a second of one slot: %+v", r)
		}
		if err := b.l.Close(); err != nil {
			t.Fatal(err)
		}
		a.settle(id)
		if r, _ := a.take(1); r.Granted != 1 {
			t.Errorf("beside nobody: %+v", r)
		}
	})
}

func TestADaysBudgetIsWhatTheMembersLastKnewWhenTheEngineWasEmptied(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		a := &caller{t: t, l: ledger(t, at, rand.Text(), cluster.LedgerConfig{}), cost: limits.Vector{limits.RequestsPerDay: 1}}
		a.correct(told(limits.RequestsPerDay, 1e-9, 10, 10))
		a.until(4)
		time.Sleep(100 * time.Millisecond)
		wipe(t, at, a.l.Account())
		a.until(6)
		if r, _ := a.take(1); r.Granted != 0 || r.Bound != limits.RequestsPerDay {
			t.Errorf("an eleventh of a day's ten: %+v", r)
		}
	})
}

func TestAPauseThatIsToldLateIsNotLonger(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		w := at.Aside()
		a := newCaller(t, w, rand.Text())
		a.l.Wait(250 * time.Millisecond) // what is under way is as old
		a.take(1)
		w.Down(true)
		a.correct(limits.Correction{Lane: "m", Pause: limits.Pause{Epoch: 1, Left: time.Hour}})
		time.Sleep(1100 * time.Millisecond)
		w.Restore()
		if r, _ := a.take(1); r.Granted != 0 || r.Wait > time.Hour-time.Second {
			t.Errorf("a pause of an hour, of which a second passed before it was heard: %+v", r)
		}
	})
}

func TestKeysThatNobodyUsesAreForgotten(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account := rand.Text()
		a, b := newCaller(t, at, account), newCaller(t, at, account)
		a.correct(slots(1, 0), told(limits.Requests, 100, 100, 100), limits.Correction{Lane: "m", Pause: limits.Pause{Epoch: 1}})
		a.take(1)
		b.take(1)
		keys, err := execute(t, at, "KEYS", a.l.Account()+"*").AsStrSlice()
		if err != nil || len(keys) < 9 {
			t.Fatalf("keys %q, %v", keys, err)
		}
		for _, key := range keys {
			if left, err := execute(t, at, "TTL", key).AsInt64(); err != nil || left <= 0 || left > 48*3600 {
				t.Errorf("%s lives for %d s, %v", key, left, err)
			}
		}
	})
}

func TestAChangeOfSlotsIsHeardHoweverMuchElseIsSaidWhileTheEngineIsGone(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		w := at.Aside()
		a := &caller{t: t, l: ledger(t, w, rand.Text(), cluster.LedgerConfig{})}
		a.correct(slots(8, 0))
		a.take(1)
		w.Down(true)
		a.correct(slots(3, 1))
		for range 3000 {
			a.correct(told(limits.Requests, 100, 100, 100))
		}
		time.Sleep(600 * time.Millisecond) // until it is found to be gone, and tried again
		w.Restore()
		a.correct(slots(2, 2))
		if r, _ := a.take(1); r.State.Slots.Limit != 2 || r.State.Slots.Version != 3 {
			t.Errorf("after two changes that the engine did not hear at once: %+v", r.State.Slots)
		}
	})
}

func TestAMemberThatFallsSilentLosesItsSlotsAndHasThemAgainWhenItSpeaks(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		account, far := rand.Text(), at.Aside()
		a, other := newCaller(t, at, account), newCaller(t, far, account)
		a.correct(slots(5, 0))
		_, first := a.take(1)
		other.until(3)
		if r, _ := a.take(2); r.Granted != 1 || r.State.Open != 5 {
			t.Fatalf("beside three slots of another: %+v", r)
		}
		far.Hold(true)
		if took := a.until(3); took < 2*time.Second {
			t.Errorf("the slots of a member that is silent were granted after %v: a lease is longer", took)
		}
		far.Hold(false)
		eventually(t, "the calls of a member that speaks again count", func() bool {
			r, _ := a.take(1)
			return r.State.Open == 8
		})
		a.settle(first)
		if r, _ := a.take(1); r.Granted != 0 {
			t.Errorf("of five slots seven are taken: %+v", r)
		}
		far.Hold(true)
		eventually(t, "the slots of a member that died", func() bool {
			r, _ := a.take(1)
			return r.Granted == 1
		})
	})
}

func TestTheSlotsOfTheDeadAreBackAlsoWhenTheEnginesClockWasSetBack(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		m, now := at.Memory, time.Unix(1_790_000_000, 0)
		m.SetTime(now)
		w, account := at.Aside(), rand.Text()
		a, b := newCaller(t, w, account), newCaller(t, at, account)
		a.correct(slots(1, 0))
		if r, _ := a.take(1); r.Granted != 1 {
			t.Fatalf("the first: %+v", r)
		}
		w.Down(true) // it is heard of no more
		now = now.Add(-time.Hour)
		m.SetTime(now)
		if r, _ := b.take(1); r.Granted != 0 || r.State.Open != 1 {
			t.Fatalf("beside a call that may be open still: %+v", r)
		}
		m.SetTime(now.Add(3 * time.Second))
		b.correct(told(limits.Requests, 100, 100, 100))
		b.take(1)
		m.SetTime(now.Add(7 * time.Second))
		if r, _ := b.take(1); r.Granted != 1 {
			t.Errorf("a lease after the clock was set back: %+v", r)
		}
	})
}
