package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestFormsOfInput(t *testing.T) {
	fills := func(c *batch.Config) {
		c.Model, c.System, c.MaxTokens = "m", "Be brief.", 9
		c.Set = map[string]json.RawMessage{"temperature": json.RawMessage(" 0.5 "), "seed": json.RawMessage("1")}
	}
	model := func(c *batch.Config) { c.Model = "m" }
	as := func(name string) func(*batch.Config) {
		return func(c *batch.Config) { c.Provider, _ = provider.Lookup(name) }
	}
	tests := []struct {
		name, line         string
		cfg                func(*batch.Config)
		id, path, wantBody string
	}{
		{"an OpenAI batch line",
			`{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}`,
			nil, "a", "/v1/chat/completions", `{"model": "m", "messages": []}`},
		{"one for responses", `{"custom_id":"a","url":"/v1/responses","body":{"model":"m","input":"x"}}`,
			nil, "a", "/v1/responses", `{"model":"m","input":"x"}`},
		{"one for embeddings, its members in another order", `{"body":{"input":"x","model":"m"},"url":"/v1/embeddings","method":"POST","custom_id":"ä\n"}`,
			nil, "ä\n", "/v1/embeddings", `{"input":"x","model":"m"}`},
		{"one without a model, which is given", `{"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[]}}`,
			model, "a", "/v1/chat/completions", `{"messages":[],"model":"m"}`},
		{"one with an empty body, and the model given", `{"custom_id":"a","url":"/v1/chat/completions","body":{}}`,
			model, "a", "/v1/chat/completions", `{"model":"m"}`},
		{"an Anthropic batch line", `{"custom_id":"a","params":{"model":"m","max_tokens":5,"messages":[]}}`,
			nil, "a", "/v1/messages", `{"model":"m","max_tokens":5,"messages":[]}`},
		{"a body", `{"model":"m","messages":[]}`, nil, "1", "/v1/chat/completions", `{"model":"m","messages":[]}`},
		{"a body with an id", `{"messages":[], "custom_id":"b" ,"model":"m"}`, nil, "b", "/v1/chat/completions", `{"messages":[],"model":"m"}`},
		{"a body for responses", `{"model":"m","input":"x"}`, nil, "1", "/v1/responses", `{"model":"m","input":"x"}`},
		{"a body for embeddings", `{"model":"text-embedding-3-small","input":"x"}`, nil, "1", "/v1/embeddings", `{"model":"text-embedding-3-small","input":"x"}`},
		{"a body for Anthropic", `{"model":"claude-x","max_tokens":1,"messages":[]}`, as("anthropic"), "1", "/v1/messages", `{"model":"claude-x","max_tokens":1,"messages":[]}`},
		{"a prompt", `{"prompt":"Say \"hi\""}`, model, "1", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"Say \"hi\""}]}`},
		{"a prompt that is completed", `{"prompt":"hi","custom_id":7}`, fills, "7", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}],"seed":1,"temperature":0.5,"max_tokens":9}`},
		{"a prompt that says it all itself", `{"prompt":"hi","system":"S","model":"n","temperature":0,"seed":2,"max_completion_tokens":3}`, fills, "1", "/v1/chat/completions",
			`{"model":"n","messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"}],"temperature":0,"seed":2,"max_completion_tokens":3}`},
		{"a prompt for OpenAI, whose bound has a new name", `{"prompt":"hi"}`, func(c *batch.Config) { fills(c); as("openai")(c); c.System, c.Set = "", nil }, "1", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":9}`},
		{"a prompt for Anthropic", `{"prompt":"hi"}`, func(c *batch.Config) { fills(c); as("anthropic")(c); c.Set = nil }, "1", "/v1/messages",
			`{"model":"m","system":"Be brief.","messages":[{"role":"user","content":"hi"}],"max_tokens":9}`},
		{"a prompt for Anthropic, which wants a bound", `{"prompt":"hi","model":"m"}`, as("anthropic"), "1", "/v1/messages",
			`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4096}`},
		{"a prompt to embed", `{"prompt":"hi","model":"nomic-embed"}`, fills, "1", "/v1/embeddings", `{"model":"nomic-embed","input":"hi","seed":1,"temperature":0.5}`},
		{"plain text", "Why is the sky \"blue\"?", model, "1", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"Why is the sky \"blue\"?"}]}`},
		{"a byte order mark and CRLF", "\ufeff{\"model\":\"m\",\"messages\":[]}\r", nil, "1", "/v1/chat/completions", `{"model":"m","messages":[]}`},
		{"a null id", `{"custom_id":null,"model":"m","messages":[]}`, nil, "1", "/v1/chat/completions", `{"model":"m","messages":[]}`},
		{"escaped keys", `{"custom\u005fid":"e","model":"m","messages":[]}`, nil, "e", "/v1/chat/completions", `{"model":"m","messages":[]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, rt := newFiles(t, tt.line+"\n\n  \r\n"), &stub{}
			cfg := f.config(t, rt)
			if tt.cfg != nil {
				tt.cfg(&cfg)
			}
			cfg.BaseURL = "http://test.invalid/v1"
			if cfg.Provider.Name == "anthropic" {
				cfg.BaseURL = "http://test.invalid"
			}
			rep, err := run(t, cfg)
			if err != nil || rep.Total != 1 {
				t.Fatalf("total %d, error %v", rep.Total, err)
			}
			if got, want := rt.sent[0], "http://test.invalid"+tt.path; got.url != want || got.body != tt.wantBody {
				t.Errorf("sent %s %s\nwant %s %s", got.url, got.body, want, tt.wantBody)
			}
			if !json.Valid([]byte(rt.sent[0].body)) {
				t.Error("the body is not JSON")
			}
			if _, ok := f.results(t)[tt.id]; !ok {
				t.Errorf("results %v, want one of %q", f.results(t), tt.id)
			}
		})
	}
}

func TestBadLinesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	const good = `{"custom_id":"good","model":"m","messages":[]}` + "\n"
	tests := []struct{ name, line, want string }{
		{"broken JSON", `{"model":"m","messages":[}`, "broken JSON at byte 26"},
		{"two values", `{"model":"m","messages":[]} {}`, "broken JSON at byte 29"},
		{"cut short", `{"model":"m","messages":["`, "broken JSON"},
		{"a control character", "{\"model\":\"m\x01\",\"messages\":[]}", "broken JSON at byte 12"},
		{"not UTF-8", "{\"model\":\"m\",\"messages\":[\"\xff\"]}", "UTF-8"},
		{"an unknown url", `{"url":"/v1/audio","body":{"model":"m"}}`, "unknown url"},
		{"an address", `{"url":"https://evil.example/v1/chat/completions","body":{"model":"m"}}`, "contains a host"},
		{"no url", `{"body":{"model":"m"}}`, "url is missing"},
		{"another method", `{"method":"GET","url":"/v1/responses","body":{"model":"m"}}`, `method is "GET"`},
		{"no body", `{"url":"/v1/responses"}`, "body is missing"},
		{"a body that is no object", `{"url":"/v1/responses","body":[]}`, "body is not an object"},
		{"no params", `{"params":"x"}`, "params is not an object"},
		{"body and params", `{"params":{"model":"m"},"body":{"model":"m"}}`, "the item has both fields body and params"},
		{"no model", `{"url":"/v1/responses","body":{"input":"x"}}`, "model is missing"},
		{"a model beside the body", `{"url":"/v1/responses","model":"m","body":{"input":"x"}}`, `the field model ("m") is not inside the field body`},
		{"a model beside params", `{"params":{"messages":[]},"model":"m"}`, `the field model ("m") is not inside the field params`},
		{"a model that is no name", `{"model":4,"messages":[]}`, "model is 4"},
		{"an empty model", `{"model":"","messages":[]}`, `model is ""`},
		{"only a model", `{"model":"m"}`, "no messages, input or contents"},
		{"nothing known", `{"question":"x"}`, "contains no request"},
		{"an array", `[1]`, "the line is not a JSON object, and no model is configured for plain text"},
		{"plain text without a model", `hello`, "no model is configured for plain text"},
		{"a prompt that is no text", `{"prompt":["x"],"model":"m"}`, "prompt is not a string"},
		{"an empty id", `{"custom_id":"","model":"m","messages":[]}`, `custom_id is ""`},
		{"an id that is no text", `{"custom_id":{},"model":"m","messages":[]}`, "custom_id is {}"},
		{"an id twice", `{"custom_id":"good","model":"n","messages":[]}`, `custom_id "good" is also in line 1`},
		{"a missing id that is taken", `{"custom_id":"4","model":"n","messages":[]}` + "\n" + `{"model":"n","messages":[]}`, `custom_id "4" is also in line 3`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, rt := newFiles(t, good+"\n"+tt.line+"\n"), &stub{}
			_, err := run(t, f.config(t, rt))
			in, ok := errors.AsType[*batch.InputError](err)
			if !ok || in.Line != 3+strings.Count(tt.line, "\n") || !strings.Contains(in.Problem, tt.want) {
				t.Fatalf("error %v, want one of line 3 that says %q", err, tt.want)
			}
			if !strings.HasPrefix(err.Error(), f.in+" line ") {
				t.Errorf("error %q does not name the file and the line", err)
			}
			if rt.count() > 0 {
				t.Errorf("%d requests were sent", rt.count())
			}
			if left, _ := filepath.Glob(f.out + "*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestBadLinesAreQuotedWithoutKeys(t *testing.T) {
	const key = "sk-proj-abcdefgh0123456789"
	for _, line := range []string{
		`{"method":"sk-proj-abcdefgh0123456789","url":"/v1/responses","body":{}}`, `{"url":"/v1/sk-proj-abcdefgh0123456789","body":{}}`,
		`{"model":["sk-proj-abcdefgh0123456789"],"messages":[]}`, `{"custom_id":["sk-proj-abcdefgh0123456789"],"prompt":"x"}`,
		`{"model":"sk-proj-abcdefgh0123456789","messages":[]}`, `{"model":"sk\u002dproj\u002dabcdefgh0123456789","messages":[]}`,
		`{"url":"/v1beta/models/x:generateContent","body":{"model":"sk-proj-abcdefgh0123456789"}}`,
	} {
		f := newFiles(t, line+"\n")
		cfg := f.config(t, &stub{})
		cfg.Provider = provider.Provider{}
		_, err := run(t, cfg)
		in, ok := errors.AsType[*batch.InputError](err)
		if !ok || strings.Contains(in.Problem+in.Hint, key[8:]) || !strings.Contains(in.Problem, "***") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestModelOfNoKnownProvider(t *testing.T) {
	f := newFiles(t, `{"model":"llama-9","messages":[]}`+"\n"+`{"model":"gpt-4o","messages":[]}`)
	cfg := f.config(t, &stub{})
	cfg.Provider = provider.Provider{}
	_, err := run(t, cfg)
	if in, ok := errors.AsType[*batch.InputError](err); !ok || in.Line != 1 || !strings.Contains(in.Hint, "--provider") {
		t.Errorf("error %v, want one of line 1 with a hint", err)
	}
	cfg.BaseURL = "http://here.invalid/v1"
	var accounts []string
	scheduler := cfg.Scheduler
	cfg.Scheduler = func(p provider.Provider) (*sluice.Scheduler, error) {
		accounts = append(accounts, p.Name)
		return scheduler(p)
	}
	if rep, err := run(t, cfg); err != nil || rep.Done != 2 || len(accounts) != 2 {
		t.Errorf("done %d, accounts %v, error %v", rep.Done, accounts, err)
	}
	f.input(t, `{"custom_id":"a","url":"/v1/chat/completions","body":{"model":"claude-3","messages":[]}}`)
	cfg.BaseURL, cfg.Output = "", f.out+"2"
	if _, err := run(t, cfg); err == nil || !strings.Contains(err.Error(), "anthropic does not support the endpoint /v1/chat/completions") {
		t.Errorf("error %v", err)
	}
}

func TestTheFirstProblemsAreNamedAndTheOthersCounted(t *testing.T) {
	f := newFiles(t, strings.Repeat("{\n", 25)+"7\n")
	_, err := run(t, f.config(t, &stub{}))
	all, ok := errors.AsType[*batch.InputErrors](err)
	if !ok || len(all.Problems) != 2 || all.Problems[0].More != 24 || all.Problems[1].Line != 26 {
		t.Fatalf("error %v", err)
	}
}

func TestLinesMayHave64MiB(t *testing.T) {
	suite.FullOnly(t)
	dir := t.TempDir()
	f := files{filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")}
	write := func(size int) {
		file, err := os.Create(f.in)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		head, tail := `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`
		io.WriteString(file, `{"model":"m","messages":[]}`+"\n"+head)
		file.Write(bytes.Repeat([]byte("x"), size-len(head)-len(tail)))
		io.WriteString(file, tail+"\n"+`{"model":"m","messages":[]}`)
	}
	write(64 << 20)
	rt := &sizes{}
	cfg := f.config(t, rt)
	cfg.Workers = 1
	if rep, err := run(t, cfg); err != nil || rep.Done != 3 || rt.most != 64<<20 {
		t.Fatalf("64 MiB: done %d, at most %d bytes, error %v", rep.Done, rt.most, err)
	}
	write(65 << 20)
	_, err := run(t, cfg)
	if in, ok := errors.AsType[*batch.InputError](err); !ok || in.Line != 2 || !strings.Contains(in.Problem, "64 MiB") {
		t.Errorf("65 MiB: error %v, want one of line 2", err)
	}
}

// sizes answers and remembers only how large the largest request was. It is for one call at a time.
type sizes struct{ most int64 }

func (s *sizes) RoundTrip(r *http.Request) (*http.Response, error) {
	s.most = max(s.most, r.ContentLength)
	r.Body.Close()
	r.Body = nil
	return (&stub{}).RoundTrip(r)
}

func TestStandardInputIsCheckedAsItArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, "")
		server := newSim(t, sim.Config{Latency: time.Second})
		cfg := f.config(t, server.Transport())
		r, w := io.Pipe()
		cfg.Input, cfg.Stdin = "-", r
		go func() {
			for i := range 4 {
				fmt.Fprintln(w, chat(i))
			}
			time.Sleep(500 * time.Millisecond)
			fmt.Fprintf(w, "{]\n")
			w.Close()
		}()
		rep, err := run(t, cfg)
		in, ok := errors.AsType[*batch.InputError](err)
		if !ok || in.Line != 5 || !strings.HasPrefix(err.Error(), "standard input line 5: ") {
			t.Errorf("error %v, want one of line 5", err)
		}
		if rep.Done != 4 || len(f.results(t)) != 4 {
			t.Errorf("done %d: what was open must be recorded", rep.Done)
		}
	})
}

func TestStandardInputDoesNotHoldADrainUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, "")
		cfg := f.config(t, newSim(t, sim.Config{}).Transport())
		r, w := io.Pipe()
		defer w.Close()
		cfg.Input, cfg.Stdin = "-", r
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		go fmt.Fprintln(w, chat(1))
		time.AfterFunc(time.Minute, b.Drain)
		start := time.Now()
		rep, err := b.Run(context.Background())
		if took := time.Since(start); err == nil || rep.Done != 1 || took != time.Minute {
			t.Errorf("%+v after %v, error %v", rep, took, err)
		}
	})
}

