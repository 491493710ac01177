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

func TestPrepareErrorEndsTheRunBeforeAnythingIsSent(t *testing.T) {
	h := &fake{prepareErr: errors.New("no cache"), closeErr: errors.New("never opened")}
	r := newRunner(t, work.Config{Handler: h})
	add(t, r, numbered(4)...)
	rep, err := r.Run(context.Background())
	if !errors.Is(err, h.prepareErr) || !errors.Is(err, h.closeErr) {
		t.Errorf("error %v, want those of Prepare and Close", err)
	}
	if got, want := h.counts(), [3]int{1, 0, 1}; got != want || rep.Done+rep.Failed != 0 {
		t.Errorf("prepared, handled, closed %v times, want %v", got, want)
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

func TestCloseErrorIsReportedAndChangesNothingElse(t *testing.T) {
	h := &fake{closeErr: errors.New("late")}
	r := newRunner(t, work.Config{Handler: h})
	add(t, r, numbered(3)...)
	rep, err := r.Run(context.Background())
	if !errors.Is(err, h.closeErr) || rep.Done != 3 || rep.Failed != 0 {
		t.Errorf("report %+v, error %v: want 3 done and that of Close", rep, err)
	}
}

func TestGivenResultsAreRecordedWithoutTheHandler(t *testing.T) {
	h, no := &fake{}, errors.New("no")
	r := newRunner(t, work.Config{Handler: h})
	add(t, r, work.Item{ID: "good", Given: &work.Given{}}, work.Item{ID: "bad", Given: &work.Given{Err: no}})
	if rep, err := r.Run(context.Background()); err != nil || rep.Done != 1 || rep.Failed != 1 {
		t.Errorf("report %+v, error %v: want 1 done and 1 failed", rep, err)
	}
	if got, want := h.counts(), [3]int{0, 0, 1}; got != want {
		t.Errorf("prepared, handled, closed %v times, want %v", got, want)
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
		checkPanic(t, calls(s, func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
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
			Earlier: func() (total, recorded, failed int) { return 2, 1, 0 },
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
