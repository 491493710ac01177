package find

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// Line says in one line what was found, and by what.
func (r *Result) Line() string {
	parts := []string{r.answer()}
	if r.Error == "" && r.Workers > 0 {
		parts[0] += ": " + r.why()
	}
	for d := limits.Concurrency; d < limits.NumDimensions; d++ {
		if text := r.beside(d); text != "" {
			parts = append(parts, text)
		}
	}
	if r.BucketOfOne {
		parts = append(parts, "two simultaneous requests are always rejected: without pacing, no number of workers is safe, and only sluice run can use this limit")
	}
	if s := r.Soak; s.Requests > 0 {
		parts = append(parts, fmt.Sprintf("soak %s, %s rejected", prose.Count(s.Requests, "request"), prose.Group(s.Rejected)))
	}
	return strings.Join(append(parts, r.Spent.Words(r.Took)), "; ")
}

// answer is the number, or what is known of it.
func (r *Result) answer() string {
	switch high := prose.Count(r.High, "worker"); {
	case r.Error == "" && r.Workers == 0:
		return "0 workers: even one request at a time is rejected"
	case r.Error == "":
		return prose.Count(r.Workers, "worker")
	case r.Workers > 0:
		return "stopped early: " + prose.Count(r.Workers, "worker") + " were safe"
	case r.High > r.Low && (r.Low > 0 || r.High < r.Settings.MaxWorkers):
		return fmt.Sprintf("stopped early: the number of workers is between %s and %s", prose.Group(r.Low), high)
	case r.High > 0 && r.High == r.Low:
		return "stopped early: the number of workers is at most " + high
	}
	return "stopped early: the number of workers is unknown"
}

// why is the reason why the answer is not higher.
func (r *Result) why() string {
	slots := r.Findings.Limits[limits.Concurrency]
	switch r.Bound {
	case BoundConcurrency:
		return fmt.Sprintf("the provider accepts %s at once and rejects more (%s)", prose.Number(slots.Value), slots.source())
	case BoundQueue:
		return fmt.Sprintf("the server handles %s at once and queues the rest (%s)", prose.Number(slots.Value), slots.source())
	case BoundRequests, BoundTokens:
		return r.busy()
	case BoundCertified:
		text := "more workers could not be verified within " + r.Settings.budgets()
		if r.Findings.Limits[r.Binding.Dimension].Known() {
			return r.busy() + "; " + text
		}
		return text
	case BoundSoak:
		return "real requests of more workers were rejected"
	case BoundNothing:
		return "even one request at a time is rejected"
	}
	return fmt.Sprintf("no more workers than --max-workers %s were tried", prose.Group(r.Settings.MaxWorkers))
}

// budgets are the flags that bound what can be certified.
func (s *Settings) budgets() string {
	var flags []string
	if n := s.TokenBudget; n > 0 {
		flags = append(flags, "--token-budget "+prose.Group(n))
	}
	if m := s.MaxCost; m != nil {
		flags = append(flags, "--max-cost "+prose.Dollars(*m))
	}
	return cmp.Or(strings.Join(flags, " and "), "a minute")
}

// busy is the number of calls that the limit keeps open which bounds the answer.
func (r *Result) busy() string {
	b := r.Binding
	limit := r.Findings.Limits[b.Dimension]
	if !limit.Known() {
		return "a limit per minute is reached"
	}
	text := limit.per(b.Dimension)
	if b.Dimension != limits.Requests {
		text += ", " + prose.Number(b.Cost) + " tokens"
	}
	text += fmt.Sprintf(" and %s per request keep %s workers busy", exactly(r.Findings.Latency.Mean), prose.Number(b.Busy))
	if margin := marginWords(b.Margin); margin != "" {
		text += fmt.Sprintf(", less %s margin", margin)
	}
	return text
}

