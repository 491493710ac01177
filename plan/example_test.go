package plan_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// How long do 10,000 calls take at 500 requests a minute, and what would 20 workers without a scheduler do?
func ExampleSimulate() {
	bounds := sluice.Limits{RPM: 500, TPM: 500_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.SimulatorConfig(bounds, limits.ChargeDeclared, 800*time.Millisecond),
		Told:     bounds,
		Calls:    []plan.Call{{Input: 400, MaxTokens: 500, Output: 120}, {Input: 900, MaxTokens: 500, Output: 200}},
		Requests: 10_000,
	}
	s.Provider.PerToken = 4 * time.Millisecond
	paced, err := plan.Simulate(context.Background(), s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("paced: %v, %d throttled, at most %d in flight\n", paced.Time.Round(time.Second), paced.Throttled, paced.Peak)

	s.Unpaced = 20
	unpaced, err := plan.Simulate(context.Background(), s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("20 workers: throttled %d times for every call\n", unpaced.Throttled/10_000)

	var svg bytes.Buffer
	if err := plan.Draw(&svg, "paced", paced); err != nil {
		log.Fatal(err)
	}
	// Output:
	// paced: 20m1s, 0 throttled, at most 16 in flight
	// 20 workers: throttled 7 times for every call
}
