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

// oneSlot is a lane whose order of grants can be read off, since each waits for the one before.
func oneSlot(t *testing.T, weights map[string]float64) (*rig, *gate.Ticket) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1}, Weights: weights})
	first := r.acquire(limits.Call{Tenant: "first", Priority: limits.Critical})
	r.take()
	return r, first
}

// serveAll releases one call after the other and returns the order in which they were granted.
func (r *rig) serveAll(held *gate.Ticket, each time.Duration, n int) (order []*gate.Ticket) {
	r.t.Helper()
	for len(order) < n {
		r.sleep(each)
		r.release(held, limits.Outcome{})
		fresh := r.take()
		if len(fresh) != 1 {
			r.t.Fatalf("%d grants by one slot, after %d", len(fresh), len(order))
		}
		held = fresh[0]
		order = append(order, held)
	}
	return order
}

func TestACallWaitsItsTurnWithinItsTenant(t *testing.T) {
	r, held := oneSlot(t, nil)
	var all []*gate.Ticket
	for range 50 {
		all = append(all, r.queue(limits.Call{}))
	}
	for i := 1; i < 50; i += 7 {
		r.cancel(all[i])
	}
	want := slices.DeleteFunc(slices.Clone(all), func(t *gate.Ticket) bool { return t.Released() })
	if got := r.serveAll(held, time.Millisecond, len(want)); !slices.Equal(got, want) {
		t.Fatal("calls of one tenant were not served in the order in which they asked")
	}
}

func TestAThrottledCallTakesItsOldPlace(t *testing.T) {
	r, held := oneSlot(t, nil)
	var all []*gate.Ticket
	for range 3 {
		all = append(all, r.queue(limits.Call{}))
		r.sleep(time.Millisecond)
	}
	r.release(held, limits.Outcome{})
	d := r.release(all[0], limits.Outcome{Kind: limits.Overloaded}) // all[1] goes meanwhile
	again := r.again(all[0], d)
	r.take()
	r.release(all[1], limits.Outcome{})
	if !again.Granted() || all[2].Granted() {
		t.Fatal("a throttled call does not come before those that asked later")
	}
}

func TestTenantsShareByWeightAndByWhatTheirCallsCost(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights map[string]float64
		cost    map[string]limits.Cost
		want    map[string]float64 // share of the work
	}{
		{"equal", nil, map[string]limits.Cost{"a": {Input: 100}, "b": {Input: 100}, "c": {Input: 100}}, map[string]float64{"a": 1. / 3, "b": 1. / 3, "c": 1. / 3}},
		{"by weight", map[string]float64{"a": 1, "b": 3}, map[string]limits.Cost{"a": {Input: 100}, "b": {Input: 100}}, map[string]float64{"a": .25, "b": .75}},
		{"large calls are fewer", nil, map[string]limits.Cost{"a": {Input: 1000}, "b": {Input: 100}}, map[string]float64{"a": .5, "b": .5}},
		{"output counts twice", nil, map[string]limits.Cost{"a": {MaxOutput: 100}, "b": {Input: 200}}, map[string]float64{"a": .5, "b": .5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, held := oneSlot(t, tt.weights)
			for range 800 {
				for name, c := range tt.cost {
					r.queue(limits.Call{Tenant: name, Cost: c})
				}
			}
			work, total := map[string]float64{}, 0.0
			for _, t := range r.serveAll(held, time.Millisecond, 600) {
				w := 1 + float64(t.Call.Cost.Input) + 2*float64(t.Call.Cost.MaxOutput)
				work[t.Call.Tenant] += w
				total += w
			}
			for name, want := range tt.want {
				if got := work[name] / total; math.Abs(got-want) > 0.02 {
					t.Errorf("%s has %.3f of the work, want %.3f", name, got, want)
				}
			}
		})
	}
}

