package batch_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

const geminiAnswer = `{"candidates":[{"content":{"parts":[{"text":"yes"}],"role":"model"},"finishReason":"STOP","index":0}],` +
	`"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2,"thoughtsTokenCount":30,"totalTokenCount":37},"modelVersion":"gemini-2.5-flash"}`

// geminis makes cfg one for Gemini.
func geminis(c *batch.Config) {
	c.Provider, _ = provider.Lookup("gemini")
	c.Model = "gemini-2.5-flash"
}

func TestFormsOfInputForGemini(t *testing.T) {
	fills := func(c *batch.Config) {
		geminis(c)
		c.System, c.MaxTokens = "Be brief.", 9
		c.Set = map[string]json.RawMessage{
			"safetySettings": json.RawMessage("[]"), "generationConfig.temperature": json.RawMessage(" 0.2 "),
			"generationConfig.thinkingConfig.thinkingBudget": json.RawMessage("0"),
		}
	}
	recognised := func(c *batch.Config) { c.Provider = provider.Provider{} }
	const (
		flash  = "/models/gemini-2.5-flash:generateContent"
		stream = "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
		embed  = "/models/gemini-embedding-001:embedContent"
		hi     = `"contents":[{"role":"user","parts":[{"text":"hi"}]}]`
	)
	tests := []struct {
		name, line         string
		cfg                func(*batch.Config)
		id, path, wantBody string
	}{
		{"a prompt", `{"prompt":"hi"}`, geminis, "1", flash, `{` + hi + `}`},
		{"a prompt whose model is recognised", `{"prompt":"hi","model":"models/gemini-2.5-flash"}`, recognised, "1", flash, `{` + hi + `}`},
		{"a prompt that is completed", `{"prompt":"hi","custom_id":"a"}`, fills, "a", flash, `{` + hi +
			`,"generationConfig":{"temperature":0.2,"thinkingConfig":{"thinkingBudget":0},"maxOutputTokens":9},"safetySettings":[],"systemInstruction":{"parts":[{"text":"Be brief."}]}}`},
		{"a prompt that says it all itself", `{"prompt":"hi","system":"S","generationConfig":{"maxOutputTokens":3,"temperature":1,"thinkingConfig":7},"safetySettings":[1]}`, fills, "1", flash,
			`{` + hi + `,"generationConfig":{"maxOutputTokens":3,"temperature":1,"thinkingConfig":7},"safetySettings":[1],"systemInstruction":{"parts":[{"text":"S"}]}}`},
		{"a prompt that says a part of it", `{"prompt":"hi","systemInstruction":{"parts":[]},"generationConfig":{"thinkingConfig":{"includeThoughts":true}}}`, fills, "1", flash,
			`{` + hi + `,"systemInstruction":{"parts":[]},"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingBudget":0},"temperature":0.2,"maxOutputTokens":9},"safetySettings":[]}`},
		{"a prompt whose bound is set", `{"prompt":"hi"}`, func(c *batch.Config) {
			fills(c)
			c.System, c.Set = "", map[string]json.RawMessage{"generationConfig.maxOutputTokens": json.RawMessage("4")}
		}, "1", flash, `{` + hi + `,"generationConfig":{"maxOutputTokens":4}}`},
		{"plain text", "hi", geminis, "1", flash, `{` + hi + `}`},
		{"plain text to embed", "hi", func(c *batch.Config) { fills(c); c.Model, c.System, c.Set = "gemini-embedding-001", "", nil }, "1", embed,
			`{"content":{"parts":[{"text":"hi"}]}}`},
		{"a line of a Gemini batch", `{"key":"k", "request": {"contents": [], "generation_config": {"temperature": 0.7}}}`, geminis, "k", flash,
			`{"contents": [], "generation_config": {"temperature": 0.7}}`},
		{"one with its model", `{"request":{"contents":[],"model":"models/gemini-2.5-flash","tools":[]},"key":"k"}`, recognised, "k", flash, `{"contents":[],"tools":[]}`},
		{"one with its model beside the request", `{"key":"k","model":"models/gemini-2.5-pro","request":{"contents":[]}}`, geminis, "k",
			"/models/gemini-2.5-pro:generateContent", `{"contents":[]}`},
		{"one with its model in both places", `{"key":"k","model":"gemini-2.5-pro","request":{"model":"models/gemini-2.5-pro","contents":[]}}`, recognised, "k",
			"/models/gemini-2.5-pro:generateContent", `{"contents":[]}`},
		{"one without a key", `{"request":{"contents":[]}}`, geminis, "1", flash, `{"contents":[]}`},
		{"one with a custom_id", `{"custom_id":"c","key":"k","request":{"contents":[]}}`, geminis, "c", flash, `{"contents":[]}`},
		{"one to embed", `{"key":"k","request":{"model":"models/gemini-embedding-001","content":{"parts":[]}}}`, geminis, "k", embed, `{"content":{"parts":[]}}`},
		{"a body", ` {"contents":[],"systemInstruction":{}} `, geminis, "1", flash, `{"contents":[],"systemInstruction":{}}`},
		{"a body with a model and an id", `{"model":"gemini-2.5-flash","contents":[],"custom_id":"b"}`, recognised, "b", flash, `{"contents":[]}`},
		{"a body to embed", `{"model":"gemini-embedding-001","content":{"parts":[]}}`, recognised, "1", embed, `{"content":{"parts":[]}}`},
		{"an OpenAI batch line", `{"custom_id":"a","method":"POST","url":"/v1beta/models/gemini-2.5-flash:generateContent","body":{"contents":[]}}`, recognised, "a", flash, `{"contents":[]}`},
		{"one that says its model twice", `{"custom_id":"a","url":"/v1beta/models/gemini-2.5-flash:generateContent","body":{"model":"models/gemini-2.5-flash"}}`, recognised, "a", flash, `{}`},
		{"one of a tuned model", `{"custom_id":"a","url":"/v1beta/tunedModels/mine:generateContent","body":{"contents":[]}}`, geminis, "a", "/tunedModels/mine:generateContent", `{"contents":[]}`},
		{"one that streams", `{"custom_id":"a","url":"/v1beta/models/gemini-2.5-flash:streamGenerateContent","body":{"contents":[]}}`, geminis, "a", stream, `{"contents":[]}`},
		{"one that streams, as documented", `{"custom_id":"a","url":"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse","body":{"contents":[]}}`, geminis, "a", stream, `{"contents":[]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, rt := newFiles(t, tt.line+"\n"), &stub{answer: geminiAnswer}
			cfg := f.config(t, rt)
			tt.cfg(&cfg)
			rep, err := run(t, cfg)
			if err != nil || rep.Done != 1 {
				t.Fatalf("done %d, error %v", rep.Done, err)
			}
			if got, want := rt.sent[0], "https://generativelanguage.googleapis.com/v1beta"+tt.path; got.url != want || got.body != tt.wantBody {
				t.Errorf("sent %s %s\nwant %s %s", got.url, got.body, want, tt.wantBody)
			}
			r, ok := f.results(t)[tt.id]
			if !ok {
				t.Fatalf("results %v, want one of %q", f.results(t), tt.id)
			}
			if string(r.Response.Body) != geminiAnswer && !strings.Contains(tt.path, "stream") || r.Sluice.Kind != "ok" || r.Sluice.OutputTokens != 32 && !strings.Contains(tt.path, "embed") {
				t.Errorf("recorded %+v %s", r, r.Response.Body)
			}
		})
	}
}

func TestBadLinesForGeminiAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, provider, line, want string }{
		{"a model that leads elsewhere", "gemini", `{"model":"../files/x","contents":[]}`, "is not a valid model ID of Gemini"},
		{"one with a query", "gemini", `{"prompt":"x","model":"gemini-2.5-flash?key=1"}`, "is not a valid model ID of Gemini"},
		{"one of another host", "gemini", `{"request":{"model":"//evil.example/x","contents":[]}}`, "is not a valid model ID of Gemini"},
		{"a url that leads elsewhere", "gemini", `{"url":"/v1beta/models/x/../y:generateContent","body":{"contents":[]}}`, "is not a valid model ID of Gemini"},
		{"an address", "gemini", `{"url":"https://evil.example/v1beta/models/x:generateContent","body":{"contents":[]}}`, "contains a host"},
		{"two models", "gemini", `{"url":"/v1beta/models/x:generateContent","body":{"model":"y","contents":[]}}`, `the line names two models: "x", and "y" in the body`},
		{"another model beside the request", "gemini", `{"key":"k","model":"gemini-2.5-pro","request":{"model":"gemini-2.5-flash","contents":[]}}`, "the line names two models"},
		{"a model beside the request that is none", "gemini", `{"key":"k","model":7,"request":{"contents":[]}}`, "model is 7"},
		{"a model of two kinds", "gemini", `{"url":"/v1beta/models/x:generateContent","body":{"model":["x"],"contents":[]}}`, `the line names two models: "x", and ["x"] in the body`},
		{"no model", "gemini", `{"key":"k","request":{"contents":[]}}`, "the model is missing"},
		{"a request that is no object", "gemini", `{"key":"k","request":[]}`, "request is not an object"},
		{"a key that is no text", "gemini", `{"key":{},"request":{"contents":[]}}`, "key is {}"},
		{"a request beside a body", "gemini", `{"url":"/v1/responses","body":{"model":"m"},"request":{"model":"n"}}`, "the item has the field request in addition to body or params"},
		{"a request beside params", "gemini", `{"params":{"model":"m"},"request":{"model":"n"}}`, "the item has the field request in addition to body or params"},
		{"messages", "gemini", `{"model":"gemini-2.5-flash","messages":[]}`, "gemini does not support the endpoint /v1/chat/completions"},
		{"an input", "gemini", `{"model":"gemini-embedding-001","input":"x"}`, "gemini does not support the endpoint /v1/responses"},
		{"a system that is no text", "gemini", `{"prompt":"x","model":"m","system":{"parts":[]}}`, "system is not a string"},
		{"for openai", "openai", `{"model":"gpt-4o","contents":[]}`, "openai does not support the endpoint /v1beta/models/{model}:generateContent"},
		{"for anthropic", "anthropic", `{"key":"k","request":{"model":"m","contents":[]}}`, "anthropic does not support the endpoint /v1beta/models/{model}:generateContent"},
		{"a content that is none", "sim", `{"model":"m","content":"x"}`, "no messages, input or contents"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, rt := newFiles(t, tt.line+"\n"), &stub{}
			cfg := f.config(t, rt)
			cfg.Provider, _ = provider.Lookup(tt.provider)
			_, err := run(t, cfg)
			in, ok := errors.AsType[*batch.InputError](err)
			if !ok || in.Line != 1 || !strings.Contains(in.Problem, tt.want) || rt.count() > 0 {
				t.Errorf("error %v, %d sent, want %q", err, rt.count(), tt.want)
			}
		})
	}
}

// The same contents for two models, streamed or not, are different requests: the body alone does not tell.
func TestTheModelInThePathTellsRequestsOfGeminiApart(t *testing.T) {
	f := newFiles(t, `{"key":"a","request":{"contents":[]}}`+"\n")
	cfg := f.config(t, &stub{answer: geminiAnswer})
	geminis(&cfg)
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if rep, err := run(t, cfg); err != nil || rep.Already != 1 {
		t.Errorf("the same again: %+v, %v", rep, err)
	}
	cfg.Model = "models/gemini-2.5-flash"
	if rep, err := run(t, cfg); err != nil || rep.Already != 1 {
		t.Errorf("the same by its long name: %+v, %v", rep, err)
	}
	cfg.Model = "gemini-2.5-pro"
	if _, err := run(t, cfg); !isChanged(err) {
		t.Errorf("another model: %v", err)
	}
	f.input(t, `{"custom_id":"a","url":"/v1beta/models/gemini-2.5-flash:streamGenerateContent","body":{"contents":[]}}`+"\n")
	if _, err := run(t, cfg); !isChanged(err) {
		t.Errorf("streamed: %v", err)
	}
}

// A stream is recorded as the message that it amounts to, and the lane is the model, however it is called.
func TestStreamsOfGeminiAreRecordedWhole(t *testing.T) {
	f := newFiles(t, `{"custom_id":"a","url":"/v1beta/models/gemini-2.5-flash:streamGenerateContent","body":{"contents":[]}}`+"\n"+
		`{"custom_id":"b","model":"models/gemini-2.5-flash","contents":[]}`+"\n")
	rt := tripper(func(r *http.Request) (*http.Response, error) {
		kind, answer := "application/json", geminiAnswer
		if strings.Contains(r.URL.Path, ":stream") {
			kind = "text/event-stream"
			answer = `data: {"candidates":[{"content":{"parts":[{"text":"y"}],"role":"model"},"index":0}]}` + "\r\n\r\n" +
				"data: " + strings.Replace(geminiAnswer, "yes", "es", 1) + "\r\n\r\n"
		}
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, ContentLength: -1, Body: io.NopCloser(strings.NewReader(answer))}, nil
	})
	cfg := f.config(t, rt)
	geminis(&cfg)
	lanes := map[string]bool{}
	scheduler := cfg.Scheduler
	var s *sluice.Scheduler
	cfg.Scheduler = func(p provider.Provider) (got *sluice.Scheduler, err error) {
		got, err = scheduler(p)
		s = got
		return got, err
	}
	rep, err := run(t, cfg)
	if err != nil || rep.Done != 2 {
		t.Fatalf("%+v %v", rep, err)
	}
	for _, l := range s.Snapshot().Lanes {
		lanes[l.Lane] = true
	}
	if len(lanes) != 1 || !lanes["gemini-2.5-flash"] {
		t.Errorf("lanes %v", lanes)
	}
	for id, r := range f.results(t) {
		var a, b any
		if json.Unmarshal(r.Response.Body, &a) != nil || json.Unmarshal([]byte(geminiAnswer), &b) != nil || !strings.Contains(string(r.Response.Body), `"text":"yes"`) || r.Sluice.OutputTokens != 32 {
			t.Errorf("%s: %s %+v", id, r.Response.Body, r.Sluice)
		}
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestDotsInSettingsLeadIntoObjects(t *testing.T) {
	f, rt := newFiles(t, `{"prompt":"hi","metadata":{"a":1,"c":{}},"user":5}`+"\n"), &stub{}
	cfg := f.config(t, rt)
	cfg.Model = "m"
	cfg.Set = map[string]json.RawMessage{
		"metadata.a": json.RawMessage("2"), "metadata.b": json.RawMessage("[3]"), "metadata.c.d": json.RawMessage("4"),
		"user.y": json.RawMessage("6"), `odd"name.z`: json.RawMessage("7"),
	}
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	const want = `{"model":"m","messages":[{"role":"user","content":"hi"}],"metadata":{"a":1,"c":{"d":4},"b":[3]},"user":5,"odd\"name":{"z":7}}`
	if rt.sent[0].body != want {
		t.Errorf("sent %s\nwant %s", rt.sent[0].body, want)
	}
	for _, names := range [][]string{{"a..b"}, {".a"}, {"a."}, {""}, {"a", "a.b"}, {"a.b", "a.b.c"}, {"contents"}, {"messages.x"}} {
		cfg.Set = map[string]json.RawMessage{}
		for _, name := range names {
			cfg.Set[name] = json.RawMessage("{}")
		}
		_, err := batch.Open(cfg)
		if c, ok := errors.AsType[*batch.FieldError](err); !ok || c.Field != "Set" {
			t.Errorf("%q: %v", names, err)
		}
	}
}
