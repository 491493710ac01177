package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkQuestions runs the whole command against sluice sim, each a program of its own: as many questions as the test of GSM8K
// has, of which nothing is told. SLUICE_QUESTIONS names a file of its form to be asked instead:
//
//	go test -run '^$' -bench Questions -benchtime 1x ./internal/cli
func BenchmarkQuestions(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		input := os.Getenv("SLUICE_QUESTIONS")
		if input == "" {
			input = filepath.Join(dir, "questions.jsonl")
			writeQuestions(b, input)
		}
		bodies := questionBodies(b, input)
		limits := sim.Config{RPM: 3000, Concurrency: 50, Burst: 10 * time.Second}
		up := startServer(b, dir, "sluice", "sim", "--rpm", "3000", "--concurrency", "50", "--rate-limit", "burst=10s")
		out := filepath.Join(dir, "answers.jsonl")
		template := filepath.Join(dir, "prompt.tmpl")
		if err := os.WriteFile(template, []byte("Solve this, and end with the number alone.\n\n{{.question}}\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		run := exec.Command("sluice", "run", input, "-o", out, "--provider", "openai-compatible", "--base-url", up.url+"/v1", "--template", template,
			"--model", "gpt-4o-mini", "--max-tokens", "200", "--progress", "none")
		run.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
		begun := time.Now()
		if text, err := run.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, text)
		}
		took := time.Since(begun)
		answers, err := os.ReadFile(out)
		if err != nil {
			b.Fatal(err)
		}
		best := limits.Optimum(limits.Workload("/v1/chat/completions", bodies...))
		b.ReportMetric(took.Seconds(), "s/run")
		b.ReportMetric(best.Seconds(), "s/optimum")
		b.ReportMetric((&offeredLoad{}).stats(b, up, "throttled"), "throttles")
		b.ReportMetric(float64(len(bodies)-bytes.Count(answers, []byte("\n"))), "lost")
	}
}

// writeQuestions writes as many questions as GSM8K's test has, of about their length.
func writeQuestions(b *testing.B, path string) {
	var all bytes.Buffer
	for i := range 1319 {
		fmt.Fprintf(&all, `{"question":"A baker makes %d rolls each morning. She keeps %d of them for her family and sells the others for $%d each at the market, where a stand costs her $%d a day. How many dollars does she have at the end of the day, and how many at the end of a week?","answer":"#### %d"}`+"\n",
			60+i, 3+i%7, 2+i%3, 5+i%11, i)
	}
	if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
}

// questionBodies are the calls that an input comes to, for the optimum: what they ask does not matter to a limit of requests.
func questionBodies(b *testing.B, path string) (bodies [][]byte) {
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	for i := range bytes.Count(text, []byte("\n")) {
		bodies = append(bodies, fmt.Appendf(nil, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"question %d"}],"max_tokens":200}`, i))
	}
	return bodies
}
