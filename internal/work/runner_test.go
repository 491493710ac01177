package work_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// answer is an attempt that takes a while and comes to an outcome.
func answer(took time.Duration, outcome func(item work.Item, n int) sluice.Outcome) work.Attempt {
	var (
		mu    sync.Mutex
		tries = make(map[string]int)
	)
	return func(ctx context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
		mu.Lock()
		n := tries[item.ID]
		tries[item.ID]++
		mu.Unlock()
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return work.Result{}, sluice.Outcome{Kind: sluice.Network, Err: ctx.Err()}
		}
		return work.Result{Response: work.Response{Payload: []byte(item.ID), FinishReason: "stop"}}, outcome(item, n)
	}
}

func always(kind sluice.Kind) func(work.Item, int) sluice.Outcome {
	return func(work.Item, int) sluice.Outcome {
		if kind == sluice.OK {
			return sluice.Outcome{Usage: sluice.Usage{Input: 3, Output: 2}, HasUsage: true}
		}
		return sluice.Outcome{Kind: kind, Err: errors.New(kind.String())}
	}
}

func TestReportCountsWhatBecameOfItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler(t, 4)
		r := newRunner(t, work.Config{Handler: calls(s, answer(time.Second, func(item work.Item, n int) sluice.Outcome {
			switch {
			case item.ID == "0":
				return sluice.Outcome{Kind: sluice.BadRequest, Err: errors.New("no such field")}
			case item.ID == "1" && n == 0:
				return sluice.Outcome{Kind: sluice.ServerError, Err: errors.New("oops"), Usage: sluice.Usage{Input: 3}, HasUsage: true}
			}
			return sluice.Outcome{Usage: sluice.Usage{Input: 3, Output: 2}, HasUsage: true}
		}))})
		add(t, r, numbered(10)...)
		rep, err := r.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if rep.Items != 10 || rep.Done != 9 || rep.Failed != 1 {
			t.Errorf("items %d, done %d, failed %d", rep.Items, rep.Done, rep.Failed)
		}
		if rep.Kinds[sluice.OK] != 9 || rep.Kinds[sluice.BadRequest] != 1 || rep.Finish["stop"] != 9 {
			t.Errorf("kinds %v, finish %v", rep.Kinds, rep.Finish)
		}
		if rep.Attempts != 11 || rep.Usage != (sluice.Usage{Input: 30, Output: 18}) {
			t.Errorf("attempts %d, usage %+v: want those of failed attempts too", rep.Attempts, rep.Usage)
		}
		if rep.Queued == 0 || rep.Backoff == 0 || rep.Wall < 3*time.Second {
			t.Errorf("queued %v, backoff %v, wall %v", rep.Queued, rep.Backoff, rep.Wall)
		}
	})
}

func TestSlotsStayBusyWithFewWorkersMoreThanSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, n = 64, 640
		s := scheduler(t, slots)
		var handling atomic.Int32
		var most highest
		inner := calls(s, answer(time.Second, always(sluice.OK)))
		r := newRunner(t, work.Config{Handler: work.HandlerFunc(func(ctx context.Context, item work.Item) (work.Result, error) {
			now := handling.Add(1)
			defer handling.Add(-1)
			most.of(now)
			return inner.Handle(ctx, item)
		})})
		add(t, r, numbered(n)...)
		rep, err := r.Run(context.Background())
		if err != nil || rep.Done != n {
			t.Fatalf("done %d, error %v", rep.Done, err)
		}
		if rep.Wall > n/slots*time.Second+time.Second { // the slots are tried out in less than one
			t.Errorf("took %v, want about %v: slots were left idle", rep.Wall, n/slots*time.Second)
		}
		if m := most.Load(); m > 3*slots {
			t.Errorf("%d items were handled at once for %d slots", m, slots)
		}
	})
}

func TestSlotsBeyondAThousandAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, n = 2500, 5000
		r := newRunner(t, work.Config{Handler: calls(scheduler(t, slots), answer(time.Second, always(sluice.OK)))})
		add(t, r, numbered(n)...)
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != n || rep.Wall > 2900*time.Millisecond { // the slots are tried out in less than one
			t.Errorf("done %d in %v, error %v: want less than 3 s", rep.Done, rep.Wall, err)
		}
	})
}

func TestLongCallsDoNotHoldBackThosePacedByARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 600, Concurrency: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := newRunner(t, work.Config{Handler: calls(s, answer(time.Minute, always(sluice.OK)))})
		add(t, r, numbered(200)...)
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != 200 || rep.Wall > 85*time.Second {
			t.Errorf("done %d in %v, error %v: want a minute and 20 s", rep.Done, rep.Wall, err)
		}
	})
}

func TestWorkersBoundPlainHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, work.Config{Handler: &fake{took: time.Second}, Workers: 5})
		r2 := newRunner(t, work.Config{Handler: &fake{took: time.Second}})
		add(t, r, numbered(20)...)
		add(t, r2, numbered(20)...)
		if rep, _ := r.Run(context.Background()); rep.Wall != 4*time.Second || rep.Done != 20 {
			t.Errorf("20 items of a second by 5 workers took %v, want 4 s", rep.Wall)
		}
		if rep, _ := r2.Run(context.Background()); rep.Wall != time.Second || rep.Done != 20 {
			t.Errorf("20 items of a second by any workers took %v, want 1 s", rep.Wall)
		}
	})
}

