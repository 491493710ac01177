package docs_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
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

// commands are those of the program with their flags, by their names, such as "serve key add".
var commands = sync.OnceValue(func() map[string][]string {
	all := make(map[string][]string)
	var add func(words []string)
	add = func(words []string) {
		text, ok := help(words...)
		if !ok {
			return
		}
		flags := []string{"help"}
		for _, m := range option.FindAllStringSubmatch(text, -1) {
			flags = append(flags, m[1])
		}
		all[strings.Join(words, " ")] = flags
		_, listed, ok := strings.Cut(text, "Commands:\n")
		if !ok {
			return
		}
		listed, _, _ = strings.Cut(listed, "\n\n")
		for _, m := range subcommand.FindAllStringSubmatch(listed, -1) {
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
	"pipe": "systemd-run", "wait": "systemd-run", "collect": "systemd-run", "from-file": "kubectl", "all": "scripts/bench",
}

var (
	span  = regexp.MustCompile("`([^`\n]+)`")
	named = regexp.MustCompile(`(?:^|[\s("'\[|=\x60])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)`)
)

func TestCommandsAndFlagsOfDocumentsAreOnes(t *testing.T) {
	any := make(map[string]bool)
	for _, flags := range commands() {
		for _, f := range flags {
			any[f] = true
		}
	}
	if len(commands()) < 15 || len(any) < 100 {
		t.Fatalf("%d commands and %d flags are read of --help", len(commands()), len(any))
	}
	for _, d := range documents(t) {
		for i, line := range strings.Split(d.text, "\n") {
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				if !any[m[1]] && others[m[1]] == "" {
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
		"sluice serve key add alice --weight 2":    false,
		"sluice exec --items F -- cmd --whatever":  false,
		"sluice runs":                         true,
		"sluice run --rpms 5":                 true,
		"sluice serve key add alice --rpms 2": true,
		"sluice plan --retry-failed":          true,
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

var (
	link   = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	mark   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	target = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// anchors are what links into a document may name: its headings, as GitHub makes anchors of them.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	inside := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		}
		if m := heading.FindStringSubmatch(strings.TrimSpace(line)); m != nil && !inside {
			name := link.ReplaceAllStringFunc(m[1], func(l string) string { return l[1:strings.Index(l, "]")] })
			name = strings.ReplaceAll(mark.ReplaceAllString(strings.ToLower(name), ""), " ", "-")
			for n := 1; all[name]; n++ {
				name = fmt.Sprintf("%s-%d", strings.TrimRight(name, "-0123456789"), n)
			}
			all[name] = true
		}
		for _, m := range target.FindAllStringSubmatch(line, -1) {
			all[m[1]] = true
		}
	}
	return all
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	for _, d := range documents(t) {
		inside := false
		for i, line := range strings.Split(d.text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inside = !inside
			}
			if inside {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(line, "code"), -1) {
				if err := leads(d, m[1]); err != nil {
					t.Errorf("%s:%d: %v", d.name, i+1, err)
				}
			}
		}
	}
}

// leads says what is wrong with a link of a document, unless it leads out of the repository.
func leads(d document, to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" {
		return err
	}
	name, text := d.name, d.text
	if u.Path != "" {
		name = filepath.Join(filepath.Dir(filepath.FromSlash(d.name)), filepath.FromSlash(u.Path))
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			return fmt.Errorf("there is no %s", u.Path)
		}
		if u.Fragment == "" || info.IsDir() {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		text = string(b)
	}
	if u.Fragment != "" && filepath.Ext(name) == ".md" && !anchors(text)[u.Fragment] {
		return fmt.Errorf("%s has no heading #%s", name, u.Fragment)
	}
	return nil
}

func TestWhatIsWrongWithLinksIsFound(t *testing.T) {
	d := document{name: "docs/x.md", text: "# A heading, of `code`\n\n## Twice\n\n## Twice\n"}
	for to, wrong := range map[string]bool{
		"run.md": false, "run.md#templates": false, "../README.md": false, "https://example.com/x#y": false, "#a-heading-of-code": false, "#twice-1": false,
		"walk.md": true, "run.md#nothing": true, "#nothing": true, "NOTHING.md": true,
	} {
		if err := leads(d, to); (err != nil) != wrong {
			t.Errorf("%s: %v", to, err)
		}
	}
}

var goTest = regexp.MustCompile(`(?m)^(?:\$ )?(?:\w+=\S* )*go (?:test|build|vet|install|run) .*$`)

func TestTheGoCommandsOfTheDocuments(t *testing.T) {
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.lang != "console" && b.lang != "sh" {
				continue
			}
			for _, command := range goTest.FindAllString(strings.ReplaceAll(b.text, "\\\n", " "), -1) {
				if err := tests(path.Dir(d.name), command); err != nil {
					t.Errorf("%s:%d: %s: %v", d.name, b.line, command, err)
				}
			}
		}
	}
}

// tests says what is wrong with a command of go: a package that is not there, or tests by a name that none has.
func tests(dir, command string) error {
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	var source strings.Builder
	for _, word := range words {
		name, _, _ := strings.Cut(word, "@")
		name = strings.TrimPrefix(name, "github.com/sluice-llm/sluice")
		if name == word && !strings.HasPrefix(word, ".") {
			continue
		}
		from := root
		if dir != "docs" && name == word { // those of docs are in the root
			from = filepath.Join(root, dir)
		}
		files, err := filepath.Glob(filepath.Join(from, strings.TrimSuffix(name, "..."), "*.go"))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("no package %s", word)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			source.Write(b)
		}
	}
	for i, word := range words[:len(words)-1] {
		pattern := words[i+1]
		if word != "-run" && word != "-bench" || pattern == "^$" || pattern == "." {
			continue
		}
		for alternative := range strings.SplitSeq(pattern, "|") {
			alternative, _, _ = strings.Cut(strings.Trim(alternative, "^$()"), "/")
			if !regexp.MustCompile(`func (Test|Benchmark|Example|Fuzz)\w*` + strings.TrimPrefix(strings.TrimPrefix(alternative, "Test"), "Benchmark")).MatchString(source.String()) {
				return fmt.Errorf("no test is called %s", alternative)
			}
		}
	}
	return nil
}
