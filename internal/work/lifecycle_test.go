package work_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

func TestHandlerSharedByItemsIsPreparedAndClosedOnce(t *testing.T) {
	h := &fake{}
	r := newRunner(t, work.Config{Handler: h})
	add(t, r, numbered(50)...)
	rep, err := r.Run(context.Background())
	if err != nil || rep.Done != 50 {
		t.Fatalf("done %d, error %v", rep.Done, err)
	}
	if got, want := h.counts(), [3]int{1, 50, 1}; got != want {
		t.Errorf("prepared, handled, closed %v times, want %v", got, want)
	}
}

func TestSeveralHandlersArePreparedAndClosedEach(t *testing.T) {
	for _, form := range []string{"added", "fed"} {
		t.Run(form, func(t *testing.T) {
			hs := []*fake{{}, {}, {}}
			items := numbered(9)
			for i := range items {
				items[i].Handler = hs[i%3]
			}
			cfg := work.Config{}
			if form == "fed" {
				cfg.Feed = feedOf(items...)
			}
			r := newRunner(t, cfg)
			if form == "added" {
				add(t, r, items...)
			}
			if rep, err := r.Run(context.Background()); err != nil || rep.Done != 9 {
				t.Fatalf("done %d, error %v", rep.Done, err)
			}
			for i, h := range hs {
				if got, want := h.counts(), [3]int{1, 3, 1}; got != want {
					t.Errorf("handler %d: prepared, handled, closed %v times, want %v", i, got, want)
				}
			}
		})
	}
}

func TestPrepareErrorEndsTheRunBeforeAnythingIsSent(t *testing.T) {
	good, bad := &fake{}, &fake{prepareErr: errors.New("no cache")}
	r := newRunner(t, work.Config{})
	items := numbered(4)
	items[0].Handler, items[1].Handler, items[2].Handler, items[3].Handler = good, good, bad, good
	add(t, r, items...)
	rep, err := r.Run(context.Background())
	if !errors.Is(err, bad.prepareErr) {
		t.Fatalf("error %v, want %v", err, bad.prepareErr)
	}
	if _, ok := errors.AsType[*work.PrepareError](err); !ok {
		t.Errorf("error is %T, want *PrepareError", err)
	}
	if rep.Done+rep.Failed != 0 || good.counts()[1] != 0 {
		t.Errorf("%d items were handled", good.counts()[1])
	}
	if good.counts()[2] != 1 || bad.counts()[2] != 1 {
		t.Errorf("closed %d and %d times, want once each", good.counts()[2], bad.counts()[2])
	}
}

func TestHandlerIsClosedAfterARunThatFailed(t *testing.T) {
	boom := errors.New("bad line")
	tests := []struct {
		name string
		run  func(t *testing.T, h *fake) error
		want error
	}{
		{"failed items", func(t *testing.T, h *fake) error {
			h.handleErr = errors.New("no")
			r := newRunner(t, work.Config{Handler: h})
			add(t, r, numbered(3)...)
			rep, err := r.Run(context.Background())
			if rep.Failed != 3 {
				t.Errorf("failed %d, want 3", rep.Failed)
			}
			return err
		}, nil},
		{"feed error", func(t *testing.T, h *fake) error {
			r := newRunner(t, work.Config{Handler: h, Feed: func(context.Context) iter.Seq2[work.Item, error] {
				return func(yield func(work.Item, error) bool) {
					_ = yield(work.Item{ID: "a"}, nil) && yield(work.Item{}, boom)
				}
			}})
			_, err := r.Run(context.Background())
			return err
		}, boom},
		{"cancelled", func(t *testing.T, h *fake) error {
			h.took = time.Hour
			r := newRunner(t, work.Config{Handler: h})
			add(t, r, numbered(3)...)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := r.Run(ctx)
			return err
		}, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fake{}
				if err := tt.run(t, h); !errors.Is(err, tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				if h.counts()[2] != 1 {
					t.Errorf("closed %d times, want once", h.counts()[2])
				}
			})
		})
	}
}

func TestCloseErrorsChangeNothing(t *testing.T) {
	hs := []*fake{{closeErr: errors.New("first")}, {}, {closeErr: errors.New("third")}}
	r := newRunner(t, work.Config{})
	for i, h := range hs {
		add(t, r, work.Item{ID: string(rune('a' + i)), Handler: h})
	}
	rep, err := r.Run(context.Background())
	if err != nil || rep.Done != 3 || rep.Failed != 0 {
		t.Errorf("report %+v, error %v: want 3 done and no error", rep, err)
	}
	for i, h := range hs {
		if h.counts()[2] != 1 {
			t.Errorf("handler %d was closed %d times, want once", i, h.counts()[2])
		}
	}
}

func TestARunnerRunsOnce(t *testing.T) {
	r := newRunner(t, work.Config{Handler: &fake{}})
	add(t, r, numbered(1)...)
	if _, err := r.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := r.Add(work.Item{}); !errors.Is(err, work.ErrStarted) {
		t.Errorf("Add after the start: %v, want ErrStarted", err)
	}
	if _, err := r.Run(context.Background()); !errors.Is(err, work.ErrStarted) {
		t.Errorf("second Run: %v, want ErrStarted", err)
	}
}

