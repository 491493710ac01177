package cli_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

// called runs the program and returns its standard output.
func called(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := cli.Main(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatalf("sluice %q: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

// completed are the words by which a shell would complete the last one. files says whether it would offer files as well.
func completed(t *testing.T, line ...string) (words []string, files bool) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(called(t, append([]string{"__complete"}, line...)...)), "\n")
	words, directive := lines[:len(lines)-1], lines[len(lines)-1]
	return words, directive == ":0"
}

func TestShellsCompleteWhatFlagsMayBe(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sluice.yaml", "providers:\n  - {name: openai, tiers: [{tier: ours, rpm: 5, models: [gpt-x]}]}\n")
	for _, c := range []struct {
		line []string
		want []string // all of them, where all is set; else some
		all  bool
	}{
		{[]string{"run", "--provider", "anth"}, []string{"anthropic"}, true},
		{[]string{"run", "--provider", ""}, []string{"openai", "sim", "gemini"}, false},
		{[]string{"plan", "--provider", "anthropic", "--tier", "tier"}, []string{"tier1", "tier2", "tier3", "tier4"}, false},
		{[]string{"plan", "--config", "sluice.yaml", "--provider", "openai", "--tier", "ou"}, []string{"ours"}, true},
		{[]string{"plan", "--provider", "anthropic", "--tier", "ou"}, nil, true},
		{[]string{"run", "--config", "sluice.yaml", "--provider", "openai", "--model", "gpt-x"}, []string{"gpt-x"}, true},
		{[]string{"run", "--provider", "openai", "--model", "claude"}, nil, true},
		{[]string{"run", "--redo", ""}, []string{"failed", "changed", "lost", "none"}, true},
		{[]string{"run", "--fsync", "i"}, []string{"interval"}, true},
		{[]string{"exec", "--agent", "c"}, []string{"claude", "codex"}, true},
		{[]string{"help", "serve", "k"}, []string{"key"}, true},
		{[]string{"stress", "--level", "c"}, []string{"conservative", "chaos"}, true},
		{[]string{"sim", "--retry-after", ""}, []string{"seconds", "ms", "date", "none"}, true},
		{[]string{"serve", "key", ""}, nil, true},
		{[]string{"run", "--rpm", ""}, nil, true},
		{[]string{"ru"}, []string{"run"}, true},
	} {
		got, files := completed(t, c.line...)
		if files {
			t.Errorf("%q is completed by files", c.line)
		}
		for _, word := range c.want {
			if !slices.ContainsFunc(got, func(s string) bool { return s == word || strings.HasPrefix(s, word+"\t") }) { // and what a command is
				t.Errorf("%q is not completed by %s: %q", c.line, word, got)
			}
		}
		if c.all && len(got) != len(c.want) {
			t.Errorf("%q is completed by %q, want %q", c.line, got, c.want)
		}
	}
	if got, files := completed(t, "run", "--config", ""); !files {
		t.Errorf("--config is completed by %q and no files", got)
	}
}
