package batch_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// counted counts what is sent, by method and the beginning of the path.
type counted struct {
	http.RoundTripper
	mu    sync.Mutex
	calls map[string]int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if c.calls == nil {
		c.calls = make(map[string]int)
	}
	c.calls[r.Method+" "+r.URL.Path]++
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

func (c *counted) count(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[call]
}

// What is sent for a live call, and for a batch.
const (
	liveCall  = "POST /v1/chat/completions"
	batchMade = "POST /v1/batches"
)

// viaConfig is a run through the imitation's Batch API.
func (f files) viaConfig(t testing.TB, c sim.Config) (batch.Config, *counted) {
	t.Helper()
	sent := &counted{RoundTripper: newSim(t, c).Transport()}
	cfg := f.config(t, sent)
	cfg.Batches = &batch.Batches{Poll: 100 * time.Millisecond, Grace: time.Second}
	if c.Batches.Latency >= time.Hour {
		cfg.Batches.Poll = time.Minute
	}
	cfg.Price = func(provider.Provider, string) *provider.Price { return provider.FlatPrice(10, 20) }
	cfg.Key = func(provider.Provider) (string, error) { return sentinelKey, nil }
	return cfg, sent
}

// byDeadline gives a run a deadline, for which a live request takes a second.
func byDeadline(cfg *batch.Config, in time.Duration) {
	cfg.Budget.Deadline, cfg.Batches.LiveTime, cfg.Batches.Poll = time.Now().Add(in), perRequest, time.Minute
}

// viaResult is what a line of the output says of how it came.
type viaResult struct {
	CustomID string `json:"custom_id"`
	Sluice   struct {
		Via   string `json:"via"`
		Batch string `json:"batch"`
	} `json:"sluice"`
}

// ways returns how each line came: the batch's id, or "" for live.
func (f files) ways(t testing.TB) map[string]string {
	t.Helper()
	b, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for line := range bytes.Lines(b) {
		var r viaResult
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if (r.Sluice.Via == "batch-api") != (r.Sluice.Batch != "") {
			t.Errorf("line %s: via %q, batch %q", r.CustomID, r.Sluice.Via, r.Sluice.Batch)
		}
		all[r.CustomID] = r.Sluice.Batch
	}
	return all
}

// tidy checks that nothing is left of parts.
func (f files) tidy(t testing.TB) {
	t.Helper()
	if left, err := os.ReadDir(f.out + batch.BatchesSuffix); err == nil && (len(left) > 1 || left[0].Name() != "table.json") {
		t.Errorf("files of parts are left: %v", left)
	}
}

func TestABatchWritesTheOutputOfALiveRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		input := chats(40) + `{"custom_id":"bad","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}` + "\n" +
			`{"custom_id":"stream","method":"POST","url":"/v1/chat/completions","body":{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"go"}]}}` + "\n"
		live, f := newFiles(t, input), newFiles(t, input)
		cfg, _ := live.viaConfig(t, sim.Config{})
		cfg.Batches = nil
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		cfg, sent := f.viaConfig(t, sim.Config{})
		cfg.Provider.Batches.Requests = 15
		rep, err := run(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if sent.count(liveCall) != 0 || sent.count(batchMade) != 3 {
			t.Errorf("%d live calls, %d batches", sent.count(liveCall), sent.count(batchMade))
		}
		want, got := live.results(t), f.results(t)
		if len(want) != 42 || len(got) != 42 {
			t.Fatalf("%d lines live, %d by batch", len(want), len(got))
		}
		for id, w := range want {
			same(t, id, w, got[id])
		}
		batches := make(map[string]int)
		for _, b := range f.ways(t) {
			batches[b]++
		}
		if n := slices.Sorted(maps.Values(batches)); !slices.Equal(n, []int{12, 15, 15}) {
			t.Errorf("lines by batch: %v", batches)
		}
		if b := rep.Batches; b.Parts != 3 || b.Lines != 42 || b.Live != 0 || b.Pending != 0 || b.Cost <= 0 || b.LiveCost < 1.99*b.Cost || b.LiveCost > 2.01*b.Cost {
			t.Errorf("report %+v", b)
		}
		f.tidy(t)
	})
}

// same compares a result with that of a live run.
func same(t testing.TB, id string, live, got result) {
	t.Helper()
	l, g := live.Sluice, got.Sluice
	if live.Name != got.Name || l.Input != g.Input || l.Attempts != g.Attempts || l.Throttles != g.Throttles || l.InputTokens != g.InputTokens ||
		l.OutputTokens != g.OutputTokens || l.Kind != g.Kind || g.LatencyMS != 0 {
		t.Errorf("%s: %+v, live %+v", id, g, l)
	}
	if (l.CostUSD == nil) != (g.CostUSD == nil) || l.CostUSD != nil && *g.CostUSD != *l.CostUSD/2 {
		t.Errorf("%s: cost %v, live %v", id, g.CostUSD, l.CostUSD)
	}
	if (live.Response == nil) != (got.Response == nil) || (live.Error == nil) != (got.Error == nil) {
		t.Fatalf("%s: %+v, live %+v", id, got, live)
	}
	if live.Response != nil && (live.Response.Status != got.Response.Status || got.Response.RequestID == "" || content(live) != content(got)) {
		t.Errorf("%s: response %+v, live %+v", id, got.Response, live.Response)
	}
	if live.Error != nil && *live.Error != *got.Error {
		t.Errorf("%s: error %+v, live %+v", id, *got.Error, *live.Error)
	}
}

// content is what an answer says.
func content(r result) string {
	var body struct {
		Choices []struct{ Message struct{ Content string } }
		Error   struct{ Message string }
	}
	json.Unmarshal(r.Response.Body, &body)
	if len(body.Choices) == 0 {
		return body.Error.Message
	}
	_, text, _ := strings.Cut(body.Choices[0].Message.Content, " ") // behind a hash of the request, of which a stream has another
	return text
}
