package cli

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/term"
)

//go:generate env SLUICE_TEST_WRITE=1 go test -count=1 -run TestReferenceOfCommands .

func TestReferenceOfCommands(t *testing.T) {
	var b strings.Builder
	root := newRoot(term.New(nil, strings.NewReader(""), &b, &b))
	b.WriteString("# Commands\n\nThis page lists all commands and flags. `sluice COMMAND --help` also prints examples.\n")
	var commands []*cobra.Command
	for _, group := range root.Groups() {
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && cmd.IsAvailableCommand() && cmd.Name() != "help" && cmd.Name() != "completion" {
				commands = append(commands, cmd)
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						commands = append(commands, sub)
					}
				}
			}
		}
	}
	for _, cmd := range commands {
		reference(&b, cmd)
	}
	suite.Generated(t, "../../docs/reference/commands.md", b.String())
}

// reference writes the section of a command.
func reference(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\nUsage: `%s`\n", cmd.CommandPath(), cmp.Or(cmd.Long, cmd.Short), cmd.UseLine())
	group := ""
	var rows strings.Builder
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		if title := cmp.Or(rowOf(f).group, "Flags"); title != group {
			group = title
			fmt.Fprintf(w, "\n%s\n", strings.ToUpper(group[:1])+group[1:])
		}
		name, text := flagTexts(f)
		fmt.Fprintf(w, "  %s\t%s\n", name, text)
	})
	w.Flush()
	if group != "" {
		fmt.Fprintf(b, "\n```text\n%s```\n", strings.TrimPrefix(rows.String(), "\n"))
	}
}
