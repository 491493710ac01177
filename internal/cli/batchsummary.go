package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// batchSummary is the work of a run with --batch, as --json prints it.
type batchSummary struct {
	Batches  int      `json:"batches"`                // Batches that finished in this run.
	Pending  int      `json:"pending_batches"`        // Batches without recorded results.
	Lost     int      `json:"lost_batches,omitempty"` // Batches missing at the provider.
	Items    int      `json:"items_by_batch"`         // Items completed in batches.
	Live     int      `json:"items_live"`             // Items completed by live requests.
	Cost     *float64 `json:"cost_by_batch_usd"`      // Cost of batch items, if known.
	LiveCost *float64 `json:"live_cost_usd"`          // Cost of these items if sent as live requests.
	Saved    *float64 `json:"saved_usd"`              // Cost saved by batches.
}

// newBatchSummary returns the summary of the batches of a run; nil without --batch.
func newBatchSummary(o *runOptions, rep *batch.BatchReport) *batchSummary {
	if !o.usesBatches() {
		return nil
	}
	v := &batchSummary{Batches: rep.Parts, Pending: rep.Pending, Lost: rep.Lost, Items: rep.Lines, Live: rep.Live}
	if rep.LiveCost > 0 {
		v.Cost, v.LiveCost = new(prose.RoundDollars(rep.Cost)), new(prose.RoundDollars(rep.LiveCost))
		v.Saved = new(prose.RoundDollars(rep.LiveCost - rep.Cost))
	}
	return v
}

// print writes it for people.
func (v *batchSummary) print(s *term.Streams) {
	if v == nil || v.Items+v.Live+v.Pending+v.Lost == 0 {
		return
	}
	s.SubRow("batch", "%s", prose.Fields(
		prose.If(v.Items, prose.Count(v.Items, "item")+" in "+prose.Count(v.Batches, "batch")), prose.If(v.Live, prose.Count(v.Live, "item")+" live"),
		prose.If(v.Pending, prose.Count(v.Pending, "batch")+" pending"), prose.If(v.Lost, prose.Count(v.Lost, "batch")+" lost")))
	if v.Saved != nil {
		s.SubRow("saved", "%s: live requests would have cost %s", prose.Dollars(*v.Saved), prose.Dollars(*v.LiveCost))
	}
}

// explainPending says what goes on at the provider after a run that ended early, and how it is taken up or called off.
func explainPending(e *fault.Error, all []batch.Part, o *runOptions) {
	f := sumParts(all)
	text := f.left(time.Now())
	if text == "" || fault.Is[*batch.LostError](e.Err) {
		return
	}
	join := "%w; %s"
	if strings.HasSuffix(e.Err.Error(), ".") { // as providers' messages end, and text may begin a sentence
		join = "%w %s"
	}
	e.Err = fmt.Errorf(join, e.Err, text)
	if o.cancel { // it is what is hinted otherwise
		e.Hint = cmp.Or(e.Hint, sameCommand+": "+o.command())
		return
	}
	if e.Hint == "" || e.Code == fault.Interrupted {
		e.Hint = "collect pending batches with the same command, or add --cancel to cancel the batches: " + o.command()
	}
}

// calledOff says what a run left that called off what was pending: was is how many parts that were.
func (o *runOptions) calledOff(was, left int) string {
	var words []string
	if was == 0 {
		words = append(words, "no batches were pending")
	}
	if left > 0 {
		verb := "are"
		if left == 1 {
			verb = "is"
		}
		words = append(words, fmt.Sprintf("%s %s remaining: %s", prose.Count(left, "item"), verb, o.withoutCancel().command()))
	}
	return strings.Join(words, "; ")
}

// withoutCancel are the flags of a run that does what --cancel left, by the same way.
func (o *runOptions) withoutCancel() *runOptions {
	if !o.cancel {
		return o
	}
	less := *o
	less.args = slices.DeleteFunc(slices.Clone(o.args), func(word string) bool {
		name, _, _ := strings.Cut(word, "=")
		return name == "--cancel"
	})
	if !o.batch {
		less.args = append(less.args, "--batch")
	}
	return &less
}
