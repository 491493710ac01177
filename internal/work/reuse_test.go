package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"pgregory.net/rapid"
)

// twins gives items with these ids, and then err if it is not nil.
func twins(err error, ids ...string) iter.Seq2[work.Duplicate, error] {
	return func(yield func(work.Duplicate, error) bool) {
		for i, id := range ids {
			if !yield(work.Duplicate{ID: id, Seq: int64(100 + i)}, nil) {
				return
			}
		}
		if err != nil {
			yield(work.Duplicate{}, err)
		}
	}
}

func TestAResultMayBeOfSeveralItems(t *testing.T) {
	for name, kind := range map[string]sluice.Kind{"good": sluice.OK, "failed": sluice.BadRequest} {
		t.Run(name, func(t *testing.T) {
			j := openJournal(t, journalPath(t), work.JournalConfig{})
			var told []string
			r := newRunner(t, work.Config{
				Journal: j, Encode: encode, Workers: 1, Handler: work.Calls(scheduler(t, 1), answer(0, always(kind))),
				OnResult: func(r *work.Result) {
					told = append(told, fmt.Sprintf("%s %d %q %d %v", r.ID, r.Seq, r.DuplicateOf, r.Tally.Attempts, r.Kind))
				},
			})
			add(t, r, work.Item{ID: "a", Seq: 1, Also: twins(nil, "b", "c")}, work.Item{ID: "d", Seq: 2, Also: twins(nil)})
			rep, err := r.Run(context.Background())
			if err != nil || rep.Items != 4 || rep.Done+rep.Failed != 4 || rep.Twins != 2 || rep.Attempts != 2 {
				t.Errorf("%+v, %v", rep, err)
			}
			k := kind.String()
			if got, want := linesOf(t, j), []string{"a " + k, "b " + k, "c " + k, "d " + k}; !slices.Equal(got, want) {
				t.Errorf("lines %q, want %q", got, want)
			}
			want := []string{`a 1 "" 1 ` + k, `b 100 "a" 0 ` + k, `c 101 "a" 0 ` + k, `d 2 "" 1 ` + k}
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
		})
	}
}

func TestTwinsOfAHandlerThatPanicsOrEndsItsGoroutineAreRecorded(t *testing.T) {
	j := openJournal(t, journalPath(t), work.JournalConfig{})
	r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: work.HandlerFunc(func(_ context.Context, item work.Item) (work.Result, error) {
		if item.ID == "a" {
			panic("no")
		}
		runtime.Goexit()
		return work.Result{}, nil
	})})
	add(t, r, work.Item{ID: "a", Also: twins(nil, "b")}, work.Item{ID: "c", Also: twins(nil, "d")})
	if rep, err := r.Run(context.Background()); err != nil || rep.Failed != 4 || len(linesOf(t, j)) != 4 {
		t.Errorf("%+v, %v, lines %q", rep, err, linesOf(t, j))
	}
}

func TestTwinsThatCannotBeFoundEndTheRun(t *testing.T) {
	j := openJournal(t, journalPath(t), work.JournalConfig{})
	gone := errors.New("gone")
	r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: work.Calls(scheduler(t, 1), answer(0, always(sluice.OK)))})
	add(t, r, work.Item{ID: "a", Also: twins(gone, "b")})
	rep, err := r.Run(context.Background())
	if !errors.Is(err, gone) || rep.Done != 2 || len(linesOf(t, j)) != 2 {
		t.Errorf("%+v, %v, lines %q: want what was found to be recorded", rep, err, linesOf(t, j))
	}
}

func TestManyTwinsAreWrittenInBlocks(t *testing.T) {
	const n = 30_000
	j := openJournal(t, journalPath(t), work.JournalConfig{})
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	told := 0
	r := newRunner(t, work.Config{
		Journal: j, Handler: work.Calls(scheduler(t, 1), answer(0, always(sluice.OK))), OnResult: func(*work.Result) { told++ },
		Encode: func(dst []byte, r *work.Result) []byte {
			if cap(dst) > 8<<20 {
				t.Errorf("%d bytes are held", cap(dst))
			}
			return append(append(append(dst, r.ID...), strings.Repeat("x", 200)...), '\n')
		},
	})
	add(t, r, work.Item{ID: "a", Also: twins(nil, ids...)})
	if rep, err := r.Run(context.Background()); err != nil || rep.Done != n+1 || told != n+1 || len(linesOf(t, j)) != n+1 {
		t.Errorf("%+v, told %d, %v", rep, told, err)
	}
}

func TestAStoppedItemTakesNoTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, journalPath(t), work.JournalConfig{Sync: work.SyncNone})
		r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: work.Calls(scheduler(t, 1), answer(time.Second, always(sluice.Network)))})
		add(t, r, work.Item{ID: "a", Also: func(func(work.Duplicate, error) bool) { t.Error("asked") }})
		time.AfterFunc(500*time.Millisecond, r.Drain)
		if rep, err := r.Run(context.Background()); !errors.Is(err, work.ErrDrained) || rep.Done+rep.Failed != 0 {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

// TestLinesAreReadAgainWhereverTheyAre appends blocks of lines before and after a rewrite.
func TestLinesAreReadAgainWhereverTheyAre(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		path := journalPath(t)
		var text []byte
		for i := range luck.IntN(20) {
			text = append(text, fmt.Sprintf("%d %s\n", i, strings.Repeat("x", luck.IntN(40_000)))...)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			rt.Fatal(err)
		}
		j, err := work.OpenJournal(path, work.JournalConfig{Sync: work.SyncNone, Reread: true})
		if err != nil {
			rt.Fatal(err)
		}
		defer j.Close()
		want, kept := map[int64]string{}, map[int64]bool{}
		for line, err := range j.Lines() {
			if err != nil {
				rt.Fatal(err)
			}
			want[line.Offset] = string(line.Bytes)
			kept[line.Offset] = luck.IntN(2) == 0
		}
		rewritten := luck.IntN(4) > 0
		if rewritten {
			j.Rewrite(func(l work.Line) bool { return kept[l.Offset] })
		}
		look := func(dropped bool) {
			for offset, text := range want {
				got, err := j.ReadLine(offset)
				if k, old := kept[offset]; dropped && old && !k {
					if err == nil {
						rt.Fatalf("a line that was dropped is %q", got)
					}
					continue
				}
				if err != nil || string(got) != text {
					rt.Fatalf("the line at %d is %.20q, %v; want %.20q", offset, got, err, text)
				}
			}
		}
		look(false)
		for i := range luck.IntN(6) {
			block := bytes.Repeat([]byte(fmt.Sprintf("new %d\n", i)), luck.IntN(3)+1)
			at, err := j.AppendAt(block)
			if err != nil {
				rt.Fatal(err)
			}
			if _, there := want[at]; there {
				rt.Fatalf("two lines are at %d", at)
			}
			want[at] = fmt.Sprintf("new %d", i)
			look(rewritten)
		}
	})
}

func TestATornBlockKeepsItsWholeLines(t *testing.T) {
	path := journalPath(t)
	j := openJournal(t, path, work.JournalConfig{})
	if err := j.Append([]byte("one\ntwo\nthree\n")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len("one\ntwo\nth"))); err != nil {
		t.Fatal(err)
	}
	if got := linesOf(t, openJournal(t, path, work.JournalConfig{})); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("lines %q", got)
	}
}

// immediate is a layer that does nothing, and waits for nothing.
type immediate struct {
	work.Handler
	before func(ctx context.Context, item work.Item) error
}

func (immediate) Immediate() {}

func (i immediate) Handle(ctx context.Context, item work.Item) (work.Result, error) {
	if i.before != nil {
		if err := i.before(ctx, item); err != nil {
			return work.Result{}, err
		}
	}
	return i.Handler.Handle(ctx, item)
}

func around(before func(context.Context, work.Item) error) work.Middleware {
	return func(h work.Handler) work.Handler { return &immediate{h, before} }
}

