package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// summary is what a run came to, as --json prints it.
type summary struct {
	Input   string `json:"input"`            // Path of the input.
	Output  string `json:"output"`           // Path of the output.
	Events  string `json:"events,omitempty"` // Path of the events file.
	Outcome string `json:"outcome"`          // `done`, `items_failed`, `stopped`, `interrupted`, `failed` or `called_off`.
	Error   string `json:"error,omitempty"`  // Reason for an early stop.
	Hint    string `json:"hint,omitempty"`   // Next step.

	Total   int            `json:"total"`            // Items of the input.
	Done    int            `json:"done"`             // Successful items of all runs.
	DoneNow int            `json:"done_by_this_run"` // Successful items of this run.
	Failed  int            `json:"failed"`           // Failed items of all runs.
	Left    int            `json:"remaining"`        // Items without a result.
	Kinds   map[string]int `json:"failed_by_kind"`   // Failed items by kind of failure.
	Finish  map[string]int `json:"finish_reasons"`   // Items by finish reason.

	First map[string]string `json:"first_failures,omitempty"` // First error message by kind of failure.

	Cached int `json:"cached"` // Items with the result of an equal request.

	Attempts     int      `json:"attempts"`                      // Attempts, except rate-limited attempts.
	Throttles    int      `json:"throttles"`                     // Rate-limited requests.
	InputTokens  int      `json:"input_tokens"`                  // Input tokens.
	OutputTokens int      `json:"output_tokens"`                 // Output tokens.
	Cost         *float64 `json:"cost_usd"`                      // Cost, if known.
	Costed       int      `json:"costed_items"`                  // Items with a known cost.
	Estimated    float64  `json:"cost_estimated_usd,omitempty"`  // Estimated part of the cost.
	Unpriced     int      `json:"unpriced_tool_calls,omitempty"` // Tool calls without known prices.
	WallMS       int64    `json:"wall_ms"`                       // Duration of the run.
	QueuedMS     int64    `json:"queued_ms"`                     // Wait in the queue.
	CooldownMS   int64    `json:"cooldown_ms"`                   // Wait in cooldowns.
	BackoffMS    int64    `json:"backoff_ms"`                    // Wait in backoff.

	Caps []batch.Used `json:"caps,omitempty"` // Caps of this run and their use.

	PerMin float64            `json:"per_min"`  // Items per minute.
	Lanes  []laneSummary      `json:"lanes"`    // Limits by lane.
	Bound  map[string]float64 `json:"bound_by"` // Share of time when each limit was binding.

	Upstreams []upstreamSummary `json:"upstreams,omitempty"` // Upstreams, if there are several.

	Batch *batchSummary `json:"batch,omitempty"` // Batches of `--batch`.

	misses int // of the cache

	ran int // items that this run recorded
}

// laneSummary is what a run took of the limits of one lane.
type laneSummary struct {
	Lane    string          `json:"lane"`        // Model, or upstream and model.
	Slots   int             `json:"concurrency"` // Allowed concurrency.
	Budgets []budgetSummary `json:"limits"`      // Limits and their use.

	granted int // tries that were sent
}

// budgetSummary is what a run took of one limit.
type budgetSummary struct {
	Dimension string  `json:"dimension"` // Name of the limit, such as `rpm`.
	Limit     int64   `json:"limit"`     // Value of the limit.
	Source    string  `json:"source"`    // Origin of the value, such as `header`.
	Share     float64 `json:"share"`     // Used share of the allowed amount.
	limits.Claims

	by limits.Dimension
}

