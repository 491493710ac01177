package batch_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkMillionTwins runs a million lines in sets of equal requests, and those whose first half is recorded once more:
//
//	go test -run '^$' -bench MillionTwins/pairs -benchtime 1x ./batch
//
// SLUICE_ITEMS changes the number.
func BenchmarkMillionTwins(b *testing.B) {
	n := aMillion(b)
	for _, sets := range []struct {
		name string
		of   int
	}{{"unlike", 1}, {"pairs", 2}, {"hundreds", 100}, {"all", n}} {
		b.Run(sets.name, func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir()
				f := files{dir + "/in", dir + "/out"}
				writeSets(b, f.in, n, sets.of)
				for range 2 {
					runSets(b, f, n)
					info, err := os.Stat(f.out)
					if err == nil {
						err = os.Truncate(f.out, info.Size()/2)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(peakRSS())/(1<<20), "peak-MiB")
		})
	}
}

func writeSets(tb testing.TB, path string, n, of int) {
	tb.Helper()
	file, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriterSize(file, 1<<20)
	for i := range n {
		fmt.Fprintf(w, `{"custom_id": "item-%07d", "model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Is %d a prime number? Think of its divisors."}], "max_tokens": 16}`+"\n", i, i%(n/of))
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := file.Close(); err != nil {
		tb.Fatal(err)
	}
}

func runSets(tb testing.TB, f files, n int) {
	tb.Helper()
	server, err := sim.New(sim.Config{
		RPM: 600_000_000, TPM: 2_000_000_000, Concurrency: 256, Latency: time.Millisecond, OutputTokens: 16, NoStats: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	sims, _ := provider.Lookup("sim")
	start := time.Now()
	run, err := batch.Open(batch.Config{
		Input: f.in, Output: f.out, Provider: sims, Transport: server.Transport(), Dedupe: true,
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
			return sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600_000_000, TPM: 2_000_000_000, Concurrency: 128}})
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	opened := time.Since(start)
	rep, err := run.Run(context.Background())
	if err != nil || rep.Left() != 0 {
		tb.Fatalf("%d left: %v", rep.Left(), err)
	}
	if err := run.Close(); err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%d items: opened in %v, run in %v, %d recorded before, %d calls, %d twins", n, opened, rep.Wall, rep.Already, rep.Attempts, rep.Twins)
}
