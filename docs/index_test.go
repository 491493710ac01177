//go:build full

package docs_test

import (
	"os"
	"strings"
	"testing"
)

func TestTheIndexListsEveryDocument(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t) {
		name, ok := strings.CutPrefix(d.name, "docs/")
		if ok && name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}
