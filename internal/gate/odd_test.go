package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// wantWithin waits until a ticket has its permit.
func (r *rig) wantWithin(t *gate.Ticket, longest time.Duration) {
	r.t.Helper()
	for end := r.now.Add(longest); !t.Granted() && r.step(end); {
	}
	if !t.Granted() {
		r.t.Fatalf("at %v: call %+v was not granted within %v; lane: %+v", r.since(), t.Call, longest, r.laneNamed(t.Call.Lane))
	}
}

func TestAnAbsurdUseStopsALaneForAMinute(t *testing.T) {
	r := newRig(t, gate.Config{Start: limits.Limits{TPM: 10_000}})
	call := limits.Call{Cost: limits.Cost{Input: 10}}
	for range 5 {
		r.release(r.acquire(call), limits.Outcome{})
		r.sleep(time.Second)
	}
	r.release(r.acquire(call), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Limit: 10_000, Used: 1e15, Requested: 10})
	r.wantWithin(r.queue(call), time.Minute+time.Second)
}

func TestALimitFarBelowTheRejectedRequestIsNotBelieved(t *testing.T) {
	r := newRig(t, gate.Config{})
	call := limits.Call{Cost: limits.Cost{Input: 3000}}
	r.release(r.acquire(call), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Limit: 98})
	r.wantWithin(r.queue(call), 3*time.Second)
}

func TestAStatedWaitIsWaitedForAtTheRateOfTheLedger(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true, Limits: limits.Limits{RPM: 300}})
	first := r.queue(limits.Call{})
	r.wantWithin(first, time.Second)
	r.release(first, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Limit: 75_000, Wait: 993 * time.Millisecond})
	r.wantWithin(r.queue(limits.Call{}), 3*time.Second)
}

func TestALimitOfADayNeedsTheRejectionsOfTwoItems(t *testing.T) {
	for _, items := range []int{1, 2} {
		for name, o := range map[string]limits.Outcome{
			"named":  {Kind: limits.RateLimit, Dimension: limits.RequestsPerDay, Limit: 10_000, Used: 10_000, Requested: 1, Wait: 8 * time.Hour},
			"header": {Kind: limits.RateLimit, Readings: []limits.Reading{{Dimension: limits.RequestsPerDay, Limit: 10, Reset: 24 * time.Hour}}},
		} {
			r := newRig(t, gate.Config{})
			r.warm(20)
			var odd []*gate.Ticket
			for range items {
				odd = append(odd, r.acquire(limits.Call{}))
			}
			for _, t := range odd {
				r.release(t, o)
			}
			r.take()
			granted := 0
			for end := r.now.Add(5 * time.Second); r.now.Before(end); r.sleep(100 * time.Millisecond) {
				for _, other := range r.take() {
					granted++
					r.release(other, limits.Outcome{})
				}
				r.queue(limits.Call{})
			}
			if granted > 10 != (items == 1) {
				t.Errorf("%s, rejected items %d: %d others were granted", name, items, granted)
			}
		}
	}
}

func TestALimitThatAnItemAtFaultNamesIsForgotten(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.warm(20)
	odd := r.acquire(limits.Call{})
	for range 5 {
		d := r.release(odd, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Limit: 500, Used: 500, Requested: 1})
		other := r.queue(limits.Call{})
		r.wantWithin(other, time.Second)
		r.release(other, limits.Outcome{})
		odd = r.again(odd, d)
		r.wantWithin(odd, 10*time.Second)
	}
	if all := r.lane().Budgets; len(all) > 0 {
		t.Errorf("limits: %+v", all)
	}
}

func TestAnItemRejectedByItsLimitIsNotAtFault(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 60_000, Burst: time.Second}})
	call, rejected := limits.Call{Cost: limits.Cost{Input: 1000}}, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens}
	first := r.acquire(call)
	d := r.release(first, rejected)
	r.sleep(2 * time.Second)
	r.release(r.acquire(call), limits.Outcome{})
	r.sleep(2 * time.Second)
	r.release(r.again(first, d), rejected)
	r.wantLevel(limits.Tokens, 0, 1)
}

func TestACancelledRequestGivesBackItsPace(t *testing.T) {
	r := newRig(t, gate.Config{Start: limits.Limits{TPM: 10_000}})
	r.cancel(r.acquire(limits.Call{Cost: limits.Cost{Input: 1_000_000}}))
	r.wantWithin(r.queue(limits.Call{Cost: limits.Cost{Input: 100}}), time.Minute)
}

