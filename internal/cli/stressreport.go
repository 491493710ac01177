package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// conclude prints what a run came to, and returns what the program ends with.
func (o *stressOptions) conclude(s *term.Streams, res *stress.Result, err error) error {
	if res == nil {
		return o.ending(err)
	}
	res.Events = o.events
	if o.asJSON {
		if err := s.JSON(res); err != nil {
			return err
		}
	} else if err := printStress(s, res); err != nil {
		return err
	}
	if res.Deadlock != "" {
		what, _, _ := strings.Cut(res.Deadlock, "\n")
		s.Errorf("sluice: deadlock: %s (--json prints the stacks)\n", what)
	}
	if res.Panic != "" {
		what, _, _ := strings.Cut(res.Panic, "\n")
		s.Errorf("sluice: %s (--json prints the stack)\n", what)
	}
	if res.Failure != nil {
		s.Errorf("sluice: the first request that failed: %s\n", term.Clip(res.FirstFailure, mostMessage))
	}
	switch {
	case err != nil:
		return o.ending(err)
	case len(res.Missed) > 0:
		return &fault.Error{Code: fault.Threshold, Err: fmt.Errorf("missed: %s", words(strings.Join(res.Missed, ", "))), Hint: o.hint()}
	}
	return nil
}

// hint says how to find out why a threshold was missed.
func (o *stressOptions) hint() string {
	if o.events == "" {
		return "record the events with --events FILE, then read them with sluice report --events FILE"
	}
	return "read the events with sluice report --events " + term.Quote(o.events)
}

// words makes words of a name.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// ending returns the error of a run with its code and a hint.
func (o *stressOptions) ending(err error) error {
	refused, isRefused := errors.AsType[*provider.Error](err)
	late, isLate := errors.AsType[*provider.LateError](err)
	switch {
	case errors.Is(err, stress.ErrInterrupted):
		return fault.New(fault.Interrupted, err, "run the same command again to start a new run")
	case isRefused && refused.Kind == sluice.Auth:
		return fault.New(fault.KeyRejected, err, "check the key in the environment, or name another variable with --key-env")
	case isLate:
		return fault.New(fault.Unreachable, err, "raise --timeout above %s, or check --base-url, --model and the network", late.After)
	case fault.Is[*stress.UnreachableError](err):
		return fault.New(fault.Unreachable, err, "check --base-url, --model and the network")
	case fault.Is[*fs.PathError](err): // of checkpoints
		return fault.New(fault.Disk, err, "set TMPDIR to another directory for temporary files")
	}
	return err
}

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
