package batch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

func TestFlawsAreRead(t *testing.T) {
	var f batch.FailOn
	if err := f.UnmarshalText([]byte("length, empty")); err != nil || f != batch.FailOnLength|batch.FailOnEmpty {
		t.Errorf("%b, error %v", f, err)
	}
	if err := f.UnmarshalText([]byte("content_filter,refusal,refusal")); err != nil || f != batch.FailOnContentFilter|batch.FailOnRefusal {
		t.Errorf("%b, error %v", f, err)
	}
	if err := f.UnmarshalText(nil); err != nil || f != 0 {
		t.Errorf("%b, error %v", f, err)
	}
	for _, text := range []string{"len", "length,", "LENGTH", "length empty"} {
		err := f.UnmarshalText([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "is not one of length, content_filter, refusal, empty") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestRulesRefuseAnswers(t *testing.T) {
	all := batch.FailOnLength | batch.FailOnContentFilter | batch.FailOnRefusal | batch.FailOnEmpty
	fits := schema(t, `{"type":"object","required":["a"]}`)
	for _, c := range []struct {
		name  string
		rules batch.Rules
		e     provider.Endpoint
		body  string
		want  string // a part of the error; "" is none
	}{
		{"nothing wrong", batch.Rules{FailOn: all}, provider.ChatCompletions, chatAnswer, ""},
		{"no rules", batch.Rules{}, provider.ChatCompletions, `{"choices":[{"message":{"content":""},"finish_reason":"length"}]}`, ""},
		{"cut off, chat", batch.Rules{FailOn: batch.FailOnLength}, provider.ChatCompletions, `{"choices":[{"message":{"content":"a"},"finish_reason":"length"}]}`, "cut off: length"},
		{"cut off, messages", batch.Rules{FailOn: batch.FailOnLength}, provider.Messages, `{"content":[{"type":"text","text":"a"}],"stop_reason":"max_tokens"}`, "cut off: max_tokens"},
		{"cut off, responses", batch.Rules{FailOn: batch.FailOnLength}, provider.Responses, `{"status":"incomplete","output":[],"incomplete_details":{"reason":"max_output_tokens"}}`, "cut off: max_output_tokens"},
		{"cut off, Gemini", batch.Rules{FailOn: batch.FailOnLength}, provider.GenerateContent, `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"MAX_TOKENS"}]}`, "cut off: MAX_TOKENS"},
		{"another sort is not asked for", batch.Rules{FailOn: batch.FailOnEmpty}, provider.ChatCompletions, `{"choices":[{"message":{"content":"a"},"finish_reason":"length"}]}`, ""},
		{"filtered", batch.Rules{FailOn: batch.FailOnContentFilter}, provider.ChatCompletions, `{"choices":[{"message":{"content":"a"},"finish_reason":"content_filter"}]}`, "filtered: content_filter"},
		{"filtered, Gemini", batch.Rules{FailOn: batch.FailOnContentFilter}, provider.GenerateContent, `{"promptFeedback":{"blockReason":"SAFETY","blockReasonMessage":"no"}}`, "filtered: no"},
		{"refused, chat", batch.Rules{FailOn: batch.FailOnRefusal}, provider.ChatCompletions, `{"choices":[{"message":{"refusal":"No."},"finish_reason":"stop"}]}`, "the model refused to answer: No."},
		{"refused, messages", batch.Rules{FailOn: batch.FailOnRefusal}, provider.Messages, `{"content":[],"stop_reason":"refusal"}`, "the model refused to answer: refusal"},
		{"a filter is no refusal", batch.Rules{FailOn: batch.FailOnRefusal}, provider.GenerateContent, `{"candidates":[{"finishReason":"SAFETY"}]}`, ""},
		{"empty", batch.Rules{FailOn: batch.FailOnEmpty}, provider.ChatCompletions, `{"choices":[{"message":{"content":" "},"finish_reason":"stop"}]}`, "is empty"},
		{"no choices", batch.Rules{FailOn: batch.FailOnEmpty}, provider.ChatCompletions, `{"choices":[]}`, "is empty"},
		{"a tool call is not empty", batch.Rules{FailOn: batch.FailOnEmpty}, provider.ChatCompletions, `{"choices":[{"message":{"tool_calls":[{"function":{"arguments":""}}]}}]}`, ""},
		{"embeddings", batch.Rules{FailOn: all, Schema: fits}, provider.Embeddings, `{"data":[]}`, ""},
		{"one choice of two", batch.Rules{FailOn: all}, provider.ChatCompletions, `{"choices":[{"index":0,"message":{"content":"a"}},{"index":1,"message":{"content":""}}]}`, "choice 2 of 2: the response is empty"},
		{"a choice that does not fit", batch.Rules{Schema: fits}, provider.ChatCompletions, `{"choices":[{"message":{"content":"{\"a\":1}"}},{"message":{"content":"{}"}}]}`, "choice 2 of 2: the response does not match the schema: at the top level: missing property 'a'"},
		{"choices that fit", batch.Rules{Schema: fits}, provider.ChatCompletions, `{"choices":[{"message":{"content":"{\"a\":1}"}},{"message":{"content":"{\"a\":2}"}}]}`, ""},
		{"the arguments of a call", batch.Rules{Schema: fits}, provider.Messages, `{"content":[{"type":"tool_use","input":{"a":1}}]}`, ""},
		{"each of them", batch.Rules{Schema: fits}, provider.Messages, `{"content":[{"type":"tool_use","input":{"a":1}},{"type":"tool_use","input":{}}]}`, "missing property 'a'"},
		{"thoughts in parts, chat", batch.Rules{Schema: fits}, provider.ChatCompletions, `{"choices":[{"message":{"reasoning_content":"hm","content":[{"type":"thinking","thinking":[{"type":"text","text":"{}"}]},{"type":"text","text":"{\"a\":1}"}]}}]}`, ""},
		{"thoughts in parts, messages", batch.Rules{Schema: fits}, provider.Messages, `{"content":[{"type":"thinking","thinking":"{}"},{"type":"text","text":"<thinking>{}</thinking>{\"a\":1}"}]}`, ""},
		{"thoughts in parts, responses", batch.Rules{Schema: fits}, provider.Responses, `{"status":"completed","output":[{"type":"reasoning","content":[{"type":"reasoning_text","text":"{}"}]},{"type":"message","content":[{"type":"output_text","text":"{\"a\":1}"}]}]}`, ""},
		{"thoughts in parts, Gemini", batch.Rules{Schema: fits}, provider.GenerateContent, `{"candidates":[{"content":{"parts":[{"text":"{}","thought":true},{"text":"{\"a\":1}"}]}}]}`, ""},
		{"thoughts in parts, Cohere", batch.Rules{Schema: fits}, provider.CohereChat, `{"message":{"role":"assistant","content":[{"type":"thinking","thinking":"{}"},{"type":"text","text":"{\"a\":1}"}]}}`, ""},
		{"text comes before calls", batch.Rules{Schema: fits}, provider.Messages, `{"content":[{"type":"text","text":"so"},{"type":"tool_use","input":{"a":1}}]}`, "is not JSON"},
		{"a refusal says so", batch.Rules{Schema: fits}, provider.ChatCompletions, `{"choices":[{"message":{"refusal":"No."}}]}`, "not JSON: the model or a filter refused to answer: No."},
		{"what is cut off says so", batch.Rules{Schema: fits}, provider.ChatCompletions, `{"choices":[{"message":{"content":"{\"a\":"},"finish_reason":"length"}]}`, "not JSON: the response is cut off: length"},
		{"what is empty says so", batch.Rules{Schema: fits}, provider.ChatCompletions, `{"choices":[{"message":{"content":""}}]}`, "not JSON: the response is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.rules.Check("x", c.e, []byte(c.body))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// learner answers wrong until it was told of it so often.
type learner struct {
	dialect func(text string) (contentType, body string)
	wrong   int

	mu   sync.Mutex
	sent []string
}

func (l *learner) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.sent = append(l.sent, string(body))
	n := len(l.sent)
	l.mu.Unlock()
	text := fmt.Sprintf("{\"n\":\"\\\"%d\\\"\"}", n)
	if n > l.wrong {
		text = "```json\n{\"n\":7}\n```"
	}
	kind, answer := l.dialect(text)
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(answer)),
	}, nil
}

// asJSON returns a text as a JSON string.
func asJSON(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// learners are a request of each dialect, an answer, and the request that is sent when two answers were wrong: with the
// second of them (A) and what is wrong with it (E).
func learners() map[string]struct {
	line, next string
	answer     func(text string) (string, string)
} {
	type l = struct {
		line, next string
		answer     func(text string) (string, string)
	}
	whole := func(format string) func(string) (string, string) {
		return func(text string) (string, string) { return "application/json", fmt.Sprintf(format, asJSON(text)) }
	}
	return map[string]l{
		"chat": {`{"custom_id":"x","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"q"}],"n":1}}`,
			`{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":A},{"role":"user","content":E}],"n":1}`,
			whole(`{"choices":[{"message":{"content":%s},"finish_reason":"stop"}]}`)},
		"a stream of chat": {`{"custom_id":"x","url":"/v1/chat/completions","body":{"stream":true,"model":"m","messages":[]}}`,
			`{"stream":true,"model":"m","messages":[{"role":"assistant","content":A},{"role":"user","content":E}],"stream_options":{"include_usage":true}}`,
			func(text string) (string, string) {
				return "text/event-stream", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":" + asJSON(text[:3]) + "}}]}\n\n" +
					"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":" + asJSON(text[3:]) + "},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
			}},
		"tool calls of chat": {`{"custom_id":"x","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}`,
			`{"model":"m","messages":[{"role":"assistant","content":A},{"role":"user","content":E}]}`,
			whole(`{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"arguments":%s}}]},"finish_reason":"tool_calls"}]}`)},
		"messages": {`{"custom_id":"x","params":{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"q"}]}}`,
			`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":A},{"role":"user","content":E}]}`,
			whole(`{"type":"message","content":[{"type":"text","text":%s}],"stop_reason":"end_turn"}`)},
		"responses": {`{"custom_id":"x","url":"/v1/responses","body":{"model":"m","input":"q"}}`,
			`{"model":"m","input":[{"role":"user","content":"q"},{"role":"assistant","content":A},{"role":"user","content":E}]}`,
			whole(`{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":%s}]}]}`)},
		"Gemini": {`{"key":"x","request":{"model":"m","contents":[{"parts":[{"text":"q"}]}]}}`,
			`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":A}]},{"role":"user","parts":[{"text":E}]}]}`,
			whole(`{"candidates":[{"content":{"parts":[{"text":%s}],"role":"model"},"finishReason":"STOP"}]}`)},
		"a prompt": {`{"custom_id":"x","prompt":"q","model":"m"}`,
			`{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":A},{"role":"user","content":E}]}`,
			whole(`{"choices":[{"message":{"content":%s}}]}`)},
	}
}

func TestFeedbackGoesOnWithTheConversation(t *testing.T) {
	const fault = "Your answer was not accepted: the response does not match the schema: at /n: got string, want integer\n" +
		"Answer again, in full, with this corrected, and say nothing about the correction."
	rules := batch.Rules{Schema: schema(t, `{"properties":{"n":{"type":"integer"}}}`)}
	for name, l := range learners() {
		t.Run(name, func(t *testing.T) {
			var hashes [2]string
			for i, feedback := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					f := newFiles(t, l.line)
					rt := &learner{dialect: l.answer, wrong: 2}
					cfg := f.config(t, rt)
					cfg.Check, cfg.Feedback = rules.Check, feedback
					rep, err := run(t, cfg)
					if err != nil || rep.Done != 1 || rep.Attempts != 3 || len(rt.sent) != 3 {
						t.Fatalf("done %d with %d attempts, error %v", rep.Done, rep.Attempts, err)
					}
					want := rt.sent[0]
					if feedback {
						want = strings.NewReplacer("A", asJSON(`{"n":"\"2\""}`), "E", asJSON(fault)).Replace(l.next)
					}
					if rt.sent[2] != want {
						t.Errorf("sent\n%s\nwant\n%s", rt.sent[2], want)
					}
					hashes[i] = f.results(t)["x"].Sluice.Input
				})
			}
			if hashes[0] != hashes[1] || hashes[0] == "" {
				t.Errorf("hashes %v: the request is the line's", hashes)
			}
		})
	}
}

func TestFeedbackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(1))
		long := strings.Repeat("ä", 1<<20)
		rt := &stub{answer: `{"choices":[{"message":{"content":"` + long + `"}}]}`}
		cfg := f.config(t, rt)
		cfg.Check, cfg.Feedback = func(string, provider.Endpoint, []byte) error { return errors.New(long) }, true
		rep, err := run(t, cfg)
		if err != nil || rep.Report.Failed != 1 || rep.Kinds[sluice.InvalidOutput] != 1 || len(rt.sent) != 6 {
			t.Fatalf("%+v, error %v", rep.Report, err)
		}
		for _, s := range rt.sent {
			if len(s.body) > 40<<10 || !json.Valid([]byte(s.body)) {
				t.Errorf("%d bytes were sent", len(s.body))
			}
		}
		// The last answer is recorded, whole.
		r := f.results(t)["1"]
		if r.Error == nil || r.Error.Code != "invalid_output" || !bytes.Contains(r.Response.Body, []byte(long)) {
			t.Errorf("recorded %+v", r.Error)
		}
	})
}

func TestWhatCannotGoOnIsSentAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, `{"custom_id":"x","url":"/v1/responses","body":{"model":"m","prompt":{"id":"p"}}}`)
		rt := &learner{dialect: learners()["responses"].answer, wrong: 1}
		cfg := f.config(t, rt)
		cfg.Check, cfg.Feedback = batch.Rules{Schema: schema(t, `{"properties":{"n":{"type":"integer"}}}`)}.Check, true
		if rep, err := run(t, cfg); err != nil || rep.Done != 1 || len(rt.sent) != 2 || rt.sent[0] != rt.sent[1] {
			t.Errorf("sent %q, error %v", rt.sent, err)
		}
	})
}
