package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan returns the command that writes the manual.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual into a directory, one page for each command",
		Long: `Write the manual into a directory, one page for each command.

The pages are those of section 1, as man finds them in a directory man1 of its path.`,
		Example: `  sluice man ~/.local/share/man/man1
  man sluice-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(errors.New("one directory is needed"), "name it: sluice man ~/.local/share/man/man1")
			}
			switch info, err := os.Stat(args[0]); {
			case err != nil:
				return usageError(fmt.Errorf("%s: %w", args[0], err), "make it: mkdir -p %s", args[0])
			case !info.IsDir():
				return usageError(fmt.Errorf("%s is no directory", args[0]), "name one for the pages")
			}
			return writeManual(cmd.Root(), args[0])
		},
	}
}

// writeManual writes a page for a command and for each below it.
func writeManual(cmd *cobra.Command, dir string) error {
	for _, sub := range manualOf(cmd) {
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(page(cmd)), 0o644)
}

// manualOf are the commands below cmd that have pages.
func manualOf(cmd *cobra.Command) (subs []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			subs = append(subs, sub)
		}
	}
	return subs
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is the manual's page of a command, for man: what --help says. Its date is its version.
//
// cobra's own pages are not used: they take what is said for Markdown, in which {} and * and the like are lost.
func page(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"sluice %s\" \"Sluice\"\n", quoteRoff(strings.ToUpper(name)), roff(buildVersion().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fR\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(cmp.Or(cmd.Long, cmd.Short+".")))
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				b.WriteString(option(f))
			}
		})
	}
	if !cmd.HasParent() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range manualOf(cmd) {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(sub.Name()), roff(sub.Short))
		}
		b.WriteString(".SH EXIT STATUS\n")
		for _, code := range exitCodes() {
			fmt.Fprintf(&b, ".TP\n\\fB%d\\fR\n%s\n", code.code, roff(code.meaning))
		}
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roff(cmd.Example) + "\n.fi\n")
	}
	if others := seeAlso(cmd); others != "" {
		b.WriteString(".SH SEE ALSO\n" + others + "\n")
	}
	return b.String()
}

// option is a flag, as --help has it.
func option(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	head := "--" + f.Name
	if f.Shorthand != "" && f.ShorthandDeprecated == "" {
		head = "-" + f.Shorthand + ", " + head
	}
	if value != "" {
		head += " " + value
	}
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	return fmt.Sprintf(".TP\n\\fB%s\\fR\n%s\n", roff(head), roff(usage))
}

// seeAlso names the pages above and below.
func seeAlso(cmd *cobra.Command) string {
	var names []string
	if cmd.HasParent() {
		names = append(names, pageName(cmd.Parent()))
	}
	for _, sub := range manualOf(cmd) {
		names = append(names, pageName(sub))
	}
	for i, name := range names {
		names[i] = ".BR " + roff(name) + " (1)"
	}
	return strings.Join(names, " ,\n")
}

// paragraphs parts a text where it has empty lines. What is indented stays as it is.
func paragraphs(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.Contains("\n"+part, "\n ") {
			part = ".nf\n" + roff(part) + "\n.fi"
		} else {
			part = roff(part)
		}
		b.WriteString(part + "\n")
	}
	return b.String()
}

// roff is a text that man prints as it is.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func quoteRoff(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
