//go:build full

package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// exchange is a command of a document, and what stands below it.
type exchange struct {
	line            int
	command, output string
}

var (
	here    = regexp.MustCompile(`<<-?\s*['"]?(\w+)`)
	comment = regexp.MustCompile(`\s+# [^'"]*$`)
)

// exchanges returns the commands of a block of console text. A command goes on behind a backslash, and to the end of a text
// that it begins.
func (b block) exchanges() (all []exchange) {
	rest := strings.Split(strings.TrimSuffix(b.text, "\n"), "\n")
	for i := 0; i < len(rest); i++ {
		command, ok := strings.CutPrefix(rest[i], "$ ")
		if !ok {
			if len(all) > 0 {
				all[len(all)-1].output += rest[i] + "\n"
			}
			continue
		}
		e := exchange{line: b.line + 1 + i, command: command}
		for strings.HasSuffix(e.command, `\`) && i+1 < len(rest) {
			i++
			e.command += "\n" + rest[i]
		}
		if m := here.FindStringSubmatch(e.command); m != nil {
			for i+1 < len(rest) {
				i++
				e.command += "\n" + rest[i]
				if rest[i] == m[1] {
					break
				}
			}
			e.command += "\n"
		}
		all = append(all, e)
	}
	return all
}

// commands returns the exchanges of a console block, or a shell block as one command.
func (b block) commands() []exchange {
	if b.lang == "sh" {
		return []exchange{{line: b.line + 1, command: b.text}}
	}
	return b.exchanges()
}

func TestWhatACommandIsMadeOf(t *testing.T) {
	b := block{line: 3, text: "$ one \\\n    --two\nthree\n$ cat > f <<'EOF'\nfour\nEOF\nfive\n$ six &\n"}
	want := []exchange{{4, "one \\\n    --two", "three\n"}, {7, "cat > f <<'EOF'\nfour\nEOF\n", "five\n"}, {11, "six &", ""}}
	got := b.exchanges()
	if len(got) != len(want) {
		t.Fatalf("%d commands, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
