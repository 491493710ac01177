package work_test

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// scheduler returns a Scheduler with that many slots, which is closed with the test.
func scheduler(t testing.TB, slots int) *sluice.Scheduler {
	t.Helper()
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: slots}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// calls returns a Calls at a Scheduler.
func calls(s *sluice.Scheduler, attempt work.Attempt) *work.Calls {
	return work.NewCalls(work.CallsConfig{Scheduler: s, Attempt: attempt})
}

// added are the items of each Runner that newRunner returned, for a Config without Feed.
var added sync.Map

func newRunner(t testing.TB, cfg work.Config) *work.Runner {
	t.Helper()
	items := new([]work.Item)
	if cfg.Feed == nil {
		cfg.Feed = func(ctx context.Context) iter.Seq2[work.Item, error] { return feedOf(*items...)(ctx) }
	}
	r, err := work.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	added.Store(r, items)
	return r
}

// add adds items to the feed of a Runner that does not run yet.
func add(t testing.TB, r *work.Runner, items ...work.Item) {
	t.Helper()
	of, _ := added.Load(r)
	*of.(*[]work.Item) = append(*of.(*[]work.Item), items...)
}

// numbered returns the items 0 … n-1.
func numbered(n int) []work.Item {
	items := make([]work.Item, n)
	for i := range items {
		items[i] = work.Item{ID: strconv.Itoa(i), Seq: int64(i)}
	}
	return items
}

// feedOf returns a feed of items.
func feedOf(items ...work.Item) func(context.Context) iter.Seq2[work.Item, error] {
	return func(context.Context) iter.Seq2[work.Item, error] {
		return func(yield func(work.Item, error) bool) {
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// encode is a result's line: its ID, and its kind.
func encode(dst []byte, r *work.Result) []byte {
	return append(append(append(append(dst, r.ID...), ' '), r.Kind.String()...), '\n')
}

func journalPath(t testing.TB) string { return filepath.Join(t.TempDir(), "out.jsonl") }

func openJournal(t testing.TB, path string, cfg work.JournalConfig) *work.Journal {
	t.Helper()
	j, err := work.OpenJournal(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func linesOf(t testing.TB, j *work.Journal) []string {
	t.Helper()
	var lines []string
	for line, err := range j.Lines() {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line.Bytes))
	}
	return lines
}

// fake is a Handler that counts what is done to it.
type fake struct {
	mu       sync.Mutex
	prepared int
	closed   int
	handled  int

	prepareErr, closeErr, handleErr error
	took                            time.Duration
}

func (f *fake) Prepare(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prepared++
	return f.prepareErr
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return f.closeErr
}

func (f *fake) Handle(ctx context.Context, _ work.Item) (work.Result, error) {
	f.mu.Lock()
	f.handled++
	if f.prepared == 0 || f.closed > 0 {
		f.mu.Unlock()
		return work.Result{}, errors.New("handled before Prepare or after Close")
	}
	f.mu.Unlock()
	select {
	case <-time.After(f.took):
		return work.Result{}, f.handleErr
	case <-ctx.Done():
		return work.Result{}, ctx.Err()
	}
}

func (f *fake) counts() [3]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return [3]int{f.prepared, f.handled, f.closed}
}

// highest keeps the highest number that it was given.
type highest struct{ atomic.Int32 }

func (h *highest) of(n int32) {
	for m := h.Load(); n > m && !h.CompareAndSwap(m, n); m = h.Load() {
	}
}