func TestATenantThatComesBackHasSavedNothing(t *testing.T) {
	r, held := oneSlot(t, nil)
	for range 600 {
		r.queue(limits.Call{Tenant: "busy", Cost: limits.Cost{Input: 100}})
	}
	late := r.serveAll(held, time.Millisecond, 300)
	for range 100 {
		r.queue(limits.Call{Tenant: "late", Cost: limits.Cost{Input: 100}})
	}
	n := 0
	for _, t := range r.serveAll(late[len(late)-1], time.Millisecond, 60) {
		if t.Call.Tenant == "late" {
			n++
		}
	}
	if n < 28 || n > 32 {
		t.Fatalf("%d of 60 turns go to a tenant that was away, want half", n)
	}
}

func TestATenantThatComesBackToAnIdleLaneHasSavedNothing(t *testing.T) {
	r, held := oneSlot(t, nil)
	for range 300 {
		r.queue(limits.Call{Tenant: "busy", Cost: limits.Cost{Input: 100}})
	}
	order := r.serveAll(held, time.Millisecond, 300) // nobody waits any more
	for range 100 {
		r.queue(limits.Call{Tenant: "late", Cost: limits.Cost{Input: 100}})
		r.queue(limits.Call{Tenant: "busy", Cost: limits.Cost{Input: 100}})
	}
	n := 0
	for _, t := range r.serveAll(order[299], time.Millisecond, 60) {
		if t.Call.Tenant == "late" {
			n++
		}
	}
	if n < 28 || n > 32 {
		t.Fatalf("%d of 60 turns go to a tenant that was away, want half", n)
	}
}

func TestTheTurnIsCorrectedAtSettlement(t *testing.T) {
	r, held := oneSlot(t, nil)
	for range 400 {
		r.queue(limits.Call{Tenant: "liar", Cost: limits.Cost{Input: 10}}) // it estimates a tenth of what it uses
		r.queue(limits.Call{Tenant: "honest", Cost: limits.Cost{Input: 100}})
	}
	work := map[string]int{}
	for range 500 {
		r.sleep(time.Millisecond)
		r.release(held, usage(100, 0, 0))
		held = r.take()[0]
		work[held.Call.Tenant]++
	}
	if d := work["liar"] - work["honest"]; d > 30 || d < -30 {
		t.Fatalf("%v turns at the same real cost", work)
	}
}

func TestPrioritiesComeFirst(t *testing.T) {
	r, held := oneSlot(t, nil)
	var want []*gate.Ticket
	for _, p := range []limits.Priority{limits.Critical, limits.High, limits.Normal, limits.Low} {
		for i := range 3 {
			want = append(want, &gate.Ticket{Call: limits.Call{Tenant: fmt.Sprint("t", i), Priority: p}})
		}
	}
	for i := range want {
		r.queueTicket(want[len(want)-1-i])
	}
	got := r.serveAll(held, time.Millisecond, len(want))
	for i, g := range got {
		if g.Call.Priority != want[i].Call.Priority {
			t.Fatalf("turn %d is of priority %d, want %d", i, g.Call.Priority, want[i].Call.Priority)
		}
	}
}

func TestPrioritiesOutsideTheScaleAreItsEnds(t *testing.T) {
	r, held := oneSlot(t, nil)
	low, high := r.queue(limits.Call{Priority: -128}), r.queue(limits.Call{Priority: 127})
	normal := r.queue(limits.Call{})
	if got := r.serveAll(held, time.Millisecond, 3); !slices.Equal(got, []*gate.Ticket{high, normal, low}) {
		t.Fatal("priorities beyond the scale are not clamped to it")
	}
}

func TestAWaitingCallRisesAClassEveryHalfMinute(t *testing.T) {
	for _, tt := range []struct {
		waits    time.Duration
		against  limits.Priority
		lowFirst bool
	}{
		{29 * time.Second, limits.Normal, false},
		{31 * time.Second, limits.Normal, true}, // the same class, and older
		{59 * time.Second, limits.High, false},
		{61 * time.Second, limits.High, true},
		{89 * time.Second, limits.Critical, false},
		{91 * time.Second, limits.Critical, true},
		{time.Hour, limits.Critical, true},
	} {
		r, held := oneSlot(t, nil)
		low := r.queue(limits.Call{Tenant: "t", Priority: limits.Low})
		r.sleep(tt.waits)
		r.queue(limits.Call{Tenant: "t", Priority: tt.against})
		if got := r.serveAll(held, time.Millisecond, 1)[0] == low; got != tt.lowFirst {
			t.Errorf("low after %v before a fresh %d: %v", tt.waits, tt.against, got)
		}
	}
}