func TestStandardInputResumes(t *testing.T) {
	lines := func(ids ...int) string {
		var b strings.Builder
		for _, i := range ids {
			fmt.Fprintln(&b, chat(i))
		}
		return b.String()
	}
	f, rt := newFiles(t, ""), &stub{}
	cfg := f.config(t, rt)
	cfg.Input = "-"
	for _, step := range []struct {
		ids           []int
		already, done int
	}{{[]int{1, 2}, 0, 2}, {[]int{1, 2, 3}, 2, 1}, {[]int{3, 4}, 1, 1}} {
		cfg.Stdin = strings.NewReader(lines(step.ids...))
		rep, err := run(t, cfg)
		if err != nil || rep.Already != step.already || rep.Done != step.done {
			t.Fatalf("%v: already %d, done %d, error %v", step.ids, rep.Already, rep.Done, err)
		}
	}
	if len(f.results(t)) != 4 || rt.count() != 4 {
		t.Errorf("%d results, %d sent", len(f.results(t)), rt.count())
	}
	changed := strings.NewReader(`{"custom_id":"5","model":"m","messages":[]}` + "\n" + `{"custom_id":"3","model":"n","messages":[]}`)
	cfg.Stdin = changed
	_, err := run(t, cfg)
	if c, ok := errors.AsType[*batch.ChangedError](err); !ok || c.Number != 2 {
		t.Errorf("changed: error %v", err)
	}
	cfg.Stdin, cfg.Changed = strings.NewReader(lines(5)+`{"custom_id":"3","model":"n","messages":[]}`), batch.ChangedKeep
	if rep, err := run(t, cfg); err != nil || rep.Already+rep.Done != 2 {
		t.Errorf("kept: %+v, error %v", rep, err)
	}
	cfg.Changed = batch.ChangedRedo
	if _, err := run(t, cfg); err == nil {
		t.Error("standard input cannot redo changed lines, but nothing said so")
	}
}

