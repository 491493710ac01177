//go:build full

package docs_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

// help is what the program says of a command, and whether there is one.
func help(words ...string) (string, bool) {
	var stdout, stderr bytes.Buffer
	code := cli.Main(context.Background(), append(words, "--help"), strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), code == 0
}

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}\S`)
	option     = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9][a-z0-9-]*)`)
)

// commands are those of the program with their flags, by their names, such as "serve key".
var commands = sync.OnceValue(func() map[string][]string {
	all := make(map[string][]string)
	var add func(words []string)
	add = func(words []string) {
		text, ok := help(words...)
		if path := strings.Join(append([]string{"Usage: sluice"}, words...), " "); !ok || !strings.Contains(text, path) { // else it is the help of another
			return
		}
		flags := []string{"help"}
		for _, m := range option.FindAllStringSubmatch(text, -1) {
			flags = append(flags, m[1])
		}
		all[strings.Join(words, " ")] = flags
		for _, m := range subcommand.FindAllStringSubmatch(text, -1) {
			add(append(slices.Clone(words), m[1]))
		}
	}
	add(nil)
	return all
})

// known says what is wrong with a command line of the program: its command is none, or has not its flags.
func known(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "sluice" {
		return nil
	}
	name, at := "", 1
	for at < len(words) {
		longer := strings.TrimSpace(name + " " + strings.Trim(words[at], `.,:;"')`))
		if _, ok := commands()[longer]; !ok {
			break
		}
		name, at = longer, at+1
	}
	if at < len(words) && name == "" && regexp.MustCompile(`^[a-z]+$`).MatchString(words[at]) {
		return fmt.Errorf("there is no command %q", words[at])
	}
	for _, word := range words[at:] {
		if word == "|" || word == "--" || word == "&&" || word == ";" || strings.HasPrefix(word, "#") {
			break
		}
		m := regexp.MustCompile(`^--([a-z][a-z0-9-]*)`).FindStringSubmatch(strings.Trim(word, "[]()"))
		if m != nil && !slices.Contains(commands()[name], m[1]) {
			return fmt.Errorf("sluice %s has no flag --%s", name, m[1])
		}
	}
	return nil
}

// others are flags of other programs that documents name.
var others = map[string]string{
	"appendonly": "redis-server", "unix-socket": "curl", "signal": "systemctl", "kill-whom": "systemctl", "max-num-seqs": "vLLM",
	"joblog": "GNU parallel", "ignore-missing": "sha256sum", "rm": "docker", "name": "docker", "stop-timeout": "docker",
	"pipe": "systemd-run", "wait": "systemd-run", "collect": "systemd-run", "from-file": "kubectl", "long": "zstd",
	"runs": "limiters.py", "stated": "limiters.py", "sdk": "limiters.py", "serve": "limiters.py", "now": "systemctl", "output-format": "claude",
}

var (
	span  = regexp.MustCompile("`([^`\n]+)`")
	named = regexp.MustCompile(`(?:^|[\s("'\[|=\x60])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)`)
)

func TestCommandsAndFlagsOfDocumentsAreOnes(t *testing.T) {
	flags := make(map[string]bool) // of any command
	for _, own := range commands() {
		for _, f := range own {
			flags[f] = true
		}
	}
	if len(commands()) < 15 || len(flags) < 100 {
		t.Fatalf("%d commands and %d flags are read of --help", len(commands()), len(flags))
	}
	for _, d := range documents(t) {
		for i, line := range strings.Split(d.text, "\n") {
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				if !flags[m[1]] && others[m[1]] == "" {
					t.Errorf("%s:%d: there is no flag --%s", d.name, i+1, m[1])
				}
			}
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				if err := known(m[1]); err != nil {
					t.Errorf("%s:%d: %v", d.name, i+1, err)
				}
			}
		}
		for _, b := range d.blocks {
			for _, e := range b.exchanges() {
				for part := range strings.SplitSeq(strings.ReplaceAll(e.command, "\\\n", " "), "|") {
					_, after, found := strings.Cut(part, "sluice ")
					if !found {
						continue
					}
					if err := known("sluice " + after); err != nil {
						t.Errorf("%s:%d: %v", d.name, e.line, err)
					}
				}
			}
		}
	}
}

func TestWhatIsWrongWithCommandsIsFound(t *testing.T) {
	for line, wrong := range map[string]bool{
		"sluice run in.jsonl -o out.jsonl --rpm 5": false,
		"sluice serve key alice":                   false,
		"sluice exec --items F -- cmd --whatever":  false,
		"sluice runs":                     true,
		"sluice run --rpms 5":             true,
		"sluice serve key alice --rpms 2": true,
		"sluice plan --redo failed":       true,
	} {
		if err := known(line); (err != nil) != wrong {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// code is all that stands in the files of the repository that are no documents.
func code(t *testing.T) string {
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return cmp.Or(err, fs.SkipDir)
		}
		if ext := filepath.Ext(path); ext == ".go" || filepath.Base(path) == "run" {
			b, err := os.ReadFile(path)
			all.Write(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

var variable = regexp.MustCompile(`\bSLUICE_[A-Z0-9_]+\b`)

func TestVariablesOfDocumentsAreRead(t *testing.T) {
	text := code(t)
	for _, d := range documents(t) {
		for i, line := range strings.Split(d.text, "\n") {
			for _, name := range variable.FindAllString(line, -1) {
				if !strings.Contains(text, name) {
					t.Errorf("%s:%d: nothing reads %s", d.name, i+1, name)
				}
			}
		}
	}
}
