package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// Query picks events: all of its terms must hold. Make one with ParseQuery; the zero value picks every event.
type Query struct{ terms []term }

// term is one condition.
type term struct {
	field field
	op    string
	word  string // as it was written
	value value
}

// value is what a field holds, or is compared with. A field that an event does not have is its zero.
type value struct {
	text   string
	number float64
	at     time.Time
	truth  bool
}

// operators are those that there are, the longer ones before their beginnings.
func operators() []string { return []string{"<=", ">=", "!=", "=", "<", ">", "~"} }

// ParseQuery reads an expression: terms with spaces between them, each a field, an operator (= != < <= > >=, or ~ for
// contains) and a value, which may stand in quotes with backslashes before quotes and backslashes within. It fails on
// a field that events do not have, and on a value that the field can never have, so that a typing error does not look
// like "none".
func ParseQuery(text string) (Query, error) {
	var q Query
	rest := strings.TrimLeft(text, space)
	for rest != "" {
		t, after, err := parseTerm(rest)
		if err != nil {
			return Query{}, err
		}
		q.terms = append(q.terms, t)
		rest = strings.TrimLeft(after, space)
	}
	if len(q.terms) == 0 {
		return Query{}, errors.New("no condition")
	}
	return q, nil
}

const space = " \t\r\n"

// parseTerm reads the term that text begins with.
func parseTerm(text string) (t term, rest string, err error) {
	end := strings.IndexAny(text, "=!<>~\"' \t\r\n")
	if end < 0 {
		end = len(text)
	}
	name := text[:end]
	if t.field, err = fieldOf(name); err != nil {
		return t, "", err
	}
	rest = strings.TrimLeft(text[end:], space)
	for _, op := range operators() {
		if strings.HasPrefix(rest, op) {
			t.op = op
			break
		}
	}
	if t.op == "" {
		return t, "", fmt.Errorf("%s: an operator must follow: one of %s", name, strings.Join(operators(), " "))
	}
	t.word, rest, err = parseWord(strings.TrimLeft(rest[len(t.op):], space))
	if err != nil {
		return t, "", fmt.Errorf("%s%s: %w", name, t.op, err)
	}
	if t.value, err = t.field.parse(t.op, t.word); err != nil {
		return t, "", fmt.Errorf("%s%s%s: %w", name, t.op, t.word, err)
	}
	return t, rest, nil
}

// parseWord reads the value that text begins with.
func parseWord(text string) (word, rest string, err error) {
	if text == "" {
		return "", "", errors.New(`a value must follow; "" is the empty one`)
	}
	quote := text[0]
	if quote != '"' && quote != '\'' {
		end := strings.IndexAny(text, space)
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			rest = text[i+1:]
			if rest != "" && !strings.ContainsRune(space, rune(rest[0])) {
				return "", "", errors.New("a space must follow the closing quote")
			}
			return b.String(), rest, nil
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("the closing quote is missing")
}

// Match reports whether all terms hold of e.
func (q Query) Match(e *sluice.Event) bool {
	for i := range q.terms {
		if !q.terms[i].holds(e) {
			return false
		}
	}
	return true
}

func (t *term) holds(e *sluice.Event) bool {
	got := t.field.of(e)
	order := 0
	switch t.field.kind {
	case textField:
		if t.op == "~" {
			return strings.Contains(got.text, t.value.text)
		}
		order = strings.Compare(got.text, t.value.text)
	case timeField:
		if got.at.IsZero() { // no instant is neither before nor after another
			return t.op == "!="
		}
		order = got.at.Compare(t.value.at)
	case truthField:
		if got.truth != t.value.truth {
			order = 1
		}
	default:
		order = compare(got.number, t.value.number)
	}
	switch t.op {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// parse reads a value that is to be compared with the field.
func (f *field) parse(op, word string) (v value, err error) {
	ordered := op != "=" && op != "!=" && op != "~"
	switch {
	case op == "~" && f.kind != textField:
		return v, errors.New("~ looks into texts alone")
	case ordered && (f.kind == textField || f.kind == truthField):
		return v, fmt.Errorf("%s compares numbers and times alone", op)
	}
	switch f.kind {
	case textField:
		v.text = word
		if known := f.values(); op != "~" && known != nil && !slices.Contains(known, word) {
			return v, fmt.Errorf("no %s is %q%s: it is one of %s", f.name, word, provider.DidYouMean(provider.Nearest(word, known)), listed(known))
		}
	case timeField:
		v.at, err = parseInstant(word)
	case truthField:
		if v.truth = word == "true"; !v.truth && word != "false" {
			err = errors.New("it is true or false")
		}
	default:
		if v.number, err = strconv.ParseFloat(word, 64); err != nil || v.number != v.number {
			err = errors.New("a number must follow")
			if _, isTime := time.ParseDuration(word); isTime == nil {
				err = errors.New("a number must follow, without a unit: times are in milliseconds")
			}
		}
	}
	return v, err
}

// parseInstant reads a point in time: a date, with a time of day or without, in the local zone unless it names one.
func parseInstant(word string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, word, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errors.New("an instant must follow, such as 2026-11-21T10:00:00Z")
}
