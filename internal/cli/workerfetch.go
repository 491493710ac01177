package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/cluster"
)

// How many tasks are fetched ahead: what is done in a moment, so that the engine's round trip is not waited for, and no more, since
// other workers might have them meanwhile.
const (
	aheadFor  = 100 * time.Millisecond
	mostAhead = 64
)

// fetching is the fetching of tasks ahead, by as many goroutines as there may be tasks.
type fetching struct {
	source *taskSource
	ctx    context.Context
	cancel context.CancelFunc
	tasks  chan *fetched
	wg     sync.WaitGroup

	want, have atomic.Int32 // goroutines

	mu    sync.Mutex
	since time.Time // of the tasks that are counted
	count int
}

// fetched is a task, or why there is none.
type fetched struct {
	task    cluster.Task
	err     error
	claimed atomic.Bool
	taken   chan struct{} // closed when somebody has it
}

// claim says whether it is the caller's: it is done by who takes it, or given back by who fetched it, and never both.
func (g *fetched) claim() bool { return !g.claimed.Swap(true) }

// fetch begins to fetch.
func (t *taskSource) fetch(ctx context.Context) *fetching {
	f := &fetching{source: t, tasks: make(chan *fetched, mostAhead), since: time.Now()}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.want.Store(1)
	f.have.Store(1)
	f.wg.Go(f.run)
	return f
}

// stop ends it. What was fetched and nobody took is given back.
func (f *fetching) stop() {
	f.cancel()
	f.wg.Wait()
}

func (f *fetching) run() {
	for {
		task, err := f.source.from.Next(f.ctx)
		got := &fetched{task: task, err: err, taken: make(chan struct{})}
		f.tasks <- got // has room for one of each goroutine
		f.source.poke()
		select {
		case <-got.taken:
		case <-f.ctx.Done():
			if got.claim() && err == nil {
				f.source.giveBack(task)
			}
			return
		}
		if err != nil {
			return
		}
		f.taken()
		if n := f.have.Load(); n > f.want.Load() && f.have.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// taken counts a task, and fits the number of goroutines to how fast they are taken.
func (f *fetching) taken() {
	f.mu.Lock()
	f.count++
	took := time.Since(f.since)
	if took >= aheadFor {
		want := int32(max(1, min(mostAhead, int64(f.count)*int64(aheadFor)/int64(took))))
		f.want.Store(want)
		f.since, f.count = time.Now(), 0
	} else if f.count > int(f.want.Load()) && f.want.Load() < mostAhead {
		f.want.Add(1)
	}
	f.mu.Unlock()
	for n := f.have.Load(); n < f.want.Load(); n = f.have.Load() {
		if f.have.CompareAndSwap(n, n+1) {
			f.wg.Go(f.run)
		}
	}
}
