package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/cli"
)

// exchange is a command of a document, and what stands below it.
type exchange struct{ command, output string }

// exchanges returns the commands in a document's blocks of console text.
func exchanges(document string) (all []exchange) {
	blocks := strings.Split(document, "```console\n")
	for _, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, output, _ := strings.Cut(part, "\n")
			if output != "" && !strings.HasSuffix(output, "\n") {
				output += "\n"
			}
			all = append(all, exchange{command, output})
		}
	}
	return all
}

var (
	echoed   = regexp.MustCompile(`^echo (?:'([^']*)'|"([^"]*)") \| sluice (.*)$`)
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\S+ \(.*\)|UTC)`)
)

// explained runs an explain command of a document; ok is false of other commands.
func explained(t *testing.T, command string) (output string, ok bool) {
	var stdin string
	if m := echoed.FindStringSubmatch(command); m != nil {
		stdin, command = m[1]+m[2]+"\n", "sluice "+m[3]
	}
	args := strings.Fields(command)
	if len(args) < 2 || args[0] != "sluice" || args[1] != "explain" {
		return "", false
	}
	var stdout, stderr bytes.Buffer
	if code := cli.Main(t.Context(), args[1:], strings.NewReader(stdin), &stdout, &stderr); code != 0 {
		t.Errorf("%s: exit code %d: %s", command, code, stderr.String())
	}
	return stdout.String(), true
}

func TestTheExamplesOfExplainAreWhatItPrints(t *testing.T) {
	for name, least := range map[string]int{"docs/explain.md": 6, "README.md": 1} {
		t.Run(name, func(t *testing.T) {
			document, err := os.ReadFile(filepath.Join("..", "..", name))
			if err != nil {
				t.Fatal(err)
			}
			local := time.Local
			time.Local = time.UTC
			defer func() { time.Local = local }()
			t.Chdir(t.TempDir())
			n := 0
			for _, e := range exchanges(string(document)) {
				if file, ok := strings.CutPrefix(e.command, "cat "); ok {
					if err := os.WriteFile(file, []byte(e.output), 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				got, ok := explained(t, e.command)
				if !ok {
					continue
				}
				n++
				want, cut := strings.CutSuffix(e.output, "…\n")
				if !strings.Contains(e.command, "--now") && !strings.Contains(e.command, "answer.txt") { // it came now
					got, want = instants.ReplaceAllString(got, "T"), instants.ReplaceAllString(want, "T")
				}
				if got != want && !(cut && strings.HasPrefix(got, want)) {
					t.Errorf("%s prints\n%s\nand not\n%s", e.command, got, want)
				}
			}
			if n < least {
				t.Errorf("%d examples, want %d", n, least)
			}
		})
	}
}

func TestTheForecastsOfFindAreWhatItPrints(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "find.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	n := 0
	for _, e := range exchanges(string(document)) {
		args := strings.Fields(e.command)
		if !strings.HasPrefix(e.command, "sluice find ") || !slices.Contains(args, "--dry-run") {
			continue
		}
		n++
		var stdout, stderr bytes.Buffer
		code := cli.Main(t.Context(), args[1:], strings.NewReader(""), &stdout, &stderr)
		if code != 0 || stdout.Len() > 0 || stderr.String() != e.output {
			t.Errorf("%s: exit code %d, prints\n%s\nand not\n%s", e.command, code, stderr.String(), e.output)
		}
	}
	if n < 2 {
		t.Errorf("%d examples, want 2", n)
	}
}

// commandWords parts a command of a document into words, up to where a shell does something else with it. ok is false of
// what is no command of ours.
func commandWords(command string) (words []string, ok bool) {
	words = strings.Fields(strings.TrimPrefix(command, "go run ./cmd/"))
	if len(words) < 2 || words[0] != "sluice" {
		return nil, false
	}
	if end := slices.IndexFunc(words, func(w string) bool { return w == "|" || w == ">" || w == "&" }); end >= 0 {
		words = words[:end]
	}
	return words[1:], true
}

func TestTheCommandsOfTheDocumentsAreOnes(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	least := map[string]int{"find.md": 6, "plan.md": 5, "quickstart.md": 25, "recipes.md": 20}
	for _, name := range append(names, filepath.Join("..", "..", "README.md")) {
		document, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range exchanges(strings.ReplaceAll(string(document), "\\\n", " ")) {
			words, ok := commandWords(e.command)
			if !ok {
				continue
			}
			n++
			at := 1 // before what a command runs, and behind the names of commands of commands
			for len(words) > at && slices.Contains([]string{"key", "add", "list", "revoke"}, words[at]) {
				at++
			}
			var stdout, stderr bytes.Buffer
			if code := cli.Main(t.Context(), slices.Insert(words, at, "--help"), strings.NewReader(""), &stdout, &stderr); code != 0 {
				t.Errorf("%s: %s: %s", name, e.command, stderr.String())
			}
		}
		if n < least[filepath.Base(name)] {
			t.Errorf("%s has %d commands, want %d", name, n, least[filepath.Base(name)])
		}
	}
}
