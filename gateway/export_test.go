package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/provider"
)

// AppendLine is appendLine.
var AppendLine = appendLine

// Filtered passes pieces of a stream through an event filter.
func Filtered(pieces [][]byte, dropUsage bool) (out []byte, between bool) {
	f := eventFilter{dropUsage: dropUsage}
	for _, p := range pieces {
		out = append(out, f.feed(p)...)
	}
	between = f.between()
	return append(out, f.end()...), between
}

// Asking returns a body as it is sent to a provider that is to state its usage, and whether it was changed for that.
func Asking(all []byte) (string, bool, error) {
	b := &body{}
	if err := b.locate(all, true, provider.NoEndpoint); err != nil {
		return "", false, err
	}
	if b.usage.text == "" {
		return string(all), false, nil
	}
	return string(all[:b.usage.from]) + b.usage.text + string(all[b.usage.to:]), true, nil
}

// Turns are the turns of one tenant's sessions.
type Turns struct{ turns turns }

// MostAhead is how many of them stand in the shared queue.
const MostAhead = mostAhead

// Enter is enter.
func (t *Turns) Enter(ctx context.Context, model, session string, work float64, wait time.Duration) error {
	return t.turns.enter(ctx, nil, model, session, work, wait)
}

// Leave is leave.
func (t *Turns) Leave(model string, took time.Duration) { t.turns.leave(model, took) }

// Idle reports whether nothing is kept of anybody.
func (t *Turns) Idle() bool { return t.turns.busy() == 0 }

// busy is how many queues somebody is in.
func (t *turns) busy() (n int) {
	for _, q := range t.models {
		if q.ahead > 0 || q.waiting > 0 || len(q.heap) > 0 {
			n++
		}
	}
	return n
}

// Waiting is how many calls wait for their turn.
func (t *Turns) Waiting(model string) int { return t.turns.waiting(model) }

// Purse is what one tenant spent.
type Purse struct{ purse *purse }

// NewPurse returns one that is kept nowhere.
func NewPurse() Purse { return Purse{&purse{in: &purses{}}} }

// Reserve is reserve.
func (p Purse) Reserve(now time.Time, t *Tenant, usd float64) (until time.Time, ok bool) {
	r, until, ok := p.purse.reserve(now, t, budget.Estimate{Model: budget.NewModel(0), Input: budget.Amount{budget.USD: usd * budget.Dollar}})
	if ok {
		r.settle(true)
	}
	return until, ok
}

// Note notes a request that ended.
func (t *Traffic) Note(tenant string, tokens int) {
	t.end(&Record{Tenant: tenant, Model: "m", Kind: KindOK, Usage: sluice.Usage{Output: tokens}})
}

// Held is what calls of a tenant hold, though there may be none.
func (t *Tenants) Held() (what []string) {
	for name, one := range t.roster.Load().byName {
		one.turns.mu.Lock()
		if n := one.turns.busy(); n > 0 {
			what = append(what, fmt.Sprintf("%s: turns at %d models", name, n))
		}
		one.turns.mu.Unlock()
		if own := one.terms.Load().limits; own != nil {
			for _, lane := range own.Snapshot().Lanes {
				if lane.InFlight != 0 || lane.Waiting != 0 {
					what = append(what, fmt.Sprintf("%s: of its own limits, %d in flight and %d waiting", name, lane.InFlight, lane.Waiting))
				}
			}
		}
	}
	return what
}

// Told is how many Schedulers are told of weights.
func (t *Tenants) Told() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.schedulers)
}

// Taken is how many bytes the bodies of requests take.
func (g *Gateway) Taken() int64 {
	g.rooms.mu.Lock()
	defer g.rooms.mu.Unlock()
	return g.rooms.taken
}
