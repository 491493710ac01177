package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// upstreamResults counts the results of a run by upstream.
type upstreamResults struct {
	mu   sync.Mutex
	done map[string]*upstreamSummary
}

// upstreamSummary is what an upstream did in a run.
type upstreamSummary struct {
	Name      string   `json:"name"`                 // Upstream.
	Items     int      `json:"items"`                // Items recorded by this run.
	Failed    int      `json:"failed"`               // Failed items.
	Attempts  int      `json:"attempts"`             // Attempts, except rate-limited attempts.
	Throttles int      `json:"throttles"`            // Rate-limited requests.
	Cost      *float64 `json:"cost_usd"`             // Cost, if known.
	LeftOut   string   `json:"left_out,omitempty"`   // Reason for excluding the upstream.
	LastError string   `json:"last_error,omitempty"` // Last error, if no request succeeded.
}

// observe counts a result.
func (u *upstreamResults) observe(res *work.Result) {
	if res.Upstream == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.done[res.Upstream]
	if sum == nil {
		sum = &upstreamSummary{}
		if u.done == nil {
			u.done = make(map[string]*upstreamSummary)
		}
		u.done[res.Upstream] = sum
	}
	sum.Items++
	if res.Kind != sluice.OK {
		sum.Failed++
	}
	if res.HasCost && !res.Cached { // that these cost nothing does not make the price of others known
		if sum.Cost == nil {
			sum.Cost = new(float64)
		}
		*sum.Cost = prose.RoundDollars(*sum.Cost + res.Cost)
	}
}

// summary returns the results by upstream, in order; nil if there are no upstreams.
func (u *upstreamResults) summary(ups *provider.Upstreams) []upstreamSummary {
	if ups == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []upstreamSummary
	for _, rep := range ups.Report() {
		sum := upstreamSummary{}
		if done := u.done[rep.Name]; done != nil {
			sum = *done
		}
		sum.Name, sum.Attempts, sum.Throttles = rep.Name, rep.Sent-rep.Throttles, rep.Throttles
		if rep.Exclusion != nil {
			sum.LeftOut = rep.Exclusion.String()
		}
		all = append(all, sum)
	}
	return all
}

// blame says of upstreams that answered nothing what their last call met; last is by lane.
func blame(all []upstreamSummary, last map[string]string) []upstreamSummary {
	for i := range all {
		up := &all[i]
		for _, lane := range slices.Sorted(maps.Keys(last)) { // of several models the same one is quoted each time
			if up.Items == 0 && up.LeftOut == "" && strings.HasPrefix(lane, up.Name+": ") {
				up.LastError = last[lane]
			}
		}
	}
	return all
}

// String is what the upstream did, for people.
func (s upstreamSummary) String() string {
	text := fmt.Sprintf("%s: %s items", s.Name, prose.Group(s.Items))
	if s.Throttles > 0 {
		text += fmt.Sprintf(", throttled %s", prose.Times(s.Throttles))
	}
	if s.Cost != nil {
		text += ", " + prose.Dollars(*s.Cost)
	}
	switch {
	case s.LeftOut != "":
		text += ", excluded: " + s.LeftOut
	case s.LastError != "":
		text += ": " + s.LastError
	}
	return text
}
