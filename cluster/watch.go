package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// watch reads the state of all jobs every second, for the progress of a run or a worker.
type watch struct {
	at     *Cluster
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	jobs []JobStatus
	last time.Time // of the last response
}

const (
	watchInterval = time.Second     // also the longest wait for a response
	awayAfter     = 3 * time.Second // without a response Redis is taken for gone
)

// newWatch starts a watch.
func newWatch(ctx context.Context, at *Cluster) *watch {
	w := &watch{at: at, last: time.Now()}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.wg.Go(func() { w.run(ctx) })
	return w
}

func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		look, cancel := context.WithTimeout(ctx, watchInterval)
		jobs, err := w.at.Jobs(look)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.jobs, w.last = jobs, time.Now()
			w.mu.Unlock()
		}
		_ = wake.In(ctx, watchInterval, nil)
	}
}

// close stops the watch.
func (w *watch) close() {
	w.cancel()
	w.wg.Wait()
}

// job returns the state of a job at the last response.
func (w *watch) job(name string) JobStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.Name == name {
			return j
		}
	}
	return JobStatus{}
}

// orphan returns the name of a job without a live collector; "" if there is none.
func (w *watch) orphan() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.Version == 0 && (j.Collector == nil || !j.Collector.Alive) {
			return j.Name
		}
	}
	return ""
}

// away says that Redis does not answer; "" otherwise.
func (w *watch) away() string {
	if w.silence() < awayAfter {
		return ""
	}
	return "waiting for Redis at " + w.at.String()
}

// silence returns the time since the last response.
func (w *watch) silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last)
}
