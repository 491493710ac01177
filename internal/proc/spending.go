package proc

import (
	"math"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/work"
)

// newGuard returns what holds the run to its Budget. The next command is expected to cost the 95th percentile of the costs that commands
// state. Before the first, nothing is known of it.
func (x *Exec) newGuard() *budget.Guard {
	model := budget.NewModel(0)
	return budget.New(budget.Config{
		Budget: x.cfg.Limits.Budget, Stop: x.Stop,
		Estimate: func(*work.Item) budget.Estimate {
			return budget.Estimate{Model: model, Unstated: budget.Amount{budget.USD: 1}}
		},
		Used: func(_ *work.Item, r *work.Result) budget.Amount {
			t, _ := r.Data.(*try)
			if t == nil || !t.meaning.HasCost {
				return budget.Amount{}
			}
			cost := math.Round(max(0, t.meaning.Cost) * budget.Dollar)
			model.Learn(sluice.Cost{}, 0, cost)
			return budget.Amount{budget.USD: cost}
		},
	})
}
