package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func TestLanesShareTheAccountsBudgets(t *testing.T) {
	r := newRig(t, gate.Config{Account: limits.Limits{RPM: 600, Burst: time.Second}, Limits: limits.Limits{Concurrency: 1000}})
	for range 300 {
		r.queue(limits.Call{Lane: "a"})
		r.queue(limits.Call{Lane: "b"})
	}
	for at := time.Duration(0); at < 20*time.Second; at += time.Second {
		r.sleep(time.Second)
		if most := 10*r.since().Seconds() + 10; float64(len(r.granted)) > most {
			t.Fatalf("at %v: %d calls went out of an account of ten a second", r.since(), len(r.granted))
		}
	}
	if n := len(r.granted); n < 200 {
		t.Errorf("%d calls went out in 20 s, want about 210", n)
	}
	lanes := map[string]int{}
	for _, g := range r.granted {
		lanes[g.Call.Lane]++
	}
	if d := lanes["a"] - lanes["b"]; d < -1 || d > 1 {
		t.Errorf("lanes that asked in turn got %v", lanes)
	}
}

func TestLanesShareTheAccountsSlots(t *testing.T) {
	r := newRig(t, gate.Config{Account: limits.Limits{Concurrency: 3}, Limits: limits.Limits{Concurrency: 2}})
	for range 5 {
		r.queue(limits.Call{Lane: "a"})
		r.queue(limits.Call{Lane: "b"})
	}
	for range 10 {
		held := r.take()
		if n := r.g.Snapshot(r.now); n[0].InFlight+n[1].InFlight > 3 || n[0].InFlight > 2 || n[1].InFlight > 2 {
			t.Fatalf("%d and %d in flight, want at most 2 each and 3 together", n[0].InFlight, n[1].InFlight)
		}
		for _, h := range held {
			r.release(h, limits.Outcome{})
		}
	}
	if n := len(r.granted); n != 10 {
		t.Errorf("%d of 10 calls were granted", n)
	}
}

func TestAGrantTakesNothingOfTheLaneThatTheAccountRefuses(t *testing.T) {
	r := newRig(t, gate.Config{Account: limits.Limits{RPM: 60, Burst: time.Second}, Limits: limits.Limits{TPM: 60_000, Burst: time.Minute}})
	r.acquire(limits.Call{Cost: limits.Cost{Input: 100}})
	before := r.budget(limits.Tokens).Level
	w := r.queue(limits.Call{Cost: limits.Cost{Input: 100}})
	if w.Granted() {
		t.Fatal("the account's budget is spent")
	}
	if after := r.budget(limits.Tokens).Level; after != before {
		t.Errorf("a waiting call has taken %v of the lane's budget", before-after)
	}
	r.sleep(2 * time.Second)
	if !w.Granted() {
		t.Error("the call still waits though the account's budget has refilled")
	}
}

func TestARefusedCallIsRefundedToTheAccount(t *testing.T) {
	r := newRig(t, gate.Config{Account: limits.Limits{RPM: 60, Burst: time.Second}})
	r.release(r.acquire(limits.Call{}), limits.Outcome{Unsent: true})
	if w := r.queue(limits.Call{Lane: "b"}); !w.Granted() {
		t.Error("a call that was never sent is charged to the account")
	}
}

func TestTheSameLimitsForLanesAndAccountHoldBackOnlySeveralLanes(t *testing.T) {
	told := limits.Limits{RPM: 60, Concurrency: 20}
	r := newRig(t, gate.Config{Limits: told, Account: told})
	for range 2 {
		r.answer(r.acquire(limits.Call{Lane: "a"}), limits.Reading{Limit: 60, Remaining: 59, Reset: time.Second})
		r.sleep(time.Second)
	}
	for range 19 {
		r.acquire(limits.Call{Lane: "a"})
	}
	for range 60 {
		r.queue(limits.Call{Lane: "b"})
	}
	if n := r.laneNamed("a").InFlight + r.laneNamed("b").InFlight; n != 20 {
		t.Errorf("%d in flight over two lanes, want the 20 that are told", n)
	}
	for end := r.now.Add(56 * time.Second); r.now.Before(end); r.sleep(time.Second) {
		for _, held := range r.take() {
			if held.Granted() {
				r.release(held, limits.Outcome{})
			}
		}
	}
	if n := len(r.granted); n != 60 {
		t.Errorf("%d requests of two lanes in the first minute, want the 60 that are told", n)
	}
}

// The header of a lane may state a day's limit that is far above the account's.
func TestADayOfTheAccountIsInDebtForADayAtMost(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.release(r.acquire(limits.Call{Cost: limits.Cost{Input: 1}}), limits.Outcome{Readings: []limits.Reading{{Dimension: limits.TokensPerDay, Limit: 10_000_000_000, Remaining: 0}}})
	r.g.SetLimits(r.now, limits.Limits{}, limits.Limits{TPD: 10_000_000})
	r.sleep(48 * time.Hour)
	r.acquire(limits.Call{Cost: limits.Cost{Input: 1}})
}
