package work_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// around returns the Config of a run that does something before each call.
func around(c *work.Calls, before func(ctx context.Context, item work.Item) error) work.Config {
	return work.Config{Calls: c, Handler: work.HandlerFunc(func(ctx context.Context, item work.Item) (work.Result, error) {
		if err := before(ctx, item); err != nil {
			return work.Result{}, err
		}
		return c.Handle(ctx, item)
	})}
}

func TestAHandlerOfCallsKeepsAnswersCountedUntilTheyAreRecorded(t *testing.T) {
	// As TestNoMoreAnswersAreUnrecordedThanCallsMayBeOpen, with something before the calls.
	const slots, n = 4, 60
	for _, name := range []string{"its calls", "any handler"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var open atomic.Int32
				var most highest
				calls := calls(scheduler(t, slots), func(context.Context, *sluice.Permit, work.Item) (work.Result, sluice.Outcome) {
					now := open.Add(1)
					most.of(now)
					time.Sleep(time.Second)
					return work.Result{}, sluice.Outcome{}
				})
				cfg := around(calls, func(context.Context, work.Item) error { return nil })
				if name != "its calls" {
					cfg.Calls = nil
				}
				cfg.Journal = openJournal(t, journalPath(t), work.JournalConfig{})
				cfg.Encode = func(dst []byte, res *work.Result) []byte {
					time.Sleep(3 * time.Second) // a slow disk
					defer open.Add(-1)
					return encode(dst, res)
				}
				r := newRunner(t, cfg)
				add(t, r, numbered(n)...)
				rep, err := r.Run(context.Background())
				if err != nil || rep.Done != n {
					t.Errorf("done %d, error %v", rep.Done, err)
				}
				if m, kept := int(most.Load()), name == "its calls"; kept != (m <= slots) {
					t.Errorf("%d calls were open or unrecorded, with %d slots", m, slots)
				}
			})
		})
	}
}

func TestThoseAsideKeepNobodyFromTheirCalls(t *testing.T) {
	// Half of the items wait for one that takes long; the others go past them, with no more workers than that takes.
	const n, slots = 400, 10
	for _, workers := range []int{0, 20} {
		synctest.Test(t, func(t *testing.T) {
			ready := make(chan struct{})
			var aside atomic.Int32
			var mostAside highest
			begun := time.Now()
			var mu sync.Mutex
			var last time.Time // of those that need not wait
			calls := calls(scheduler(t, slots), func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
				if item.Seq == 0 {
					time.Sleep(time.Hour)
					close(ready)
				}
				time.Sleep(time.Second)
				if item.Seq >= n/2 {
					mu.Lock()
					last = time.Now()
					mu.Unlock()
				}
				return work.Result{}, sluice.Outcome{}
			})
			cfg := around(calls, func(ctx context.Context, item work.Item) error {
				if item.Seq == 0 || item.Seq >= n/2 {
					return nil
				}
				now := aside.Add(1)
				defer aside.Add(-1)
				mostAside.of(now)
				return work.Await(ctx, ready)
			})
			cfg.Workers = workers
			r := newRunner(t, cfg)
			add(t, r, numbered(n)...)
			rep, err := r.Run(context.Background())
			if err != nil || rep.Done != n {
				t.Fatalf("%+v, %v", rep, err)
			}
			if took := last.Sub(begun); took > 25*time.Second {
				t.Errorf("workers %d: those that need not wait took %v", workers, took)
			}
			if m := mostAside.Load(); m != n/2-1 {
				t.Errorf("%d waited aside, want %d", m, n/2-1)
			}
			if want := time.Hour + 25*time.Second; rep.Wall > want {
				t.Errorf("took %v, want at most %v", rep.Wall, want)
			}
		})
	}
}

func TestAsideIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		var aside atomic.Int32
		cfg := around(calls(scheduler(t, 10), answer(time.Second, always(sluice.OK))), func(ctx context.Context, item work.Item) error {
			aside.Add(1)
			return work.Await(ctx, ready)
		})
		cfg.QueueBytes = 1000
		r := newRunner(t, cfg)
		items := numbered(500)
		for i := range items {
			items[i].Size = 10
		}
		add(t, r, items...)
		time.AfterFunc(time.Minute, func() {
			if n := aside.Load(); n < 100 || n > 100+20 {
				t.Errorf("%d items wait, want some 100 and the 16 that always may", n)
			}
			close(ready)
		})
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != 500 {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

func TestAStopEndsWaitingAside(t *testing.T) {
	enough := errors.New("enough")
	for name, stop := range map[string]func(r *work.Runner, cancel func()){
		"drain":  func(r *work.Runner, _ func()) { r.Drain() },
		"stop":   func(r *work.Runner, _ func()) { r.Stop(enough) },
		"cancel": func(_ *work.Runner, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				r := newRunner(t, around(calls(scheduler(t, 1), answer(0, always(sluice.OK))), func(ctx context.Context, _ work.Item) error {
					return work.Await(ctx, never)
				}))
				add(t, r, numbered(100)...)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				time.AfterFunc(time.Minute, func() { stop(r, cancel) })
				rep, err := r.Run(ctx)
				if err == nil || rep.Done+rep.Failed != 0 || rep.Wall != time.Minute {
					t.Errorf("%+v, %v", rep, err)
				}
			})
		})
	}
}

func TestAsideOutsideOfARunner(t *testing.T) {
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := work.Await(ctx, ready); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	close(ready)
	if err := work.Await(ctx, ready); err != nil {
		t.Errorf("what is ready is ready: %v", err)
	}
}
