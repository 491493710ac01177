package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/term"
)

// guardName is the command by which the program runs itself to outlive a run that is killed, and to end what that left.
const guardName = "guard-commands"

// newGuard returns that command, which is nobody's to give.
func newGuard(s *term.Streams) *cobra.Command {
	return &cobra.Command{
		Use: guardName + " RUN", Short: "Stop leftover processes of a run that was killed", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return command.ServeGuard(s.In, args[0]) },
	}
}

// guardCommand is how the program runs itself for that.
func guardCommand() ([]string, error) {
	program, err := os.Executable()
	return []string{program, guardName}, err
}
