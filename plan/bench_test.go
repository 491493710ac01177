package plan_test

import (
	"bytes"
	"context"
	"io"
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

// day is a lane of 10,000 requests per minute in full use.
func day(hours int) plan.Scenario {
	limits := sluice.Limits{RPM: 10_000, TPM: 20_000_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.Imitate(limits, sluice.ChargeDeclared, 2*time.Second, 10*time.Millisecond),
		Told:     limits,
		Requests: hours * 60 * 10_000,
	}
	s.Provider.Jitter = 0.3
	for i := range 1000 {
		s.Calls = append(s.Calls, plan.Call{Input: 200 + i, MaxTokens: 500, Output: 50 + i%400})
	}
	return s
}

// BenchmarkSimulateDay foresees 24 hours of it, 14.4 million calls: run it with -benchtime 1x.
func BenchmarkSimulateDay(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		f, err := plan.Simulate(context.Background(), day(24))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(f.Answered), "calls")
		b.ReportMetric(f.Time.Hours(), "hours")
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(f.Answered), "ns/call")
	}
}

// BenchmarkSimulateHour foresees an hour of it.
func BenchmarkSimulateHour(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Simulate(context.Background(), day(1)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkForecastOfCommand compares forecasts with the command itself, sluice run, over sockets, by the clock. It
// takes a minute and a half:
//
//	go test ./plan -run '^$' -bench ForecastOfCommand -benchtime 1x
func BenchmarkForecastOfCommand(b *testing.B) {
	for _, j := range jobs()[:4] {
		b.Run(j.name, func(b *testing.B) {
			f := j.simulate(b)
			for b.Loop() {
				srv, err := sim.New(j.scenario.Provider)
				if err != nil {
					b.Fatal(err)
				}
				ts := httptest.NewServer(srv)
				start := time.Now()
				j.command(b, ts.URL)
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

// command runs the job as a user does.
func (j job) command(tb testing.TB, url string) {
	dir := tb.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	var lines bytes.Buffer
	for i := range j.items {
		lines.Write(append(j.body(i), '\n'))
	}
	if err := os.WriteFile(in, lines.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	args := []string{"run", in, "-o", filepath.Join(dir, "out.jsonl"), "--provider", "openai-compatible", "--base-url", url + "/v1",
		"--progress", "none", "--sync", "none"}
	told := j.scenario.Told
	for flag, n := range map[string]int{"--rpm": told.RPM, "--tpm": told.TPM, "--concurrent": told.Concurrent} {
		if n > 0 {
			args = append(args, flag, strconv.Itoa(n))
		}
	}
	tb.Setenv("XDG_STATE_HOME", dir)
	var stderr bytes.Buffer
	if code := cli.Main(context.Background(), args, nil, io.Discard, &stderr); code != 0 {
		tb.Fatalf("exit code %d: %s", code, &stderr)
	}
}
