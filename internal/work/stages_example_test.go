package work_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// Answers are judged once all are there.
func ExampleStages() {
	input := []struct {
		id, stage string
		needs     []string
	}{
		{"judge-1", "judges", []string{"answers"}},
		{"judge-2", "judges", []string{"answers"}},
		{"answer-1", "answers", nil},
		{"answer-2", "answers", nil},
		{"summary", "reports", []string{"judges"}},
		{"notice", "", nil},
	}
	var stages work.Stages
	for number, in := range input {
		stages.Add(number, in.stage, in.needs)
	}
	if err := stages.Check(); err != nil {
		log.Fatal(err)
	}
	item := func(number int) (work.Item, error) {
		return work.Item{ID: input[number].id, Seq: int64(number)}, nil
	}
	runner, err := work.New(work.Config{
		Workers: 1,
		Feed:    func(ctx context.Context) iter.Seq2[work.Item, error] { return stages.Feed(ctx, item) },
		Handler: work.HandlerFunc(func(_ context.Context, item work.Item) (work.Result, error) {
			if item.ID == "judge-1" {
				return work.Result{}, errors.New("no judgement")
			}
			return work.Result{}, nil
		}),
		OnResult: func(result *work.Result) {
			fmt.Println(result.ID, result.Kind)
			stages.Settle(int(result.Seq), result.Kind == sluice.OK)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := runner.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, blocked := range stages.Blocked() {
		fmt.Println("blocked:", blocked)
	}
	// Output:
	// answer-1 ok
	// answer-2 ok
	// notice ok
	// judge-1 internal
	// judge-2 ok
	// blocked: reports needs judges, of which 1 item failed
}
