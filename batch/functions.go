package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/template"
)

// templateFuncs are the functions of templates in addition to the standard ones.
var templateFuncs = map[string]any{
	"json":     toJSON,
	"trim":     func(v any) string { return strings.TrimSpace(template.Text(v)) },
	"lower":    func(v any) string { return strings.ToLower(template.Text(v)) },
	"upper":    func(v any) string { return strings.ToUpper(template.Text(v)) },
	"truncate": truncate,
	"replace":  replace,
	"join":     join,
}

// toJSON returns a value as JSON.
func toJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// truncate returns the first n characters.
func truncate(n int, v any) (string, error) {
	if n < 0 {
		return "", fmt.Errorf("truncate: the length %d is negative", n)
	}
	text := template.Text(v)
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
	text := template.Text(v)
	times := strings.Count(text, old)
	if old == "" {
		times = utf8.RuneCountInString(text) + 1
	}
	if grown := len(by) - len(old); grown > 0 && times > (template.MaxBytes-min(template.MaxBytes, len(text)))/grown {
		return "", template.TooLong
	}
	return strings.ReplaceAll(text, old, by), nil
}

// join returns the texts of a list with sep between them.
func join(sep string, list any) (string, error) {
	values, ok := list.([]any)
	if !ok {
		return "", fmt.Errorf("join: %.40q is not a list", template.Text(list))
	}
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(template.Text(v))
		if b.Len() > template.MaxBytes {
			return "", template.TooLong
		}
	}
	return b.String(), nil
}
