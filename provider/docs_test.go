package provider_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// documented is the table of docs/providers.md.
func documented() string {
	var b strings.Builder
	b.WriteString("| name | aliases | address | key |\n|---|---|---|---|\n")
	code := func(words []string) string {
		if len(words) == 0 {
			return ""
		}
		return "`" + strings.Join(words, "`, `") + "`"
	}
	for _, p := range provider.Published().All() {
		key := code(p.KeyEnv)
		if p.KeyOptional {
			key = strings.TrimPrefix(key+", or none", ", or ")
		}
		address := code([]string{p.BaseURL})
		if p.BaseURL == "" {
			address = "your own, such as " + code([]string{p.BaseForm})
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, code(p.Aliases), address, key)
	}
	return b.String()
}

func TestTheDocumentedTableIsThatOfTheData(t *testing.T) {
	suite.FullOnly(t)
	tabled(t, "../docs/providers.md", documented())
}

// tabled looks that a document has a table made of the data. If go generate asks for that, it writes the table in place of the
// one with the same head.
func tabled(t *testing.T, name, table string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if strings.Contains(text, "\n"+table+"\n") || strings.HasSuffix(text, "\n"+table) {
		return
	}
	if os.Getenv("SLUICE_TEST_WRITE") == "" {
		var odd []string
		for row := range strings.Lines(table) {
			if !strings.Contains(text, row) {
				odd = append(odd, row)
			}
		}
		t.Errorf("%s does not say what provider/providers.yaml does: run go generate ./provider; it lacks\n%s", name, strings.Join(odd, ""))
		return
	}
	head, _, _ := strings.Cut(table, "\n")
	before, after, found := strings.Cut(text, "\n"+head+"\n")
	if !found {
		t.Fatalf("%s has no table with the head %s", name, head)
	}
	if _, rest, more := strings.Cut(after, "\n\n"); more {
		after = "\n" + rest
	} else {
		after = ""
	}
	if err := os.WriteFile(name, []byte(before+"\n"+table+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFieldOfARowIsDocumented(t *testing.T) {
	suite.FullOnly(t)
	text, err := os.ReadFile("../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []reflect.Type{reflect.TypeFor[provider.Row](), reflect.TypeFor[provider.TierRow](),
		reflect.TypeFor[provider.HeaderRow](), reflect.TypeFor[provider.BatchesRow](), reflect.TypeFor[provider.Auth]()} {
		for _, field := range reflect.VisibleFields(row) {
			if name := field.Tag.Get("yaml"); !field.Anonymous && !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("docs/providers.md does not name %s of a %s", name, row.Name())
			}
		}
	}
}
