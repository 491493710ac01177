package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Report is what a run came to, as JSON has it. What is not known is left out: an output says nothing of the run's time,
// and events nothing of what earlier runs recorded.
type Report struct {
	Output  string `json:"output,omitempty"`        // Path of the output.
	Events  string `json:"events,omitempty"`        // Path of the events file.
	Cut     bool   `json:"last_line_cut,omitempty"` // The last output line is incomplete.
	Verdict string `json:"verdict"`                 // Summary in words.
	Next    string `json:"next,omitempty"`          // Next step.
	Command string `json:"command,omitempty"`       // Command for the next step.

	Runs int           `json:"runs,omitempty"`     // Runs on this output.
	Last *work.LastRun `json:"last_run,omitempty"` // Part of the last run.

	Items    Items     `json:"items"`    // Counts of items.
	Failures []Failure `json:"failures"` // Failures by kind.

	Retries   []Count    `json:"retries"`           // Items by number of retries.
	Throttled []Count    `json:"throttles_by_item"` // Items by number of rate-limited requests.
	Waits     Times      `json:"waits"`             // Waits of items.
	Longest   []LongWait `json:"longest_waits"`     // Longest waits.
	Latency   Times      `json:"latency"`           // Durations of last attempts.

	work.Tokens
	Cost       *float64       `json:"cost_usd"`                     // Cost, if known.
	Estimated  float64        `json:"cost_estimated_usd,omitempty"` // Estimated part of the cost.
	Costed     int            `json:"costed_items"`                 // Items with a known cost.
	CooldownMS int64          `json:"items_cooldown_ms,omitempty"`  // Waiting time of all items in cooldowns.
	BackoffMS  int64          `json:"items_backoff_ms,omitempty"`   // Waiting time of all items in backoff.
	Finish     map[string]int `json:"finish_reasons"`               // Items by finish reason.
	Models     map[string]int `json:"models"`                       // Items by model.

	Run *Run `json:"run,omitempty"` // Figures from events.
}

// Items counts what became of items.
type Items struct {
	Total        int     `json:"total"`                        // Items of the input.
	OK           int     `json:"done"`                         // Successful items of all runs.
	Failed       int     `json:"failed"`                       // Failed items of all runs.
	Left         int     `json:"remaining,omitempty"`          // Items without a result.
	Reused       int     `json:"reused"`                       // Items with copied or cached results.
	PerMin       float64 `json:"per_min,omitempty"`            // Items per minute.
	Throttled    int     `json:"throttled"`                    // Items that were rate-limited.
	ThrottledOK  int     `json:"throttled_ok"`                 // Rate-limited items that succeeded later.
	ThrottleRate float64 `json:"throttled_ok_share,omitempty"` // Success rate of rate-limited items.
}

// Run is what events say of the time in which items were run.
type Run struct {
	First     time.Time          `json:"first"`            // First event.
	Last      time.Time          `json:"last"`             // Last event.
	Processes int                `json:"processes"`        // Processes.
	WallMS    int64              `json:"wall_ms"`          // Duration of the runs.
	Bound     map[string]float64 `json:"bound_by"`         // Share of time by binding limit.
	Throttles Throttles          `json:"throttles"`        // Rate-limit rejections.
	Cooldowns Cooldowns          `json:"cooldowns"`        // Pauses of lanes.
	Slots     Slots              `json:"slots"`            // Requests in flight.
	Shared    bool               `json:"shared,omitempty"` // Another process also used a lane.
	Lanes     []Lane             `json:"lanes"`            // Figures by lane.
	open      int                // permits of the last process that were not given back
}

// Throttles counts refusals that asked to slow down. An episode is one pause, or refusals within a second.
type Throttles struct {
	Count           int            `json:"count"`             // Rate-limited requests.
	ByLimit         map[string]int `json:"by_limit"`          // Rate-limited requests by limit.
	Episodes        int            `json:"episodes"`          // Series of rejections.
	EpisodesPerHour float64        `json:"episodes_per_hour"` // Episodes per hour.
	Said            string         `json:"said,omitempty"`    // Message of the first rejection.
}

// Cooldowns counts pauses of lanes.
type Cooldowns struct {
	Count  int   `json:"count"`   // Pauses.
	LostMS int64 `json:"lost_ms"` // Pause time of the most affected lane.
}