func TestChainPreparesAndClosesEveryLayer(t *testing.T) {
	inner := &fake{}
	cache := &layer{fake: &fake{}}
	r := newRunner(t, work.Config{Handler: work.Chain(inner, func(h work.Handler) work.Handler {
		cache.next = h
		return cache
	})})
	add(t, r, work.Item{ID: "known"}, work.Item{ID: "new"})
	if rep, err := r.Run(context.Background()); err != nil || rep.Done != 2 {
		t.Fatalf("done %d, error %v", rep.Done, err)
	}
	if got, want := inner.counts(), [3]int{1, 1, 1}; got != want {
		t.Errorf("inner: prepared, handled, closed %v times, want %v", got, want)
	}
	if got, want := cache.counts(), [3]int{1, 0, 1}; got != want {
		t.Errorf("outer: prepared, handled, closed %v times, want %v", got, want)
	}
}

func TestALayerOfTwoChainsIsPreparedOnce(t *testing.T) {
	inner := &fake{}
	plain := func(h work.Handler) work.Handler { return work.HandlerFunc(h.Handle) }
	r := newRunner(t, work.Config{Feed: feedOf(
		work.Item{ID: "a", Handler: work.Chain(inner, plain)}, work.Item{ID: "b", Handler: work.Chain(inner, plain)},
	)})
	if rep, err := r.Run(context.Background()); err != nil || rep.Done != 2 {
		t.Fatalf("done %d, error %v", rep.Done, err)
	}
	if got, want := inner.counts(), [3]int{1, 2, 1}; got != want {
		t.Errorf("prepared, handled, closed %v times, want %v", got, want)
	}
}

// layer answers one item itself and leaves the others to the next handler.
type layer struct {
	*fake
	next work.Handler
}

func (l *layer) Handle(ctx context.Context, item work.Item) (work.Result, error) {
	if item.ID == "known" {
		return work.Result{}, nil
	}
	return l.next.Handle(ctx, item)
}

// valueHandler cannot be told from another of its type.
type valueHandler struct {
	work.HandlerFunc
	prepare func() error
}

func (v valueHandler) Prepare(context.Context) error { return v.prepare() }

func TestHandlerWithPrepareMustBeComparable(t *testing.T) {
	r := newRunner(t, work.Config{})
	err := r.Add(work.Item{Handler: valueHandler{}})
	if err == nil || !strings.Contains(err.Error(), "comparable") {
		t.Errorf("error %v, want one that says comparable", err)
	}
}

func TestPanicsAreErrors(t *testing.T) {
	t.Run("in a handler, it fails its item with the stack", func(t *testing.T) {
		checkPanic(t, work.HandlerFunc(func(_ context.Context, item work.Item) (work.Result, error) {
			if item.ID == "1" {
				panic("boom")
			}
			return work.Result{}, nil
		}))
	})
	t.Run("in an attempt, too, and the permit is given back", func(t *testing.T) {
		s := scheduler(t, 1)
		checkPanic(t, work.Calls(s, func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
			if item.ID == "1" {
				panic("boom")
			}
			return work.Result{}, sluice.Outcome{}
		}))
	})
	t.Run("in Prepare, it ends the run", func(t *testing.T) {
		r := newRunner(t, work.Config{Handler: panicky{}})
		add(t, r, numbered(1)...)
		_, err := r.Run(context.Background())
		if _, ok := errors.AsType[*sluice.PanicError](err); !ok {
			t.Errorf("error %v, want a *PanicError", err)
		}
	})
}

type panicky struct{}

func (panicky) Handle(context.Context, work.Item) (work.Result, error) { panic("handle") }
func (panicky) Prepare(context.Context) error                          { panic("prepare") }
func (panicky) Close() error                                           { panic("close") }

func checkPanic(t *testing.T, h work.Handler) {
	t.Helper()
	var mu sync.Mutex
	kinds := make(map[string]work.Result)
	r := newRunner(t, work.Config{Handler: h, OnResult: func(res *work.Result) {
		mu.Lock()
		defer mu.Unlock()
		kinds[res.ID] = *res
	}})
	add(t, r, numbered(3)...)
	if _, err := r.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(kinds) != 3 || kinds["0"].Kind != sluice.OK || kinds["2"].Kind != sluice.OK {
		t.Errorf("results %v, want 0 and 2 to be good", kinds)
	}
	p, ok := errors.AsType[*sluice.PanicError](kinds["1"].Err)
	if !ok || kinds["1"].Kind != sluice.Internal || !strings.Contains(string(p.Stack), "lifecycle_test.go") {
		t.Errorf("the panic came out as %v: %v", kinds["1"].Kind, kinds["1"].Err)
	}
}

// TestAStopWithNothingLeftIsNone has the last item's result stop a run whose feed has not said yet that it was the last: it
// was told how many there are.
func TestAStopWithNothingLeftIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded, concluded := make(chan struct{}), false
		var r *work.Runner
		r = newRunner(t, work.Config{
			Total: 2, Already: 1,
			Handler: work.HandlerFunc(func(context.Context, work.Item) (work.Result, error) { return work.Result{}, nil }),
			Feed: func(context.Context) iter.Seq2[work.Item, error] {
				return func(yield func(work.Item, error) bool) {
					yield(numbered(1)[0], nil)
					<-recorded
				}
			},
			OnResult: func(*work.Result) {
				r.Stop(errors.New("enough"))
				close(recorded)
			},
			Conclude: func() error { concluded = true; return nil },
		})
		if rep, err := r.Run(t.Context()); err != nil || rep.Done != 1 || !concluded {
			t.Errorf("done %d, concluded %v, error %v", rep.Done, concluded, err)
		}
	})
}
