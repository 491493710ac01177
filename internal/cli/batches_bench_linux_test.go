package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkBatchKills kills a run by way of each form of Batch API at 20 instants of submitting, looking, fetching and recording:
//
//	go test ./internal/cli -run '^$' -bench BatchKills -benchtime 1x -v
func BenchmarkBatchKills(b *testing.B) {
	for _, form := range batchForms() {
		b.Run(form.name, func(b *testing.B) {
			for b.Loop() {
				batchKills(b, form, batchInstants(form, 20))
			}
		})
	}
}

// BenchmarkBatchLines runs 120,000 lines through batches with small limits: some wait for enqueued tokens, or, of Anthropic's, requests,
// 1 % of the lines fail and one batch expires. Every id has to have its result, once. Beside it, the same file is read and written:
//
//	go test ./internal/cli -run '^$' -bench BatchLines -benchtime 1x -v
func BenchmarkBatchLines(b *testing.B) {
	for _, form := range batchForms() {
		b.Run(form.name, func(b *testing.B) {
			for b.Loop() {
				batchLines(b, form)
			}
		})
	}
}

func batchLines(b *testing.B, form batchForm) {
	const lines, each = 120_000, 5_000
	limits := sim.Batches{Latency: time.Second, EnqueuedTokens: 100 * each, Pending: 4 * each, Fail: 0.01, ExpireEvery: 20}
	v := newBatchBench(b, form, limits, lines)
	v.args = []string{"--progress", "plain"}
	v.bound(each)
	began := time.Now()
	cmd := v.start()
	watched := watchMemory(cmd.Process.Pid)
	out, err := cmd.wait()
	took, peak := time.Since(began), watched()
	v.judgeAll(lines)
	b.Logf("%v\n%s", err, out)
	stats := v.server.Stats().Batches
	waits := stats.Refused["enqueued_tokens"] + stats.Refused["pending"]
	if waits == 0 {
		b.Error("no batch had to wait for room")
	}
	expired, want := stats.Lines-stats.Answered-stats.Failed, each/2
	if form.name == "gemini" {
		want = each
	}
	if expired != want {
		b.Errorf("%d lines expired, want %d of one batch", expired, want)
	}
	b.Logf("%d batches, of which %d had no room; %d lines answered, %d failed, %d expired", stats.Batches, waits,
		stats.Answered, stats.Failed, expired)
	began = time.Now()
	copyLines(b, v.in, v.dir+"/copy.jsonl")
	b.ReportMetric(took.Seconds(), "s/run")
	b.ReportMetric(time.Since(began).Seconds(), "s/copy")
	b.ReportMetric(lines/took.Seconds(), "lines/s")
	b.ReportMetric(peak, "MiB-peak")
}

// watchMemory returns what ends the watch, and says the most memory that a process had, in MiB. What the system says of it at its
// end counts the memory of the test, from which the process was forked.
func watchMemory(pid int) func() float64 {
	stop, most := make(chan struct{}), make(chan float64)
	go func() {
		kib := 0.0
		for {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
			if _, rest, ok := strings.Cut(string(text), "VmHWM:"); ok {
				kib, _ = strconv.ParseFloat(strings.Fields(rest)[0], 64)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-stop:
				most <- kib / 1024
				return
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-most
	}
}

// judgeAll wants one result of each line.
func (v *batchBench) judgeAll(lines int) {
	v.Helper()
	ids := v.recorded()
	for id, n := range ids {
		if n != 1 {
			v.Fatalf("%s has %d results", id, n)
		}
	}
	if len(ids) != lines {
		v.Errorf("%d ids are recorded, want %d", len(ids), lines)
	}
	stats := v.server.Stats()
	for hash, n := range stats.Paid {
		if n != 1 {
			v.Errorf("request %s was paid for %d times", hash, n)
		}
	}
	if stats.Batches.Repeated != 0 || stats.Answered != 0 {
		v.Errorf("%d lines were paid for twice, and %d live", stats.Batches.Repeated, stats.Answered)
	}
}

// copyLines reads a file line by line and writes another.
func copyLines(b *testing.B, from, to string) {
	b.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		out.Write(line)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
}
