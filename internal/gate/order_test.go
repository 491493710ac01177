package gate_test

import (
	"fmt"
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

func TestPrioritiesOutsideTheScaleAreItsEnds(t *testing.T) {
	r, held := oneSlot(t, nil)
	low, high := r.queue(limits.Call{Priority: -128}), r.queue(limits.Call{Priority: 127})
	normal := r.queue(limits.Call{})
	if got := r.serveAll(held, time.Millisecond, 3); !slices.Equal(got, []*gate.Ticket{high, normal, low}) {
		t.Fatal("priorities beyond the scale are not clamped to it")
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
