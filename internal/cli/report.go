package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
)

// reportOptions are the flags of the report command.
type reportOptions struct {
	output string // the results, "" for none
	events string
	html   string
	asJSON bool
}

// newReport returns the command that reports on a run.
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
		Args: atMost(1, "one file of results"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.output = strings.Join(args, "")
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

// check rejects flags that cannot be combined.
func (o *reportOptions) check() error {
	switch {
	case o.output == "" && o.events == "":
		return fault.New(fault.Missing, errors.New("neither an output file nor --events is given"), "name the output file of a run, its events, or both: sluice report OUT.jsonl --events FILE")
	case o.html == "-" && o.asJSON:
		return fault.New(fault.Conflict, errors.New("--html - and --json both go to standard output"), "write the page to a file with --html FILE")
	}
	return regular.KeepApart("--html", o.html, o.output, o.events)
}

// report reads the files, and prints the report.
func (o *reportOptions) report(s *term.Streams) error {
	name := o.html
	if name == "-" {
		name = ""
	}
	page, err := regular.Plan("--html", name)
	if err != nil {
		return err
	}
	r, err := runinfo.ReadReport(o.output, o.events, s.In)
	if err != nil {
		return err
	}
	r.Redact(s.Redact, s.RedactData)
	if page != nil {
		if err := page.Write(r.WriteHTML); err != nil {
			return err
		}
		s.Errorf("sluice: the report is in %s\n", page.Name)
	}
	if o.html == "-" {
		return r.WriteHTML(s.Data())
	}
	if o.asJSON {
		return s.JSON(r)
	}
	return printReport(s, r)
}

// printReport writes a report for people. IDs and messages can contain any characters.
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