func TestARaisedLimitIsUsedAtOnce(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{ITPM: 100}})
	r.acquire(limits.Call{Cost: limits.Cost{Input: 100_000}})
	r.g.SetLimits(r.now, limits.Limits{ITPM: 10_000_000}, limits.Limits{})
	r.wantWithin(r.queue(limits.Call{Cost: limits.Cost{Input: 100}}), time.Second)
}

func TestARefusedAskGivesBackItsPace(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true, Start: limits.Limits{TPM: 10_000}})
	asks := 0
	r.ledger.refuse = func(n int) int {
		if asks++; asks < 3 {
			return 0
		}
		return n
	}
	r.wantWithin(r.queue(limits.Call{Cost: limits.Cost{Input: 9_000}}), time.Second)
}

func TestALaneWaitsForTheRequestsOfOthersUntilTheyAreProven(t *testing.T) {
	r := newRig(t, gate.Config{})
	for _, lane := range []string{"a", "a", "b", "b"} {
		r.acquire(limits.Call{Lane: lane})
	}
	r.wantWithin(r.queue(limits.Call{Lane: "c"}), time.Second)
}

func TestTokenHeadersOfRequestsWithoutTokensLeaveTheirCostANumber(t *testing.T) {
	r := newRig(t, gate.Config{})
	for i := range int64(20) { // the bucket fills as it does if nobody uses it
		x := r.queue(limits.Call{})
		r.wantWithin(x, time.Second)
		r.answer(x, limits.Reading{Dimension: limits.Tokens, Limit: 60_000, Remaining: 1000 + 1000*i, Reset: 30 * time.Second})
		r.sleep(time.Second)
	}
	r.acquire(limits.Call{Cost: limits.Cost{Input: 100}})
	r.wantLevel(limits.Tokens, 20_900, 200)
}

// spend sends requests one after the other for as long as they are granted at once.
func (r *rig) spend(lane string) (n int) {
	r.t.Helper()
	for x := r.queue(limits.Call{Lane: lane}); ; x = r.queue(limits.Call{Lane: lane}) {
		if !x.Granted() {
			r.cancel(x)
			return n
		}
		r.release(x, limits.Outcome{})
		n++
	}
}

func TestADayOfTheOnlyLaneIsUsedOfTheAccount(t *testing.T) {
	day := limits.Limits{RPD: 10}
	r := newRig(t, gate.Config{Limits: day, Account: day})
	r.release(r.acquire(limits.Call{Lane: "a"}), limits.Outcome{})
	if n := 1 + r.spend("b") + r.spend("a"); n != 10 {
		t.Fatalf("%d requests were sent, want 10", n)
	}
	var memories []gate.Memory
	for _, lane := range []string{"a", "b"} {
		m, _ := r.g.Memory(r.now, lane)
		memories = append(memories, m)
	}
	for _, account := range []limits.Limits{day, {RPD: 12}} {
		after := newRig(t, gate.Config{Limits: day, Account: account})
		for _, m := range memories {
			after.g.Recall(after.now, m)
		}
		if n := after.spend("c"); n != account.RPD-10 {
			t.Fatalf("%d requests were sent after a restart, want %d", n, account.RPD-10)
		}
	}
}

func TestADayUnderAnotherLimitCountsNoUnsentRequests(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPD: 100}})
	for range 40 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{})
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Network, Unsent: true, Abandoned: true})
	}
	r.wantLevel(limits.RequestsPerDay, 60, 1)
	r.g.SetLimits(r.now, limits.Limits{RPD: 90}, limits.Limits{})
	r.wantLevel(limits.RequestsPerDay, 50, 1)
	m, _ := r.g.Memory(r.now, "")
	others := m
	others.Budgets = []gate.BudgetMemory{{Dimension: limits.RequestsPerDay, Left: 20}}
	r.g.Share(r.now, &m, &m, &others)
	r.wantLevel(limits.RequestsPerDay, 20, 1)
}

func TestALaneWhoseItemsAreAllAtFaultPauses(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{ITPM: 1_000_000, Concurrency: 2}}).warm(20)
	var again []*gate.Ticket
	for range 10 {
		x := r.acquire(limits.Call{})
		r.sleep(time.Millisecond)
		r.release(r.acquire(limits.Call{}), limits.Outcome{})
		r.release(x, limits.Outcome{Kind: limits.RateLimit})
		again = append(again, x)
	}
	r.wantEpochs(0)
	r.sleep(time.Second)
	for i, x := range again {
		again[i] = r.again(x, gate.Decision{Throttle: true})
	}
	for _, x := range again {
		r.wantWithin(x, 20*time.Second)
		r.sleep(time.Millisecond)
		r.release(x, limits.Outcome{Kind: limits.RateLimit, Wait: time.Second})
	}
	if n := r.count(limits.EventCooldownStarted); n == 0 {
		t.Fatal("ten rejections in a row paused nothing")
	}
}

