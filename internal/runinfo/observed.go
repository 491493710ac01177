package runinfo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Failures keeps the first message of each kind of failure. It is safe for concurrent use.
type Failures struct {
	mu       sync.Mutex
	messages map[string]string // the item and its message, by kind
}

// Observe adds a result.
func (f *Failures) Observe(res *work.Result) {
	if res.Kind == sluice.OK || res.Err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.messages == nil {
		f.messages = make(map[string]string)
	}
	if kind := res.Kind.String(); f.messages[kind] == "" {
		f.messages[kind] = fmt.Sprintf("%s: %s", res.ID, term.Clip(res.Err.Error(), MaxMessage))
	}
}

// ByKind returns the messages by kind of failure.
func (f *Failures) ByKind() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.messages)
}

// Rejections counts the rate-limit rejections of lanes. The zero value is ready. It is safe for concurrent use.
type Rejections struct {
	mu    sync.Mutex
	lanes map[string]*laneRejections
}

// laneRejections are the rejections of a lane.
type laneRejections struct {
	by       [limits.NumDimensions]int // all rejections, by the limit that the provider named
	since    time.Time                 // start of the present minute
	sent     int                       // requests with a response in the present minute
	rejected int                       // rate-limited requests among them
	reported bool
}

// Rejections pile up if they are more than this share of this number of requests within a minute.
const (
	pileUpRequests = 50
	pileUpShare    = 0.1
)

// Observe adds an event. As soon as rejections pile up in a lane, it returns a description, once per lane; "" otherwise.
func (r *Rejections) Observe(e sluice.Event) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[e.Lane]
	if l == nil {
		l = &laneRejections{}
		if r.lanes == nil {
			r.lanes = make(map[string]*laneRejections)
		}
		r.lanes[e.Lane] = l
	}
	if e.Type == limits.EventThrottled {
		l.by[e.Outcome.Dimension]++
	}
	if o := &e.Outcome; e.Type != limits.EventSlotReleased || o.Unsent || o.TooLarge {
		return ""
	}
	if e.At.Sub(l.since) > time.Minute {
		l.since, l.sent, l.rejected = e.At, 0, 0
	}
	l.sent++
	if e.Outcome.Kind.Throttle() {
		l.rejected++
	}
	if l.reported || l.sent < pileUpRequests || float64(l.rejected) <= pileUpShare*float64(l.sent) {
		return ""
	}
	l.reported = true
	return fmt.Sprintf("%s: the provider rate-limited %s of %s requests within a minute, and Sluice slows down",
		e.Lane, prose.Group(l.rejected), prose.Group(l.sent))
}

// by returns the number of a lane's rejections that name a limit.
func (r *Rejections) by(lane string, d limits.Dimension) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lanes[lane]; l != nil && d != limits.AnyDimension {
		return l.by[d]
	}
	return 0
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

// UpstreamCounts counts the results of upstreams. The zero value is ready. It is safe for concurrent use.
type UpstreamCounts struct {
	mu   sync.Mutex
	done map[string]*Upstream
}

// Observe adds a result.
func (u *UpstreamCounts) Observe(res *work.Result) {
	if res.Upstream == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.done[res.Upstream]
	if sum == nil {
		if u.done == nil {
			u.done = make(map[string]*Upstream)
		}
		sum = &Upstream{}
		u.done[res.Upstream] = sum
	}
	sum.Items++
	if res.Kind != sluice.OK {
		sum.Failed++
	}
	if res.HasCost && !res.Cached { // cached results cost nothing, and do not make the cost of the other results known
		if sum.Cost == nil {
			sum.Cost = new(float64)
		}
		*sum.Cost = prose.RoundDollars(*sum.Cost + res.Cost)
	}
}

// Summarize returns the work of all upstreams, in their order. lastErr has the last error of each lane.
func (u *UpstreamCounts) Summarize(all *provider.Upstreams, lastErr map[string]string) (sums []Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, rep := range all.Report() {
		sum := Upstream{}
		if done := u.done[rep.Name]; done != nil {
			sum = *done
		}
		sum.Name, sum.Attempts, sum.Throttles = rep.Name, rep.Sent-rep.Throttles, rep.Throttles
		if rep.Exclusion != nil {
			sum.LeftOut = rep.Exclusion.String()
		}
		for _, lane := range slices.Sorted(maps.Keys(lastErr)) { // of several models, always the last one by name
			if sum.Items == 0 && sum.LeftOut == "" && strings.HasPrefix(lane, sum.Name+": ") {
				sum.LastError = lastErr[lane]
			}
		}
		sums = append(sums, sum)
	}
	return sums
}
