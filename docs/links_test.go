//go:build full

package docs_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
		"stability.md": false, "stability.md#exit-codes": false, "../README.md": false, "https://example.com/x#y": false, "#a-heading-of-code": false, "#twice-1": false,
		"walk.md": true, "stability.md#nothing": true, "#nothing": true, "NOTHING.md": true,
	} {
		if err := leads(d, to); (err != nil) != wrong {
			t.Errorf("%s: %v", to, err)
		}
	}
}
