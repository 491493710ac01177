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
		if _, twice := all[r.ID]; twice {
			t.Fatalf("%q is recorded twice", r.ID)
		}
		all[r.ID] = r
	}
	return all
}

// result is a line of the output, as a reader of OpenAI batch files sees it.
type result = batch.Recording

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
