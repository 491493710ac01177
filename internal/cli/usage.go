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
		row := rowOf(f)
		if f.Name == "help" || brief && !row.common {
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
		if len(left) <= widestFlag {
			width = max(width, len(left))
		}
		lines = append(lines, line{cmp.Or(row.group, "Flags"), left, right})
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
	metavar := cmp.Or(rowOf(f).metavar, f.Value.Type())
	if f.DefValue != "" && !strings.Contains(text, "(default: ") {
		text += " (default: " + f.DefValue + ")"
	}
	return name + " " + metavar, text
}

// subcommands returns the names of the commands below a command.
func subcommands(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// noCommand rejects arguments of the root, which are unknown commands.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := subcommands(cmd)
	return fault.New(fault.Usage, fmt.Errorf("unknown command %q%s", args[0], provider.DidYouMean(provider.Nearest(args[0], names))),
		"use one of %s: see %s --help", strings.Join(names, ", "), cmd.CommandPath())
}

// refuseOtherTopics has the help command reject an unknown command. Cobra would print the help of the root.
func refuseOtherTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // it was just added
	}
	help.Use, help.Short, help.Long, help.Run = "help [COMMAND]", "Print the help of a command", "", nil
	help.RunE = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		switch {
		case err != nil:
			return err
		case len(rest) > 0 && !cmd.HasAvailableSubCommands():
			return fault.New(fault.Usage, fmt.Errorf("unexpected argument %q: %s has no subcommands", rest[0], cmd.CommandPath()),
				"see %s --help", cmd.CommandPath())
		case len(rest) > 0:
			return noCommand(cmd, rest)
		}
		cmd.InitDefaultHelpFlag() // help lists it
		return cmd.Help()
	}
}

// atMost accepts at most n arguments, which takes describes.
func atMost(n int, takes string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return fault.New(fault.Usage, fmt.Errorf("unexpected argument %q: %s takes %s", args[n], cmd.CommandPath(), takes), "see %s --help", cmd.CommandPath())
	}
}

// one accepts exactly one argument. hint says which.
func one(what, hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fault.New(fault.Missing, fmt.Errorf("expected one %s, not 0", what), "%s", hint)
		case 1:
			return nil
		}
		return fault.New(fault.Usage, fmt.Errorf("expected one %s, not %d", what, len(args)), "%s", hint)
	}
}

// none accepts only flags.
var none = atMost(0, "no arguments")

// refuseOtherShells has the completion command reject an unknown shell. Cobra would print help, into the file for the script.
func refuseOtherShells(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // newRoot adds it
	}
	cmd.Args, cmd.Example = nil, "  source <(sluice completion bash)\n  sluice completion fish > ~/.config/fish/completions/sluice.fish"
	cmd.Long = "Print the completion script of a shell. `sluice completion SHELL --help` says where to put it."
	for _, shell := range cmd.Commands() {
		shell.Args = none
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fault.New(fault.Usage, fmt.Errorf("no completion for %s", args[0]), "use one of %s", strings.Join(subcommands(cmd), ", "))
		}
		return cmd.Help()
	}
}
