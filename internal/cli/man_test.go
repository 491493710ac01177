package cli_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
)

func TestTheManualHasAPageForEachCommand(t *testing.T) {
	dir := t.TempDir()
	called(t, "man", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatal(pages, err)
	}
	if text := read(t, filepath.Join(dir, "sluice-run.1")); !strings.Contains(text, "\\fB\\-o, \\-\\-output") || !strings.Contains(text, ".SH EXAMPLES") {
		t.Errorf("sluice-run(1) lacks a flag or its examples:\n%s", text)
	}
	for _, page := range pages {
		for line := range strings.Lines(read(t, page)) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !regexp.MustCompile(`^\.(TH|SH|TP|BR|PP|nf|fi)\b`).MatchString(line) {
				t.Errorf("%s: %q is no request of man's", page, line)
			}
		}
	}
	if slices.Contains(pages, filepath.Join(dir, "sluice-guard-commands.1")) {
		t.Error("there is a page of a command that is nobody's to give")
	}
}

func TestTheManualAndREADMEHaveTheSameExitCodes(t *testing.T) {
	suite.FullOnly(t)
	dir := t.TempDir()
	called(t, "man", dir)
	_, status, _ := strings.Cut(read(t, filepath.Join(dir, "sluice.1")), ".SH EXIT STATUS\n")
	status, _, _ = strings.Cut(status, ".SH")
	var manual, readme []string
	for _, m := range regexp.MustCompile(`(?m)^\\fB(\d+)\\fR$`).FindAllStringSubmatch(status, -1) {
		manual = append(manual, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(read(t, "../../README.md"), -1) {
		readme = append(readme, m[1])
	}
	if len(manual) < 7 || !slices.Equal(manual, readme) {
		t.Errorf("the manual has %q, README.md %q", manual, readme)
	}
}
