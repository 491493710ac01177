package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/term"
)

// Help fits 80 columns, and the short help 24 rows. No description is long.
func TestHelpFitsAScreen(t *testing.T) {
	var stdout, stderr bytes.Buffer
	root := newRoot(term.New(nil, strings.NewReader(""), &stdout, &stderr))
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := utf8.RuneCountInString(f.Usage); n > 60 || f.Name != "help" && f.Name != "no-descriptions" && strings.ToUpper(f.Usage[:1]) != f.Usage[:1] {
				t.Errorf("%s --%s: %q has %d characters, of at most 60", cmd.CommandPath(), f.Name, f.Usage, n)
			}
		})
		if cmd.Name() != "completion" && (!cmd.HasParent() || cmd.Parent().Name() != "completion") && !cmd.Hidden {
			for _, flag := range []string{"-h", "--help"} {
				stdout.Reset()
				printHelp(cmd, []string{flag})
				lines := strings.Split(strings.TrimRight(stdout.String(), "\n"), "\n")
				if flag == "-h" && len(lines) > 24 {
					t.Errorf("%s -h has %d lines", cmd.CommandPath(), len(lines))
				}
				for _, line := range lines {
					if n := utf8.RuneCountInString(line); n > 80 && (flag == "-h" || !strings.Contains(line, "sluice ")) { // examples stay whole
						t.Errorf("%s %s: %d columns: %s", cmd.CommandPath(), flag, n, line)
					}
				}
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root)
}
