package work_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// A lane that pauses for hours holds all of QueueBytes; the other lane must go on all the same.
func TestAPausedLaneOfLargeItemsDoesNotStopAnother(t *testing.T) {
	const n = 50
	items := numbered(2 * n)
	for i := range items {
		items[i].Lane, items[i].Ref, items[i].Size = "slow", int64(i), 1<<20
		if i >= n {
			items[i].Lane = "fast"
		}
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var fastDone time.Duration
		var fast atomic.Int32
		r := newRunner(t, work.Config{Feed: feedOf(items...), Lanes: 2, QueueBytes: 8 << 20,
			Reload: func(seq, ref int64) (work.Item, error) { return items[ref], nil },
			Handler: calls(scheduler(t, 2), func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
				if item.Lane == "slow" {
					time.Sleep(time.Hour)
				} else {
					time.Sleep(10 * time.Millisecond)
				}
				return work.Result{}, sluice.Outcome{}
			}),
			OnResult: func(res *work.Result) {
				if res.Lane == "fast" && fast.Add(1) == n {
					fastDone = time.Since(start)
				}
			},
		})
		rep, err := r.Run(context.Background())
		if err != nil || rep.Done != 2*n {
			t.Fatalf("done %d, error %v", rep.Done, err)
		}
		if fastDone > time.Minute {
			t.Errorf("the fast lane's 50 calls of 10 ms were done after %v", fastDone)
		}
	})
}

// Calls that wait on their own before another attempt use no slot: they must not keep those behind them from the slots.
func TestCallsThatBackOffLeaveTheSlotsToOthers(t *testing.T) {
	const slots, bad, n = 8, 32, 200
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var goodDone time.Duration
		var good atomic.Int32
		r := newRunner(t, work.Config{
			Handler: calls(scheduler(t, slots), func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
				time.Sleep(10 * time.Millisecond)
				if item.Seq < bad { // the host asks for a minute, for these alone
					return work.Result{}, sluice.Outcome{Kind: sluice.InvalidOutput, Wait: time.Minute}
				}
				return work.Result{}, sluice.Outcome{}
			}),
			OnResult: func(res *work.Result) {
				if res.Kind == sluice.OK && good.Add(1) == n-bad {
					goodDone = time.Since(start)
				}
			},
		})
		add(t, r, numbered(n)...)
		rep, err := r.Run(context.Background())
		t.Logf("%+v %v; the good ones were done after %v", rep, err, goodDone)
		if goodDone > 30*time.Second {
			t.Errorf("168 good calls of 10 ms on 8 free slots were done after %v: the calls in backoff held all workers", goodDone)
		}
	})
}

func TestAnItemWhoseHandlerEndsItsGoroutineIsNotLostInSilence(t *testing.T) {
	r := newRunner(t, work.Config{Workers: 1, Handler: work.HandlerFunc(func(_ context.Context, item work.Item) (work.Result, error) {
		if item.Seq == 0 {
			runtime.Goexit() // t.FailNow, in a test's handler
		}
		return work.Result{}, nil
	})})
	add(t, r, numbered(10)...)
	rep, err := r.Run(context.Background())
	if left := 10 - rep.Done - rep.Failed; err == nil && left > 0 {
		t.Errorf("no error, and %d of 10 items are neither done nor failed", left)
	}
}
