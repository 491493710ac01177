package cluster_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
)

// Processes that open the same engine and name the same account stay within its limits together.
func ExampleCluster_Ledger() {
	engine, err := miniredis.Run() // yours is redis://… or rediss://…
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	ctx := context.Background()
	c, err := cluster.Open(ctx, cluster.Config{URL: "redis://" + engine.Addr()})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	shared := c.Ledger("openai, the key of the evaluations", cluster.LedgerConfig{})
	defer shared.Close()
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 500}, Ledger: shared})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	_, err = s.Do(ctx, sluice.Call{Lane: "a model"}, func(context.Context, *sluice.Permit) sluice.Outcome {
		fmt.Println("one of 500 calls a minute, of all processes together")
		return sluice.Outcome{}
	})
	if err != nil {
		panic(err)
	}
	// Output: one of 500 calls a minute, of all processes together
}
