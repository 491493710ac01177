package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/find"
	"github.com/sluice-llm/sluice/internal/prose"
)

// found says in words what a search found.
type found struct {
	*find.Result
	most    int    // workers that were allowed
	budgets string // the flags that keep more from being certified
	err     error  // the search was stopped early
}

// line says in one line what was found, and by what.
func (f found) line() string {
	parts := []string{f.answer()}
	if !f.stopped() && f.Workers > 0 {
		parts[0] += ": " + f.why()
	}
	for _, d := range [...]sluice.Dimension{
		sluice.Concurrency, sluice.Requests, sluice.Tokens, sluice.InputTokens, sluice.OutputTokens, sluice.RequestsPerDay, sluice.TokensPerDay,
	} {
		if text := f.beside(d); text != "" {
			parts = append(parts, text)
		}
	}
	if f.BucketOfOne {
		parts = append(parts, "two calls at once are refused however seldom they come: no number of workers without a pace is safe, only sluice run uses this limit")
	}
	if s := f.Soak; s.Calls > 0 {
		parts = append(parts, fmt.Sprintf("soak %s, %s refused", count(s.Calls, "call"), group(s.Refused)))
	}
	return strings.Join(append(parts, spentWords(f.Spent, f.Took)), "; ")
}

func (f found) stopped() bool { return f.err != nil }

// safe is how many workers are known to be so, where the search was stopped early too: so many made real calls, and none
// of them was refused.
func (f found) safe() int {
	switch {
	case !f.stopped():
		return f.Workers
	case f.Soak.Calls > 0 && f.Soak.Refused == 0:
		return min(f.Soak.Workers, f.High) // a limit may have been lowered since
	}
	return 0
}

// answer is the number, or what is known of it.
func (f found) answer() string {
	switch {
	case !f.stopped() && f.Workers == 0:
		return "0 workers: even one call at a time is refused"
	case !f.stopped():
		return count(f.Workers, "worker")
	case f.safe() > 0:
		return "stopped early: " + count(f.safe(), "worker") + " were safe"
	case f.High > f.Low && (f.Low > 0 || f.High < f.most):
		return fmt.Sprintf("stopped early: the answer lies between %s and %s", group(f.Low), count(f.High, "worker"))
	case f.High > 0 && f.High == f.Low:
		return "stopped early: the answer is at most " + count(f.High, "worker")
	}
	return "stopped early: nothing is known of the answer"
}

// why is what keeps the answer from being higher.
func (f found) why() string {
	switch f.Bound {
	case find.BoundConcurrency:
		return fmt.Sprintf("%s at once, more are refused (%s)", number(f.Slots.Value), sourceWords(f.Slots))
	case find.BoundQueue:
		return fmt.Sprintf("the server answers %s at once and lets the rest wait (%s)", number(f.Slots.Value), sourceWords(f.Slots))
	case find.BoundRequests, find.BoundTokens:
		return f.busy()
	case find.BoundCertified:
		if text := "more could not be certified within " + f.budgets; !f.Limits[f.Binding.Dimension].Known() {
			return text
		} else {
			return f.busy() + "; " + text
		}
	case find.BoundSoak:
		return "more were refused when they ran with real calls"
	case find.BoundNothing:
		return "even one call at a time is refused"
	}
	return fmt.Sprintf("no more than --max-workers %s were tried", group(f.most))
}

// busy is how many calls the limit that binds keeps open.
func (f found) busy() string {
	b := f.Binding
	limit := f.Limits[b.Dimension]
	if !limit.Known() {
		return "a limit per minute binds"
	}
	text := rateWords(b.Dimension, limit)
	if b.Dimension != sluice.Requests {
		text += ", " + number(b.Cost) + " tokens"
	}
	text += fmt.Sprintf(" and %s a call keep %s busy", exactly(f.Latency.Mean), figure(b.Busy))
	if margin := marginWords(b.Margin); margin != "" {
		text += fmt.Sprintf(", less %s margin", margin)
	}
	return text
}

// beside is what is known of a limit that does not bind; "" for the one that does.
func (f found) beside(d sluice.Dimension) string {
	if d == sluice.Concurrency {
		switch {
		case !f.Slots.Known(), !f.stopped() && (f.Bound == find.BoundConcurrency || f.Bound == find.BoundQueue):
			return ""
		case f.Slots.Source == sluice.SourceAtLeast:
			return fmt.Sprintf("at least %s at once", number(f.Slots.Value))
		case f.Queue:
			return fmt.Sprintf("the server answers %s at once (%s)", number(f.Slots.Value), sourceWords(f.Slots))
		}
		return fmt.Sprintf("at most %s at once (%s)", number(f.Slots.Value), sourceWords(f.Slots))
	}
	limit := f.Limits[d]
	switch {
	case !limit.Known(), !f.stopped() && f.Binding.Dimension == d && f.rateBinds():
		return ""
	case limit.Source == sluice.SourceAtLeast:
		return fmt.Sprintf("at least %s %s", number(math.Floor(limit.Value)), perTime(d))
	}
	return rateWords(d, limit)
}

func (f found) rateBinds() bool {
	return f.Bound == find.BoundRequests || f.Bound == find.BoundTokens || f.Bound == find.BoundCertified
}

// rateWords is a limit per minute or day and where it is from.
func rateWords(d sluice.Dimension, limit find.Finding) string {
	return fmt.Sprintf("%s %s (%s)", number(math.Floor(limit.Value+1e-9)), perTime(d), sourceWords(limit))
}

// perTime is what a limit counts.
func perTime(d sluice.Dimension) string {
	return map[sluice.Dimension]string{
		sluice.Requests: "requests/min", sluice.Tokens: "tokens/min", sluice.InputTokens: "input tokens/min",
		sluice.OutputTokens: "output tokens/min", sluice.RequestsPerDay: "requests/day", sluice.TokensPerDay: "tokens/day",
	}[d]
}

// sourceWords says where a value is from.
func sourceWords(f find.Finding) string {
	switch f.Source {
	case sluice.SourceRegistry:
		return "published"
	case sluice.SourceHeader:
		return "told by headers"
	case sluice.SourceRefusal:
		return "told by refusals"
	case sluice.SourceAtLeast:
		return "verified at least"
	case sluice.SourceMeasured:
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

// spentWords is what a search cost.
func spentWords(s find.Spent, took time.Duration) string {
	parts := []string{count(s.Calls, "call"), thousands(s.Tokens()) + " tokens"}
	if s.Cost != nil {
		parts = append(parts, dollars(*s.Cost))
	}
	return strings.Join(append(parts, span(took)), ", ")
}

// thousands writes a count of which the last digits say nothing.
func thousands(n int) string {
	switch {
	case n < 10_000:
		return group(n)
	case n < 999_500:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.3gM", float64(n)/1e6)
}

// figure writes a mean with three digits.
func figure(x float64) string {
	if x >= 100 {
		return number(x)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// exactly writes the time of a call with three digits.
func exactly(d time.Duration) string {
	switch {
	case d < time.Second:
		return figure(float64(d)/float64(time.Millisecond)) + " ms"
	case d < 100*time.Second:
		return figure(d.Seconds()) + " s"
	}
	return span(d)
}
