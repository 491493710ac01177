package work_test

import (
	"context"
	"iter"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// BenchmarkItems measures what a Runner costs per item, with a Scheduler and a journal, and calls that take no time.
func BenchmarkItems(b *testing.B) {
	b.ReportAllocs()
	j := openJournal(b, journalPath(b), work.JournalConfig{})
	r := newRunner(b, work.Config{
		Journal: j, Encode: encode,
		Feed: func(context.Context) iter.Seq2[work.Item, error] {
			return func(yield func(work.Item, error) bool) {
				for i := range b.N {
					if !yield(work.Item{ID: "item", Seq: int64(i)}, nil) {
						return
					}
				}
			}
		},
		Handler: calls(scheduler(b, 64), func(context.Context, *sluice.Permit, work.Item) (work.Result, sluice.Outcome) {
			return work.Result{}, sluice.Outcome{}
		}),
	})
	rep, err := r.Run(context.Background())
	if err != nil || rep.Done != b.N {
		b.Fatalf("done %d, error %v", rep.Done, err)
	}
	b.ReportMetric(float64(b.N)/rep.Wall.Seconds(), "items/s")
}
