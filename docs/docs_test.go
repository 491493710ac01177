//go:build full

// Package docs_test holds the documents to what they say: it runs their commands, compiles their code, and looks up each flag,
// command, variable and link that they name.
package docs_test

import (
	"context"
	"flag"
	"os"
	"regexp"
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

var heading = regexp.MustCompile(`^#+ +(.*)`)

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
