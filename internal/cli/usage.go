package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// Groups of commands in the help of sluice itself.
const (
	groupRun      = "run"
	groupAgents   = "agents"
	groupGateway  = "gateway"
	groupPlan     = "plan"
	groupAdvanced = "advanced"
)

// commandGroups returns the groups in their order.
func commandGroups() []*cobra.Group {
	return []*cobra.Group{
		{ID: groupRun, Title: "Run"}, {ID: groupAgents, Title: "Agents"}, {ID: groupGateway, Title: "Gateway"},
		{ID: groupPlan, Title: "Plan and diagnose"}, {ID: groupAdvanced, Title: "Advanced"},
	}
}

// printHelp prints the help of a command: after -h one screen, otherwise all of it.
func printHelp(cmd *cobra.Command, args []string) {
	if cmd.HasAvailableSubCommands() && !cmd.HasParent() {
		fmt.Fprint(cmd.OutOrStdout(), commandScreen(cmd))
		return
	}
	brief := slices.Contains(args, "-h") && !slices.Contains(args, "--help")
	var b strings.Builder
	long := cmp.Or(cmd.Long, cmd.Short)
	if brief {
		long = cmd.Short
	}
	b.WriteString(term.Wrap(long, helpWidth) + "\n\nUsage: " + cmd.UseLine() + "\n")
	if examples := strings.Split(cmd.Example, "\n"); cmd.HasExample() {
		if brief {
			examples = examples[:min(2, len(examples))]
		}
		b.WriteString("\nExamples:\n" + strings.Join(examples, "\n") + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n" + commandList(cmd, ""))
	}
	b.WriteString(flagHelp(cmd, brief))
	if brief {
		fmt.Fprintf(&b, "\nAll flags: %s --help\n", cmd.CommandPath())
	}
	fmt.Fprint(cmd.OutOrStdout(), b.String())
}

// commandScreen lists the commands.
func commandScreen(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(root.Short + "\nUsage: sluice COMMAND        (help: sluice COMMAND -h)\nTry:   sluice run --provider sim prompts.txt -o out.jsonl\n\n")
	for _, g := range root.Groups() {
		b.WriteString(g.Title + ":\n" + commandList(root, g.ID))
	}
	return b.String()
}

// commandList lists the commands of a group below a command.
func commandList(cmd *cobra.Command, group string) string {
	var b strings.Builder
	for _, sub := range cmd.Commands() {
		if sub.GroupID == group && sub.IsAvailableCommand() {
			fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	return b.String()
}

// helpWidth is the width of help in columns.
const helpWidth = 80

// widestFlag is how long a flag with its values is beside its description. The description of a longer one is on the next line.
const widestFlag = 30

// flagHelp lists the flags of a command, each with its default.
func flagHelp(cmd *cobra.Command, brief bool) string {
	type line struct{ group, left, right string }
	var lines []line
	width := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, common := f.Annotations[commonOf]
		if f.Name == "help" || brief && !common {
			return
		}
		left, right := flagTexts(f)
		if f.Shorthand == "" {
			left = "    " + left
		}
		left = "  " + left
		if brief {
			right, _, _ = strings.Cut(right, " (default: ")
		}
		group := "Flags"
		if own := f.Annotations[groupOf]; own != nil {
			group = own[0]
		}
		if len(left) <= widestFlag {
			width = max(width, len(left))
		}
		lines = append(lines, line{group, left, right})
	})
	var b strings.Builder
	group := ""
	for _, l := range lines {
		if l.group != group && !brief {
			b.WriteString("\n" + l.group + ":\n")
		} else if group == "" {
			b.WriteString("\nFlags:\n")
		}
		group = l.group
		indent := "\n" + strings.Repeat(" ", width+2)
		if len(l.left) > width {
			l.left += indent[:width+1]
		}
		fmt.Fprintf(&b, "%-*s  %s\n", width, l.left, strings.ReplaceAll(term.Wrap(l.right, helpWidth-width-2), "\n", indent))
	}
	return b.String()
}

// flagTexts returns a flag with its letter and metavar, and its description with its default.
func flagTexts(f *pflag.Flag) (name, text string) {
	name, text = "--"+f.Name, f.Usage
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.NoOptDefVal != "" {
		return name, text
	}
	metavar := f.Value.Type()
	if own := f.Annotations[metavarOf]; own != nil {
		metavar = own[0]
	}
	if f.DefValue != "" && !strings.Contains(text, "(default: ") {
		text += " (default: " + f.DefValue + ")"
	}
	return name + " " + metavar, text
}

// noCommand refuses arguments of the root, which are no command of it.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return fault.New(fault.Usage, fmt.Errorf("unknown command %q%s", args[0], provider.DidYouMean(provider.Nearest(args[0], names))),
		"use one of %s: see %s --help", strings.Join(names, ", "), cmd.CommandPath())
}

// newHelp returns the help command. Cobra's own prints the root's help for what is no command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		Args: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			switch {
			case err != nil || len(rest) == 0:
				return err
			case !cmd.HasAvailableSubCommands():
				return fault.New(fault.Usage, fmt.Errorf("unexpected argument %q: %s has no subcommands", rest[0], cmd.CommandPath()),
					"see %s --help", cmd.CommandPath())
			}
			return noCommand(cmd, rest)
		},
		RunE: func(help *cobra.Command, args []string) error {
			cmd, _, err := help.Root().Find(args)
			if err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag() // so that it is in the list of flags
			return cmd.Help()
		},
		ValidArgsFunction: func(help *cobra.Command, args []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			cmd, rest, err := help.Root().Find(args)
			if err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begun) {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// atMost accepts no more than n arguments. takes says which those are.
func atMost(n int, takes string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return fault.New(fault.Usage, fmt.Errorf("unexpected argument %q: %s takes %s", args[n], cmd.CommandPath(), takes), "see %s --help", cmd.CommandPath())
	}
}

// none accepts only flags.
var none = atMost(0, "no arguments")
