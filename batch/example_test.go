package batch_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// Two prompts run against the built-in imitation of a provider. The second run finds nothing left to do.
func Example() {
	dir, err := os.MkdirTemp("", "batch")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	input := filepath.Join(dir, "in.jsonl")
	if err := os.WriteFile(input, []byte("{\"prompt\":\"Why?\"}\n{\"prompt\":\"Why not?\"}\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	imitation, err := sim.New(sim.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sims, _ := provider.Lookup("sim")
	cfg := batch.Config{
		Input: input, Output: filepath.Join(dir, "out.jsonl"),
		Provider: sims, Transport: imitation.Transport(), Model: "any", MaxTokens: 20,
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
			return sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600}})
		},
	}
	for range 2 {
		b, err := batch.Open(cfg)
		if err != nil {
			log.Fatal(err)
		}
		report, err := b.Run(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d of %d done before, %d now\n", report.Already, report.Total, report.Done)
		if err := b.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0 of 2 done before, 2 now
	// 2 of 2 done before, 0 now
}

// parrot is a Handler that answers each item with its metadata.
type parrot struct{}

func (parrot) Prepare(context.Context) error { fmt.Println("connect"); return nil }

func (parrot) Close() error { fmt.Println("disconnect"); return nil }

func (parrot) Handle(_ context.Context, _ *sluice.Permit, r batch.HandlerRequest) (provider.Answer, sluice.Outcome) {
	body := fmt.Appendf(nil, `{"echo":%s}`, r.Metadata)
	return provider.Answer{Body: body}, sluice.Outcome{Usage: sluice.Usage{Input: 4, Output: 2}, HasUsage: true}
}

// A program's own client makes the requests. The run schedules, retries and records them.
func ExampleHandler() {
	dir, _ := os.MkdirTemp("", "batch")
	defer os.RemoveAll(dir)
	sims, _ := provider.Lookup("sim")
	b, err := batch.Open(batch.Config{
		Input: "-", Stdin: strings.NewReader(`{"prompt":"Hello!","lang":"en"}`), Output: filepath.Join(dir, "out.jsonl"),
		Provider: sims, Model: "any", Handler: parrot{},
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
			return sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600, Concurrency: 8}})
		},
		OnResult: func(r *batch.Result) { fmt.Println(r.Kind, string(r.Payload)) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	report, err := b.Run(context.Background())
	fmt.Println(report.Done, "done,", report.Usage.Input+report.Usage.Output, "tokens,", err)
	// Output:
	// connect
	// ok {"echo":{"lang":"en"}}
	// disconnect
	// 1 done, 6 tokens, <nil>
}
