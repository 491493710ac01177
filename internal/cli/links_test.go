package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fences   = regexp.MustCompile("(?ms)^```.*?^```$")
	spans    = regexp.MustCompile("`[^`\n]*`")
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unnamed  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names of a document's headings, as they are linked to.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range headings.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(linked.ReplaceAllString(m[1], "$1"))
		all[strings.ReplaceAll(unnamed.ReplaceAllString(name, ""), " ", "-")] = true
	}
	return all
}

func TestTheLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range append(names, filepath.Join("..", "..", "README.md")) {
		document, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := spans.ReplaceAllString(fences.ReplaceAllString(string(document), ""), "code")
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			path, anchor, _ := strings.Cut(m[1], "#")
			to := name
			if path != "" {
				to = filepath.Join(filepath.Dir(name), path)
			}
			target, err := os.ReadFile(to)
			if info, wrong := os.Stat(to); wrong == nil && info.IsDir() {
				continue
			}
			if err != nil || anchor != "" && !anchors(string(target))[anchor] {
				t.Errorf("%s: %s leads nowhere", filepath.Base(name), m[1])
			}
		}
	}
	if n < 150 {
		t.Errorf("%d links, want 150", n)
	}
}
