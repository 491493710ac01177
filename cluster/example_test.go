package cluster_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
)

// Programs on several hosts that do this stay within one limit together.
func Example() {
	engine, err := miniredis.Run() // elsewhere this is a Redis or Valkey that all of them can reach
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	ctx := context.Background()

	shared, err := cluster.Open(ctx, cluster.Config{URL: "redis://" + engine.Addr(), Role: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	ledger := shared.Ledger("openai, production", cluster.LedgerConfig{})
	defer ledger.Close()
	scheduler, err := sluice.New(sluice.Config{Name: "openai, production", Limits: sluice.Limits{RPM: 500}, Ledger: ledger})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()

	tally, err := scheduler.Do(ctx, sluice.Call{Lane: "gpt-4o-mini"}, func(context.Context, *sluice.Permit) sluice.Outcome {
		return sluice.Outcome{Kind: sluice.OK} // of the call that is made here
	})
	fmt.Println(tally.Attempts, "attempt,", err)
	// Output: 1 attempt, <nil>
}
