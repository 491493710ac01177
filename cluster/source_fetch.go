package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// A Source fetches the tasks of the next aheadFor in advance, so that no item waits for a round trip to Redis. It fetches no more,
// because other workers might do them meanwhile.
const (
	aheadFor = 100 * time.Millisecond
	maxAhead = 64 // tasks
)

// fetching fetches tasks in advance, with one goroutine per task.
type fetching struct {
	source *Source
	cancel context.CancelFunc
	tasks  chan *fetched
	wg     sync.WaitGroup

	want, have atomic.Int32 // goroutines

	mu    sync.Mutex
	since time.Time // of the tasks that are counted
	count int
}

// fetched is a task, or the error in its place.
type fetched struct {
	task    Task
	err     error
	claimed atomic.Bool
	taken   chan struct{} // closed when the task is taken
}

// claim reports whether the caller is the first to claim it. The taker does the task, or the fetcher gives it back, never both.
func (g *fetched) claim() bool { return !g.claimed.Swap(true) }

// fetch starts to fetch.
func (s *Source) fetch(ctx context.Context) *fetching {
	ctx, cancel := context.WithCancel(ctx)
	f := &fetching{source: s, cancel: cancel, tasks: make(chan *fetched, maxAhead), since: time.Now()}
	f.want.Store(1)
	f.have.Store(1)
	f.wg.Go(func() { f.run(ctx) })
	return f
}

// stop ends the fetching, and gives tasks back that were not taken.
func (f *fetching) stop() {
	f.cancel()
	f.wg.Wait()
}

func (f *fetching) run(ctx context.Context) {
	for {
		task, err := f.source.from.Next(ctx)
		got := &fetched{task: task, err: err, taken: make(chan struct{})}
		f.tasks <- got // has room for one of each goroutine
		wake.Up(f.source.news)
		select {
		case <-got.taken:
		case <-ctx.Done():
			if got.claim() && err == nil {
				f.source.giveBack(task)
			}
			return
		}
		if err != nil {
			return
		}
		f.taken(ctx)
		if n := f.have.Load(); n > f.want.Load() && f.have.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// taken counts a task, and adapts the number of goroutines to the rate at which tasks are taken.
func (f *fetching) taken(ctx context.Context) {
	f.mu.Lock()
	f.count++
	took := time.Since(f.since)
	if took >= aheadFor {
		want := int32(max(1, min(maxAhead, int64(f.count)*int64(aheadFor)/int64(took))))
		f.want.Store(want)
		f.since, f.count = time.Now(), 0
	} else if f.count > int(f.want.Load()) && f.want.Load() < maxAhead {
		f.want.Add(1)
	}
	f.mu.Unlock()
	for n := f.have.Load(); n < f.want.Load(); n = f.have.Load() {
		if f.have.CompareAndSwap(n, n+1) {
			f.wg.Go(func() { f.run(ctx) })
		}
	}
}
