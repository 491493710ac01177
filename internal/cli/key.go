package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// lookupKey returns the value of the environment variable name, or else what the file says it is; "" if neither has
// it. An empty file name is no file. Nothing but the line of that variable is kept.
func lookupKey(name, file string) (string, error) {
	if key := strings.TrimSpace(os.Getenv(name)); key != "" || file == "" {
		return key, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", usageError(fmt.Errorf("keys file: %w", err), "--keys-file takes a file of NAME=value lines")
	}
	defer f.Close()
	key, err := readKey(f, name)
	if err != nil {
		return "", usageError(fmt.Errorf("keys file %s: %w", file, err), "--keys-file takes a file of NAME=value lines")
	}
	return key, nil
}

// readKey finds the variable name in lines of the form NAME=value, which may begin with "export" and be quoted. The
// last one holds, as in a shell.
func readKey(r io.Reader, name string) (string, error) {
	key := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		line = strings.TrimSpace(strings.TrimPrefix(line, "export "))
		before, value, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(before) == name {
			key = unquote(strings.TrimSpace(value))
		}
	}
	return key, lines.Err()
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
