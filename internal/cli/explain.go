package cli

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	verdicts "github.com/sluice-llm/sluice/internal/explain"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// explainOptions are the flags of the explain command.
type explainOptions struct {
	status   int
	headers  []string
	provider string
	json     bool
	lines    bool
}

// newExplain returns the explain command.
func newExplain(s *term.Streams) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain [FILE|-]",
		Short: "Explain an error, and how Sluice handles it",
		Long: `Explain the meaning of an error, the wait time, and how Sluice handles the error. Nothing is sent, and no settings are
read.

The error can be any text: a response body, a whole response, an SDK exception, agent output or a log line. The text is
read from FILE or standard input.

With --jsonl, each input line is an object with the field text and the optional fields status, headers, channel (http,
sdk or cli), provider and now. One line is printed per input line. If an input line is invalid, the errors in
valid lines are still explained, and the exit code is 2.`,
		Example: `  sluice explain error.txt
  some-agent 2>&1 | sluice explain
  sluice explain --status 429 --header 'retry-after: 20' body.json
  sluice explain --provider gemini --json body.json
  sluice explain --jsonl errors.jsonl > verdicts.jsonl`,
		Args: atMost(1, "one file"),
		RunE: func(_ *cobra.Command, args []string) error { return runExplain(s, o, args) },
	}
	define(cmd, flagGroup{"Error", []flag{
		{name: "status", field: &o.status, metavar: "N", help: "Set the HTTP status of the response", common: true},
		{name: "header", field: &o.headers, metavar: "'NAME: VALUE'", help: "Set a header of the response; repeatable", common: true},
		{name: "provider", field: &o.provider, metavar: "NAME", help: "Set the provider (default: recognized from the error)", common: true},
		{name: "json", field: &o.json, help: "Print one JSON document", common: true, without: "jsonl"},
		{name: "jsonl", field: &o.lines, help: "Read and print one JSON object per line", common: true},
	}})
	return cmd
}

// runExplain explains one text, or a file with a line of JSON for each error.
func runExplain(s *term.Streams, o explainOptions, args []string) error {
	q, err := o.query()
	if err != nil {
		return err
	}
	in, name := s.In, "standard input"
	if len(args) == 1 && args[0] != "-" {
		name = args[0]
		f, err := os.Open(name)
		if err != nil {
			return fault.New(fault.File, err, "name a file with the error, or send it on standard input")
		}
		defer f.Close()
		in = f
	}
	if o.lines {
		enc := json.NewEncoder(s.Out) // one write per line: a reader that waits gets it, and keys are removed from it as a whole
		enc.SetEscapeHTML(false)
		warn := func(err error) { s.Errorf("sluice: error: %s\n", err) }
		return q.Lines(in, name, func(v verdicts.Verdict) error { return enc.Encode(v) }, warn)
	}
	if err := q.ReadText(in, name); err != nil {
		return err
	}
	v := verdicts.Explain(q)
	if o.json {
		return s.JSON(v)
	}
	if err := printVerdict(s, v); err != nil {
		return err
	}
	if v.Kind == sluice.RateLimit && v.Limit == nil && v.Limits == nil {
		s.Errorf("hint: measure the limit with sluice find --model M\n")
	}
	return nil
}

// query returns the part of the query that flags set.
func (o *explainOptions) query() (q verdicts.Query, err error) {
	q.Status = o.status
	if o.status != 0 && (o.status < 100 || o.status > 599) {
		err = fmt.Errorf("--status %d is not an HTTP status", o.status)
		return q, fault.New(fault.Value, err, "use a status such as --status 429, or omit it")
	}
	if q.Headers, err = account.ParseHeader(o.headers); err != nil || o.provider == "" {
		return q, err
	}
	q.Provider, err = account.LookupProvider(provider.Published(), o.provider)
	return q, err
}