// Slots counts permits. Leaked are those that were open when their Scheduler was closed; Cut those that were open when a
// process was killed, or are open still.
type Slots struct {
	Acquired  int `json:"acquired"`       // Requests that started.
	Waited    int `json:"waited"`         // Requests that waited before sending.
	Released  int `json:"released"`       // Requests that finished.
	Cancelled int `json:"cancelled"`      // Requests cancelled while waiting.
	Errors    int `json:"errors"`         // Finished requests with errors or rejections.
	Leaked    int `json:"leaked"`         // Requests still open when the scheduler closed.
	Cut       int `json:"open_at_end"`    // Requests in flight at the end.
	Most      int `json:"most_in_flight"` // Maximum number of requests in flight in one lane.
	Max       int `json:"max"`            // Allowed concurrency when most requests were in flight.
}

// Lane is one lane of an account.
type Lane struct {
	Account   string             `json:"account,omitempty"` // Provider address and key hash.
	Lane      string             `json:"lane"`              // Model, or upstream and model.
	Sent      int                `json:"sent"`              // Requests that started.
	Answered  int                `json:"answered"`          // Successful requests.
	Throttled int                `json:"throttled"`         // Rate-limited requests.
	Failed    int                `json:"failed_attempts"`   // Failed attempts.
	GaveUp    int                `json:"gave_up"`           // Requests that failed after their last attempt.
	Most      int                `json:"most_in_flight"`    // Maximum number of requests in flight.
	Bound     map[string]float64 `json:"bound_by"`          // Share of time by binding limit.
	Quota     []Quota            `json:"quota"`             // Use by limit.
	Latency   Times              `json:"latency"`           // Durations of requests.
	WidthMS   int64              `json:"bin_ms"`            // Length of each time bin.
	Bins      []Bin              `json:"bins"`              // Data of each time bin.

	line    *timeline
	refused [limits.NumDimensions]int // by the limit that was named
}

// Quota is what was used of one limit.
type Quota struct {
	Dimension string  `json:"dimension"`                // Name of the limit, such as `rpm`.
	Limit     int64   `json:"limit"`                    // Value of the limit.
	Source    string  `json:"source"`                   // Origin of the value, such as `header`.
	Used      int64   `json:"used"`                     // Used amount.
	Share     float64 `json:"share"`                    // Used share of the allowed amount.
	Busiest   int64   `json:"busiest_minute,omitempty"` // Largest amount used in one minute.
	PerBin    []int64 `json:"used_by_bin,omitempty"`    // Used amount in each time bin.
	Limits    []int64 `json:"limit_by_bin,omitempty"`   // Allowed amount in each time bin.
	limits.Claims
	dimension limits.Dimension
	long      bool // the run lasted for a minute at least
}

// Report says what all of it comes to.
func (a *Aggregate) Report() *Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.done
	if a.byFile {
		s = &a.results
	}
	r := &Report{
		Cut: a.cut, Failures: []Failure{}, Retries: distribution(&s.retries), Throttled: distribution(&s.throttles),
		Waits: s.waits.result(), Longest: append([]LongWait{}, s.longest...), Latency: s.latencies.result(),
		Tokens:     work.TokensOf(s.usage),
		CooldownMS: s.cooldown.Milliseconds(), BackoffMS: s.backoff.Milliseconds(),
		Finish: named(s.finish), Models: named(s.models),
	}
	r.Items = Items{Total: s.total, OK: s.ok, Failed: s.total - s.ok, Reused: max(s.reused, a.done.reused), Throttled: s.throttled, ThrottledOK: s.throttledOK}
	if s.throttled > 0 {
		r.Items.ThrottleRate = float64(s.throttledOK) / float64(s.throttled)
	}
	// Where the price of calls is not known, what was spared does not make a cost; where there were none, nothing was paid.
	if s.costed > s.free || s.free > 0 && s.free == s.total {
		r.Cost, r.Costed, r.Estimated = new(prose.RoundDollars(s.cost)), s.costed, prose.RoundDollars(s.estimated)
	}
	for _, f := range s.failures {
		r.Failures = append(r.Failures, *f)
	}
	slices.SortFunc(r.Failures, func(a, b Failure) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Kind, b.Kind)) })
	if a.events > 0 {
		r.Run = a.run()
		if wall := a.wall(); wall > 0 {
			r.Items.PerMin = float64(a.done.total) / wall.Minutes()
		}
		if !a.byFile && r.ofSlots() {
			r.Waits, r.Longest = a.calls.waits.result(), append(r.Longest, a.calls.longest...)
		}
	}
	return r
}

