package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/internal/term"
)

// printStressEnding prints the result of a run that ended before its time or missed a threshold.
func printStressEnding(s *term.Streams, res *stress.Result) {
	if res.Deadlock != "" {
		what, _, _ := strings.Cut(res.Deadlock, "\n")
		s.Errorf("sluice: deadlock: %s (--json prints the stacks)\n", what)
	}
	if res.Panic != "" {
		what, _, _ := strings.Cut(res.Panic, "\n")
		s.Errorf("sluice: %s (--json prints the stack)\n", what)
	}
	if res.Failure != nil {
		s.Errorf("sluice: the first request that failed: %s\n", term.Clip(res.FirstFailure, runinfo.MaxMessage))
	}
}

// words makes words of a name.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// printStress prints the table.
func printStress(s *term.Streams, d *stress.Result) error {
	var t term.Table
	where := "the simulator"
	if d.Endpoint != "" {
		where = d.Model + " at " + d.Endpoint
	}
	t.Linef("%s: %s, %s, seed %d, %s to %s\n", d.Level, prose.Count(d.Slots, "slot"),
		prose.Span(time.Duration(d.TookMS)*time.Millisecond), d.Seed, prose.Count(int(d.Seen), "request"), term.Escape(where))
	for _, row := range d.Rows {
		value, threshold, verdict := "-", "", ""
		if row.Value != nil {
			value = quantity(*row.Value, row.Unit)
		}
		if bound := row.Threshold; bound != nil {
			threshold = bound.Op + " " + quantity(bound.Value, row.Unit)
		}
		switch {
		case row.Value == nil:
			verdict = "-"
		case !row.OK:
			verdict = "MISSED"
		case row.Threshold != nil:
			verdict = "ok"
		}
		t.Row(words(row.Name), value, threshold, verdict, row.Note)
	}
	for _, l := range d.LeftOut {
		t.Linef("\nomitted: %s: %s", l.Part, term.Escape(l.Why))
	}
	return t.Print(s.Out)
}

// quantity writes a number with its unit.
func quantity(x float64, unit string) string {
	switch {
	case unit == "s":
		return prose.Span(time.Duration(x * float64(time.Second)))
	case unit == "%":
		return fmt.Sprintf("%.4g %%", x)
	case x == float64(int64(x)):
		return prose.Group(x)
	}
	return fmt.Sprintf("%.3f", x)
}
