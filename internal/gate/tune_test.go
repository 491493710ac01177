package gate_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// perSecond counts the calls that are let out in that time, each answered at once.
func (r *rig) perSecond(d time.Duration) float64 {
	r.t.Helper()
	n := 0
	end := r.now.Add(d)
	for {
		t := r.queue(limits.Call{})
		for !t.Granted() {
			if !r.step(end) {
				r.cancel(t)
				r.until(end)
				return float64(n) / d.Seconds()
			}
		}
		r.release(t, limits.Outcome{})
		n++
	}
}

func TestToldLimitsChangeWhileCallsGoOn(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPM: 600}, Account: limits.Limits{RPM: 600}})
	r.perSecond(20 * time.Second) // the first burst is over
	for _, rpm := range []int{600, 120, 1200, 60} {
		told := limits.Limits{RPM: rpm}
		r.g.SetLimits(r.now, told, told)
		r.drain()
		r.perSecond(5 * time.Second)
		got, want := r.perSecond(60*time.Second), float64(rpm)/60
		if got > want || got < 0.95*want {
			t.Errorf("at %d requests a minute, %.2f a second are let out, want %.2f", rpm, got, want)
		}
	}
	if n := r.count(limits.EventLimitsChanged); n != 4 {
		t.Errorf("%d limits were told, want that of the start and 3 others", n)
	}
}

// what is told of limits: an event for each.
func (r *rig) toldLimits() (all []string) {
	for _, e := range r.events {
		if e.Type == limits.EventLimitsChanged {
			all = append(all, fmt.Sprint(e.Lane, " ", e.Dimension, " ", e.Limit, " ", e.Source))
		}
	}
	return all
}

func TestToldLimitsAreSaidAlsoWhereNothingMeetsThem(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPM: 600, TPM: 90_000, Concurrency: 4}, Start: limits.Limits{TPM: 60_000, RPD: 1000}})
	for _, lane := range []string{"m", "m", "n"} {
		r.release(r.acquire(limits.Call{Lane: lane}), limits.Outcome{})
		r.sleep(time.Second)
	}
	want := []string{"m rpm 600 configured", "m concurrency 4 configured", "n rpm 600 configured", "n concurrency 4 configured"}
	if got := r.toldLimits(); !slices.Equal(got, want) {
		t.Errorf("told: %q, want %q", got, want)
	}
}

func TestCeilingsThatAreToldAndThenRemoved(t *testing.T) {
	all := limits.Limits{RPM: 600, TPM: 60_000, RPD: 5000, Concurrency: 2}
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 8}, Account: limits.Limits{Concurrency: 8}})
	open := r.fill(limits.Call{Lane: "m"})
	r.g.SetLimits(r.now, all, all) // there were none, with calls open
	r.drain()
	waiting := r.queue(limits.Call{Lane: "m"})
	r.sleep(time.Second)
	for _, held := range open {
		r.release(held, limits.Outcome{})
	}
	if n := r.laneNamed("m").InFlight; n != 1 || !waiting.Granted() {
		t.Fatalf("%d in flight", n)
	}
	other := r.queue(limits.Call{Lane: "m"})
	r.sleep(time.Second)
	over := []*gate.Ticket{r.queue(limits.Call{Lane: "m"}), r.queue(limits.Call{Lane: "n"})}
	if !other.Granted() || over[0].Granted() || over[1].Granted() {
		t.Fatal("2 calls may be open, of both lanes")
	}
	said := len(r.toldLimits())
	r.g.SetLimits(r.now, limits.Limits{}, limits.Limits{})
	r.drain()
	if !over[1].Granted() {
		t.Error("nothing is told of all lanes any more, and the other lane waits")
	}
	if now := r.toldLimits(); len(now) != said {
		t.Errorf("of what was removed was told: %q", now[said:])
	}
	for _, b := range r.laneNamed("m").Budgets {
		if b.Source != limits.SourceStart {
			t.Errorf("%v is %d by %s, want a belief", b.Dimension, b.Limit, b.Source)
		}
	}
	// What is believed of the slots grows as calls are taken.
	tickets := append([]*gate.Ticket{waiting, other}, over...)
	for range 40 {
		for range 20 {
			tickets = append(tickets, r.queue(limits.Call{Lane: "m"}))
		}
		r.sleep(2 * time.Second)
		for _, each := range tickets {
			if each.Granted() {
				r.release(each, limits.Outcome{})
			}
		}
	}
	if n := r.laneNamed("m").Slots; n <= 2 {
		t.Errorf("%d slots", n)
	}
	// Told again, they hold again.
	r.g.SetLimits(r.now, all, all)
	r.drain()
	if l := r.laneNamed("m"); l.Slots != 2 || l.Budgets[0].Source != limits.SourceConfigured || l.Budgets[0].Limit != 600 {
		t.Errorf("%+v", l)
	}
}

func TestACeilingAboveWhatHeadersSayChangesNothing(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.release(r.acquire(limits.Call{}), limits.Outcome{Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 300, Remaining: 299, Reset: 200 * time.Millisecond}}})
	r.g.SetLimits(r.now, limits.Limits{RPM: 900}, limits.Limits{RPM: 900})
	r.drain()
	if b := r.budget(limits.Requests); b.Limit != 300 || b.Source != limits.SourceHeader {
		t.Errorf("%+v, want the header's 300", b)
	}
}

