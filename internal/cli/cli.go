// Package cli is the command line of Sluice: flags, streams and exit codes, one file per command.
//
// Standard output is for data, and standard error for people. A failure is printed as "sluice: error: ...", "hint: ..." and "code: ...",
// and sets the exit code.
//
// A command is in the file with its name, and its output is in a file such as runoutput.go. Commands share groups of flags (account,
// itemflags, limits, watchflags), the table of flags (flags, usage, errors), and the work around items (session, summary).
package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/term"
)

// Main is the program. It runs the command that args name and returns its exit code. When ctx ends, Main aborts the command, as a second
// interrupt does.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := term.New(shownArgs(args), stdin, stdout, stderr)
	root := newRoot(s)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return report(s, cmd, err)
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
	const advanced = "Advanced"
	add := func(title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = title
			root.AddCommand(cmd)
		}
	}
	add("Run", newRun(s), newStatus(s), newAnswers(s), newReport(s))
	add("Agents", newExec(s), newStress(s))
	add("Gateway", newServe(s))
	add("Plan and diagnose", newFind(s), newPlan(s), newModels(s), newExplain(s))
	add(advanced, newWorker(s), newSim(s), newVersion(s))
	root.AddCommand(newGuard(s))
	root.SetHelpCommandGroupID(advanced)
	root.SetCompletionCommandGroupID(advanced)
	refuseOtherTopics(root)
	root.InitDefaultCompletionCmd(root.Name())
	refuseOtherShells(root)
	return root
}
