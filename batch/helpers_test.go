package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// files are an input and an output in a directory of the test's own.
type files struct{ in, out string }

// sentinelKey is the key in every test that has one. No byte that a test writes may hold it.
const sentinelKey = "sk-sentinel-5d1f0c7e9b2a4836"

func newFiles(t testing.TB, input string) files {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { // before the directory is removed
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), sentinelKey) {
				t.Errorf("the key stands in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	f := files{filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")}
	f.input(t, input)
	return f
}

func (f files) input(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(f.in, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// chat is a line with that custom_id.
func chat(id int) string {
	return fmt.Sprintf(`{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"What is %d?"}]}}`, id, id)
}

// chats are the lines with custom_ids from 1 to n.
func chats(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(chat(i+1) + "\n")
	}
	return b.String()
}

// results returns the output's lines by custom_id, and fails the test if one is there twice.
func (f files) results(t testing.TB) map[string]result {
	t.Helper()
	b, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]result)
	for line := range bytes.Lines(b) {
		var r result
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields() // so that the type, and with it the reference, has all fields
		if err := d.Decode(&r); err != nil {
			t.Fatalf("output line %q: %v", line, err)
		}
		if _, twice := all[r.CustomID]; twice {
			t.Fatalf("%q is recorded twice", r.CustomID)
		}
		all[r.CustomID] = r
	}
	return all
}

// result is a line of the output, as a reader of OpenAI batch files sees it.
type result struct {
	ID       string `json:"id"`        // ID of the result.
	CustomID string `json:"custom_id"` // ID of the item.
	Response *struct {
		StatusCode int             `json:"status_code"` // HTTP status.
		RequestID  string          `json:"request_id"`  // Request ID.
		Body       json.RawMessage `json:"body"`        // Body of the response.
	} `json:"response"` // Response.
	Error *struct {
		Code    string `json:"code"`    // Kind of the failure.
		Message string `json:"message"` // Error message, without keys.
	} `json:"error"` // Failure, if the item failed.
	Sluice struct {
		Input        string          `json:"input"`               // Hash of the request.
		Attempts     int             `json:"attempts"`            // Attempts, except rate-limited attempts.
		Throttles    int             `json:"throttles"`           // Rate-limited requests.
		WaitMS       int             `json:"wait_ms"`             // Waiting time of the item or request.
		QueuedMS     int             `json:"queued_ms"`           // Wait in the queue.
		CooldownMS   int             `json:"cooldown_ms"`         // Wait in cooldowns.
		BackoffMS    int             `json:"backoff_ms"`          // Wait in backoff.
		LatencyMS    int             `json:"latency_ms"`          // Duration of the last attempt.
		InputTokens  int             `json:"input_tokens"`        // Input tokens.
		OutputTokens int             `json:"output_tokens"`       // Output tokens.
		CostUSD      *float64        `json:"cost_usd"`            // Cost, if known.
		Estimated    float64         `json:"cost_estimated_usd"`  // Estimated part of the cost.
		Unpriced     int             `json:"unpriced_tool_calls"` // Tool calls without known prices.
		Upstream     string          `json:"upstream"`            // Upstream, if there are several.
		Via          string          `json:"via"`                 // `batch-api`, if the result is from a Batch API.
		Batch        string          `json:"batch"`               // Batch ID at the provider.
		Cached       bool            `json:"cached"`              // The result is from the cache.
		Metadata     json.RawMessage `json:"metadata"`            // Fields of the input that are not sent.
		Kind         string          `json:"kind"`                // `ok`, or the kind of the failure.
	} `json:"sluice"` // Figures of Sluice.
}

// config returns a Config for files and an imitation.
func (f files) config(t testing.TB, rt http.RoundTripper) batch.Config {
	t.Helper()
	p, ok := provider.Lookup("sim")
	if !ok {
		t.Fatal("no provider sim")
	}
	return batch.Config{
		Input: f.in, Output: f.out, Provider: p, Transport: rt,
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
			s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 8}})
			if err == nil {
				t.Cleanup(func() { s.Close() })
			}
			return s, err
		},
	}
}

func newSim(t testing.TB, c sim.Config) *sim.Server {
	t.Helper()
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run opens and runs a batch, and closes it.
func run(t testing.TB, cfg batch.Config) (batch.Report, error) {
	t.Helper()
	b, err := batch.Open(cfg)
	if err != nil {
		return batch.Report{}, err
	}
	rep, err := b.Run(context.Background())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	return rep, err
}

// stub answers every request with the same, and remembers what it was asked.
type stub struct {
	status int // 0 is 200
	answer string
	err    error

	mu   sync.Mutex
	sent []sent
}

type sent struct {
	url, body string
	header    http.Header
}

const chatAnswer = `{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`

func (s *stub) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	s.mu.Lock()
	s.sent = append(s.sent, sent{url: r.URL.String(), body: string(body), header: r.Header.Clone()})
	s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	status, answer := s.status, s.answer
	if status == 0 {
		status = 200
	}
	if answer == "" {
		answer = chatAnswer
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header:        http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"req-1"}},
		Body:          io.NopCloser(strings.NewReader(answer)),
		ContentLength: int64(len(answer)),
	}, nil
}

func (s *stub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// eachSeed runs a test with the luck of n seeds, each in a bubble of its own.
func eachSeed(t *testing.T, n int, test func(t *testing.T, luck *rand.Rand) error) {
	t.Helper()
	for seed := range uint64(n) {
		synctest.Test(t, func(t *testing.T) {
			if err := test(t, rand.New(rand.NewPCG(seed, 1))); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}
