package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// secretPrompt stands in every prompt. No telemetry may hold it.
const secretPrompt = "the-prompt-nobody-may-see"

// rig runs batches against imitations and tells an Observer of them, as the run command does.
type rig struct {
	t        testing.TB
	observer sluice.Observer

	mu         sync.Mutex
	schedulers []*sluice.Scheduler
}

// snapshot is the state of all lanes.
func (r *rig) snapshot() sluice.Snapshot {
	r.mu.Lock()
	schedulers := r.schedulers
	r.mu.Unlock()
	var all sluice.Snapshot
	for _, s := range schedulers {
		snap := s.Snapshot()
		all.At, all.Lanes = snap.At, append(all.Lanes, snap.Lanes...)
	}
	return all
}

// throttles is how often the provider refused a call of that model for now, as the run's summary counts it.
func (r *rig) throttles(model string) (n int) {
	for _, lane := range r.snapshot().Lanes {
		if lane.Lane == model {
			n += lane.Throttles
		}
	}
	return n
}

// open opens a batch of so many prompts for a model.
func (r *rig) open(model string, items int, server sim.Config) *batch.Batch {
	r.t.Helper()
	dir := r.t.TempDir()
	var in strings.Builder
	for i := range items {
		fmt.Fprintf(&in, `{"custom_id":"%s-%d","prompt":"%s %d"}`+"\n", model, i, secretPrompt, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(in.String()), 0o644); err != nil {
		r.t.Fatal(err)
	}
	s, err := sim.New(server)
	if err != nil {
		r.t.Fatal(err)
	}
	p, _ := provider.Lookup("sim")
	b, err := batch.Open(batch.Config{
		Input: filepath.Join(dir, "in.jsonl"), Output: filepath.Join(dir, "out.jsonl"), Provider: p, Model: model,
		Transport: echoing{s.Transport()}, Timeout: 20 * time.Second, Observer: r.observer,
		Price: func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1, 10) },
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
			s, err := sluice.New(sluice.Config{Name: "http://127.0.0.1:8000/v1#0123", Attempts: 3, Observer: r.observer})
			if err == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.schedulers = append(r.schedulers, s)
			}
			return s, err
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// run runs a batch to its end, and closes it.
func (r *rig) run(b *batch.Batch) batch.Report {
	r.t.Helper()
	rep, err := b.Run(context.Background())
	if err != nil && !errors.Is(err, work.ErrDrained) {
		r.t.Error(err)
	}
	if err := b.Close(); err != nil {
		r.t.Error(err)
	}
	return rep
}

// close closes the Schedulers: by then everything is told.
func (r *rig) close() {
	for _, s := range r.schedulers {
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// echoing changes what an imitation answers: some of the input was cached, and errors repeat the prompt.
type echoing struct{ next http.RoundTripper }

func (e echoing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		return resp, nil
	}
	body = bytes.Replace(body, []byte(`"cached_tokens":0`), []byte(`"cached_tokens":3`), 1)
	if resp.StatusCode == http.StatusBadRequest {
		body = []byte(`{"error":{"message":"invalid prompt: ` + secretPrompt + `","type":"invalid_request_error"}}`)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// failing reads nothing but its error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// stormy is a provider with limits, a storm and faults of all kinds.
func stormy() sim.Config {
	return sim.Config{
		Seed: 7, RPM: 600, Burst: 2 * time.Second, Latency: time.Second, Jitter: 0.2, OutputTokens: 40,
		Storms: []sim.Storm{{From: 2 * time.Second, To: 6 * time.Second}},
		Faults: sim.Faults{ServerError: 0.2, Reset: 0.02, Hang: 0.01, Cut: 0.01, BadRequest: 0.05},
	}
}

// dead is a provider that answers nobody well.
func dead() sim.Config {
	return sim.Config{Seed: 7, Latency: time.Second, Faults: sim.Faults{ServerError: 1}}
}
