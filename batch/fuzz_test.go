package batch_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/batch"
)

// FuzzLine feeds one line to the parser. A line that is accepted has a body that is one JSON object with a model, or
// none if its path has it, is valid UTF-8, and means the same request when it is parsed again; an object that encoding/json refuses is refused.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		chat(1), `{"custom_id":"a","params":{"model":"m","max_tokens":5,"messages":[]}}`, `{"prompt":"hi","x":[1,-2.5e+3,null,true]}`,
		`{"messages":[{"role":"user","content":"\ud83d\ude00\n"}]}`, `{"model":"m","input":"x","custom_id":12}`, `plain text`, `{"a":`,
		`{"custom\u005fid":"e","model":"m","messages":[]}`, `{"prompt":"x","prompt":"y","model":"a","model":"b"}`, ` { } `, `{"url":"//x"}`,
		`{"key":"k","request":{"contents":[],"model":"models/g"}}`, `{"model":"../x","contents":[]}`, `{"contents":[],"custom_id":"c"}`, `{"model":"g","content":{}}`,
		`{"url":"/v1beta/models/x:streamGenerateContent","body":{"model":"x"}}`, `{"prompt":"x","y":{"z":3},"y":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(bytes.TrimSpace(line)) == 0 || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		got, err := batch.ParseLine(line, 7)
		object := strings.HasPrefix(strings.TrimLeft(string(line), " \t"), "{")
		if err != nil {
			if strings.Contains(err.Error(), "broken JSON") && json.Valid(line) {
				t.Fatalf("%q is JSON, but %v", line, err)
			}
			return
		}
		if !utf8.Valid(line) || object && !json.Valid(line) {
			t.Fatalf("accepted %q", line)
		}
		var body map[string]json.RawMessage
		inPath := strings.HasPrefix(got.Path, "/v1beta/")
		if err := json.Unmarshal(got.Body, &body); err != nil || inPath == (body["model"] != nil) {
			t.Fatalf("%q became the body %q: %v", line, got.Body, err)
		}
		if inPath && (strings.Count(got.Path, "/") != 3 || strings.ContainsAny(got.Path, "%?#") || strings.Contains(got.Path, "..")) {
			t.Fatalf("%q goes to %s", line, got.Path)
		}
		if got.ID == "" || bytes.IndexByte(got.Body, '\n') >= 0 {
			t.Fatalf("%q became %+v", line, got)
		}
		if again, err := batch.ParseLine(line, 7); err != nil || again.Hash != got.Hash || again.ID != got.ID {
			t.Fatalf("%q became %+v and %+v", line, got, again)
		}
	})
}

// FuzzResult feeds one line to what a resume reads, and an answer's body to what writes it.
func FuzzResult(f *testing.F) {
	f.Add([]byte(chatAnswer))
	f.Add([]byte("{\n \"a\" : [ 1 , \"\\u00e4 \\\\\" ] }"))
	f.Add([]byte("<html>\xff\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		line := batch.ResultLine("id", body)
		if n := bytes.IndexByte(line, '\n'); n != len(line)-1 || !json.Valid(line) || !utf8.Valid(line) {
			t.Fatalf("%q became the line %q", body, line)
		}
		if rec, err := batch.ParseRecording(line[:len(line)-1]); err != nil || rec.ID != "id" {
			t.Fatalf("%q was read as %q, %v", line, rec.ID, err)
		}
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if json.Valid(body) && utf8.Valid(body) {
			var want bytes.Buffer
			if err := json.Compact(&want, body); err != nil || want.String() != string(r.Response.Body) {
				t.Fatalf("%q became %q, want %q", body, r.Response.Body, want.String())
			}
		}
		_, _ = batch.ParseRecording(body)
	})
}
