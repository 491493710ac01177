package cli

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// earlierText adds the share of earlier runs to a count.
func earlierText(text string, n int) string {
	return text + prose.If(n, " ("+prose.Group(n)+" by earlier runs)")
}

// failedRows counts failed items by kind, with the first of each in this run.
func failedRows(s *term.Streams, kinds map[sluice.Kind]int, first map[sluice.Kind]string) {
	for _, kind := range prose.LargestFirst(kinds) {
		text := prose.Group(kinds[kind]) + " " + kind.String()
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

// allRuns writes the figures of all runs, if there are several.
func allRuns(s *term.Streams, all *work.Figures) {
	if all != nil {
		s.Row("all runs", "%s", all)
	}
}

// costRow writes the cost of this run, and the number of items whose cost is known.
func costRow(s *term.Streams, bill runinfo.Bill, items int, doubts string) {
	switch {
	case bill.Cost == nil:
	case bill.Costed < items:
		s.SubRow("cost", "%s for %s of %s items%s", prose.Dollars(*bill.Cost), prose.Group(bill.Costed), prose.Group(items), doubts)
	default:
		s.SubRow("cost", "%s%s", prose.Dollars(*bill.Cost), doubts)
	}
}
