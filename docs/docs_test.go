//go:build full

// Package docs_test holds the documents to what they say: it runs their commands, compiles their code, and looks up each flag,
// command, variable and link that they name.
package docs_test

import (
	"context"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-llm/sluice/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(patient{m}, programs(map[string]func(){"sluice": program}))
}

// patient runs more tests at a time than there are processors, as those mostly wait.
type patient struct{ m *testing.M }

func (p patient) Run() int {
	flag.Set("test.parallel", "8") // m.Run parses the command line, which wins
	return p.m.Run()
}

// program is sluice as the documents run it.
func program() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// root is the directory of the repository.
const root = ".."

// A document is a file of Markdown in the repository.
type document struct {
	name   string // its path from the root, with slashes
	text   string
	blocks []block
}

// A block is what stands between two fences.
type block struct {
	line int    // of its first fence
	lang string // empty: a diagram, or output
	text string
}

// documents returns all Markdown of the repository, but for what tests read and what is not ours.
func documents(t testing.TB) (all []document) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all = append(all, document{filepath.ToSlash(name), string(b), blocks(string(b))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	fence   = regexp.MustCompile("^( *)```+ *([A-Za-z0-9_-]*)")
	heading = regexp.MustCompile(`^#+ +(.*)`)
)

// blocks returns the fenced blocks of a document.
func blocks(text string) (all []block) {
	var b *block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case b == nil && m != nil:
			b, indent = &block{line: i + 1, lang: m[2]}, m[1]
		case b != nil && m != nil && m[2] == "":
			all = append(all, *b)
			b = nil
		case b != nil:
			b.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return all
}

func TestTheSessionsOfDocuments(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			var all []exchange
			for _, b := range d.blocks {
				if b.lang == "console" || b.lang == "sh" {
					all = append(all, b.commands()...)
				}
			}
			for _, e := range all {
				if program := absent(e.command); program != "" {
					t.Skipf("no %s on PATH", program)
				}
			}
			t.Parallel()
			if len(all) > 0 {
				newSession(t, d).run(all)
			}
		})
	}
}
