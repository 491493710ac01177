package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/answers"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// newAnswers returns the command that prints the answers in a file of results.
func newAnswers(s *term.Streams) *cobra.Command {
	cfg := answers.Config{Format: "jsonl"}
	cmd := &cobra.Command{
		Use:   "answers OUT.jsonl|DIR",
		Short: "Print the texts of the responses in a file of results",
		Long: `Print the text and the finish reason of each response, from any provider. If a response has no text, the arguments of
its tool calls are printed. If a response has several choices, the first choice is printed. For a directory of exec, the
standard output of each command is printed, in the order of the items. The command also works during a run.`,
		Example: `  sluice answers out.jsonl | jq -r .text
  sluice answers out.jsonl --format csv --input prompts.jsonl > answers.csv
  sluice answers out.jsonl --format text | less
  sluice answers .sluice-exec --format csv > answers.csv`,
		Args: one("file of results", "name the output file of a run: sluice answers OUT.jsonl"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg.Results = args[0]
			n, err := answers.Write(s.Data(), cfg)
			if err != nil {
				return err
			}
			printCounts(s, &cfg, n)
			return nil
		},
	}
	define(cmd, flagGroup{"Output", []flag{
		{name: "format", field: &cfg.Format, metavar: "jsonl|csv|text", help: "Choose the output format", common: true},
		{name: "input", field: &cfg.Input, metavar: "FILE", help: "Print rows in this input's order, with the input's fields",
			common: true, sets: "Input", fix: "set --input to the input file of the run"},
	}})
	return cmd
}

// printCounts prints the number of items and results without an answer.
func printCounts(s *term.Streams, cfg *answers.Config, n answers.Counts) {
	if n.Failed > 0 {
		s.Errorf("sluice: %s failed: the output contains their errors\n", prose.Count(n.Failed, "item"))
	}
	if n.Missing > 0 {
		s.Errorf("sluice: %s of %s have no result in %s\n", prose.Count(n.Missing, "item"), cfg.Input, cfg.Results)
	}
	if n.Foreign > 0 {
		s.Errorf("sluice: %s omitted, because their items are not in %s\n", prose.Count(n.Foreign, "result"), cfg.Input)
	}
}
