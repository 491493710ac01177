package batch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// writeChats writes n lines of an OpenAI batch file of about 300 bytes each.
func writeChats(tb testing.TB, path string, n int) {
	tb.Helper()
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range n {
		fmt.Fprintf(w, `{"custom_id": "item-%07d", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-4o-mini", "messages": [{"role": "system", "content": "Answer with one word."}, {"role": "user", "content": "Is %d a prime number? Think of its divisors before you answer, and name the smallest one above 1."}], "max_tokens": 16}}`+"\n", i, i)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}

// runWhole runs n items the whole way, against an imitation in the same process, and returns how long the run took.
func runWhole(tb testing.TB, n int) time.Duration {
	tb.Helper()
	dir := tb.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	writeChats(tb, in, n)
	return runInput(tb, batch.Config{Input: in}, n)
}

// runInput runs an input of n items.
func runInput(tb testing.TB, cfg batch.Config, n int) time.Duration {
	tb.Helper()
	start := time.Now()
	server, err := sim.New(sim.Config{
		RPM: 600_000_000, TPM: 2_000_000_000, Concurrency: 256, Latency: time.Millisecond, OutputTokens: 16, NoStats: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Provider, _ = provider.Lookup("sim")
	cfg.Output, cfg.Transport = filepath.Join(tb.TempDir(), "out.jsonl"), server.Transport()
	cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) {
		return sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600_000_000, TPM: 2_000_000_000, Concurrency: 128}})
	}
	b, err := batch.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	scanned := time.Since(start)
	rep, err := b.Run(context.Background())
	if err != nil || rep.Done != n {
		tb.Fatalf("done %d of %d: %v %v", rep.Done, n, err, rep.Kinds)
	}
	if err := b.Close(); err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%d items: scan %v, run %v, throttles %d", n, scanned, rep.Wall, rep.Throttles)
	return time.Since(start)
}

// BenchmarkItems measures items per second the whole way: a line read, parsed and estimated, a permit, an answer of the
// imitation, its usage, and a line on the disk.
func BenchmarkItems(b *testing.B) {
	b.ReportAllocs()
	took := runWhole(b, b.N)
	b.ReportMetric(float64(b.N)/took.Seconds(), "items/s")
	b.ReportMetric(float64(peakRSS())/(1<<20), "peak-MiB")
}

// BenchmarkMillion is BenchmarkItems for a million, whatever the benchmark time:
//
//	go test -run '^$' -bench Million -benchtime 1x ./batch
//
// SLUICE_ITEMS changes the number.
func BenchmarkMillion(b *testing.B) {
	n := aMillion(b)
	for b.Loop() {
		took := runWhole(b, n)
		b.ReportMetric(float64(n)/took.Seconds(), "items/s")
	}
	b.ReportMetric(float64(peakRSS())/(1<<20), "peak-MiB")
}

// BenchmarkMillionPlain is what a million items cost without a call: each line of the same input is read and written, by
// one write a line, as the journal does, and buffered.
func BenchmarkMillionPlain(b *testing.B) {
	n := aMillion(b)
	in := filepath.Join(b.TempDir(), "in.jsonl")
	writeChats(b, in, n)
	for name, size := range map[string]int{"each": 1, "buffered": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				copyLines(b, in, filepath.Join(b.TempDir(), "out.jsonl"), size)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// aMillion is the number of items of the benchmarks that are named so.
func aMillion(b *testing.B) int {
	b.Helper()
	s := os.Getenv("SLUICE_ITEMS")
	if s == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// copyLines copies a file line by line through a buffer of that size.
func copyLines(b *testing.B, from, to string, size int) {
	b.Helper()
	in, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(out, size)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		w.Write(append(lines.Bytes(), '\n')) // a bufio.Writer keeps its first error for Flush
	}
	if err := errors.Join(lines.Err(), w.Flush(), out.Sync(), out.Close()); err != nil {
		b.Fatal(err)
	}
}

// writeTable writes a table of n records of three lines.
func writeTable(tb testing.TB, path string, n int) {
	tb.Helper()
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	fmt.Fprintln(w, "custom_id,question,number,prompt")
	for i := range n {
		fmt.Fprintf(w, "item-%07d,\"Is \"\"%d\"\" a prime number?\n\nThink of its divisors, and name the smallest one above 1.\",%d,Is it?\n", i, i, i)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}

const benchTemplate = "Answer with one word.\n{{.question}} ({{.number}})"

// BenchmarkMillionRows is BenchmarkMillion for a table with a template.
func BenchmarkMillionRows(b *testing.B) {
	n := aMillion(b)
	in := filepath.Join(b.TempDir(), "in.csv")
	writeTable(b, in, n)
	for b.Loop() {
		took := runInput(b, batch.Config{Input: in, Model: "m", MaxTokens: 16, Template: benchTemplate}, n)
		b.ReportMetric(float64(n)/took.Seconds(), "items/s")
	}
	b.ReportMetric(float64(peakRSS())/(1<<20), "peak-MiB")
}

// BenchmarkRead measures how long a row takes to be read and parsed.
func BenchmarkRead(b *testing.B) {
	const n = 20_000
	lines, table := filepath.Join(b.TempDir(), "in.jsonl"), filepath.Join(b.TempDir(), "in.csv")
	writeChats(b, lines, n)
	writeTable(b, table, n)
	for name, cfg := range map[string]batch.Config{
		"lines": {Input: lines}, "table": {Input: table}, "template": {Input: table, Template: benchTemplate},
	} {
		cfg.Model = "gpt-4o-mini"
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			rows := 0
			for b.Loop() {
				if _, err := batch.ReadPreview(cfg, func(batch.Request) error { rows++; return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
		})
	}
}

// peakRSS returns the most memory that this process ever held, or 0 where the system does not say.
func peakRSS() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