// named is a copy of counts by name, never nil.
func named(counts map[string]int) map[string]int {
	if counts == nil {
		return map[string]int{}
	}
	return maps.Clone(counts)
}

func (a *Aggregate) run() *Run {
	wall := a.wall()
	r := &Run{
		First: a.first, Last: a.last, Processes: a.runs, WallMS: wall.Milliseconds(), Bound: map[string]float64{}, Shared: a.shared,
		Throttles: Throttles{ByLimit: map[string]int{}, Said: a.said}, Lanes: []Lane{},
	}
	for _, l := range a.lanes {
		r.add(l, wall)
	}
	if wall > 0 {
		r.Throttles.EpisodesPerHour = float64(r.Throttles.Episodes) / wall.Hours()
	}
	slices.SortFunc(r.Lanes, func(a, b Lane) int {
		return cmp.Or(b.Sent-a.Sent, cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Account, b.Account))
	})
	return r
}

// AddBound adds the share of the time when each limit was binding in a lane. Of several lanes, it keeps the largest share.
func AddBound(shares map[string]float64, held []time.Duration, wall time.Duration) {
	for i, d := range held {
		if name := boundName(i); d > 0 && wall > 0 {
			shares[name] = max(shares[name], min(1, float64(d)/float64(wall)))
		}
	}
}

// add takes in a lane.
func (r *Run) add(l *laneSeen, wall time.Duration) {
	refused := l.refused()
	lane := Lane{
		Account: l.account, Lane: l.name, Sent: l.acquired, Answered: l.answered, Throttled: refused, Failed: l.failed, GaveUp: l.gaveUp,
		Most: l.peak, Bound: map[string]float64{}, Latency: l.latencies.result(), WidthMS: l.line.width.Milliseconds(),
		Bins: slices.Clone(l.line.bins), line: l.line.clone(), refused: l.throttled,
	}
	AddBound(lane.Bound, l.bound[:], wall)
	AddBound(r.Bound, l.bound[:], wall)
	lane.Quota = l.quota(wall)
	r.Lanes = append(r.Lanes, lane)
	r.Throttles.Count += refused
	for d, n := range l.throttled {
		if n > 0 {
			r.Throttles.ByLimit[cmp.Or(limits.Dimension(d).String(), "unstated")] += n
		}
	}
	r.Throttles.Episodes += l.episodes
	r.Cooldowns.Count += l.cooldowns
	r.Cooldowns.LostMS = max(r.Cooldowns.LostMS, l.bound[limits.AnyDimension].Milliseconds())
	r.Slots.Acquired += l.acquired
	r.Slots.Released += l.released
	r.Slots.Leaked += l.leaked
	r.Slots.Cut += l.cut + l.open
	r.open += l.open
	r.Slots.Waited += l.waited
	r.Slots.Cancelled += l.cancelled
	r.Slots.Errors += l.errors
	if l.peak > r.Slots.Most {
		r.Slots.Most, r.Slots.Max = l.peak, l.peakSlots
	}
}

// quota is what was used of each limit that is known.
func (l *laneSeen) quota(wall time.Duration) []Quota {
	all := []Quota{}
	for d := limits.Requests; d < limits.NumDimensions; d++ {
		k := l.limits[d]
		if k.value == 0 || k.value == provider.Endless {
			continue
		}
		used, busiest := l.used(d)
		q := Quota{Dimension: d.String(), Limit: k.value, Source: string(k.source), Used: used, Busiest: busiest, Claims: k.claims, dimension: d,
			long: wall >= time.Minute}
		if let := float64(k.value) * float64(wall) / float64(d.Window()); let > 0 {
			q.Share = float64(used) / let
		}
		if d.Window() > time.Minute {
			q.Busiest = 0
		}
		q.PerBin, q.Limits = l.line.quota(d)
		all = append(all, q)
	}
	return all
}
