package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/sim"
)

// imitated is a provider on a socket, and how many workers it allows.
type imitated struct {
	name  string
	sim   sim.Config
	truth int
	items int // of the run that follows
}

// imitations answer a real call with 500 tokens in some two seconds, and tell nothing that they need not.
func imitations() []imitated {
	silent := func(c sim.Config) sim.Config {
		c.NoHeaders, c.VagueBodies, c.RetryAfter = true, true, sim.RetryAfterNone
		return slow(c)
	}
	return []imitated{
		{"cap 20", silent(sim.Config{Concurrency: 20}), 20, 300},
		{"rpm 500, a minute's bucket", silent(sim.Config{RPM: 500}), 16, 600},
		{"tpm 60k as declared", silent(sim.Config{TPM: 60_000}), 4, 200},
		{"queue 16", silent(sim.Config{Queue: 16}), 16, 300},
		{"headers: rpm 500, cap 8", slow(sim.Config{RPM: 500, Concurrency: 8}), 8, 200},
	}
}

func slow(c sim.Config) sim.Config {
	c.Latency, c.PerToken, c.Jitter, c.OutputTokens, c.Seed = 300*time.Millisecond, 3400*time.Microsecond, 0.1, 520, 1
	return c
}

// BenchmarkFindOverSockets searches five imitated providers over real sockets, and then runs a batch with the limits that
// were written, beside the time that a client which knows the provider's state could do it in:
//
//	go test -run '^$' -bench FindOverSockets -benchtime 1x -timeout 0 ./internal/cli
func BenchmarkFindOverSockets(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\n%-28s %5s %6s %6s %7s %8s | %9s %9s\n", "provider", "truth", "found", "calls", "tokens", "took", "run/best", "throttles")
		for _, one := range imitations() {
			fmt.Println(one.measure(b))
		}
	}
}

// measure finds, runs, and returns a line of the table.
func (one imitated) measure(b *testing.B) string {
	server, err := sim.New(one.sim)
	if err != nil {
		b.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	dir := b.TempDir()
	b.Setenv("XDG_STATE_HOME", dir)
	limits, input := filepath.Join(dir, "limits.json"), filepath.Join(dir, "in.jsonl")
	account := []string{"--provider", "openai-compatible", "--base-url", web.URL + "/v1", "--model", "m"}
	answer := call(b, append([]string{"find", "--output-file", limits}, account...))
	var found struct {
		Spent struct {
			Requests int `json:"requests"`
			Input    int `json:"input_tokens"`
			Output   int `json:"output_tokens"`
		} `json:"spent"`
		Took int `json:"took_ms"`
	}
	data, err := os.ReadFile(limits)
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	if err != nil {
		b.Fatal(err)
	}

	var bodies [][]byte
	for i := range one.items {
		bodies = append(bodies, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"question %d"}],"max_tokens":500}`, i))
	}
	if err := os.WriteFile(input, bytes.Join(bodies, []byte("\n")), 0o600); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Minute) // until the provider's buckets are full
	before, began := server.Stats().Throttled, time.Now()
	call(b, append([]string{"run", input, "-o", filepath.Join(dir, "out.jsonl"), "--config", limits}, account...))
	took := time.Since(began)
	known := one.sim
	if known.NoHeaders {
		known.Burst = time.Second // nobody can know of longer ones
	}
	best := known.Optimum(known.Workload("/v1/chat/completions", bodies...))
	return fmt.Sprintf("%-28s %5d %6s %6d %6dk %7.0fs | %9.3f %9d", one.name, one.truth, strings.TrimSpace(answer), found.Spent.Requests,
		(found.Spent.Input+found.Spent.Output)/1000, float64(found.Took)/1000, took.Seconds()/best.Seconds(), server.Stats().Throttled-before)
}

// call runs the program and returns what it prints.
func call(b *testing.B, args []string) string {
	var out, errs bytes.Buffer
	if code := cli.Main(context.Background(), args, strings.NewReader(""), &out, &errs); code != 0 {
		b.Fatalf("sluice %s: exit code %d\n%s", strings.Join(args, " "), code, &errs)
	}
	return out.String()
}
