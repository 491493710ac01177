package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/provider"
)

// printUsage prints what cobra prints, with the examples at the end. Cobra's templates would keep all methods in the binary.
func printUsage(cmd *cobra.Command) error {
	flags := cmd.LocalFlags().FlagUsages()
	var b strings.Builder
	b.WriteString("Usage:")
	if cmd.Runnable() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n  " + cmd.CommandPath() + " COMMAND\n\nCommands:")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if flags != "" {
		b.WriteString("\n\nFlags:\n" + strings.TrimRight(flags, " \n"))
	}
	if cmd.HasExample() {
		b.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	_, err := fmt.Fprintln(cmd.OutOrStderr(), b.String())
	return err
}

// forms are what a flag's value looks like, by the flag's type.
var forms = map[string]string{
	"int":      "a whole number, such as 50000",
	"uint64":   "a whole number from 0, such as 7",
	"float64":  "a number, such as 0.5",
	"duration": "a time with its unit, such as 2s or 1m30s",
	"bool":     "true or false",
}

// knownElsewhere are flags that other programs, or earlier versions, have for the purpose of one of ours.
var knownElsewhere = map[string]string{
	"quiet": "--progress none", "silent": "--progress none", "no-progress": "--progress none",
	"out": "--output", "max-concurrency": "--concurrent", "max-workers": "--concurrent", "parallel": "--concurrent", "threads": "--concurrent",
	"retries": "--attempts", "max-retries": "--attempts", "api-base": "--base-url", "endpoint": "--base-url", "api-key": "--key-env",
	"forget-limits": "--ignore-pause",
	"itpm":          "--rate-limit itpm=N", "otpm": "--rate-limit otpm=N", "rpd": "--rate-limit rpd=N", "tpd": "--rate-limit tpd=N",
	"burst-seconds": "--rate-limit burst=2s", "burst": "--rate-limit burst=2s",
}

// flagOf is the name of a flag that may have a value behind it.
func flagOf(text string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "--"), " ")
	return name
}

// flagError says what is wrong with a flag in place of the words of Go's parsers.
func flagError(cmd *cobra.Command, err error) error {
	help := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		var near []string
		for _, name := range provider.Nearest(unknown.GetSpecifiedName(), names) {
			near = append(near, "--"+name)
		}
		if elsewhere := knownElsewhere[unknown.GetSpecifiedName()]; elsewhere != "" && slices.Contains(names, flagOf(elsewhere)) {
			near = []string{elsewhere}
		}
		return usageError(fmt.Errorf("%w%s", err, provider.DidYouMean(near)), "%s", help)
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usageError(err, "%s", help)
	}
	flag := wrong.GetFlag()
	if errors.Is(err, strconv.ErrRange) {
		return usageError(fmt.Errorf("--%s %s is too large", flag.Name, wrong.GetValue()), "%s", help)
	}
	if form := forms[flag.Value.Type()]; form != "" {
		return usageError(fmt.Errorf("--%s %s is not %s", flag.Name, wrong.GetValue(), form), "%s", help)
	}
	said := strings.TrimRight("--"+flag.Name+" "+wrong.GetValue(), " ")
	return usageError(fmt.Errorf("%s: %w", said, wrong.Unwrap()), "%s", help)
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
	return usageError(fmt.Errorf("unknown command %q%s", args[0], provider.DidYouMean(provider.Nearest(args[0], names))),
		"it is one of %s: see %s --help", strings.Join(names, ", "), cmd.CommandPath())
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
				return usageError(fmt.Errorf("%q is an argument too many: %s has no commands of its own", rest[0], cmd.CommandPath()),
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
		return usageError(fmt.Errorf("%q is an argument too many: %s takes %s", args[n], cmd.CommandPath(), takes), "see %s --help", cmd.CommandPath())
	}
}

// none accepts flags alone.
var none = atMost(0, "none but flags")