func TestFieldErrorsNameTheField(t *testing.T) {
	f := newFiles(t, chat(1))
	for field, change := range map[string]func(*batch.Config){
		"Input":     func(c *batch.Config) { c.Input = "" },
		"Stdin":     func(c *batch.Config) { c.Input = "-" },
		"Output":    func(c *batch.Config) { c.Output = "" },
		"Scheduler": func(c *batch.Config) { c.Scheduler = nil },
		"MaxTokens": func(c *batch.Config) { c.MaxTokens = -1 },
		"Limit":     func(c *batch.Config) { c.Limit = -1 },
		"Timeout":   func(c *batch.Config) { c.Timeout = -1 },
		"Set":       func(c *batch.Config) { c.Set = map[string]json.RawMessage{"x": json.RawMessage("{")} },
		"BaseURL":   func(c *batch.Config) { c.BaseURL = "ftp://x" },
		"Changed":   func(c *batch.Config) { c.Changed = 9 },
		"Sync":      func(c *batch.Config) { c.Sync = 9 },
	} {
		cfg := f.config(t, &stub{})
		change(&cfg)
		_, err := batch.Open(cfg)
		if c, ok := errors.AsType[*batch.FieldError](err); !ok || c.Field != field {
			t.Errorf("%s: error %v", field, err)
		}
	}
	for _, cfg := range []batch.Config{
		{Input: f.in, Output: f.in}, {Input: f.in + "x", Output: f.out}, {Input: filepath.Dir(f.in), Output: f.out},
	} {
		usual := f.config(t, &stub{})
		usual.Input, usual.Output = cfg.Input, cfg.Output
		_, err := batch.Open(usual)
		if _, ok := errors.AsType[*batch.FieldError](err); !ok {
			t.Errorf("input %s, output %s: error %v", cfg.Input, cfg.Output, err)
		}
	}
	if b, _ := os.ReadFile(f.in); string(b) != chat(1) {
		t.Error("the input was damaged")
	}
}

