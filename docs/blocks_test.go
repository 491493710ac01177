//go:build full

package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/telemetry"
)

var errAbsent = errors.New("not checked")

// checkers say what is wrong with a block of a language. Blocks of console text and of shell are run by the sessions, and Go is
// compiled by TestTheGoOfDocuments.
var checkers = map[string]func(block) error{
	"console":    runs,
	"sh":         runs,
	"go":         func(block) error { return nil },
	"":           noCommand,
	"text":       noCommand,
	"yaml":       checkYAML,
	"json":       checkJSON,
	"python":     checkPython,
	"typescript": checkTypeScript,
	"promql":     checkPromQL,
	"ini":        checkUnit,
}

func TestEveryBlockIsWhatItsLanguageSays(t *testing.T) {
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			switch err := check(b); {
			case strings.HasPrefix(d.name, "docs/reference/"): // generated: help has examples, which its own tests read
			case errors.Is(err, errAbsent):
				t.Run(fmt.Sprintf("%s:%d", d.name, b.line), func(t *testing.T) { t.Skip(err) })
			case err != nil:
				t.Errorf("%s:%d: %v", d.name, b.line, err)
			}
		}
	}
}

// check says what is wrong with a block by itself.
func check(b block) error {
	checker := checkers[b.lang]
	if checker == nil {
		return fmt.Errorf("nothing checks blocks of %q", b.lang)
	}
	return checker(b)
}

// runs finds a block of console text without a command.
func runs(b block) error {
	if b.lang == "console" && len(b.exchanges()) == 0 {
		return errors.New("no line begins with a prompt")
	}
	return nil
}

var commandLine = regexp.MustCompile(`^(\$ .*|sluice [a-z]+( [ -~]*)?|go (run|test|build|install) .*)$`)

// noCommand finds commands in what nobody runs.
func noCommand(b block) error {
	for line := range strings.Lines(b.text) {
		if line = strings.TrimSpace(line); commandLine.MatchString(line) {
			return fmt.Errorf("a command in a block that nobody runs: %s", line)
		}
	}
	return nil
}

// foreign are the first members of documents in YAML that other programs read.
var foreign = []string{"scrape_configs", "rule_files"}

var member = regexp.MustCompile(`(?m)^([A-Za-z_]+):`)

// checkYAML parses settings and files of limits as the program does, and of what others read that it is YAML.
func checkYAML(b block) error {
	first := member.FindStringSubmatch(b.text)
	if first == nil {
		return errors.New("neither settings nor limits")
	}
	if slices.Contains(foreign, first[1]) {
		var v any
		return yaml.Unmarshal([]byte(b.text), &v)
	}
	_, err := config.Parse("sluice.yaml", []byte(b.text))
	return err
}

// elided are the places in JSON at which … stands for what is left out, and what stands there when it is parsed.
var elided = []struct{ from, to string }{
	{`{…}`, `{}`}, {`[…]`, `[]`}, {`,…,`, `,`}, {`, …,`, `,`}, {`,…}`, `}`}, {`, …}`, `}`}, {`, …]`, `]`}, {`,…]`, `]`}, {`:…`, `:0`}, {`: …`, `:0`},
}

