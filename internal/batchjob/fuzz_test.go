package batchjob_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// FuzzParseResult: what is read of a line is in it, has an id and a fate, and leaves the line alone.
func FuzzParseResult(f *testing.F) {
	for _, line := range []string{
		`{"custom_id":"r-2","response":{"status_code":200,"request_id":"req_c","body":{"choices":[]}},"error":null}`,
		`{"custom_id":"r-3","response":null,"error":{"code":"batch_expired","message":"x"}}`,
		`{"custom_id":"x_a","result":{"type":"succeeded","message":{"id":"msg_1"}}}`,
		`{"custom_id":"x_a","result":{"type":"errored","error":{"type":"error","error":{"type":"api_error"}}}}`,
		`{"custom_id":"x_a","result":{"type":"expired"}}`, `{"custom_id":"x","result":{"type":"errored","error":{}}}`, `{`,
		`{"key":"a","response":{"responseId":"r1"}}`, `{"metadata":{"key":"a"},"error":{"code":13,"message":"m"}}`, `{"key":"a","status":{"code":-1}}`,
		`{"id":"r1","custom_id":"a","response":{"status_code":422,"body":{}},"error":null}`, `{"custom_id":"a","response":null,"error":"words"}`,
	} {
		f.Add([]byte(line))
	}
	var apis []batchjob.API
	for _, form := range forms {
		p, _ := provider.Lookup(form)
		api, err := batchjob.NewAPI(p, provider.Target{Key: sentinel}, nil)
		if err != nil {
			f.Fatal(err)
		}
		apis = append(apis, api)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		for _, api := range apis {
			r, err := api.ParseResult(line)
			if !bytes.Equal(line, before) {
				t.Fatalf("the line became %q", line)
			}
			if err != nil {
				if len(err.Error()) > 500 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				continue
			}
			if !json.Valid(line) || r.ID == "" || r.Fate == "" || r.Body != nil && !json.Valid(r.Body) {
				t.Errorf("%q is read as %+v, %q", line, r, r.Body)
			}
		}
	})
}

// FuzzProblem: whatever a batch failed with, it has a kind and a message without keys, and figures that make sense.
func FuzzProblem(f *testing.F) {
	for _, text := range []string{
		"Enqueued token limit reached for gpt-4o-mini in organization org-x. Limit: 2,000,000 enqueued tokens.",
		"The number of enqueued tokens has surpassed the configured limit of 30K for the deployment", "enqueued tokens limit: 1.5M",
		"requests.3.params.max_tokens: Field required", "enqueued tokens limit: 99999999999999999999B", "key " + sentinel,
	} {
		f.Add("token_limit_exceeded", text, 3.0)
	}
	p, _ := provider.Lookup("openai")
	f.Fuzz(func(t *testing.T, code, message string, line float64) {
		doc, err := json.Marshal(map[string]any{"data": []any{map[string]any{"code": code, "message": message, "line": line}}})
		if err != nil {
			t.Skip()
		}
		got := batchjob.ProblemIn(p, sentinel, doc)
		if got.Kind == "" || got.Tokens < 0 || strings.Contains(got.Message+got.Code, sentinel) || len(got.Message) > 4000 {
			t.Errorf("%+v", got)
		}
		for at, words := range got.Lines {
			if at < 0 || strings.Contains(words, sentinel) {
				t.Errorf("%+v", got)
			}
		}
	})
}

// FuzzAppendRequest: a body comes out as the same JSON, without what asks for a stream.
func FuzzAppendRequest(f *testing.F) {
	for _, body := range []string{`{}`, `{"a": 1,` + "\n" + `"stream":true}`, `{"stream":1,"stream":2}`, `{"a":"\n","b":[1, 2]}`, `[1]`, ``, `{"a"`} {
		f.Add("id", []byte(body))
	}
	p, _ := provider.Lookup("openai")
	api, err := batchjob.NewAPI(p, provider.Target{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id string, body []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(body, &want) != nil || want == nil {
			return // rows are looked at before
		}
		line := api.AppendRequest(nil, id, provider.ChatCompletions, jsonscan.AppendCompact(nil, body))
		var got struct {
			Body map[string]json.RawMessage
		}
		if err := json.Unmarshal(line, &got); err != nil || bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("%q: %v", line, err)
		}
		delete(want, "stream")
		delete(want, "stream_options")
		if len(got.Body) != len(want) {
			t.Errorf("%q became %q", body, line)
		}
	})
}
