package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The short help of a command fits a terminal of 80 columns and 24 rows, and no description is long.
func TestHelpFitsAScreen(t *testing.T) {
	var stdout, stderr bytes.Buffer
	root := newRoot(newStreams(nil, strings.NewReader(""), &stdout, &stderr))
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := utf8.RuneCountInString(f.Usage); n > 60 || f.Name != "help" && f.Name != "no-descriptions" && strings.ToUpper(f.Usage[:1]) != f.Usage[:1] {
				t.Errorf("%s --%s: %q has %d characters, of at most 60", cmd.CommandPath(), f.Name, f.Usage, n)
			}
		})
		if cmd.Name() != "completion" && (!cmd.HasParent() || cmd.Parent().Name() != "completion") && !cmd.Hidden {
			stdout.Reset()
			printHelp(cmd, []string{"-h"})
			lines := strings.Split(strings.TrimRight(stdout.String(), "\n"), "\n")
			if len(lines) > 24 {
				t.Errorf("%s -h has %d lines", cmd.CommandPath(), len(lines))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%s -h: %d columns: %s", cmd.CommandPath(), n, line)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root)
}