// summarize fills a summary from what the run and the Scheduler say.
func summarize(rep batch.Report, snap sluice.Snapshot) *summary {
	sum := &summary{
		Total: rep.Total, Done: rep.AllDone(), DoneNow: rep.Done, Left: max(0, rep.Left()),
		Failed: rep.Failed + rep.AlreadyFailed,
		Kinds:  map[string]int{},
		Finish: rep.Finish,
		Cached: rep.Cached, misses: rep.CacheMisses,
		Attempts: rep.Attempts, Throttles: rep.Throttles,
		InputTokens: rep.Usage.Input, OutputTokens: rep.Usage.Output,
		WallMS: rep.Wall.Milliseconds(), QueuedMS: rep.Queued.Milliseconds(),
		CooldownMS: rep.Cooldown.Milliseconds(), BackoffMS: rep.Backoff.Milliseconds(),
		Lanes: []laneSummary{}, Bound: map[string]float64{}, ran: rep.Done + rep.Failed,
		Caps: rep.Budgets,
	}
	// Where the price of calls is not known, what was spared does not make a cost; where there were none, nothing was paid.
	if free := rep.Cached; rep.Costed > free || free > 0 && free == sum.ran {
		sum.Cost, sum.Costed, sum.Estimated, sum.Unpriced = &rep.Cost, rep.Costed, rep.Estimated, rep.Unpriced
	}
	for _, kinds := range []map[sluice.Kind]int{rep.Kinds, rep.AlreadyKinds} {
		for kind, n := range kinds {
			if kind != sluice.OK {
				sum.Kinds[kind.String()] += n
			}
		}
	}
	if rep.Wall > 0 {
		sum.PerMin = float64(sum.ran) / rep.Wall.Minutes()
	}
	if len(snap.Lanes) > 0 { // else workers make the calls
		sum.Throttles = 0 // of items that were not finished, too
	}
	for _, lane := range snap.Lanes {
		sum.Throttles += lane.Throttles
		l := laneSummary{Lane: lane.Lane, Slots: lane.Slots, Budgets: []budgetSummary{}, granted: lane.Granted}
		for _, b := range lane.Budgets {
			spent := b.Spent
			if b.Dimension.Per(time.Minute) == limits.Requests {
				spent = float64(lane.Granted - lane.Throttles) // the others were refused, and cost nothing
			}
			l.Budgets = append(l.Budgets, budgetSummary{b.Dimension.String(), b.Limit, string(b.Source), share(b, spent, rep.Wall), b.Claims, b.Dimension})
		}
		sum.Lanes = append(sum.Lanes, l)
	}
	sum.bind(snap, rep.Wall)
	return sum
}

// together is a limit that the account seems to have for several lanes together; nil: none.
func (sum *summary) together(refused map[refusal]int) *budgetSummary {
	var all telemetry.SharedLimits
	for i := range sum.Lanes {
		l := &sum.Lanes[i]
		for j := range l.Budgets {
			b := &l.Budgets[j]
			if all.Add(telemetry.LimitUse{Dimension: b.Dimension, Limit: b.Limit, Source: b.Source, Share: b.Share,
				Calls: l.granted, Refused: refused[refusal{l.Lane, b.by}]}) {
				return b
			}
		}
	}
	return nil
}

// bind says for which share of the time each limit was what held the run back: that of the lane it held longest.
func (sum *summary) bind(snap sluice.Snapshot, wall time.Duration) {
	for _, lane := range snap.Lanes {
		for d, held := range lane.Bound {
			if held <= 0 || wall <= 0 {
				continue
			}
			name := boundName(limits.Dimension(d))
			sum.Bound[name] = max(sum.Bound[name], min(1, float64(held)/float64(wall)))
		}
	}
}

// boundName is what a run was bound by, as files spell it.
func boundName(d limits.Dimension) string {
	if d == limits.AnyDimension {
		return "cooldown"
	}
	return d.String()
}

// share is the part of what a limit let through in that time that was taken: the bucket's content and its refill.
func share(b limits.BucketSnapshot, spent float64, wall time.Duration) float64 {
	most := b.Cap + float64(b.Limit)*float64(wall)/float64(b.Dimension.Window())
	if b.Limit <= 0 || most <= 0 {
		return 0
	}
	return min(1, spent/most)
}

// print writes the summary for people: first the items that need attention, then this run, at the end the next command.
func (sum *summary) print(s *term.Streams) {
	switch {
	case sum.Total == 0 && sum.Error == "":
		s.Errorf("nothing to do: %s has no lines\n", inputName(sum.Input))
		return
	case sum.Total == 0: // the error says why
		return
	}
	done := earlierText(prose.Group(sum.Done)+" of "+prose.Group(sum.Total)+" done", sum.Done-sum.DoneNow)
	if sum.Done == sum.Total && sum.ran == 0 {
		done = prose.Group(sum.Done) + " of " + prose.Group(sum.Total) + " done already"
	}
	s.Errorf("%s\n", prose.Fields(done,
		prose.If(sum.Failed, earlierText(prose.Group(sum.Failed)+" failed", sum.Failed-(sum.ran-sum.DoneNow))),
		prose.If(sum.Left, prose.Group(sum.Left)+" remaining")))
	failedRows(s, sum.Kinds, sum.First)
	if sum.ran+sum.Left > 0 {
		sum.printRun(s)
		sum.printLimits(s)
	}
	if sum.Done+sum.Failed > 0 {
		s.Row("output", "%s", sum.Output)
	}
	if sum.Error == "" && sum.Hint == "" {
		name := "answers"
		if sum.Failed > 0 {
			name = "report"
		}
		s.Errorf("next: sluice %s %s\n", name, term.Quote(sum.Output))
	}
}

// earlierText adds the share of earlier runs to a count.
func earlierText(text string, n int) string {
	return text + prose.If(n, " ("+prose.Group(n)+" by earlier runs)")
}

