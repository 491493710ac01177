package runinfo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Results adds up the results of a run by upstream, and keeps the first message of each kind of failure. The zero value is ready. It is
// safe for concurrent use.
type Results struct {
	mu    sync.Mutex
	first map[sluice.Kind]string // the item and its message, by kind of failure
	done  map[string]*Upstream   // work of upstreams
}

// Observe adds a result.
func (r *Results) Observe(res *work.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.Kind != sluice.OK && res.Err != nil && r.first[res.Kind] == "" {
		r.first = put(r.first, res.Kind, fmt.Sprintf("%s: %s", res.ID, term.Clip(res.Err.Error(), MaxMessage)))
	}
	if res.Upstream == "" {
		return
	}
	sum := r.done[res.Upstream]
	if sum == nil {
		sum = &Upstream{}
		r.done = put(r.done, res.Upstream, sum)
	}
	sum.Items++
	if res.Kind != sluice.OK {
		sum.Failed++
	}
	if res.HasCost && !res.Cached { // cached results cost nothing, and do not make the cost of the other results known
		sum.Cost = cmp.Or(sum.Cost, new(float64))
		*sum.Cost = prose.RoundDollars(*sum.Cost + res.Cost)
	}
}

// put sets a value of a map, which it makes if it is nil.
func put[K comparable, V any](m map[K]V, key K, v V) map[K]V {
	if m == nil {
		m = make(map[K]V)
	}
	m[key] = v
	return m
}

// FirstFailures returns the first message of each kind of failure.
func (r *Results) FirstFailures() map[sluice.Kind]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.first)
}

// Upstream is the work of an upstream in a run.
type Upstream struct {
	Name      string   `json:"name"`                 // Upstream.
	Items     int      `json:"items"`                // Items recorded by this run.
	Failed    int      `json:"failed"`               // Failed items.
	Attempts  int      `json:"attempts"`             // Attempts, except rate-limited attempts.
	Throttles int      `json:"throttles"`            // Rate-limited requests.
	Cost      *float64 `json:"cost_usd"`             // Cost, if known.
	LeftOut   string   `json:"left_out,omitempty"`   // Reason for excluding the upstream.
	LastError string   `json:"last_error,omitempty"` // Last error, if no request succeeded.
}

// String describes the work of the upstream.
func (s Upstream) String() string {
	text := fmt.Sprintf("%s: %s items", s.Name, prose.Group(s.Items)) + prose.If(s.Throttles, ", throttled "+prose.Times(s.Throttles))
	if s.Cost != nil {
		text += ", " + prose.Dollars(*s.Cost)
	}
	return text + prose.If(len(s.LeftOut), ", excluded: "+s.LeftOut) + prose.If(len(s.LastError), ": "+s.LastError)
}

// Upstreams returns the work of all upstreams, in their order; nil if there are none. Of upstreams without results, n has the last errors.
func (r *Results) Upstreams(all *provider.Upstreams, n *Notices) (sums []Upstream) {
	if all == nil {
		return nil
	}
	reports := all.Report()
	n.mu.Lock()
	defer n.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rep := range reports {
		sum := *cmp.Or(r.done[rep.Name], &Upstream{})
		sum.Name, sum.Attempts, sum.Throttles = rep.Name, rep.Sent-rep.Throttles, rep.Throttles
		if rep.Exclusion != nil {
			sum.LeftOut = rep.Exclusion.String()
		}
		for _, lane := range slices.Sorted(maps.Keys(n.lanes)) { // of several models, always the last one by name
			if sum.Items == 0 && sum.LeftOut == "" && strings.HasPrefix(lane, sum.Name+": ") {
				sum.LastError = cmp.Or(n.lanes[lane].lastErr, sum.LastError)
			}
		}
		sums = append(sums, sum)
	}
	return sums
}
