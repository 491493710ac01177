package sluice_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"testing"

	"github.com/sluice-llm/sluice"
)

// The words of the state machine are documented here, where they are used, since nobody looks into internal packages.
func TestTheDocumentationNamesEveryFieldOfAnAlias(t *testing.T) {
	docs := make(map[string]string)
	for _, name := range []string{"sluice.go", "ledger.go", "event.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE && len(d.Specs) == 1 {
				docs[d.Specs[0].(*ast.TypeSpec).Name.Name] = d.Doc.Text()
			}
		}
	}
	for name, v := range map[string]any{
		"Limits": sluice.Limits{}, "Cost": sluice.Cost{}, "Usage": sluice.Usage{}, "Reading": sluice.Reading{}, "Outcome": sluice.Outcome{},
		"Call": sluice.Call{}, "Asks": sluice.Asks{}, "Ask": sluice.Ask{}, "Reply": sluice.Reply{}, "News": sluice.News{}, "Pause": sluice.Pause{},
		"SlotLimit": sluice.SlotLimit{}, "Settlement": sluice.Settlement{}, "Correction": sluice.Correction{}, "Event": sluice.Event{},
		"LaneSnapshot": sluice.LaneSnapshot{}, "BudgetSnapshot": sluice.BudgetSnapshot{},
	} {
		for field := range reflect.TypeOf(v).Fields() {
			if !regexp.MustCompile(`(?m)^\t(\w+, )*` + field.Name + `\b`).MatchString(docs[name]) {
				t.Errorf("%s.%s is not documented", name, field.Name)
			}
		}
	}
}
