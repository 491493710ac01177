package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Split parts a command line into words at blanks. What stands in quotes is one word or a part of one: between single quotes as
// it is, between double quotes with \" and \\ for these two. Outside of quotes a backslash takes its meaning from a blank, a
// quote or a backslash, and stands for itself before anything else. There is no more: no variables, patterns or pipes. A word
// that only means something to a shell is an error.
func Split(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool
		quoted bool // a part of the word was
	)
	end := func() error {
		if !inWord {
			return nil
		}
		w := word.String()
		if !quoted && shellWord(w) {
			return fmt.Errorf("%s is shell syntax, but no shell runs this command: write sh -c '...'", w)
		}
		words = append(words, w)
		word.Reset()
		inWord, quoted = false, false
		return nil
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case blank(c):
			if err := end(); err != nil {
				return nil, err
			}
		case c == '\'' || c == '"':
			n, err := quotation(&word, line[i:])
			if err != nil {
				return nil, err
			}
			i += n - 1
			inWord, quoted = true, true
		case c == '\\' && i+1 < len(line) && (blank(line[i+1]) || strings.IndexByte(`'"\`, line[i+1]) >= 0):
			i++
			word.WriteByte(line[i])
			inWord, quoted = true, true
		case c == 0:
			return nil, errors.New("the command contains a zero byte")
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("the command is empty")
	}
	return words, nil
}

// quotation writes what stands in the quotes that text begins with, and returns how long it is with them.
func quotation(word *strings.Builder, text string) (length int, err error) {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return i + 1, nil
		case c == 0:
			return 0, errors.New("the command contains a zero byte")
		case quote == '"' && c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			word.WriteByte(text[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, fmt.Errorf("a quote (%c) is not closed", quote)
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// shellWord reports whether a word has a meaning to a shell alone.
func shellWord(w string) bool {
	return slices.Contains([]string{"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>"}, w)
}
