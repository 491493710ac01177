package sim

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// processor serves calls that share it: each at full speed while there are no
// more than its places, and beyond that all of them slower together. The end
// of a call moves when others come and go, so that it keeps no instants but the
// service that every call has had since it began, and one timer for the next
// end.
type processor struct {
	places int // 0: there are as many as calls

	mu    sync.Mutex
	had   float64   // seconds of service, for who was there all the time,
	at    time.Time // up to this instant
	jobs  jobs
	timer *time.Timer
}

// job is a call that is served.
type job struct {
	until float64 // what the processor's had will be at its end
	ended chan struct{}
	place int // in the heap; -1: it has ended
}

// serve gives a call so much service; it reports false, and how much there was,
// if ctx ended before.
func (p *processor) serve(ctx context.Context, d time.Duration) (had time.Duration, ok bool) {
	if p.places == 0 || d <= 0 {
		begun := time.Now()
		ok = wake.In(ctx, d, nil) == nil
		return time.Since(begun), ok
	}
	p.mu.Lock()
	p.advanceLocked()
	j := &job{until: p.had + d.Seconds(), ended: make(chan struct{})}
	heap.Push(&p.jobs, j)
	p.armLocked()
	p.mu.Unlock()
	select {
	case <-j.ended:
		return d, true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advanceLocked()
	if j.place < 0 { // it ended meanwhile
		return d, false
	}
	heap.Remove(&p.jobs, j.place)
	p.armLocked()
	return d - time.Duration((j.until-p.had)*1e9), false
}

// speed is how fast each call is served now.
func (p *processor) speed() float64 {
	return min(1, float64(p.places)/float64(max(1, len(p.jobs))))
}

// advanceLocked brings had up to now.
func (p *processor) advanceLocked() {
	now := time.Now()
	if len(p.jobs) == 0 {
		p.had = 0 // nobody counts from it
	} else {
		p.had += now.Sub(p.at).Seconds() * p.speed()
	}
	p.at = now
}

// armLocked sets the timer to the next end.
func (p *processor) armLocked() {
	if len(p.jobs) == 0 {
		if p.timer != nil {
			p.timer.Stop()
		}
		return
	}
	next := time.Duration(math.Ceil((p.jobs[0].until-p.had)/p.speed()*1e9 - 0.01)) // less the noise of floats
	if p.timer == nil {
		p.timer = time.AfterFunc(next, p.end)
	} else {
		p.timer.Reset(next)
	}
}

// end ends the calls that have had all their service.
func (p *processor) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advanceLocked()
	for len(p.jobs) > 0 && p.jobs[0].until <= p.had+1e-9 {
		close(heap.Pop(&p.jobs).(*job).ended)
	}
	p.armLocked()
}

// jobs is a heap by end.
type jobs []*job

func (j jobs) Len() int           { return len(j) }
func (j jobs) Less(a, b int) bool { return j[a].until < j[b].until }

func (j jobs) Swap(a, b int) {
	j[a], j[b] = j[b], j[a]
	j[a].place, j[b].place = a, b
}

func (j *jobs) Push(x any) {
	x.(*job).place = len(*j)
	*j = append(*j, x.(*job))
}

func (j *jobs) Pop() any {
	old := *j
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*j = old[:len(old)-1]
	last.place = -1
	return last
}
