package plan_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// From a provider's name to a Scheduler that keeps to its published limits, until answers correct them.
func Example() {
	registry := provider.Published()
	account, ok := registry.Lookup("anthropic")
	if !ok {
		log.Fatal("unknown provider")
	}
	tier, err := registry.Find("anthropic", "start", "claude-sonnet-4-5")
	if err != nil {
		log.Fatal(err)
	}
	p, err := plan.ForTier(tier, account, plan.Workload{
		Requests: 10_000, Latency: 4 * time.Second, InputTokens: 3000, OutputTokens: 800, MaxTokens: 1000,
	}, plan.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.0f requests a minute, bound by %s\n", p.Throughput, p.Binding.Dimension)
	fmt.Printf("%d slots, or %d workers without a pace\n", p.Slots, p.Workers)
	fmt.Printf("10,000 requests take %s\n", p.Time.Round(time.Minute))

	s, err := sluice.New(sluice.Config{Start: p.Limits, Charge: account.Charge, CountsCached: account.CountsCached})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	call := sluice.Call{Lane: "claude-sonnet-4-5", Cost: sluice.Cost{Input: 3000, MaxOutput: 1000}}
	tally, err := s.Do(context.Background(), call, func(context.Context, *sluice.Permit) sluice.Outcome {
		// send the request here, and say what came back
		return sluice.Outcome{Usage: sluice.Usage{Input: 3000, Output: 800}, HasUsage: true}
	})
	fmt.Println(tally.Usage.Output, "tokens written,", err)
	// Output:
	// 500 requests a minute, bound by otpm
	// 51 slots, or 26 workers without a pace
	// 10,000 requests take 20m0s
	// 800 tokens written, <nil>
}
