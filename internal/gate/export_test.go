package gate

import (
	"github.com/sluice-llm/sluice/limits"
)

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
