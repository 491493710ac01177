package work_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// Items go through a Scheduler, each as one call that is tried again where that is worth it.
func Example() {
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()

	upper := func(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
		if permit.Attempt() == 1 {
			return work.Result{}, sluice.Outcome{Kind: sluice.ServerError, Err: fmt.Errorf("try again")}
		}
		return work.Result{Payload: []byte("answer to " + item.ID)}, sluice.Outcome{}
	}
	runner, err := work.New(work.Config{Handler: work.Calls(scheduler, upper), OnResult: func(result *work.Result) {
		fmt.Printf("%s (attempts: %d)\n", result.Payload, result.Tally.Attempts)
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		if err := runner.Add(work.Item{ID: id}); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := runner.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// answer to one (attempts: 2)
	// answer to two (attempts: 2)
}
