package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
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
	var b strings.Builder
	where := "the simulator"
	if d.Endpoint != "" {
		where = d.Model + " at " + d.Endpoint
	}
	fmt.Fprintf(&b, "%s: %s, %s, seed %d, %s to %s\n\n", d.Level, prose.Count(d.Slots, "slot"),
		prose.Span(time.Duration(d.TookMS)*time.Millisecond), d.Seed, prose.Count(int(d.Seen), "request"), term.Escape(where))
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range d.Rows {
		value, threshold, verdict := "-", "", ""
		if row.Value != nil {
			value = quantity(*row.Value, row.Unit)
		}
		if t := row.Threshold; t != nil {
			threshold = t.Op + " " + quantity(t.Value, row.Unit)
		}
		switch {
		case row.Value == nil:
			verdict = "-"
		case !row.OK:
			verdict = "MISSED"
		case row.Threshold != nil:
			verdict = "ok"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", words(row.Name), value, threshold, verdict, row.Note)
	}
	w.Flush()
	for _, l := range d.LeftOut {
		fmt.Fprintf(&b, "\nomitted: %s: %s\n", l.Part, term.Escape(l.Why))
	}
	_, err := fmt.Fprint(s.Out, trimmed(b.String()))
	return err
}

// trimmed takes blanks off the ends of lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
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
