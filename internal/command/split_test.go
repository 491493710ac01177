package command_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/command"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		`notify`:                 {"notify"},
		"  a \t b\n c  ":         {"a", "b", "c"},
		`sh -c 'cat >x; "y" \n'`: {"sh", "-c", `cat >x; "y" \n`},
		`a "b c" d`:              {"a", "b c", "d"},
		`a "b \"c\" \\ \n $X"`:   {"a", `b "c" \ \n $X`},
		`a b"c d"'e f'g`:         {"a", "bc de fg"},
		`a '' ""`:                {"a", "", ""},
		`a \'b\ c \\ C:\tools\x`: {"a", "'b c", `\`, `C:\tools\x`},
		`C:\tools\notify.exe -x`: {`C:\tools\notify.exe`, "-x"},
		`a "|" '>' \\`:           {"a", "|", ">", `\`},
		`a >file $HOME *`:        {"a", ">file", "$HOME", "*"},
		`a trailing\`:            {"a", `trailing\`},
		"übung \"ñ\"":            {"übung", "ñ"},
	} {
		if got, err := command.Split(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]string{
		``: "the command is empty", `   `: "the command is empty", `''`: "the command is empty", `a 'b`: "(') is not closed", `a "b\"`: `(") is not closed`,
		`a | b`: "shell", `a && b`: "shell", `a > b`: "shell", "a \x00": "zero byte", "a '\x00'": "zero byte",
	} {
		if got, err := command.Split(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v, want an error with %q", line, got, err, want)
		}
	}
}

// FuzzSplit: words in single quotes come back as they were.
func FuzzSplit(f *testing.F) {
	f.Add("a 'b' \"c\\\"\" \\ d", "x y")
	f.Add("'", "|")
	f.Fuzz(func(t *testing.T, line, word string) {
		words, err := command.Split(line)
		if err == nil && (len(words) == 0 || words[0] == "") {
			t.Errorf("%q has no command and no error", line)
		}
		if strings.ContainsAny(word, "'\x00") {
			return
		}
		got, err := command.Split("cmd '" + word + "' end")
		if err != nil || !slices.Equal(got, []string{"cmd", word, "end"}) {
			t.Errorf("%q came back as %q, %v", word, got, err)
		}
	})
}
