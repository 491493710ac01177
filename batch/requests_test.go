package batch_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

const mixedForms = "\ufeff" + `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"12345678"}]}}` +
	"\r\n\n" + `{"custom_id":"b","method":"POST","url":"/v1/embeddings","body":{"model":"text-embedding-3-small","input":"1234"}}` +
	"\n" + `{"prompt":"123456789012"}` + "\nplain text of a prompt"

func TestRequestsAreReadAsARunReadsThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(mixedForms), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []batch.Request{
		{Line: 1, Provider: "openai", Model: "gpt-4o", Endpoint: provider.ChatCompletions,
			Size:  len(`{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"12345678"}]}`),
			Price: provider.Request{Model: "gpt-4o", N: 1, Cost: sluice.Cost{Input: 2, MaxOutput: 50}}},
		{Line: 3, Provider: "openai", Model: "text-embedding-3-small", Endpoint: provider.Embeddings,
			Size:  len(`{"model":"text-embedding-3-small","input":"1234"}`),
			Price: provider.Request{Model: "text-embedding-3-small", N: 1, Cost: sluice.Cost{Input: 1}}},
		{Line: 4, Provider: "anthropic", Model: "claude-x", Endpoint: provider.Messages,
			Size:  len(`{"model":"claude-x","max_tokens":7,"messages":[{"role":"user","content":"123456789012"}]}`),
			Price: provider.Request{Model: "claude-x", N: 1, Cost: sluice.Cost{Input: 3, MaxOutput: 7}}},
		{Line: 5, Provider: "anthropic", Model: "claude-x", Endpoint: provider.Messages,
			Size:  len(`{"model":"claude-x","max_tokens":7,"messages":[{"role":"user","content":"plain text of a prompt"}]}`),
			Price: provider.Request{Model: "claude-x", N: 1, Cost: sluice.Cost{Input: 6, MaxOutput: 7}}},
	}
	for name, cfg := range map[string]batch.Config{
		"file":           {Input: path, Model: "claude-x", MaxTokens: 7},
		"standard input": {Input: "-", Stdin: strings.NewReader(mixedForms), Model: "claude-x", MaxTokens: 7},
		"the first two":  {Input: path, Model: "claude-x", MaxTokens: 7, Limit: 2},
	} {
		n := len(want)
		if cfg.Limit > 0 {
			n = cfg.Limit
		}
		got, err := requests(cfg)
		if err != nil {
			t.Fatal(name, err)
		}
		if len(got) != n {
			t.Fatalf("%s: %d requests, want %d", name, len(got), n)
		}
		for i, r := range got {
			if r != want[i] {
				t.Errorf("%s: %+v, want %+v", name, r, want[i])
			}
		}
	}
}

func TestRequestsEndAtABadLine(t *testing.T) {
	for text, want := range map[string]string{
		`{"prompt":"a"}` + "\n{broken":                                              "standard input line 2: broken JSON",
		`{"custom_id":"x","prompt":"a"}` + "\n" + `{"custom_id":"x","prompt":"b"}`:  "standard input line 2: custom_id \"x\" is also in line 1",
		`{"custom_id":"x","url":"/v1/unheard","body":{"model":"gpt-4o","input":1}}`: "standard input line 1: ",
	} {
		_, last := requests(batch.Config{Input: "-", Stdin: strings.NewReader(text), Model: "gpt-4o"})
		if _, ok := errors.AsType[*batch.InputError](last); !ok || !strings.HasPrefix(last.Error(), want) {
			t.Errorf("%v, want %s", last, want)
		}
	}
	for field, cfg := range map[string]batch.Config{
		"Input": {Input: "/nonexistent"}, "Stdin": {Input: "-"}, "Limit": {Input: "-", Stdin: strings.NewReader(""), Limit: -1},
	} {
		_, err := requests(cfg)
		if wrong, ok := errors.AsType[*batch.FieldError](err); !ok || wrong.Field != field {
			t.Errorf("%v, want a fault in %s", err, field)
		}
	}
}
