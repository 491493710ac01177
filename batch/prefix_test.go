package batch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/batch"
)

func TestPrefixesAreAllButTheLastTurn(t *testing.T) {
	long := strings.Repeat("word ", 1000)
	prefix := func(line string) string {
		t.Helper()
		key, err := batch.PrefixOf([]byte(line))
		if err != nil {
			t.Fatalf("%.100s: %v", line, err)
		}
		return key
	}
	chat := func(more, system, before, last string) string {
		return fmt.Sprintf(`{"method":"POST","url":"/v1/chat/completions","body":{%s"model":"m","messages":[{"role":"system","content":%q},%s{"role":"user","content":%q}]}}`, more, system, before, last)
	}
	base := prefix(chat("", long, "", "one"))
	if base == "" {
		t.Fatal("a long system prompt is no prefix")
	}
	turns := `{"role":"user","content":"a"},{"role":"assistant","content":"b"},`
	for name, line := range map[string]string{
		"another question": chat("", long, "", "two"),
		"a temperature":    chat(`"temperature":0.5,"max_tokens":7,"user":"u",`, long, "", "one"),
		"other spaces":     strings.ReplaceAll(chat("", long, "", "two"), `{"role"`, `{ "role"`),
	} {
		if prefix(line) != base {
			t.Errorf("%s makes it another prefix", name)
		}
	}
	for name, line := range map[string]string{
		"another system prompt": chat("", long+"!", "", "one"),
		"turns before":          chat("", long, turns, "one"),
		"tools":                 chat(`"tools":[{"type":"function"}],`, long, "", "one"),
		"a schema":              chat(`"response_format":{"type":"json_object"},`, long, "", "one"),
		"another model":         strings.Replace(chat("", long, "", "one"), `"model":"m"`, `"model":"n"`, 1),
	} {
		if got := prefix(line); got == base || got == "" {
			t.Errorf("%s makes it no other prefix", name)
		}
	}
	for name, line := range map[string]string{
		"a short system prompt":   chat("", "short", "", long),
		"only a long question":    `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`,
		"a text as the input":     `{"method":"POST","url":"/v1/responses","body":{"model":"m","input":"` + long + `"}}`,
		"embeddings":              `{"method":"POST","url":"/v1/embeddings","body":{"model":"m","input":["` + long + `","b"]}}`,
		"no messages":             `{"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[],"x":"` + long + `"}}`,
		"a system that is unread": `{"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user"}],"metadata":"` + long + `"}}`,
	} {
		if got := prefix(line); got != "" {
			t.Errorf("%s is a prefix", name)
		}
	}
	for name, form := range map[string]string{
		"responses": `{"method":"POST","url":"/v1/responses","body":{"model":"m","instructions":%[1]q,"input":%[2]q}}`,
		"messages":  `{"params":{"model":"m","max_tokens":5,"system":[{"type":"text","text":%[1]q}],"messages":[{"role":"user","content":%[2]q}]}}`,
		"gemini":    `{"request":{"model":"m","systemInstruction":{"parts":[{"text":%[1]q}]},"contents":[{"parts":[{"text":%[2]q}]}]}}`,
		"earlier":   `{"request":{"model":"m","contents":[{"parts":[{"text":%[1]q}]},{"parts":[{"text":"b"}]},{"parts":[{"text":%[2]q}]}]}}`,
		"prompt":    `{"prompt":%[2]q,"system":%[1]q}`,
	} {
		one, two, other := prefix(fmt.Sprintf(form, long, "one")), prefix(fmt.Sprintf(form, long, "two")), prefix(fmt.Sprintf(form, long+"!", "two"))
		if one == "" || one != two || one == other {
			t.Errorf("%s: prefixes %q, %q and %q", name, one, two, other)
		}
	}
}

// FuzzPrefix looks for requests whose prefix cannot be read, or is not the same for another last turn.
func FuzzPrefix(f *testing.F) {
	f.Add(`{"role":"system","content":"a"}`, `"b"`)
	f.Add(`[1, 2]`, `null`)
	f.Add(`"\u0022]"`, `{}`)
	f.Fuzz(func(t *testing.T, before, last string) {
		if !json.Valid([]byte(before)) || !json.Valid([]byte(last)) {
			return
		}
		line := func(last string) []byte {
			return fmt.Appendf(nil, `{"method":"POST","url":"/v1/chat/completions","body":{"model":"m","tools":[%q],"messages":[ %s , %s ]}}`,
				strings.Repeat("x", 5000), strings.ReplaceAll(before, "\n", " "), strings.ReplaceAll(last, "\n", " "))
		}
		a, err := batch.PrefixOf(line(last))
		if err != nil {
			return // the two are no request
		}
		if b, err := batch.PrefixOf(line(`{"role":"user"}`)); err != nil || a == "" || a != b {
			t.Errorf("prefixes %q and %q, %v", a, b, err)
		}
	})
}
