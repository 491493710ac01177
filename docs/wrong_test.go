//go:build full

package docs_test

import (
	"strings"
	"testing"
)

// mistakes are commands in which a session has to find something, and words of what it says.
var mistakes = []struct{ name, text, says string }{
	{"an exit code", "$ sluice run nothing.jsonl -o out.jsonl\n", "exit code 2"},
	{"a code in a pipe", "$ sluice run nothing.jsonl -o out.jsonl | cat\n", "exit code 2"},
	{"a command of nobody's", "$ no-such-program\n", "exit code 127"},
	{"a comment that is none", "$ sluice version      which Sluice it is\n", "exit code 2"},
	{"a line that is not printed", "$ echo one; echo two\none\nthree\ntwo\n", `does not print "three"`},
	{"a line that is not shown", "$ echo one; echo two\ntwo\n", `prints "one" as well`},
	{"a figure", "$ sluice explain --status 429 --header 'retry-after: 20' --header 'date: Sun, 01 Mar 2026 12:00:00 GMT' day.json\n  wait    21s, until 2026-03-01 12:00:20 UTC\n…\n", "21s"},
	{"a file that is another", "$ cat day.json\n{\"error\": {}}\n", "does not print"},
	{"a server that ends", "$ sluice serve --config nothing.yaml\n", "it ended"},
	{"a file that is not there", "$ kubectl apply -f deploy/nothing.yaml\n", "no deploy/nothing.yaml"},
	{"a syntax that nobody runs", "$ docker run 'sluice\n", "exit status"},
	{"a syntax", "$ echo 'one\n", "exit code"},
}

func TestWhatIsWrongWithSessionsIsFound(t *testing.T) {
	s := newSession(t, document{name: "wrong.md"})
	for _, e := range (block{text: "$ cat day.json\n{\"error\":{\"message\":\"Rate limit reached\"}}\n"}).exchanges() {
		if err := s.exchange(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range mistakes {
		e := block{text: m.text}.exchanges()[0]
		if err := s.exchange(e); err == nil || !strings.Contains(err.Error(), m.says) {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
