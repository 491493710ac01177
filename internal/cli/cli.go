// Package cli is the command line of Sluice: flags, streams and exit codes, one file per command.
//
// Standard output is data and standard error is people. A failure is two lines, "sluice: error: ..." and "hint: ...",
// and an exit code.
//
// A command is in the file of its name, and what it alone needs in files that begin with it: execrun, findsweep, planbest, serveready.
// So are the ways of run: dryrun..., via... through Batch APIs, and distribute... to workers on other hosts, whose side is worker....
//
// What commands share is a file for each group of flags: account (where calls go), key, limits, settings, upstreams, shared (quotas),
// rows (input), checks, budget, reuse, metrics and events (who watches), control, and words (what flags take). Then come what
// is shown of a run (progress..., screen, statustext, summary, firstfailures, text) and the ends of the program (streams, signals,
// errors, hints).
package cli

import (
	"context"
	"io"
	"log"

	"github.com/spf13/cobra"
)

// Main is the program. It runs the command that args name and returns its exit code. When ctx ends, what runs is cut
// short, as by a second interrupt.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := newStreams(args, stdin, stdout, stderr)
	log.SetOutput(io.Discard) // net/http logs what servers send, keys included; what matters comes as an error
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return s.report(err)
}

// newRoot returns the tree of commands.
func newRoot(s *streams) *cobra.Command {
	var which bool
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Run LLM calls at their provider's rate limit, and none beyond it",
		Long: `Sluice runs LLM calls at their provider's rate limit, and none beyond it.

It finds the limits in the answers' headers and refusals, keeps to them, and keeps what it has.`,
		Example: `  sluice run --provider sim examples/prompts.jsonl -o out.jsonl    no key, no network: try it
  sluice run prompts.jsonl -o out.jsonl                            the key comes from the environment
  sluice run prompts.jsonl -o out.jsonl                            again: does what is left`,
		Args:          noCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if which {
				return s.printVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&which, "version", false, "print which Sluice this is")
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(s), newStatus(s), newAnswers(s), newPlan(s), newFind(s), newExplain(s), newModels(s), newReport(s), newStress(s), newSim(s), newExec(s), newGuard(s), newServe(s), newWorker(s), newVersion(s))
	root.InitDefaultCompletionCmd(root.Name())
	root.SetHelpCommand(newHelp())
	refuseOtherShells(root)
	completeFlags(root)
	typed(root)
	return root
}

// typed gives the errors of every command's own code an exit code, so that one without comes from cobra's reading of
// the arguments.
func typed(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return failed(run(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		typed(sub)
	}
}
