package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestLanesShareTheAccountsBudgets(t *testing.T) {
	r := newRig(t, gate.Config{Account: gate.Limits{RPM: 600, Burst: time.Second}, Limits: gate.Limits{Concurrent: 1000}})
	for range 300 {
		r.queue(gate.Call{Lane: "a"})
		r.queue(gate.Call{Lane: "b"})
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
	r := newRig(t, gate.Config{Account: gate.Limits{Concurrent: 3}, Limits: gate.Limits{Concurrent: 2}})
	for range 5 {
		r.queue(gate.Call{Lane: "a"})
		r.queue(gate.Call{Lane: "b"})
	}
	for range 10 {
		held := r.take()
		if n := r.g.Snapshot(r.now); n[0].InFlight+n[1].InFlight > 3 || n[0].InFlight > 2 || n[1].InFlight > 2 {
			t.Fatalf("%d and %d in flight, want at most 2 each and 3 together", n[0].InFlight, n[1].InFlight)
		}
		for _, h := range held {
			r.release(h, gate.Outcome{})
		}
	}
	if n := len(r.granted); n != 10 {
		t.Errorf("%d of 10 calls were granted", n)
	}
}

func TestAGrantTakesNothingOfTheLaneThatTheAccountRefuses(t *testing.T) {
	r := newRig(t, gate.Config{Account: gate.Limits{RPM: 60, Burst: time.Second}, Limits: gate.Limits{TPM: 60_000, Burst: time.Minute}})
	r.acquire(gate.Call{Cost: gate.Cost{Input: 100}})
	before := r.budget(gate.Tokens).Level
	w := r.queue(gate.Call{Cost: gate.Cost{Input: 100}})
	if w.Granted() {
		t.Fatal("the account's budget is spent")
	}
	if after := r.budget(gate.Tokens).Level; after != before {
		t.Errorf("a waiting call has taken %v of the lane's budget", before-after)
	}
	r.sleep(2 * time.Second)
	if !w.Granted() {
		t.Error("the call still waits though the account's budget has refilled")
	}
}

func TestARefusedCallIsRefundedToTheAccount(t *testing.T) {
	r := newRig(t, gate.Config{Account: gate.Limits{RPM: 60, Burst: time.Second}})
	r.release(r.acquire(gate.Call{}), gate.Outcome{Unsent: true})
	if w := r.queue(gate.Call{Lane: "b"}); !w.Granted() {
		t.Error("a call that was never sent is charged to the account")
	}
}

func TestTheSameLimitsForLanesAndAccountHoldBackOnlySeveralLanes(t *testing.T) {
	limits := gate.Limits{RPM: 600, Burst: time.Second, Concurrent: 20}
	r := newRig(t, gate.Config{Limits: limits, Account: limits})
	r.acquire(gate.Call{Lane: "a"})
	// The provider's header shows a larger burst, which one lane may use: no account stands beside it.
	r.release(r.acquire(gate.Call{Lane: "a"}), gate.Outcome{Readings: []gate.Reading{
		{Dimension: gate.Requests, Limit: 600, Remaining: 100, Reset: time.Second}}})
	for range 18 {
		if !r.queue(gate.Call{Lane: "a"}).Granted() {
			t.Fatal("one lane is held back below its own limits")
		}
	}
	for range 5 {
		r.queue(gate.Call{Lane: "b"})
	}
	if n := r.laneNamed("a").InFlight + r.laneNamed("b").InFlight; n != 20 {
		t.Errorf("%d in flight over two lanes, want the 20 that are told", n)
	}
}
