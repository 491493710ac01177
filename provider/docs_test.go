package provider_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

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
	text, err := os.ReadFile("../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+documented()+"\n") {
		t.Errorf("docs/providers.md should have this table:\n%s", documented())
	}
}

func TestEveryFieldOfARowIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []reflect.Type{reflect.TypeFor[provider.Row](), reflect.TypeFor[provider.TierRow](),
		reflect.TypeFor[provider.HeaderRow](), reflect.TypeFor[provider.BatchesRow](), reflect.TypeFor[provider.Auth]()} {
		for i := range row.NumField() {
			if name := row.Field(i).Tag.Get("yaml"); !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("docs/providers.md does not name %s of a %s", name, row.Name())
			}
		}
	}
}
