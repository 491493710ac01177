package runinfo

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Ending is the end of a run.
type Ending struct {
	Outcome string `json:"outcome"`         // `done`, `items_failed`, `stopped`, `interrupted`, `failed` or `called_off`.
	Code    string `json:"code,omitempty"`  // Code of the error.
	Error   string `json:"error,omitempty"` // Reason for an early stop.
	Hint    string `json:"hint,omitempty"`  // Next step.
}

// Fail sets the end of a run that an error ended, and returns the error.
func (e *Ending) Fail(err *fault.Error) error {
	*e = Ending{err.Outcome(), err.Code, err.Error(), err.Hint}
	return err
}

// Summary is the result of a run of requests.
type Summary struct {
	Input  string `json:"input"`            // Path of the input.
	Output string `json:"output"`           // Path of the output.
	Events string `json:"events,omitempty"` // Path of the events file.
	Ending
	Items
	Use
	Estimated float64            `json:"cost_estimated_usd,omitempty"`  // Estimated part of the cost.
	Unpriced  int                `json:"unpriced_tool_calls,omitempty"` // Tool calls without known prices.
	Caps      []batch.Used       `json:"caps,omitempty"`                // Caps of this run and their use.
	PerMin    float64            `json:"per_min"`                       // Items per minute.
	Lanes     []LaneUse          `json:"lanes"`                         // Limits by lane.
	Bound     map[string]float64 `json:"bound_by"`                      // Share of time by binding limit.
	Upstreams []Upstream         `json:"upstreams,omitempty"`           // Upstreams, if there are several.
	Batch     *Batches           `json:"batch,omitempty"`               // Batches of `--batch`.
	AllRuns   *work.Figures      `json:"all_runs,omitempty"`            // Figures of all runs, if several.

	Run batch.Report `json:"-"` // of this run alone
}

// Items are the items of a run.
type Items struct {
	Total   int                    `json:"total"`                    // Items of the input.
	Done    int                    `json:"done"`                     // Successful items of all runs.
	DoneNow int                    `json:"done_by_this_run"`         // Successful items of this run.
	Failed  int                    `json:"failed"`                   // Failed items of all runs.
	Left    int                    `json:"remaining"`                // Items without a result.
	Kinds   map[sluice.Kind]int    `json:"failed_by_kind"`           // Failed items by kind of failure.
	Finish  map[string]int         `json:"finish_reasons"`           // Items by finish reason.
	First   map[sluice.Kind]string `json:"first_failures,omitempty"` // First error message by kind of failure.
	Cached  int                    `json:"cached"`                   // Items with the result of an equal request.
}

// Use is the work of this run.
type Use struct {
	Attempts  int `json:"attempts"`  // Attempts, except rate-limited attempts.
	Throttles int `json:"throttles"` // Rate-limited requests.
	work.Tokens
	WallMS     int64 `json:"wall_ms"`     // Duration of the run.
	QueuedMS   int64 `json:"queued_ms"`   // Wait in the queue.
	CooldownMS int64 `json:"cooldown_ms"` // Wait in cooldowns.
	BackoffMS  int64 `json:"backoff_ms"`  // Wait in backoff.
	Bill
}

// Bill is the known cost of this run.
type Bill struct {
	Cost   *float64 `json:"cost_usd"`     // Cost, if known.
	Costed int      `json:"costed_items"` // Items with a known cost.
}

// useOf returns the work of a run. With lanes, it also counts rate-limited requests of items without a result.
func useOf(rep work.Report, lanes []limits.LaneSnapshot) Use {
	u := Use{
		Attempts: rep.Attempts, Throttles: rep.Throttles, Tokens: work.TokensOf(rep.Usage), WallMS: rep.Wall.Milliseconds(),
		QueuedMS: rep.Queued.Milliseconds(), CooldownMS: rep.Cooldown.Milliseconds(), BackoffMS: rep.Backoff.Milliseconds(),
	}
	if len(lanes) > 0 { // else workers send the requests
		u.Throttles = requests(lanes).Throttles
	}
	// If no price is known, cached results do not make the cost known. If there was no request, the cost is 0.
	if free := rep.Cached; rep.Costed > free || free > 0 && free == rep.Done+rep.Failed {
		u.Bill = Bill{&rep.Cost, rep.Costed}
	}
	return u
}