// beside is what is known of a limit that does not bound the answer; "" for the one that does.
func (r *Result) beside(d limits.Dimension) string {
	f, bounds := r.Findings.Limits[d], r.Binding.Dimension
	if r.Bound == BoundConcurrency || r.Bound == BoundQueue {
		bounds = limits.Concurrency
	}
	switch {
	case !f.Known(), d == bounds && r.Error == "":
		return ""
	case f.Source == limits.SourceAtLeast:
		return fmt.Sprintf("at least %s %s", prose.Number(math.Floor(f.Value)), perTime(d))
	case d == limits.Concurrency && r.Findings.Queue:
		return fmt.Sprintf("the server handles %s", f.per(d))
	case d == limits.Concurrency:
		return "at most " + f.per(d)
	}
	return f.per(d)
}

// perTime is what a limit counts.
func perTime(d limits.Dimension) string {
	if d == limits.Concurrency {
		return "at once"
	}
	return d.Counted("/min", "/day")
}

// per is a limit and its source.
func (f Finding) per(d limits.Dimension) string {
	return fmt.Sprintf("%s %s (%s)", prose.Number(math.Floor(f.Value+1e-9)), perTime(d), f.source())
}

// source says where a value is from.
func (f Finding) source() string {
	switch f.Source {
	case limits.SourceHeader:
		return "stated by headers"
	case limits.SourceRejection:
		return "stated by rejections"
	case limits.SourceAtLeast:
		return "verified at least"
	case limits.SourceMeasured:
		if margin := marginWords(f.Margin); margin != "" {
			return "measured ±" + margin
		}
	}
	return string(f.Source)
}

// marginWords writes a margin; "" for none to speak of.
func marginWords(m float64) string {
	switch {
	case m < 0.0005:
		return ""
	case m < 0.0095:
		return fmt.Sprintf("%.1f %%", m*100)
	}
	return prose.Percent(m)
}

// Words says what a search used.
func (s Spent) Words(took time.Duration) string {
	parts := []string{prose.Count(s.Requests, "request"), prose.Thousands(s.Tokens()) + " tokens"}
	if s.Cost != nil {
		parts = append(parts, prose.Dollars(*s.Cost))
	}
	if s.Estimated > 0 {
		parts[1] += fmt.Sprintf(" (%s of them estimated)", prose.Thousands(s.Estimated))
	}
	return strings.Join(append(parts, prose.Span(took)), ", ")
}

// String says in a line how far a search is.
func (p Progress) String() string {
	text := ""
	if p.High > 0 { // first: terminals may be narrow
		text = fmt.Sprintf("%s to %s; ", prose.Group(p.Low), prose.Count(p.High, "worker"))
	}
	return text + fmt.Sprintf("%s: %s; %s", p.Phase, p.Doing, p.Spent.Words(p.Elapsed))
}

// Line says in one line what a sweep found.
func (r *SweepResult) Line(stopped bool) string {
	var refused *SweepRun // the fewest workers of which some were
	for i := range r.Runs {
		if run := &r.Runs[i]; run.Status == SweepRateLimited && (refused == nil || run.Workers < refused.Workers) {
			refused = run
		}
	}
	text := prose.Count(r.Recommended, "worker") + " passed"
	switch {
	case r.Recommended == 0 && stopped:
		text = "stopped early: no run passed"
	case r.Recommended == 0:
		text = "0 workers: " + cmp.Or(r.Error, "no run passed")
	case stopped:
		text = "stopped early: " + text
	}
	switch {
	case refused != nil:
		text += fmt.Sprintf("; %s had %s of %s rejected", prose.Count(refused.Workers, "worker"), prose.Group(refused.RateLimited), prose.Count(refused.Prompts, "request"))
	case r.Recommended == r.Settings.MaxWorkers:
		text += fmt.Sprintf("; no more workers than --max-workers %s were tried", prose.Group(r.Settings.MaxWorkers))
	}
	return text + "; " + r.Spent.Words(r.Took)
}

// exactly writes the time of a call with three digits.
func exactly(d time.Duration) string {
	switch {
	case d < time.Second:
		return prose.Number(float64(d)/float64(time.Millisecond)) + " ms"
	case d < 100*time.Second:
		return prose.Number(d.Seconds()) + " s"
	}
	return prose.Span(d)
}
