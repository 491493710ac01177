package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// reportOptions are the flags of the report command.
type reportOptions struct {
	output string // the results, "" for none
	events string
	html   string
	asJSON bool
}

// newReport returns the command that says what a run came to.
func newReport(s *term.Streams) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report [OUT.jsonl] [--events FILE]",
		Short: "Print the limits, waits, failures and cost of a run",
		Long: `Print the limits, waits, failures and cost of a run.

OUT.jsonl contains the outcome of each item. With the events file of run --events, the report also shows the causes of
waits, the used share of each limit, rejections and pauses.`,
		Example: `  sluice report out.jsonl
  sluice report out.jsonl --events events.jsonl --html report.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fault.New(fault.Usage, fmt.Errorf("expected one file of results, not %d", len(args)), "name the output file of one run: sluice report OUT.jsonl --events FILE")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.output = args[0]
			}
			if err := o.check(); err != nil {
				return err
			}
			return o.report(s)
		},
	}
	define(cmd, flagGroup{"Output", []flag{
		{name: "events", field: &o.events, metavar: "FILE", help: "Read the events of the run; - is standard input", common: true},
		{name: "html", field: &o.html, metavar: "FILE", help: "Write the report as one HTML page with charts", common: true},
		{name: "json", field: &o.asJSON, help: "Print the report as one JSON document", common: true},
	}})
	return cmd
}

// check finds what is wrong with the flags together.
func (o *reportOptions) check() error {
	switch {
	case o.output == "" && o.events == "":
		return fault.New(fault.Missing, errors.New("neither an output file nor --events is given"), "name the output file of a run, its events, or both: sluice report OUT.jsonl --events FILE")
	case o.html == "-" && o.asJSON:
		return fault.New(fault.Conflict, errors.New("--html - and --json both go to standard output"), "write the page to a file with --html FILE")
	}
	return keepsApart("html", o.html, o.output, o.events)
}

// report reads what there is, and prints the report.
func (o *reportOptions) report(s *term.Streams) error {
	name := o.html
	if name == "-" {
		name = ""
	}
	page, err := newFileFor("html", name)
	if err != nil {
		return err
	}
	var a telemetry.Aggregate
	if o.output != "" {
		if err := o.readResults(&a); err != nil {
			return err
		}
	}
	if o.events != "" {
		if err := readEvents(s, o.events, a.ReadEvents); err != nil {
			return err
		}
	}
	r := a.Report()
	r.Output, r.Events = o.output, o.events
	r.Judge(o.advice(r.Items.Total))
	r.Redact(s.Redact, s.RedactData)
	if page != nil {
		if err := page.write(r.WriteHTML); err != nil {
			return err
		}
		s.Errorf("sluice: the report is in %s\n", page.name)
	}
	if o.html == "-" {
		return r.WriteHTML(s.Data())
	}
	if o.asJSON {
		return s.JSON(r)
	}
	return printReport(s, r)
}

// printReport writes a report for people. Ids and messages are other people's words.
func printReport(s *term.Streams, r *telemetry.Report) error {
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintf(s.Out, "%s\n", s.Out.Fit(term.Escape(strings.TrimSuffix(line, "\n")))); err != nil {
			return err
		}
	}
	return nil
}

// advice is what is known of the run of that output beside its results, of which there are so many: what its state file says is
// left, and the commands that go on with it. Its input is not known.
func (o *reportOptions) advice(results int) telemetry.Advice {
	if o.output == "" {
		return telemetry.Advice{}
	}
	again := "sluice run … -o " + term.Quote(o.output)
	_, path := runinfo.Places(o.output)
	state, _ := work.LoadState(path) // without one, nothing is known to be left
	advice := telemetry.Advice{Again: again, Retry: again + " --redo failed", Runs: state.Runs, Last: state.Last}
	if state.Status == "" || state.Status == work.Completed {
		return advice
	}
	if advice.Left = max(0, state.Total-results); advice.Left > 0 && state.Status == work.Stopped {
		advice.Stopped = strings.TrimPrefix(state.Reason, "run stopped: ")
	}
	return advice
}

func (o *reportOptions) readResults(a *telemetry.Aggregate) error {
	f, err := os.Open(o.output)
	if err != nil {
		return fault.New(fault.File, err, "name the file that sluice run -o OUT.jsonl wrote: sluice report OUT.jsonl")
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		dir := term.Quote(o.output)
		return fault.New(fault.File, fmt.Errorf("%s is a directory", o.output), "read a run of exec with sluice status %s or sluice answers %s", dir, dir)
	}
	if err := a.ReadResults(f); err != nil {
		return fault.New(fault.Output, fmt.Errorf("%s: %w", o.output, err), "name the file that sluice run -o OUT.jsonl wrote")
	}
	return nil
}

// readEvents lets read read the events of that file, or of standard input for -.
func readEvents(s *term.Streams, name string, read func(io.Reader) error) error {
	in := s.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fault.New(fault.File, fmt.Errorf("--events: %w", err), "name a file that sluice run --events FILE wrote")
		}
		defer f.Close()
		in = f
	}
	err := read(in)
	if err != nil {
		return fault.New(fault.File, fmt.Errorf("%s: %w", inputName(name), err), "name a file that sluice run --events FILE wrote")
	}
	return nil
}

// inputName is a file as people call it.
func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}
