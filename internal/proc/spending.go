package proc

import (
	"fmt"
	"math"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/spend"
	"github.com/sluice-llm/sluice/internal/work"
)

// SpentError stops a run whose MaxCost is spent. Costs are in US dollars.
type SpentError struct {
	Used, Max float64 // by this run
	Next      float64 // the expected cost of the next command
}

// Error says what was spent.
func (e *SpentError) Error() string {
	return fmt.Sprintf("commands have cost %s of %s, and the next command may cost %s", prose.Dollars(e.Used), prose.Dollars(e.Max), prose.Dollars(e.Next))
}

// bounded holds commands to MaxCost: the next one is expected to cost the 95th percentile of the costs that commands state. Before the
// first, nothing is known of it.
func (x *Exec) bounded(commands work.Handler) work.Handler {
	if x.cfg.Limits.MaxCost == 0 {
		return commands
	}
	model := spend.NewModel(0)
	var queue *spend.Queue
	queue = spend.NewQueue(spend.Config{
		Limit: spend.Amount{spend.USD: math.Ceil(x.cfg.Limits.MaxCost * spend.Dollar)},
		Estimate: func(*work.Item) spend.Estimate {
			return spend.Estimate{Model: model, Unstated: spend.Amount{spend.USD: 1}}
		},
		Used: func(_ *work.Item, r *work.Result, _ *sluice.Outcome) (spend.Amount, bool) {
			t, _ := r.Data.(*try)
			if t == nil || !t.meaning.HasCost {
				return spend.Amount{}, true
			}
			cost := math.Round(max(0, t.meaning.Cost) * spend.Dollar)
			model.Learn(sluice.Cost{}, 0, cost)
			return spend.Amount{spend.USD: cost}, true
		},
		Stop: func(_ string, next spend.Amount) {
			used := queue.Status().Used
			x.Stop(&SpentError{used[spend.USD] / spend.Dollar, x.cfg.Limits.MaxCost, next[spend.USD] / spend.Dollar})
		},
	})
	return work.Rationed(commands, queue)
}
