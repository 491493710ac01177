package batch

import (
	"strconv"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
)

// price is what a model costs, in US dollars per million tokens.
type price struct {
	in, out float64
	known   bool
}

// prices are those of one provider's models that were asked for. The zero value is ready.
type prices struct {
	mu      sync.RWMutex
	byModel map[string]price
}

// cost returns what a model's tokens cost, and false where no price is known.
func (a *account) cost(model string, used sluice.Usage) (usd float64, ok bool) {
	const million = 1e6
	p := a.price(model)
	return prose.RoundDollars((float64(used.Input)*p.in + float64(used.Output)*p.out) / million), p.known
}

// price returns what a model costs.
func (a *account) price(model string) price {
	if a.batch.cfg.Price == nil {
		return price{}
	}
	a.prices.mu.RLock()
	p, asked := a.prices.byModel[model]
	a.prices.mu.RUnlock()
	if !asked {
		p.in, p.out, p.known = a.batch.cfg.Price(a.provider, model)
		a.prices.keep(model, p)
	}
	return p
}

func (p *prices) keep(model string, of price) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byModel == nil {
		p.byModel = make(map[string]price)
	}
	p.byModel[model] = of
}

func appendDollars(b []byte, usd float64) []byte { return strconv.AppendFloat(b, usd, 'f', -1, 64) }