func TestResponsesThatBecomeSlowAreNoQueue(t *testing.T) {
	r := newRig(t, gate.Config{})
	open := make(map[*gate.Ticket]time.Time)
	sent, early := 0, 0
	for x := r.queue(limits.Call{}); r.since() < 4*time.Minute; r.sleep(100 * time.Millisecond) {
		for ; x.Granted() && len(open) < 100; x = r.queue(limits.Call{}) {
			latency := 200 * time.Millisecond
			if sent++; sent > 100 { // from here on the items have long outputs
				latency = 10 * time.Second
			}
			open[x] = r.now.Add(latency)
		}
		for y, end := range open {
			if !end.After(r.now) {
				delete(open, y)
				r.release(y, limits.Outcome{})
			}
		}
		if r.since() < 2*time.Minute {
			early = sent
		}
	}
	if n := sent - early; n < 1000 {
		t.Fatalf("%d requests in two minutes, 1200 would fit", n)
	}
}

func TestAnOverloadedProviderMakesNoItemWaitForDays(t *testing.T) {
	r := newRig(t, gate.Config{})
	d := r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Overloaded, Wait: 31 * 24 * time.Hour})
	if d.Action != gate.Again || d.Wait > time.Minute {
		t.Fatalf("the item waits for %v", d.Wait)
	}
	r.wantPause(200*time.Millisecond, 2*time.Second) // then the wait is tested
}

// An item at fault may be rejected while a day's limit is nearly used up. What is taken back must not fill the day.
func TestAnItemAtFaultDoesNotFillADayAgain(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPD: 100}})
	for range 99 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{})
		r.sleep(100 * time.Millisecond)
	}
	odd := r.acquire(limits.Call{ID: "odd"})
	r.sleep(50 * time.Millisecond)
	d := r.release(odd, bare)
	good := r.queue(limits.Call{})
	r.sleep(40 * time.Minute)
	r.release(good, limits.Outcome{})
	odd = r.again(odd, d)
	r.sleep(40 * time.Minute)
	r.release(odd, bare)
	for n := 0; ; n++ {
		x := r.queue(limits.Call{})
		if !x.Granted() {
			break
		}
		if n > 10 {
			t.Fatal("more than 10 requests at the end of a day")
		}
		r.release(x, limits.Outcome{})
		r.sleep(100 * time.Millisecond)
	}
}

// Headers of two lanes state more than the configured limit, so that the lanes share it. A rejection shows that the headers of one lane are
// about something else.
func TestALaneThatLeavesASharedLimitGoesOn(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPM: 60}})
	for i := range 12 {
		for _, lane := range []string{"a", "b"} {
			x := r.queue(limits.Call{Lane: lane})
			r.sleep(500 * time.Millisecond)
			r.release(x, limits.Outcome{Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 1000, Remaining: int64(900 - 2*i), Reset: 6 * time.Second}}})
		}
	}
	odd := r.acquire(limits.Call{Lane: "a", ID: "odd"})
	for range 8 {
		r.sleep(10 * time.Millisecond)
		x := r.acquire(limits.Call{Lane: "a"})
		r.sleep(10 * time.Millisecond)
		r.release(x, limits.Outcome{})
	}
	r.sleep(20 * time.Millisecond)
	r.release(odd, bare)
	for range 10 {
		for _, lane := range []string{"a", "b"} {
			x := r.queue(limits.Call{Lane: lane})
			r.sleep(10 * time.Minute)
			if !x.Granted() {
				t.Fatalf("lane %s sends nothing for ten minutes", lane)
			}
			r.release(x, limits.Outcome{})
		}
	}
}

// Whoever leaves between two tries tells the gate nothing. Nobody knows how long a provider rejects everything.
func TestItemsThatNeverComeBackAreNotRememberedForGood(t *testing.T) {
	for _, kind := range []limits.Kind{limits.RateLimit, limits.Overloaded, limits.ServerError} {
		r := newRig(t, gate.Config{})
		for range 3000 {
			w := r.queue(limits.Call{})
			r.wantWithin(w, time.Minute)
			r.release(w, limits.Outcome{Kind: kind})
		}
		if n := r.g.Suspects(""); n > 1000 {
			t.Errorf("%v: %d items of 3000 are remembered", kind, n)
		}
	}
}