// Summarize returns the summary of a run of requests.
func Summarize(rep batch.Report, snap sluice.Snapshot) *Summary {
	all := rep.Counts()
	sum := &Summary{
		Items: Items{Total: all.Total, Done: all.Done, DoneNow: rep.Done, Failed: all.Failed, Left: all.Remaining(),
			Kinds: map[sluice.Kind]int{}, Finish: rep.Finish, Cached: rep.Cached},
		Use:  useOf(rep.Report, snap.Lanes),
		Caps: rep.Budgets, Lanes: newLaneUses(snap, rep.Wall), Bound: map[string]float64{}, Run: rep,
	}
	if sum.Cost != nil {
		sum.Estimated, sum.Unpriced = rep.Estimated, rep.Unpriced
	}
	for _, kinds := range []map[sluice.Kind]int{rep.Kinds, rep.AlreadyKinds} {
		for kind, n := range kinds {
			if kind != sluice.OK {
				sum.Kinds[kind] += n
			}
		}
	}
	if rep.Wall > 0 {
		sum.PerMin = float64(sum.Recorded()) / rep.Wall.Minutes()
	}
	for _, lane := range snap.Lanes {
		telemetry.AddBound(sum.Bound, lane.Bound[:], rep.Wall)
	}
	return sum
}

// Recorded returns the number of items that this run recorded.
func (sum *Summary) Recorded() int { return sum.Run.Done + sum.Run.Failed }

// AddOutages adds the outages to the reasons that held the run back. A lane counts the pause of its circuit breaker as a cooldown.
func (sum *Summary) AddOutages(outages map[string]time.Duration) {
	for reason, away := range outages {
		share := min(1, away.Seconds()*1000/float64(max(1, sum.WallMS)))
		sum.Bound[reason] = share
		if reason == noProvider || reason == noUpstream {
			sum.Bound["cooldown"] -= share
		}
	}
	if sum.Bound["cooldown"] <= 0 {
		delete(sum.Bound, "cooldown")
	}
}

// CutOff is the number of results that reached the maximum number of output tokens.
func (sum *Summary) CutOff() (n int) {
	for reason, count := range sum.Finish {
		if (provider.Reply{Finish: reason}).Cut() {
			n += count
		}
	}
	return n
}

// CostDoubts names the estimated part of the cost, and tool calls without prices.
func (sum *Summary) CostDoubts() (text string) {
	if sum.Estimated != 0 {
		text = fmt.Sprintf(", %s of it estimated", prose.Dollars(sum.Estimated))
	}
	if sum.Unpriced > 0 {
		text += fmt.Sprintf(", plus %s at unknown prices", prose.Count(sum.Unpriced, "tool call"))
	}
	return text
}

// Batches is the work of a run with --batch.
type Batches struct {
	batch.BatchReport
	Cost     *float64 `json:"cost_by_batch_usd"` // Cost of batch items, if known.
	LiveCost *float64 `json:"live_cost_usd"`     // Cost of these items if sent as live requests.
	Saved    *float64 `json:"saved_usd"`         // Cost saved by batches.
}

// NewBatches returns the summary of the batches of a run.
func NewBatches(rep batch.BatchReport) *Batches {
	v := &Batches{BatchReport: rep}
	if rep.LiveCost > 0 {
		v.Cost, v.LiveCost = new(prose.RoundDollars(rep.Cost)), new(prose.RoundDollars(rep.LiveCost))
		v.Saved = new(prose.RoundDollars(rep.LiveCost - rep.Cost))
	}
	return v
}

// Text describes the batches; "" without any.
func (v *Batches) Text() string {
	return prose.Fields(
		prose.If(v.Lines, prose.Count(v.Lines, "item")+" in "+prose.Count(v.Parts, "batch")),
		prose.If(v.Live, prose.Count(v.Live, "item")+" live"),
		prose.If(v.Pending, prose.Count(v.Pending, "batch")+" pending"), prose.If(v.Lost, prose.Count(v.Lost, "batch")+" lost"))
}

// ExecSummary is the result of a run of commands.
type ExecSummary struct {
	proc.Report
	Dir string `json:"state"` // Directory of the run.
	Ending

	First map[sluice.Kind]string `json:"first_failures,omitempty"` // First error message by kind of failure.

	// The following fields are of this run.
	Done   int `json:"done_by_this_run"` // Successful items of this run.
	Pauses int `json:"pauses"`           // Pauses of this run.
	Use

	AllRuns *work.Figures `json:"all_runs,omitempty"` // Figures of all runs, if several.
}

// SummarizeExec returns the summary of a run of commands.
func SummarizeExec(rep proc.Report, snap sluice.Snapshot) *ExecSummary {
	return &ExecSummary{Report: rep, Done: rep.Run.Done, Use: useOf(rep.Run, snap.Lanes)}
}
