package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/sim"
)

// foreseen is a run of the command, and what it meets.
type foreseen struct {
	name  string
	sim   sim.Config
	told  sluice.Limits
	items int
	bound func(i int) int // max_tokens
}

func commands() []foreseen {
	const s = time.Second
	a := sim.Config{RPM: 900, Burst: 15 * s, Concurrency: 30, Latency: 200 * time.Millisecond}
	short := func(int) int { return 16 }
	lognormal := func(i int) int { // a median of 250 tokens and a sigma of 0.7
		return int(250*math.Exp(0.7*rand.New(rand.NewPCG(7, uint64(i))).NormFloat64())) + 1
	}
	return []foreseen{
		{"A requests bound", a, sluice.Limits{RPM: 900, Concurrency: 30}, 400, short},
		{"B tokens bound", sim.Config{TPM: 90000, Burst: 10 * s, Concurrency: 60}, sluice.Limits{TPM: 90000, Concurrency: 60}, 200, lognormal},
		{"D silent queue", sim.Config{Queue: 6, Latency: 400 * time.Millisecond, NoHeaders: true}, sluice.Limits{}, 200, short},
		{"nothing told", a, sluice.Limits{}, 400, short},
		{"nothing told, silent", sim.Config{Concurrency: 8, Latency: 400 * time.Millisecond, NoHeaders: true, VagueBodies: true, RetryAfter: sim.RetryAfterNone},
			sluice.Limits{}, 300, short},
		{"nothing told, no headers", sim.Config{RPM: 900, Burst: 5 * s, NoHeaders: true, Latency: 200 * time.Millisecond}, sluice.Limits{}, 300, short},
		{"jitter", sim.Config{Concurrency: 8, Latency: 400 * time.Millisecond, Jitter: 0.3}, sluice.Limits{Concurrency: 8}, 300, short},
		{"faults", sim.Config{RPM: 900, Burst: 5 * s, Latency: 200 * time.Millisecond, Faults: sim.Faults{ServerError: 0.05}}, sluice.Limits{RPM: 900}, 300, short},
	}
}

// BenchmarkForecastOfCommand compares forecasts with the command itself, sluice run, over sockets, by the clock. It
// takes a minute and a half:
//
//	go test ./internal/cli -run '^$' -bench ForecastOfCommand -benchtime 1x
func BenchmarkForecastOfCommand(b *testing.B) {
	for _, c := range commands() {
		b.Run(c.name, func(b *testing.B) {
			var bodies [][]byte
			for i := range c.items {
				bodies = append(bodies, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":%d}`, i, c.bound(i)))
			}
			s := plan.Scenario{Provider: c.sim, Told: c.told}
			for _, r := range c.sim.Workload("/v1/chat/completions", bodies...) {
				s.Calls = append(s.Calls, plan.Call{Input: r.Input, MaxTokens: r.MaxTokens, Output: r.Output})
			}
			f, err := plan.Simulate(b.Context(), s)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				srv, err := sim.New(c.sim)
				if err != nil {
					b.Fatal(err)
				}
				ts := httptest.NewServer(srv)
				start := time.Now()
				c.run(b, bodies, ts.URL)
				took := time.Since(start)
				ts.Close()
				b.ReportMetric(f.Time.Seconds(), "foreseen-s")
				b.ReportMetric(took.Seconds(), "run-s")
				b.ReportMetric(100*(f.Time.Seconds()/took.Seconds()-1), "%off")
				b.ReportMetric(float64(srv.Stats().Throttled), "throttles")
			}
		})
	}
}

// run does the job as a user does.
func (c foreseen) run(tb testing.TB, bodies [][]byte, url string) {
	dir := tb.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	if err := os.WriteFile(in, bytes.Join(bodies, []byte("\n")), 0o600); err != nil {
		tb.Fatal(err)
	}
	args := []string{"run", in, "-o", filepath.Join(dir, "out.jsonl"), "--provider", "openai-compatible", "--base-url", url + "/v1",
		"--progress", "none"}
	for d, limit := range c.told.All() {
		if *limit > 0 {
			args = append(args, "--"+d.String(), strconv.Itoa(*limit))
		}
	}
	tb.Setenv("XDG_STATE_HOME", dir)
	var stderr bytes.Buffer
	if code := cli.Main(context.Background(), args, nil, io.Discard, &stderr); code != 0 {
		tb.Fatalf("exit code %d: %s", code, &stderr)
	}
}
