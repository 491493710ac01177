package work_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/work"
)

// awaitingFeed gives some items, awaits ready, and gives the others.
func awaitingFeed(ready <-chan struct{}, before, after []work.Item) func(context.Context) iter.Seq2[work.Item, error] {
	return func(ctx context.Context) iter.Seq2[work.Item, error] {
		return func(yield func(work.Item, error) bool) {
			for _, item := range before {
				if !yield(item, nil) {
					return
				}
			}
			if err := work.Await(ctx, ready); err != nil {
				yield(work.Item{}, err)
				return
			}
			for _, item := range after {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// Of two lanes with room for one item each, items are put aside. A feed that waits for their results must not keep them so.
func TestAFeedThatAwaitsResultsLetsItemsThatWerePutAsideGoOn(t *testing.T) {
	items := numbered(20)
	for i := range items {
		items[i].Lane, items[i].Ref = "a", int64(i)
	}
	items[19].Lane = "b"
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		results := 0
		r := newRunner(t, work.Config{Feed: awaitingFeed(ready, items[:19], items[19:]), Lanes: 2, Queue: 1, Workers: 1,
			Reload: func(seq, ref int64) (work.Item, error) { return items[ref], nil },
			Handler: work.HandlerFunc(func(context.Context, work.Item) (work.Result, error) {
				time.Sleep(time.Second)
				return work.Result{}, nil
			}),
			OnResult: func(*work.Result) {
				if results++; results == 19 { // by the only worker
					close(ready)
				}
			},
		})
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != 20 {
			t.Errorf("%d of 20 done, error %v", rep.Done, err)
		}
	})
}

func TestAFeedThatAwaitsIsToldOfWhatReadingItemsAgainFailsWith(t *testing.T) {
	items := numbered(9)
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, work.Config{Feed: awaitingFeed(nil, items, nil), Lanes: 2, Queue: 1, Workers: 1,
			Reload:  func(seq, ref int64) (work.Item, error) { return work.Item{}, errors.New("the file is gone") },
			Handler: work.HandlerFunc(func(context.Context, work.Item) (work.Result, error) { return work.Result{}, nil }),
		})
		if _, err := r.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "the file is gone") {
			t.Errorf("error %v", err)
		}
	})
}

func TestADrainEndsTheWaitOfAFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, work.Config{Feed: awaitingFeed(nil, nil, nil), Handler: &fake{}})
		time.AfterFunc(time.Hour, r.Drain)
		if _, err := r.Run(context.Background()); !errors.Is(err, work.ErrDrained) {
			t.Errorf("error %v, want that of the drain", err)
		}
	})
}
