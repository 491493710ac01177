package cli

import (
	"errors"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// liveTime foresees how long live calls take, as a dry run does: by the limits that the run begins with, and, where none is
// known, by those that its Schedulers have learned. It is safe for concurrent use.
type liveTime struct {
	accounts  *accounts
	models    func() map[string]int // how many requests of the input are for each
	maxTokens int

	mu       sync.Mutex
	forecast *forecaster
}

// presumedRPM is the limit where nobody knows one: that of the least paid tier that several providers publish. A run that is to
// keep a deadline has to assume something.
const presumedRPM = 500

// of is how long so many requests take, with so many tokens of input together. The largest share of any model decides, and of
// an account's models together its ceilings.
func (l *liveTime) of(requests, tokens int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forecast == nil {
		l.forecast = &forecaster{accounts: l.accounts, begins: make(map[string]begun)}
	}
	if requests <= 0 {
		return 0
	}
	models, all, longest := l.models(), 0, time.Duration(0)
	for _, n := range models {
		all += n
	}
	each := float64(tokens) / float64(requests)
	for model, n := range models {
		share := max(1, requests*n/all)
		longest = max(longest, l.lane(model, share, each))
	}
	for model := range models {
		if b, ok := l.begins(model); ok {
			longest = max(longest, l.plan(b, "", b.account, requests, each))
		}
	}
	return longest
}

// begins returns what a client begins with at the provider of a model.
func (l *liveTime) begins(model string) (begun, bool) {
	p, err := l.accounts.of(model)
	if err != nil {
		return begun{}, false
	}
	b := l.forecast.at(p.Name)
	return b, b.err == nil
}

// lane is how long the requests for one model take.
func (l *liveTime) lane(model string, requests int, tokens float64) time.Duration {
	b, ok := l.begins(model)
	limits := b.limits
	for _, lane := range l.accounts.Snapshot().Lanes {
		for d, limit := range limits.All() {
			if learned := limitOf(lane, d); lane.Lane == model && *limit == 0 && learned != provider.Endless {
				*limit = int(learned)
			}
		}
	}
	if took := l.plan(b, model, limits, requests, tokens); ok && took > 0 {
		return took
	}
	return l.plan(b, model, sluice.Limits{RPM: presumedRPM}, requests, tokens)
}

// plan is how long requests take within limits; 0 where there are none.
func (l *liveTime) plan(b begun, model string, limits sluice.Limits, requests int, tokens float64) time.Duration {
	t := l.forecast.tier(laneName{b.provider.Name, model}, limits)
	w := plan.Workload{Requests: requests, InputTokens: int(tokens + 0.5), MaxTokens: l.maxTokens}
	p, err := plan.ForTier(t, b.provider, w, plan.Options{})
	switch {
	case errors.Is(err, plan.ErrTooLong):
		return forever
	case err != nil: // nothing is bound by these
		return 0
	}
	return p.Time
}