func TestImmediateLayersKeepAnswersCountedUntilTheyAreRecorded(t *testing.T) {
	// As TestNoMoreAnswersAreUnrecordedThanCallsMayBeOpen, with layers around the calls.
	const slots, n = 4, 60
	plain := func(h work.Handler) work.Handler { return work.HandlerFunc(h.Handle) }
	for name, layers := range map[string][]work.Middleware{
		"immediate": {around(nil), around(nil)}, "one that may wait": {around(nil), plain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var open atomic.Int32
				var most highest
				calls := work.Calls(scheduler(t, slots), func(context.Context, *sluice.Permit, work.Item) (work.Result, sluice.Outcome) {
					now := open.Add(1)
					most.of(now)
					time.Sleep(time.Second)
					return work.Result{}, sluice.Outcome{}
				})
				r := newRunner(t, work.Config{
					Journal: openJournal(t, journalPath(t), work.JournalConfig{Sync: work.SyncNone}),
					Encode: func(dst []byte, res *work.Result) []byte {
						time.Sleep(3 * time.Second) // a slow disk
						defer open.Add(-1)
						return encode(dst, res)
					},
					Handler: work.Chain(work.Chain(calls, layers[1]), layers[0]),
				})
				add(t, r, numbered(n)...)
				rep, err := r.Run(context.Background())
				if err != nil || rep.Done != n {
					t.Errorf("done %d, error %v", rep.Done, err)
				}
				if m, kept := int(most.Load()), name == "immediate"; kept != (m <= slots) {
					t.Errorf("%d calls were open or unrecorded, with %d slots", m, slots)
				}
			})
		})
	}
}

func TestAnImmediateLayerMayCallAgain(t *testing.T) {
	twice := func(h work.Handler) work.Handler {
		return &immediate{h, func(ctx context.Context, item work.Item) error { _, err := h.Handle(ctx, item); return err }}
	}
	r := newRunner(t, work.Config{
		Journal: openJournal(t, journalPath(t), work.JournalConfig{}), Encode: encode,
		Handler: work.Chain(work.Calls(scheduler(t, 2), answer(0, always(sluice.OK))), twice),
	})
	add(t, r, numbered(50)...)
	if rep, err := r.Run(context.Background()); err != nil || rep.Done != 50 {
		t.Errorf("%+v, %v", rep, err)
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
			calls := work.Calls(scheduler(t, slots), func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
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
			r := newRunner(t, work.Config{Workers: workers, Handler: work.Chain(calls, around(func(ctx context.Context, item work.Item) error {
				if item.Seq == 0 || item.Seq >= n/2 {
					return nil
				}
				now := aside.Add(1)
				defer aside.Add(-1)
				mostAside.of(now)
				return work.Await(ctx, ready)
			}))})
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
		r := newRunner(t, work.Config{QueueBytes: 1000, Handler: work.Chain(work.Calls(scheduler(t, 10), answer(time.Second, always(sluice.OK))),
			around(func(ctx context.Context, item work.Item) error {
				aside.Add(1)
				return work.Await(ctx, ready)
			}))})
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
				r := newRunner(t, work.Config{Handler: work.Chain(work.Calls(scheduler(t, 1), answer(0, always(sluice.OK))),
					around(func(ctx context.Context, _ work.Item) error { return work.Await(ctx, never) }))})
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

func TestIndexKnowsTheFirstOfEqualHashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 4))
		var x work.Index
		model := map[work.Hash]int{}
		for i := range rapid.IntRange(0, 5000).Draw(rt, "n") {
			hash := work.HashOf(fmt.Append(nil, luck.IntN(2000)))
			x.Add(i, fmt.Append(nil, i), hash)
			if luck.IntN(10) == 0 {
				continue // such as a line that is no request
			}
			first, known := model[hash]
			if got, ok := x.AddHash(i, hash); ok == known || known && got != first {
				rt.Fatalf("AddHash(%d) = %d, %t; the model has %d, %t", i, got, ok, first, known)
			}
			if !known {
				model[hash] = i
			}
		}
		for v := range 2000 {
			hash := work.HashOf(fmt.Append(nil, v))
			first, known := model[hash]
			if got, ok := x.FindHash(hash); ok != known || ok && got != first {
				rt.Fatalf("FindHash = %d, %t; the model has %d, %t", got, ok, first, known)
			}
		}
	})
}