// checkJSON parses a document, lines, or a member of an object.
func checkJSON(b block) error {
	text := strings.TrimSpace(b.text)
	for _, e := range elided {
		text = strings.ReplaceAll(text, e.from, e.to)
	}
	if strings.HasPrefix(text, `"`) {
		text = "{" + text + "}"
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// by runs a program on a block that is a file of that name.
func by(b block, name, program string, args ...string) error {
	if !suite.Full {
		return fmt.Errorf("%w: full suite only: go test -tags full", errAbsent)
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%w: no %s on PATH", errAbsent, program)
	}
	dir, err := os.MkdirTemp("", "block-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(program, append(args, file)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func checkPython(b block) error {
	return by(b, "block.py", "python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())")
}

// checkTypeScript checks the syntax. As long as no block has types, they are JavaScript as well, which every Node can check.
func checkTypeScript(b block) error { return by(b, "block.mjs", "node", "--check") }

var metric = regexp.MustCompile(`\bsluice_[a-z_]+`)

// checkPromQL finds metrics that there are none of, by the generated reference.
func checkPromQL(b block) error {
	text, err := os.ReadFile("reference/metrics.md")
	if err != nil {
		return err
	}
	for _, name := range metric.FindAllString(b.text, -1) {
		plain := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !bytes.Contains(text, []byte("`"+name+"`")) && !bytes.Contains(text, []byte("`"+plain+"`")) {
			return fmt.Errorf("there is no metric %s", name)
		}
	}
	return nil
}

// sections are those of units, and what may stand in them is their manual's.
var sections = []string{"Unit", "Service", "Install", "Socket", "Timer"}

var (
	section = regexp.MustCompile(`^\[([A-Za-z]+)\]$`)
	setting = regexp.MustCompile(`^[A-Z][A-Za-z]+=`)
)

// checkUnit reads a unit of systemd, and looks up the flags of what it starts.
func checkUnit(b block) error {
	in := ""
	for line := range strings.Lines(b.text) {
		line = strings.TrimSpace(line)
		m := section.FindStringSubmatch(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case m != nil && slices.Contains(sections, m[1]):
			in = m[1]
		case in == "" || !setting.MatchString(line):
			return fmt.Errorf("no line of a unit: %s", line)
		case strings.HasPrefix(line, "Exec"):
			_, command, _ := strings.Cut(line, "=")
			words := strings.Fields(command)
			words[0] = filepath.Base(strings.TrimLeft(words[0], "-@+!:"))
			if err := known(strings.Join(words, " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestEventsInDocumentsAreOnes(t *testing.T) {
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			for line := range strings.Lines(b.text) {
				if !strings.HasPrefix(line, `{"event":"`) || !strings.Contains(line, `"account"`) || strings.Contains(line, "…") {
					continue
				}
				if _, err := telemetry.ReadEvents(strings.NewReader(line), func(*sluice.Event) error { return nil }); err != nil {
					t.Errorf("%s:%d: %v: %s", d.name, b.line, err, line)
				}
			}
		}
	}
}

// wrong are blocks in which something has to be found, so that the checkers are known to look.
var wrong = map[string]block{
	"a language of nobody's":   {lang: "cobol", text: "MOVE 1 TO X.\n"},
	"no prompt":                {lang: "console", text: "sluice run\n"},
	"a command in a diagram":   {text: "sluice run --all\n"},
	"a prompt in a diagram":    {text: "$ ls\n"},
	"a setting of nobody's":    {lang: "yaml", text: "limits:\n  rpmm: 5\n"},
	"no YAML":                  {lang: "yaml", text: "scrape_configs: [\n"},
	"no JSON":                  {lang: "json", text: "{\"a\":1,}\n"},
	"no second JSON":           {lang: "json", text: "{\"a\":1}\n{\"b\"}\n"},
	"no Python":                {lang: "python", text: "for x in:\n"},
	"no JavaScript":            {lang: "typescript", text: "const = 1;\n"},
	"a metric of nobody's":     {lang: "promql", text: "sum(sluice_nothing_total)\n"},
	"a line that is no unit":   {lang: "ini", text: "[Service]\nwhatever\n"},
	"a flag that is not there": {lang: "ini", text: "[Service]\nExecStart=/usr/bin/sluice serve --nothing\n"},
}

func TestWhatIsWrongWithBlocksIsFound(t *testing.T) {
	for name, b := range wrong {
		if err := check(b); err == nil {
			t.Errorf("%s: nothing is found", name)
		} else if errors.Is(err, errAbsent) {
			t.Logf("%s: %v", name, err)
		}
	}
}
