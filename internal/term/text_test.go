package term

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestEscapeSpellsOutWhatATerminalWouldObey(t *testing.T) {
	tests := []struct{ in, want string }{
		{"plain, naïve, 日本", "plain, naïve, 日本"},
		{"\x1b[2Jgone", `\x1b[2Jgone`},
		{"two\nlines\tand\rmore", `two\nlines\tand\x0dmore`},
		{"bad \xff byte", `bad \xff byte`},
		{"real \ufffd replacement", "real \ufffd replacement"},
		{"\u202eright to left", `\u202eright to left`},
	}
	for _, tt := range tests {
		if got := Escape(tt.in); got != tt.want {
			t.Errorf("Escape(%q) is %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x00\x1b\xff\u202e\u0085")
	f.Fuzz(func(t *testing.T, in string) {
		out := Escape(in)
		if !utf8.ValidString(out) || strings.ContainsFunc(out, unicode.IsControl) {
			t.Errorf("Escape(%q) is %q", in, out)
		}
	})
}

func TestTexts(t *testing.T) {
	tests := []struct{ got, want string }{
		{Bar(0, 0, 4), ""}, {Bar(1, 2, 4), "[##..]  50 %"}, {Bar(9, 2, 4), "[####] 100 %"},
		{Clip("schön", 3), "sc…"}, {Clip("a · b · c", 8), "a · b"}, {Clip("ab", 9), "ab"},
		{fold("a  b c d", 6), "a  b c\n   d"}, {fold("a  b", 4), "a  b"}, {fold("abc def", 4), "abc\ndef"},
		{Quote("out.jsonl"), "out.jsonl"}, {Quote("a b"), "'a b'"}, {Quote("it's"), `'it'\''s'`}, {Quote(""), "''"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestStagedProgressShowsStagesAndPaces(t *testing.T) {
	for way, want := range map[string]string{
		ProgressAuto: "", // the writer is no terminal
		ProgressNone: "", ProgressPlain: "sluice: one\nsluice: four\nsluice: five\n", ProgressJSON: "1\n3\n4\n5\n",
	} {
		var stderr bytes.Buffer
		p := NewStaged(New(nil, nil, io.Discard, &stderr), way)
		p.Show("a", 0, "one", 1)
		p.Show("a", time.Millisecond, "two", 2)
		p.Show("a", 2*time.Second, "three", 3)
		p.Show("b", 2*time.Second, "four", 4)
		p.Show("b", 5*time.Second, "five", 5)
		p.Stop()
		p.Show("b", time.Minute, "six", 6)
		if got := stderr.String(); got != want {
			t.Errorf("%s: %q, want %q", way, got, want)
		}
	}
}
