package gate

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Turn is whose turn it is in a lane, and a call that should go before it, looked for at every tenant: nil if there is none.
func (g *Gate) Turn(now time.Time, lane string) (next, before *Ticket) {
	o := &g.lanes[lane].order
	next = o.next(now)
	for _, q := range o.tenants {
		if q.n == 0 {
			continue
		}
		t := q.next(now)
		if c, class := t.agedClass(now), next.agedClass(now); c > class || c == class && q.before(next.tenant) {
			before = t
		}
	}
	return next, before
}

// Tenants is how many tenants a lane remembers.
func (g *Gate) Tenants(lane string) int { return len(g.lanes[lane].order.tenants) }

// Remembers reports whether a tenant is one of them.
func (g *Gate) Remembers(lane, tenant string) bool { return g.lanes[lane].order.tenants[tenant] != nil }

// Work is what serving a call was counted for when it was granted.
func Work(t *Ticket) float64 { return work(t.cost[limits.InputTokens], t.cost[limits.OutputTokens]) }

// Suspects is how many items a lane remembers that were rejected or failed.
func (g *Gate) Suspects(lane string) int {
	l := g.lanes[lane]
	return len(l.rejected.pending) + len(l.failures.pending)
}