func TestModelsAreRecognisedByTheGivenRegistry(t *testing.T) {
	house, err := provider.Published().With(provider.Row{Name: "house", BaseURL: new("http://house.invalid/v1"), Models: []string{"house-"}})
	if err != nil {
		t.Fatal(err)
	}
	var met []string
	cfg := newFiles(t, `{"model":"house-7b","messages":[]}`).config(t, &stub{})
	cfg.Provider, cfg.Registry = provider.Provider{}, house
	scheduler := cfg.Scheduler
	cfg.Scheduler = func(p provider.Provider) (*sluice.Scheduler, error) {
		met = append(met, p.Name)
		return scheduler(p)
	}
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if len(met) != 1 || met[0] != "house" {
		t.Errorf("%q", met)
	}
}

func TestAnUnknownModelIsAnsweredWithWhatMayBeMeant(t *testing.T) {
	for line, want := range map[string][2]string{
		`{"model":"gtp-4o","messages":[]}`:             {`the provider of model "gtp-4o" is unknown: similar model IDs begin with gpt-`, "--provider"},
		`{"model":"meta-llama/Llama-3","messages":[]}`: {`the provider of model "meta-llama/Llama-3" is unknown`, "several hosts"},
		`{"model":"sim-small","messages":[]}`:          {`the provider of model "sim-small" is unknown`, "--provider sim"},
		`{"model":"something-else","messages":[]}`:     {`the provider of model "something-else" is unknown`, "--base-url"},
		`{"model":"gemini-2.5-flash","messages":[]}`:   {"gemini does not support the endpoint /v1/chat/completions", "openai-compatible"},
	} {
		cfg := newFiles(t, line).config(t, &stub{})
		cfg.Provider = provider.Provider{}
		_, err := batch.Open(cfg)
		wrong, ok := errors.AsType[*batch.InputError](err)
		if !ok || !strings.Contains(err.Error(), want[0]) || !strings.Contains(wrong.Hint, want[1]) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