func TestToldSlotsChangeWhileCallsAreOpen(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 8}})
	r.warm(10)
	open := r.fill(limits.Call{})
	to := func(n int) {
		r.g.SetLimits(r.now, limits.Limits{Concurrency: n}, limits.Limits{Concurrency: n})
		r.drain()
	}
	to(3)
	waiting := r.queue(limits.Call{})
	for _, held := range open[:5] {
		r.release(held, limits.Outcome{})
		if waiting.Granted() {
			t.Fatalf("a call was let out beside %d others, and 3 may be open", r.lane().InFlight-1)
		}
	}
	r.release(open[5], limits.Outcome{})
	if !waiting.Granted() {
		t.Error("the call that waited was not let out as the third")
	}
	more := r.queue(limits.Call{})
	to(20)
	if !more.Granted() || len(r.fill(limits.Call{})) != 16 {
		t.Errorf("raised to 20 slots, %d are in flight", r.lane().InFlight)
	}
}

func TestNothingIsSentWhileAllIsHeld(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 4}})
	open := r.acquire(limits.Call{Lane: "a"})
	r.g.Hold(r.now, true)
	r.g.Hold(r.now, true)
	r.drain()
	a, b := r.queue(limits.Call{Lane: "a"}), r.queue(limits.Call{Lane: "b"})
	r.release(open, limits.Outcome{})
	r.sleep(10 * time.Minute)
	if a.Granted() || b.Granted() || !r.laneNamed("a").Held {
		t.Fatal("a call was let out")
	}
	r.g.Hold(r.now, false)
	r.drain()
	if !a.Granted() || !b.Granted() {
		t.Error("the calls that waited were not let out")
	}
	if r.count(limits.EventPaused) != 1 || r.count(limits.EventResumed) != 1 {
		t.Errorf("paused %d times, resumed %d times", r.count(limits.EventPaused), r.count(limits.EventResumed))
	}
}

// TestDelayForeseesTheWait compares what is foreseen with what comes, of calls behind others.
func TestDelayForeseesTheWait(t *testing.T) {
	second := func(r *rig) { // every call takes a second
		for _, held := range r.take() {
			r.sleepAndRelease(held, time.Second)
		}
	}
	for name, c := range map[string]struct {
		told   limits.Limits
		cost   limits.Cost
		before int
		within float64
	}{
		"requests": {limits.Limits{RPM: 60, Burst: time.Second}, limits.Cost{}, 10, 0.05},
		"tokens":   {limits.Limits{TPM: 60_000, Burst: time.Second}, limits.Cost{Input: 100, MaxOutput: 2000}, 10, 0.15},
		"minute":   {limits.Limits{RPM: 60}, limits.Cost{}, 120, 0.05},
		"nothing":  {limits.Limits{RPM: 60, Burst: time.Second}, limits.Cost{}, 0, 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: c.told})
			call := limits.Call{Cost: c.cost}
			r.release(r.acquire(call), limits.Outcome{})
			for range c.before {
				r.queue(call)
			}
			foreseen := r.g.Delay(r.now, &call)
			asked := r.now
			last := r.queue(call)
			for !last.Granted() && r.step(r.now.Add(time.Hour)) {
			}
			took := r.now.Sub(asked)
			if diff := math.Abs(foreseen.Seconds() - took.Seconds()); diff > c.within*took.Seconds()+0.02 {
				t.Errorf("foreseen %v, took %v", foreseen, took)
			}
		})
	}
	t.Run("slots", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 2}})
		for range 50 { // it learns that a call takes a second
			r.queue(limits.Call{})
			second(r)
		}
		r.fill(limits.Call{})
		for i := range 5 {
			r.queue(limits.Call{ID: fmt.Sprint(i)})
		}
		if d := r.g.Delay(r.now, &limits.Call{}); d < 2500*time.Millisecond || d > 3500*time.Millisecond {
			t.Errorf("foreseen %v behind 5 calls on 2 slots of a second each, want 3 s", d)
		}
	})
	t.Run("pause", func(t *testing.T) {
		r := newRig(t, gate.Config{})
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.UsageWindow, Until: r.now.Add(time.Hour)})
		if d := r.g.Delay(r.now, &limits.Call{}); d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("foreseen %v, want the hour until the window resets", d)
		}
		if d := r.g.Delay(r.now, &limits.Call{Lane: "another"}); d != 0 {
			t.Errorf("foreseen %v on a lane that nobody used", d)
		}
		r.g.Hold(r.now, true)
		if d := r.g.Delay(r.now, &limits.Call{}); d != math.MaxInt64 {
			t.Errorf("foreseen %v while all is held", d)
		}
	})
}

func (r *rig) sleepAndRelease(t *gate.Ticket, d time.Duration) {
	r.sleep(d)
	r.release(t, limits.Outcome{})
}

func TestWhatWasUsedOfADayCountsUnderAnotherLimit(t *testing.T) {
	for name, c := range map[string]struct{ lane, account bool }{"lane": {lane: true}, "account": {account: true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			both := func(rpd int) (lane, account limits.Limits) {
				if c.lane {
					lane.RPD = rpd
				}
				if c.account {
					account.RPD = rpd
				}
				return lane, account
			}
			lane, account := both(100)
			r := newRig(t, gate.Config{Limits: lane, Account: account})
			use := func(most int) (n int) {
				for ; n < most; n++ {
					ticket := r.queue(limits.Call{})
					if !ticket.Granted() {
						r.cancel(ticket)
						break
					}
					r.release(ticket, limits.Outcome{})
				}
				return n
			}
			tell := func(rpd int) {
				lane, account := both(rpd)
				r.g.SetLimits(r.now, lane, account)
				r.drain()
			}
			use(70)
			tell(50)
			if n := use(1000); n != 0 {
				t.Errorf("after 70 calls, at 50 a day, %d more were let out", n)
			}
			tell(200)
			if n := use(1000); n < 129 || n > 131 {
				t.Errorf("after 70 calls, at 200 a day, %d more were let out, want 130", n)
			}
		})
	}
}
