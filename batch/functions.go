package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/rows"
)

// templateFuncs are the functions of templates beside those of text/template, and some of those again, held to the length of
// a line.
func templateFuncs() template.FuncMap {
	return template.FuncMap{
		"json":     toJSON,
		"trim":     func(v any) string { return strings.TrimSpace(asText(v)) },
		"lower":    func(v any) (string, error) { return atMost(strings.ToLower(asText(v))) },
		"upper":    func(v any) (string, error) { return atMost(strings.ToUpper(asText(v))) },
		"truncate": truncate,
		"replace":  replace,
		"join":     join,

		"index":    index,
		"print":    bounding(fmt.Sprint),
		"println":  bounding(fmt.Sprintln),
		"printf":   printf,
		"html":     bounding(template.HTMLEscaper),
		"js":       bounding(template.JSEscaper),
		"urlquery": bounding(template.URLQueryEscaper),
	}
}

// atMost refuses what is longer than a line may be: a text that is doubled again and again must not fill the memory.
func atMost(text string) (string, error) {
	if len(text) > rows.MaxBytes {
		return "", errLong
	}
	return text, nil
}

// printf is that of text/template, but that what it pads to is bounded, all together: it would be in memory before its
// length shows.
func printf(format string, args ...any) (string, error) {
	width := 0
	for verbs := range strings.SplitSeq(format, "%") {
		width += firstNumbers(verbs)
		if width > rows.MaxBytes {
			return "", errLong
		}
	}
	for _, arg := range args {
		if n, ok := arg.(int); ok && strings.Contains(format, "*") && n > 0 {
			width += min(n, mostWidth) * strings.Count(format, "*")
		}
	}
	if width > rows.MaxBytes {
		return "", errLong
	}
	return atMost(fmt.Sprintf(format, args...))
}

// mostWidth is the most that fmt pads to.
const mostWidth = 1_000_000

// firstNumbers adds up the numbers that stand before the letter of a verb: its width and precision, and indexes.
func firstNumbers(verb string) (sum int) {
	n := 0
	for _, c := range []byte(verb) {
		switch {
		case c >= '0' && c <= '9':
			n = min(10*n+int(c-'0'), mostWidth)
			continue
		case strings.IndexByte("+-# .[]*", c) < 0:
			return sum + n
		}
		sum, n = sum+n, 0
	}
	return sum + n
}

func bounding(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) { return atMost(f(args...)) }
}

// asText returns a value as a template prints it.
func asText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return string(v)
	}
	return fmt.Sprint(v)
}

// toJSON returns a value as JSON.
func toJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return atMost(strings.TrimSuffix(b.String(), "\n"))
}

// truncate returns the first n characters.
func truncate(n int, v any) (string, error) {
	if n < 0 {
		return "", fmt.Errorf("truncate to %d characters", n)
	}
	text := asText(v)
	if len(text) <= n {
		return text, nil
	}
	for at := range text {
		if n == 0 {
			return text[:at], nil
		}
		n--
	}
	return text, nil
}

// replace returns the text with one word for another.
func replace(old, by string, v any) (string, error) {
	text := asText(v)
	times := strings.Count(text, old)
	if old == "" {
		times = utf8.RuneCountInString(text) + 1
	}
	if grown := len(by) - len(old); grown > 0 && times > (rows.MaxBytes-min(rows.MaxBytes, len(text)))/grown {
		return "", errLong
	}
	return strings.ReplaceAll(text, old, by), nil
}

// join returns the texts of a list with sep between them.
func join(sep string, list any) (string, error) {
	values, ok := list.([]any)
	if !ok {
		return "", fmt.Errorf("join: %.40q is not a list", asText(list))
	}
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(asText(v))
		if b.Len() > rows.MaxBytes {
			return "", errLong
		}
	}
	return b.String(), nil
}

// index returns a member of an object or a list, like the function of text/template; but one that is missing is an error.
func index(v any, keys ...any) (any, error) {
	for _, key := range keys {
		switch of := v.(type) {
		case map[string]any:
			member, ok := of[asText(key)]
			if !ok {
				return nil, fmt.Errorf("no field %.60q", asText(key))
			}
			v = member
		case []any:
			i, ok := key.(int)
			if !ok || i < 0 || i >= len(of) {
				return nil, fmt.Errorf("no element %.20s: the list has %d", asText(key), len(of))
			}
			v = of[i]
		default:
			return nil, fmt.Errorf("%.60q is neither an object nor a list", asText(v))
		}
	}
	return v, nil
}
