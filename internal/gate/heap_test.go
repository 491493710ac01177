package gate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func TestTheTurnIsThatOfALookAtEveryTenant(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		g := gate.New(gate.Config{Limits: limits.Limits{Concurrent: 3}, Attempts: 3, MaxThrottles: 5, Weights: map[string]float64{"1": 2}})
		now := time.Unix(1_700_000_000, 0)
		var waiting, open []*gate.Ticket
		pick := func(list *[]*gate.Ticket) *gate.Ticket {
			i := random.IntN(len(*list))
			tk := (*list)[i]
			*list = append((*list)[:i], (*list)[i+1:]...)
			return tk
		}
		for range 600 {
			switch op := random.IntN(8); {
			case op < 3:
				tk := &gate.Ticket{Call: limits.Call{Tenant: fmt.Sprint(random.IntN(12)), Priority: limits.Priority(random.IntN(4) - 1),
					Cost: limits.Cost{Input: random.IntN(100)}}}
				if random.IntN(5) == 0 { // it comes back
					tk.Front, tk.Queued, tk.Order = true, now.Add(-time.Duration(random.IntN(100))*time.Second), uint64(1+random.IntN(5))
				}
				g.Acquire(now, tk)
				waiting = append(waiting, tk)
			case op < 4 && len(waiting) > 0:
				g.Cancel(now, pick(&waiting))
			case op < 7 && len(open) > 0:
				g.Release(now, pick(&open), &limits.Outcome{Usage: limits.Usage{Output: random.IntN(500)}, HasUsage: true})
			default:
				now = now.Add(time.Duration(random.IntN(20_000)) * time.Millisecond)
			}
			g.Granted()
			still := waiting[:0]
			for _, tk := range waiting {
				if tk.Granted() {
					open = append(open, tk)
				} else {
					still = append(still, tk)
				}
			}
			waiting = still
			if len(waiting) == 0 {
				continue
			}
			if next, before := g.Turn(now, ""); before != nil {
				t.Fatalf("seed %d: it is the turn of %+v, and not of %+v", seed, before.Call, next.Call)
			}
		}
	}
}

func TestTenantsThatAreGoneAreForgotten(t *testing.T) {
	g := gate.New(gate.Config{Limits: limits.Limits{Concurrent: 2}, Attempts: 1})
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
