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

// Answers are judged once all are there, and the report needs one of the judgements.
func ExampleTiers() {
	input := []struct {
		id, tier string
		needs    []string
	}{
		{"report", "", []string{"judge-2"}},
		{"judge-1", "judges", []string{"answers"}},
		{"judge-2", "judges", []string{"answers"}},
		{"answer-1", "answers", nil},
		{"answer-2", "answers", nil},
		{"summary", "", []string{"judges"}},
	}
	var tiers work.Tiers
	var index work.Index
	for number, in := range input {
		index.Add(number, []byte(in.id), work.Hash{})
		tiers.Add(number, in.id, in.tier, in.needs)
	}
	if err := tiers.Check(index.Find); err != nil {
		log.Fatal(err)
	}
	item := func(number int) (work.Item, error) {
		return work.Item{ID: input[number].id, Seq: int64(number)}, nil
	}
	runner, err := work.New(work.Config{
		Workers: 1,
		Feed:    func(ctx context.Context) iter.Seq2[work.Item, error] { return tiers.Feed(ctx, item) },
		Handler: work.HandlerFunc(func(_ context.Context, item work.Item) (work.Result, error) {
			if item.ID == "judge-1" {
				return work.Result{}, errors.New("no judgement")
			}
			return work.Result{}, nil
		}),
		OnResult: func(result *work.Result) {
			fmt.Println(result.ID, result.Kind)
			tiers.Settle(int(result.Seq), result.Kind == sluice.OK)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := runner.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, blocked := range tiers.Blocked() {
		fmt.Println("blocked:", blocked)
	}
	// Output:
	// answer-1 ok
	// answer-2 ok
	// judge-1 internal
	// judge-2 ok
	// report ok
	// blocked: summary needs judges, of which 1 item failed
}