func TestALaneThatWaitsHoldsNobodyElseBack(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1}})
	r.acquire(limits.Call{Lane: "a"})
	if r.queue(limits.Call{Lane: "a"}).Granted() {
		t.Fatal("two calls on one slot")
	}
	r.acquire(limits.Call{Lane: "b"})
	h := r.queue(limits.Call{Lane: "c"})
	r.release(h, hinted(time.Hour))
	r.acquire(limits.Call{Lane: "d"})
}

func TestACancelledCallLeavesNoTrace(t *testing.T) {
	// Two gates see the same, but for calls that are cancelled while they wait: they end in the same state.
	run := func(noise bool) ([]string, limits.LaneSnapshot) {
		r, held := oneSlot(t, nil)
		var order []string
		for i := range 60 {
			r.queue(limits.Call{ID: fmt.Sprint(i), Tenant: fmt.Sprint(i % 3), Cost: limits.Cost{Input: 10 * (i % 7)}})
			if noise {
				for p := limits.Low; p <= limits.Critical; p++ {
					r.cancel(r.queue(limits.Call{Tenant: fmt.Sprint(i % 3), Priority: p, Cost: limits.Cost{Input: 5000}}))
				}
			}
		}
		for _, g := range r.serveAll(held, time.Millisecond, 60) {
			order = append(order, g.Call.ID)
		}
		l := r.lane()
		l.Oldest = time.Time{}
		return order, l
	}
	quietOrder, quiet := run(false)
	noisyOrder, noisy := run(true)
	if !slices.Equal(quietOrder, noisyOrder) {
		t.Errorf("the order is\n%v and not\n%v", noisyOrder, quietOrder)
	}
	if quiet.Waiting != noisy.Waiting || quiet.InFlight != noisy.InFlight || quiet.Granted != noisy.Granted {
		t.Errorf("%+v and not %+v", noisy, quiet)
	}
}

func TestACancelThatMeetsAGrantGivesItBack(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1}}).show(limits.Requests, 600, 10)
	h := r.acquire(limits.Call{})
	next := r.queue(limits.Call{})
	r.cancel(h)
	if !next.Granted() {
		t.Fatal("the slot is lost")
	}
	r.cancel(next)
	r.cancel(next) // again changes nothing
	if l := r.lane(); l.InFlight != 0 || l.Waiting != 0 {
		t.Fatalf("%+v", l)
	}
	r.wantLevel(limits.Requests, 10, 1e-9)
}

func TestACancelledHeadLetsTheNextOneGoAtOnce(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 10}}).show(limits.Tokens, 6000, 100)
	r.acquire(limits.Call{Cost: limits.Cost{Input: 50}})
	head := r.queue(limits.Call{Cost: limits.Cost{Input: 90}})
	small := r.queue(limits.Call{Cost: limits.Cost{Input: 10}})
	if head.Granted() || small.Granted() {
		t.Fatal("90 do not fit into 50, and 10 do not overtake them")
	}
	r.cancel(head)
	if !small.Granted() {
		t.Fatal("a small call still waits for a large one that has left")
	}
}

func TestTenantsThatAreGoneAreForgotten(t *testing.T) {
	g := gate.New(gate.Config{Limits: limits.Limits{Concurrency: 2}, Attempts: 1})
	now := time.Unix(1_700_000_000, 0)
	var kept *gate.Ticket
	for i := range 50_000 {
		tk := &gate.Ticket{Call: limits.Call{Tenant: fmt.Sprint(i)}}
		g.Acquire(now, tk)
		if i == 0 {
			kept = tk // open all the time
			continue
		}
		g.Release(now, tk, &limits.Outcome{})
		g.Granted()
	}
	if n := g.Tenants(""); n > 3000 || !g.Remembers("", "0") {
		t.Errorf("%d tenants are remembered; the one with an open call: %v", n, g.Remembers("", "0"))
	}
	g.Release(now, kept, &limits.Outcome{})
}
