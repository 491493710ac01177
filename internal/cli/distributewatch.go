package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/cluster"
)

// jobWatch looks at the jobs of a cluster from time to time, for the progress of a run or a worker.
type jobWatch struct {
	at     *cluster.Cluster
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	jobs []cluster.JobStatus
	last time.Time // that it answered
}

const (
	jobsEvery  = time.Second
	jobsWithin = time.Second
	away       = 3 * time.Second // without an answer: the engine is gone
)

// watchJobs begins to look.
func watchJobs(ctx context.Context, at *cluster.Cluster) *jobWatch {
	w := &jobWatch{at: at, last: time.Now()}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.wg.Go(func() { w.run(ctx) })
	return w
}

func (w *jobWatch) run(ctx context.Context) {
	for ctx.Err() == nil {
		look, cancel := context.WithTimeout(ctx, jobsWithin)
		jobs, err := w.at.Jobs(look)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.jobs, w.last = jobs, time.Now()
			w.mu.Unlock()
		}
		select {
		case <-time.After(jobsEvery):
		case <-ctx.Done():
		}
	}
}

// close ends the looking.
func (w *jobWatch) close() {
	if w != nil {
		w.cancel()
		w.wg.Wait()
	}
}

// job is how the job of that name stood when the engine last answered.
func (w *jobWatch) job(name string) cluster.JobStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.Name == name {
			return j
		}
	}
	return cluster.JobStatus{}
}

// orphan is a job that has calls left and nobody who collects; "" where there is none.
func (w *jobWatch) orphan() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if !j.Collector.Alive && j.Version == cluster.Version {
			return j.Name
		}
	}
	return ""
}

// gone says that the engine does not answer; "" while it does.
func (w *jobWatch) gone() string {
	if w.silence() < away {
		return ""
	}
	return fmt.Sprintf("waiting for the engine at %s", w.at)
}

// silence is how long the engine has not answered.
func (w *jobWatch) silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last)
}
