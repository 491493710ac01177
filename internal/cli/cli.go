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

	"github.com/sluice-llm/sluice/internal/term"
)

// Main is the program. It runs the command that args name and returns its exit code. When ctx ends, what runs is cut
// short, as by a second interrupt.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := term.New(shownArgs(args), stdin, stdout, stderr)
	log.SetOutput(io.Discard) // net/http logs what servers send, keys included; what matters comes as an error
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return report(s, err)
}

// newRoot returns the tree of commands.
func newRoot(s *term.Streams) *cobra.Command {
	var which bool
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "Use all of an LLM provider's rate limit, and none beyond it",
		Args:          noCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if which {
				return printVersion(s)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&which, "version", false, "Print the version")
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetHelpFunc(printHelp)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(commandGroups()...)
	for group, commands := range map[string][]*cobra.Command{
		groupRun:      {newRun(s), newStatus(s), newAnswers(s), newReport(s)},
		groupAgents:   {newExec(s), newStress(s)},
		groupGateway:  {newServe(s)},
		groupPlan:     {newFind(s), newPlan(s), newModels(s), newExplain(s)},
		groupAdvanced: {newWorker(s), newSim(s), newVersion(s)},
		"":            {newGuard(s)},
	} {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommand(newHelp())
	root.SetHelpCommandGroupID(groupAdvanced)
	root.SetCompletionCommandGroupID(groupAdvanced)
	root.InitDefaultCompletionCmd(root.Name())
	refuseOtherShells(root)
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
