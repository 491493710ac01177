package cli

import (
	"fmt"
	"os"
	"strings"
)

// lookupKey returns the value of the environment variable name, or else what the file says it is; "" if neither has
// it. An empty file name is no file. Nothing but the line of that variable is kept.
func lookupKey(name, file string) (string, error) {
	if key := strings.TrimSpace(os.Getenv(name)); key != "" || file == "" {
		return key, nil
	}
	text, err := readNamed(file, 1)
	if err != nil {
		return "", usageError(fmt.Errorf("keys file: %w", err), "--keys-file takes a file of NAME=value lines")
	}
	return keyIn(string(text), name), nil
}

// keyIn finds the variable name in lines of the form NAME=value, which may begin with "export" and be quoted. The
// last one holds, as in a shell.
func keyIn(text, name string) string {
	key := ""
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "export "))
		before, value, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(before) == name {
			key = unquote(strings.TrimSpace(value))
		}
	}
	return key
}

// unquote strips the quotes of a value, or the comment behind one without quotes.
func unquote(value string) string {
	for _, quote := range []string{`"`, `'`} {
		if rest, ok := strings.CutPrefix(value, quote); ok {
			if inner, _, ok := strings.Cut(rest, quote); ok {
				return inner
			}
		}
	}
	if before, _, ok := strings.Cut(value, " #"); ok {
		value = before
	}
	return strings.TrimSpace(value)
}
