package batch_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// label is an answer as a model labels texts, and labels its schema.
const (
	label  = "```json\n{\n  \"label\": \"positive\",\n  \"confidence\": 0.93,\n  \"spans\": [{\"start\": 3, \"end\": 17}, {\"start\": 30, \"end\": 41}],\n  \"why\": \"The author says that the soup was good.\"\n}\n```"
	labels = `{"type":"object","required":["label","confidence"],"additionalProperties":false,"properties":{
		"label":{"enum":["positive","negative","neutral"]},"confidence":{"type":"number","minimum":0,"maximum":1},
		"spans":{"type":"array","items":{"type":"object","properties":{"start":{"type":"integer"},"end":{"type":"integer"}}}},"why":{"type":"string"}}}`
)

func labelAnswer() string {
	return `{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":` + asJSON(label) +
		`},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`
}

// BenchmarkRules measures the check of one answer.
func BenchmarkRules(b *testing.B) {
	body := []byte(labelAnswer())
	for name, rules := range map[string]batch.Rules{
		"fail-on": {FailOn: batch.FailOnLength | batch.FailOnEmpty},
		"schema":  {Schema: schema(b, labels)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := rules.Check("x", provider.ChatCompletions, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// constant answers at once, the same to all.
type constant string

func (c constant) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(c)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(c))),
	}, nil
}

// BenchmarkCheckedItems measures items per second the whole way, without a check and with a schema.
func BenchmarkCheckedItems(b *testing.B) {
	for name, rules := range map[string]batch.Rules{"plain": {}, "schema": {Schema: schema(b, labels)}} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
			writeChats(b, in, b.N)
			sims, _ := provider.Lookup("sim")
			cfg := batch.Config{
				Input: in, Output: out, Provider: sims, Transport: constant(labelAnswer()),
				Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
					return sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600_000_000, Concurrency: 128}})
				},
			}
			if rules.Schema != nil {
				cfg.Check = rules.Check
			}
			b.ResetTimer()
			b.ReportAllocs()
			opened, err := batch.Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			if rep, err := opened.Run(context.Background()); err != nil || rep.Done != b.N {
				b.Fatalf("done %d of %d: %v %v", rep.Done, b.N, err, rep.Kinds)
			}
			if err := opened.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
