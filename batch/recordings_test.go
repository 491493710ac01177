package batch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/batch"
)

// recorded is a line of an output.
func recordedLine(id, body, fault string) string {
	return fmt.Sprintf(`{"id":"batch_req_1","custom_id":%s,"response":%s,"error":%s,"sluice":{"input":"00000000000000000000000000000000"}}`, id, body, fault)
}

func openRecordings(t *testing.T, text string) *batch.Recordings {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := batch.OpenRecordings(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func bodyOf(rec batch.Recording) []byte {
	if rec.Response == nil {
		return nil
	}
	return rec.Response.Body
}

// all returns what All gives, as texts.
func all(r *batch.Recordings) (got []string, err error) {
	for rec, err := range r.All() {
		if err != nil {
			return got, err
		}
		var message string
		if rec.Error != nil {
			message = rec.Error.Message
		}
		got = append(got, fmt.Sprintf("%s|%s|%s|%s", rec.ID, bodyOf(rec), rec.Failed(), message))
	}
	return got, nil
}

func TestRecordingsAreRead(t *testing.T) {
	good := recordedLine(`"a\n1"`, `{"status_code":200,"request_id":"r","body":{"x":1}}`, `null`)
	bad := recordedLine(`"b"`, `{"status_code":400,"body":{"error":{}}}`, `{"code":"bad_request","message":"no \"m\""}`)
	for _, c := range []struct {
		name, text string
		want       []string
		wrong      int // line that is none
	}{
		{name: "nothing"},
		{name: "results", text: good + "\n" + bad + "\n", want: []string{"a\n1|{\"x\":1}||", `b|{"error":{}}|bad_request|no "m"`}},
		{name: "blank lines and CRLF", text: "\n" + good + "\r\n\n", want: []string{"a\n1|{\"x\":1}||"}},
		{name: "no newline at the end", text: bad + "\n" + good, want: []string{`b|{"error":{}}|bad_request|no "m"`, "a\n1|{\"x\":1}||"}},
		{name: "a torn line", text: good + "\n" + bad[:40], want: []string{"a\n1|{\"x\":1}||"}},
		{name: "a line torn early", text: good + "\n" + bad[:3], want: []string{"a\n1|{\"x\":1}||"}},
		{name: "nothing but a torn line", text: bad[:len(bad)-1]},
		{name: "no answer", text: recordedLine(`"c"`, `null`, `{"code":"network","message":"gone"}`) + "\n", want: []string{"c||network|gone"}},
		{name: "a result of OpenAI's own", text: `{"id":"b","custom_id":"d","response":{"status_code":200,"body":{}},"error":null}` + "\n", want: []string{"d|{}||"}},
		{name: "a refusal in OpenAI's own", text: `{"id":"b","custom_id":"d","response":{"body":{},"status_code":400},"error":null}` + "\n", want: []string{"d|{}|status_400|"}},
		{name: "a fault without a code", text: recordedLine(`"c"`, `null`, `{"message":"gone"}`) + "\n", want: []string{"c||error|gone"}},
		{name: "an input", text: good + "\n" + chat(1) + "\n", want: []string{"a\n1|{\"x\":1}||"}, wrong: 2},
		{name: "an input without its last newline", text: chat(1), wrong: 1},
		{name: "plain text", text: "\nhello", wrong: 2},
		{name: "broken JSON in the middle", text: good[:50] + "\n" + good + "\n", wrong: 1},
		{name: "a number", text: "3\n", wrong: 1},
		{name: "an id that is none", text: recordedLine(`3`, `null`, `null`) + "\n", wrong: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := all(openRecordings(t, c.text))
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			wrong, ok := errors.AsType[*batch.RecordingError](err)
			if ok != (c.wrong > 0) || ok && wrong.Line != c.wrong || !ok && err != nil {
				t.Errorf("error %v, want line %d", err, c.wrong)
			}
			if err := openRecordings(t, c.text).Index(); (err != nil) != (c.wrong > 0) {
				t.Errorf("Index: %v", err)
			}
		})
	}
}

func TestRecordingsAreFound(t *testing.T) {
	var text strings.Builder
	for i := range 500 {
		body := fmt.Sprintf(`{"status_code":200,"body":{"n":%d,"long":"%s"}}`, i, strings.Repeat("x", i*i))
		text.WriteString(recordedLine(fmt.Sprintf(`"%d"`, i), body, `null`) + "\n")
	}
	text.WriteString(recordedLine(`"7"`, `{"status_code":200,"body":"again"}`, `null`)) // a second result of an item, and no newline
	r := openRecordings(t, text.String())
	if err := r.Index(); err != nil || r.Len() != 501 {
		t.Fatalf("%d results, error %v", r.Len(), err)
	}
	for _, i := range []int{499, 0, 300, 299, 1, 100} {
		rec, ok, err := r.Find(fmt.Sprint(i))
		if err != nil || !ok || !strings.HasPrefix(string(bodyOf(rec)), fmt.Sprintf(`{"n":%d,`, i)) {
			t.Errorf("%d: found %v, error %v", i, ok, err)
		}
	}
	if rec, ok, err := r.Find("7"); err != nil || !ok || string(bodyOf(rec)) != `"again"` {
		t.Errorf("7: %s, %v, error %v", bodyOf(rec), ok, err)
	}
	if _, ok, err := r.Find("500"); ok || err != nil {
		t.Errorf("500 is found, error %v", err)
	}
}

func TestRecordingsAreThoseOfTheFileWhenItWasOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	line := recordedLine(`"a"`, `null`, `null`) + "\n"
	if err := os.WriteFile(path, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := batch.OpenRecordings(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Repeat(line, 3)); err != nil {
		t.Fatal(err)
	}
	if got, err := all(r); err != nil || len(got) != 1 {
		t.Errorf("%q, error %v", got, err)
	}
}

func TestFieldsOfLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl")
	text := "\ufeff" + `{"custom_id":"a","prompt":"p","n":1,"n":[2]}` + "\r\n\n" +
		`{"prompt":"q","custom_id":null}` + "\n" +
		`{"custom_id":7,"url":"/x","body":{"m":"y"}}` + "\n" +
		`{"key":"k","request":{}}` + "\n" +
		`{"key":"k","prompt":"x"}` + "\n" +
		"why \"so\"?\n" +
		`{"broken":` + "\n" +
		`{"custom\u005fid":"e\n","prom\u0070t":"z"}`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var got []string
	for in, err := range batch.FieldsOf(path) {
		if err != nil {
			t.Fatal(err)
		}
		line := in.ID
		for _, f := range in.Fields {
			line += fmt.Sprintf("|%s=%s", f.Name, f.Value)
		}
		got = append(got, line)
	}
	want := []string{
		`a|prompt="p"|n=[2]`, `3|prompt="q"`, `7|url="/x"|body={"m":"y"}`, `k|key="k"|request={}`,
		`6|key="k"|prompt="x"`, `7|prompt="why \"so\"?"`, `8`, "e\n|prompt=\"z\"",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for _, err := range batch.FieldsOf(path + "x") {
		if err == nil {
			t.Error("a file that is not there has lines")
		}
	}
}

// The ids of fields are those under which a run records.
func TestFieldsHaveTheIDsOfARun(t *testing.T) {
	for _, line := range []string{
		chat(1), `{"prompt":"x"}`, `{"custom_id":12,"prompt":"x"}`, `{"key":"k","request":{"contents":[]}}`, `{"custom_id":null,"prompt":"x"}`,
		`{"key":"k","custom_id":"c","request":{"contents":[]}}`, `plain`, `{"custom_id":-1.50,"prompt":"x"}`, `{"custom_id":"a\u0041","prompt":"x"}`,
		`{"key":"k","request":{"contents":[]},"custom_id":null}`,
	} {
		p, err := batch.ParseLine([]byte(line), 1)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		path := filepath.Join(t.TempDir(), "in.jsonl")
		if err := os.WriteFile(path, []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		for in, err := range batch.FieldsOf(path) {
			if err != nil || in.ID != p.ID {
				t.Errorf("%s: id %q, a run has %q, error %v", line, in.ID, p.ID, err)
			}
		}
	}
}

// FuzzRecording compares with encoding/json.
func FuzzRecording(f *testing.F) {
	for _, s := range []string{
		recordedLine(`"a"`, `{"status_code":200,"body":{}}`, `null`), recordedLine(`"b\n"`, `null`, `{"code":"x","message":"y"}`),
		`{"custom_id":"a","error":"x"}`, `{"custom_id":"a","response":{"status_code":4e2}}`, `{"cust\u006fm_id":"a","error":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		rec, err := batch.ParseRecording(line)
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if bodyOf(rec) != nil && !json.Valid(bodyOf(rec)) {
			t.Fatalf("%q: body %q", line, bodyOf(rec))
		}
		var id string
		if utf8.Valid(line) && json.Unmarshal(object["custom_id"], &id) == nil && rec.ID != id {
			t.Fatalf("%q: id %q, want %q", line, rec.ID, id)
		}
	})
}

// FuzzFields: what an object holds is found in it, and a line that runs has the id that a run gives it.
func FuzzFields(f *testing.F) {
	for _, s := range []string{chat(1), `{"prompt":"x","n":[1,{}]}`, `{"key":"k","request":{"contents":[]}}`, `text`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(strings.TrimSpace(string(line))) == 0 {
			return
		}
		in := batch.ReadFields(line, 3)
		for _, field := range in.Fields {
			if !json.Valid(field.Value) {
				t.Fatalf("%q: %s is %q", line, field.Name, field.Value)
			}
		}
		if p, err := batch.ParseLine(line, 3); err == nil && p.ID != in.ID {
			t.Fatalf("%q: id %q, a run has %q", line, in.ID, p.ID)
		}
	})
}