func TestNoMoreAnswersAreUnrecordedThanCallsMayBeOpen(t *testing.T) {
	// A kill loses the calls that are open and the answers that are not recorded: together no more than there are slots.
	const slots, n = 4, 60
	for _, took := range []time.Duration{time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int32
			var most highest
			r := newRunner(t, work.Config{
				Journal: openJournal(t, journalPath(t), work.JournalConfig{}),
				Encode: func(dst []byte, res *work.Result) []byte {
					time.Sleep(took) // a slow disk
					defer open.Add(-1)
					return encode(dst, res)
				},
				Handler: calls(scheduler(t, slots), func(context.Context, *sluice.Permit, work.Item) (work.Result, sluice.Outcome) {
					now := open.Add(1)
					most.of(now)
					time.Sleep(time.Second)
					return work.Result{}, sluice.Outcome{}
				}),
			})
			add(t, r, numbered(n)...)
			rep, err := r.Run(context.Background())
			if err != nil || rep.Done != n || rep.Wall > n/slots*(time.Second+took)+time.Second {
				t.Errorf("done %d in %v, error %v", rep.Done, rep.Wall, err)
			}
			if m := int(most.Load()); m > slots {
				t.Errorf("%d calls were open or unrecorded, with %d slots", m, slots)
			}
		})
	}
}

func TestFeedErrorEndsIntakeAndKeepsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("line 7 is bad")
		r := newRunner(t, work.Config{Handler: &fake{took: time.Second}, Feed: func(context.Context) iter.Seq2[work.Item, error] {
			return func(yield func(work.Item, error) bool) {
				for _, item := range numbered(6) {
					if !yield(item, nil) {
						return
					}
				}
				time.Sleep(500 * time.Millisecond)
				yield(work.Item{}, boom)
			}
		}})
		rep, err := r.Run(context.Background())
		if !errors.Is(err, boom) || rep.Done != 6 || rep.Failed != 0 {
			t.Errorf("error %v, done %d, failed %d: want the 6 that were open", err, rep.Done, rep.Failed)
		}
	})
}

func TestOnePausedLaneDoesNotStopAnother(t *testing.T) {
	// All items of the slow lane come first, and there are many more than a queue holds.
	const n = 500
	items := numbered(2 * n)
	for i := range items {
		items[i].Lane, items[i].Ref = "slow", int64(i)
		if i >= n {
			items[i].Lane = "fast"
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := scheduler(t, 2)
		start := time.Now()
		var order []string
		var mu sync.Mutex
		var fastDone time.Duration
		r := newRunner(t, work.Config{Feed: feedOf(items...), Queue: 16, Lanes: 2,
			Reload: func(seq, ref int64) (work.Item, error) { return items[ref], nil },
			Handler: calls(s, func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
				if item.Lane == "slow" {
					time.Sleep(10 * time.Second)
					mu.Lock()
					order = append(order, item.ID)
					mu.Unlock()
				} else {
					time.Sleep(10 * time.Millisecond)
				}
				return work.Result{}, sluice.Outcome{}
			}),
			OnResult: func(res *work.Result) {
				if res.Lane == "fast" {
					mu.Lock()
					fastDone = time.Since(start)
					mu.Unlock()
				}
			},
		})
		rep, err := r.Run(context.Background())
		if err != nil || rep.Done != 2*n {
			t.Fatalf("done %d, error %v", rep.Done, err)
		}
		if fastDone > time.Minute {
			t.Errorf("the fast lane was done after %v of %v", fastDone, rep.Wall)
		}
		inOrder := 0
		for i, id := range order {
			if k, _ := strconv.Atoi(id); max(k-i, i-k) <= 60 {
				inOrder++
			}
		}
		if inOrder != n {
			t.Errorf("only %d of the slow lane's %d items were near their place", inOrder, n)
		}
	})
}

func TestQueueBytesBoundWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fed atomic.Int32
		h := &fake{took: time.Second}
		r := newRunner(t, work.Config{Handler: h, Workers: 1, QueueBytes: 100, Feed: func(context.Context) iter.Seq2[work.Item, error] {
			return func(yield func(work.Item, error) bool) {
				for i := range 50 {
					fed.Add(1)
					if !yield(work.Item{ID: strconv.Itoa(i), Size: 40 + i%2*1000}, nil) {
						return
					}
				}
			}
		}})
		time.AfterFunc(10500*time.Millisecond, func() {
			if ahead := int(fed.Load()) - h.counts()[1]; ahead > 4 {
				t.Errorf("%d items wait, although two fill the bytes", ahead)
			}
		})
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != 50 {
			t.Errorf("done %d, error %v: want all, however large", rep.Done, err)
		}
	})
}

func TestItemsOfALaneGoInOrder(t *testing.T) {
	s := scheduler(t, 1)
	var order []int64
	r := newRunner(t, work.Config{Workers: 1, Handler: calls(s, func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
		order = append(order, item.Seq)
		return work.Result{}, sluice.Outcome{}
	})})
	add(t, r, numbered(300)...)
	if _, err := r.Run(context.Background()); err != nil || !slices.IsSorted(order) || len(order) != 300 {
		t.Errorf("error %v, order %v", err, order)
	}
}

func TestNewNamesTheWrongField(t *testing.T) {
	h := &fake{}
	for _, cfg := range []work.Config{{}, {Handler: h, Workers: -1}, {Handler: h, Queue: -1}, {Handler: h, QueueBytes: -1}, {Handler: h, Journal: &work.Journal{}}} {
		if _, err := work.New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}