// failedRows counts failed items by kind, with the first of each in this run.
func failedRows(s *term.Streams, kinds map[string]int, first map[string]string) {
	for _, kind := range prose.LargestFirst(kinds) {
		text := prose.Group(kinds[kind]) + " " + kind
		if first[kind] != "" {
			text += ", first " + first[kind]
		}
		s.Row("failed", "%s", text)
	}
}

// thisRun writes the number of items, the time and the rate of this run. One request makes no rate.
func thisRun(s *term.Streams, items, attempts int, wallMS int64, throttles int) {
	const minForRate = 2
	wall, rate := time.Duration(wallMS)*time.Millisecond, ""
	if min(items, attempts) >= minForRate && wall > 0 {
		rate = prose.Group(float64(items)/wall.Minutes()) + "/min"
	}
	s.Row("this run", "%s", prose.Fields(prose.Count(items, "item")+" in "+prose.Span(wall), rate,
		prose.If(throttles, "rate-limited "+prose.Times(throttles))))
}

// costRow writes the cost of this run, and for how many of its items it is known.
func costRow(s *term.Streams, usd *float64, costed, items int, doubts string) {
	switch {
	case usd == nil:
	case costed < items:
		s.SubRow("cost", "%s for %s of %s items%s", prose.Dollars(*usd), prose.Group(costed), prose.Group(items), doubts)
	default:
		s.SubRow("cost", "%s%s", prose.Dollars(*usd), doubts)
	}
}

// printRun writes the work of this run.
func (sum *summary) printRun(s *term.Streams) {
	thisRun(s, sum.ran, sum.Attempts, sum.WallMS, sum.Throttles)
	cut := 0
	for reason, n := range sum.Finish {
		if (provider.Reply{Finish: reason}).Cut() {
			cut += n
		}
	}
	if cut > 0 {
		s.SubRow("cut off", "%s reached the maximum number of output tokens: raise max_tokens", prose.Count(cut, "result"))
	}
	// An item without a result when the run stopped can be a hit in a later run.
	if all := min(sum.Cached+sum.misses, sum.ran); all > 0 {
		s.SubRow("cache", "%s hits of %s", prose.Group(sum.Cached), prose.Group(all))
	}
	sum.Batch.print(s)
	if sum.Attempts == 0 && sum.Throttles == 0 {
		return
	}
	s.SubRow("tokens", "%s in, %s out", prose.Group(sum.InputTokens), prose.Group(sum.OutputTokens))
	costRow(s, sum.Cost, sum.Costed, sum.ran, sum.doubts())
	if len(sum.Finish) > 0 {
		s.SubRow("finish", "%s", prose.Counts(sum.Finish))
	}
}

// printLimits writes how much of the limits this run used, and which of them held it back.
func (sum *summary) printLimits(s *term.Streams) {
	const maxLanes = 4
	for _, up := range sum.Upstreams {
		s.SubRow("upstream", "%s", up)
	}
	lanes := slices.SortedStableFunc(slices.Values(sum.Lanes), func(a, b laneSummary) int { return cmp.Compare(b.granted, a.granted) })
	others := lanes[min(maxLanes, len(lanes)):]
	for _, lane := range lanes[:len(lanes)-len(others)] {
		if text := lane.String(); text != "" {
			s.SubRow("limits", "%s", text)
		}
	}
	if len(others) > 0 {
		requests := 0
		for _, lane := range others {
			requests += lane.granted
		}
		s.SubRow("limits", "%s with %s: see --json", prose.Count(len(others), "other model"), prose.Count(requests, "request"))
	}
	if len(sum.Bound) > 0 {
		s.SubRow("limited by", "%s", prose.Shares(sum.Bound))
	}
}

// doubts says which part of the cost is an estimate, and what is not in it.
func (sum *summary) doubts() (text string) {
	text = estimatedPart(sum.Estimated)
	if sum.Unpriced > 0 {
		text += fmt.Sprintf(", plus %s at unknown prices", prose.Count(sum.Unpriced, "tool call"))
	}
	return text
}

// estimatedPart says which part of a cost is an estimate.
func estimatedPart(usd float64) string {
	if usd == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of it estimated", prose.Dollars(usd))
}

// String is what the lane's limits are and what the run took of them.
func (l laneSummary) String() string {
	var parts []string
	for _, b := range l.Budgets {
		if b.Limit > 0 && b.Limit != provider.Endless {
			parts = append(parts, fmt.Sprintf("%s of %s (%s)", prose.Percent(b.Share), prose.Limit(b.by, b.Limit), prose.Source(limits.Source(b.Source), b.Claims)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return l.Lane + ": " + prose.Fields(parts...)
}
