package docs_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unsaid are the fields of JSON that no document names: of files and messages between parts of Sluice, by the package that has them.
var unsaid = map[string][]string{
	"batch":           {"fail_on", "has_cost", "unmetered"},        // between a run and its workers
	"gateway":         {"period", "sha256"},                        // of the files of keys and of what clients spent
	"internal/stress": {"serial"},                                  // of the checkpoints that its members save
	"internal/parts":  {"bad", "guess", "marked", "tried_at"},      // of what a run knows of a batch that is under way
	"pool":            {"saved_at", "sha256", "sluice_checkpoint"}, // of the head of a checkpoint
	"proc":            {"closings", "has_used"},                    // of the file of usage windows
}

var word = regexp.MustCompile(`\w+`)

// coded are the words that documents have as code: between backticks, or in a block.
func coded(all []document) map[string]bool {
	words := make(map[string]bool)
	for _, d := range all {
		outside := fenced.ReplaceAllString(d.text, "")
		for _, b := range d.blocks {
			outside += "\n`" + strings.ReplaceAll(b.text, "\n", "`\n`") + "`"
		}
		for _, m := range span.FindAllStringSubmatch(outside, -1) {
			for _, w := range word.FindAllString(m[1], -1) {
				words[w] = true
			}
		}
	}
	return words
}

var fenced = regexp.MustCompile("(?ms)^```.*?^```")

func TestFieldsOfJSONAreNamedInADocument(t *testing.T) {
	known := coded(documents(t))
	files, err := filepath.Glob(filepath.Join(root, "api", "*.txt"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v: %v", files, err)
	}
	fields, left := 0, maps.Clone(unsaid)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			from, field, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "json "), ": ")
			if !ok || !strings.HasPrefix(line, "json ") {
				continue
			}
			fields++
			own := slices.Contains(unsaid[from], field)
			switch {
			case own && known[field]:
				t.Errorf("%s of %s is named in a document: take it out of the table", field, from)
			case own:
				left[from] = slices.DeleteFunc(slices.Clone(left[from]), func(s string) bool { return s == field })
			case !known[field]:
				t.Errorf("no document names the field %s of %s", field, from)
			}
		}
	}
	if fields < 500 {
		t.Errorf("api/ has %d fields", fields)
	}
	for from, names := range left {
		if len(names) > 0 {
			t.Errorf("%s has no fields %v", from, names)
		}
	}
}
