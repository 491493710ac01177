//go:build full

package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheIndexListsEveryDocument(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range documents {
		if name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md has no line for %s", name)
		}
	}
	if len(documents) < 20 {
		t.Errorf("%d documents", len(documents))
	}
}
