package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/plan"
)

// dimensionWords writes how often each limit was met, the most frequent first.
func dimensionWords(counts plan.Counts) string {
	by := counts.ByName()
	names := prose.LargestFirst(by)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s by %s", prose.Group(by[name]), name)
	}
	return cmp.Or(strings.Join(names, ", "), "never")
}

// clientWords writes the limits that the client knows.
func clientWords(c plan.Client) string {
	var said []string
	if parts := limitParts(c.Configured); len(parts) > 0 {
		said = append(said, "configured "+strings.Join(parts, ", "))
	}
	if parts := limitParts(c.BeginsWith); len(parts) > 0 {
		said = append(said, "initial "+strings.Join(parts, ", "))
	}
	return cmp.Or(strings.Join(said, " and "), "no limits")
}

// foreseen returns the rows of the forecast.
func (f *figures) foreseen() []figureRow {
	c, took, cost := f.Forecast, "simulated", ""
	if f.Requests > 0 {
		took = "computed: " + prose.Span(f.Time.Duration)
	}
	if c.Cost != nil {
		cost = prose.Dollars(*c.Cost)
	}
	quota, quotas := quotaWords(c.Quotas)
	return []figureRow{
		{"time", prose.Span(c.Time.Duration), took},
		{"stopped", c.Stopped, "before the end"},
		{"requests/min", prose.Number(c.Throughput), fmt.Sprintf("computed: %s in the long run", prose.Number(f.Throughput))},
		{"throttled", dimensionWords(c.Refused), "of " + prose.Count(c.Tries, "attempt")},
		{"failed", prose.If(c.Failed, prose.Group(c.Failed)), "requests that exceed a limit, or failed after their last attempt"},
		{"quota used", quota, quotas},
		{"in flight", prose.Group(c.Peak), f.inFlight()},
		{"waits", prose.Span(c.Wait.Mean.Duration), fmt.Sprintf("on average, in a queue of at most 16 requests; 95 %% below %s", prose.Span(c.Wait.P95.Duration))},
		{"cost", cost, fmt.Sprintf("for %s", prose.Count(c.Completed, "response"))},
		{"within the deadline", known(c.WithinDeadline, ""), "requests"},
	}
}

// inFlight explains the maximum of requests in flight beside the computed slots.
func (f *figures) inFlight() string {
	peak, text := f.Forecast.Peak, "at most"
	start, ceiling := f.Forecast.Client.BeginsWith["concurrency"], f.Forecast.Client.Configured["concurrency"]
	switch {
	case peak == work.UsualWorkers:
		text = "the maximum that a run allows"
	case start > 0 && ceiling == 0 && float64(peak) > start:
		text = fmt.Sprintf("at most: the run starts with concurrency %s and tries more; --concurrency %[1]s limits the run", prose.Number(start))
	}
	text += fmt.Sprintf("; computed slots: %s", prose.Group(f.Slots))
	if peak > f.Slots && start == 0 && ceiling == 0 {
		text += ", enough for the rate; more are in flight if requests take longer, a full token bucket lets many start, or no limit is known yet"
	}
	return text
}

// quotaWords writes the used share of the limits, the largest first.
func quotaWords(quotas []plan.QuotaUse) (value, text string) {
	for i, q := range quotas {
		words := fmt.Sprintf("%s of %s %s", prose.Percent(q.Share), q.Dimension, prose.Group(q.Limit))
		if i == 0 {
			value, text = words, "of the amount that the limit allows in this time"
		} else {
			text += "; " + words
		}
	}
	return value, text
}
