package stress

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

const (
	sampleEvery  = 5 * time.Millisecond
	lookEvery    = 100 * time.Millisecond
	standstill   = 2 * time.Second  // without a timer or a call in flight: nothing will end it
	noProgress   = 30 * time.Second // while a slot is free
	settleWithin = time.Second      // after the last member ended, nothing may remain
)

// watch looks at a run until it is stopped.
type watch struct {
	r       *run
	dead    chan struct{} // closed when the Scheduler or the pool does not answer any more
	quit    chan struct{}
	wg      sync.WaitGroup
	looks   atomic.Int64 // that were answered
	metrics atomic.Pointer[pool.Metrics]
}

func startWatch(r *run) *watch {
	w := &watch{r: r, dead: make(chan struct{}), quit: make(chan struct{})}
	w.metrics.Store(&pool.Metrics{})
	w.wg.Go(w.guard)
	go w.sample() // it hangs if the Scheduler does: nobody waits for it
	return w
}

// stop ends the watch.
func (w *watch) stop() {
	close(w.quit)
	w.wg.Wait()
}

// guard reports progress, and finds out that the Scheduler or the pool hangs. It counts its turns without an answered look, and not
// time: a process that stood still proves nothing when it resumes.
func (w *watch) guard() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	turns, looks := 0, int64(0)
	for {
		select {
		case <-w.quit:
			return
		case now := <-tick.C:
			if w.r.cfg.Progress != nil {
				w.r.cfg.Progress(w.r.standing(now, *w.metrics.Load()))
			}
		}
		if n := w.looks.Load(); n != looks {
			turns, looks = 0, n
		}
		if turns++; turns > int(noProgress/lookEvery) {
			w.r.stuck(fmt.Sprintf("the scheduler did not respond for %s\n%s", noProgress, stacks()))
			close(w.dead)
			return
		}
	}
}

// standing returns the state of the run at an instant.
func (r *run) standing(now time.Time, m pool.Metrics) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{
		ElapsedMS: now.Sub(r.start).Milliseconds(), TotalMS: r.cfg.Duration.Milliseconds(),
		Slots: m.Slots, Active: m.Active, Waiting: m.Waiting, Requests: m.Calls, Members: m.Members, Metrics: m.String(),
	}
	if r.now != nil {
		p.Part, p.N, p.Of = r.now.Name, r.now.n, len(r.level.parts)
	}
	return p
}

// sample samples how many slots are in use, and looks for deadlocks.
func (w *watch) sample() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var looked time.Time
	var last progress
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
		snap := w.r.sched.Snapshot()
		w.r.sample(snap)
		if snap.At.Sub(looked) < lookEvery {
			continue
		}
		looked = snap.At
		m := w.r.pool.Metrics()
		w.metrics.Store(&m)
		w.looks.Add(1)
		if why := last.look(w.r, snap, m); why != "" && w.r.ctx.Err() == nil {
			w.r.stuck(why + "\n" + stacks())
		}
	}
}

// sample adds how many slots are in use, in lanes whose requests wait for a slot only.
func (r *run) sample(snap sluice.Snapshot) {
	r.mu.Lock()
	s := r.now
	r.mu.Unlock()
	if s == nil {
		return
	}
	least := r.minSlots()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range snap.Lanes {
		held := l.Held || snap.At.Before(l.Until) || l.Probing || l.Blocked && l.Binding != limits.Concurrency
		if l.Waiting > 0 && !held {
			s.used += float64(min(l.InFlight, l.Slots))
			s.slots += float64(max(l.Slots, least))
		}
	}
}

// minSlots returns how many slots there must be, whatever the Scheduler says: all, until the simulator rejects a call. Those of an
// endpoint are unknown.
func (r *run) minSlots() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Endpoint != nil || r.refused {
		return 0
	}
	return r.cfg.Slots
}

// heldBack returns how long calls had to wait for anything but slots so far.
func (r *run) heldBack() (held time.Duration) {
	for _, l := range r.sched.Snapshot().Lanes {
		for d, by := range l.Bound {
			if limits.Dimension(d) != limits.Concurrency {
				held += by
			}
		}
	}
	return held
}

// progress is what a run has done at a look. It counts looks in a row that found no reason to wait, see watch.guard.
type progress struct {
	done       [5]int64
	since      time.Time // the first look that found it so
	dead, idle int       // looks that found nothing which could end it, and a free slot
}

// look returns the description of a deadlock, or "".
func (p *progress) look(r *run, snap sluice.Snapshot, m pool.Metrics) string {
	done := [...]int64{m.Calls, m.Waits, m.Completed + m.Failed, int64(m.Active), r.wire.sent.Load()}
	inLane, free := 0, 0
	paused := false
	for _, l := range snap.Lanes {
		inLane += l.Waiting
		free += max(0, l.Slots-l.InFlight)
		refills := l.Blocked && l.Binding != limits.Concurrency && snap.Timer.After(snap.At)
		paused = paused || l.Held || snap.At.Before(l.Until) || refills
	}
	if done != p.done || m.Waiting+m.Queued+inLane == 0 || p.since.IsZero() {
		*p = progress{done: done, since: snap.At}
		return ""
	}
	r.mu.Lock()
	backoff := snap.At.Before(r.backoff)
	r.mu.Unlock()
	p.dead, p.idle = p.dead+1, p.idle+1
	thinking := m.Waiting+inLane == 0 && m.Running > 0 // members at work, which the queue waits for
	if m.Active > 0 || r.wire.open.Load() > 0 || backoff || thinking || !snap.Timer.IsZero() {
		p.dead = 0
	}
	if paused || backoff || m.Active >= r.cfg.Slots {
		p.idle = 0
	}
	why := fmt.Sprintf("no progress for %s: %d requests of members wait, %d in the scheduler, %d members in the queue; %d slots are free",
		snap.At.Sub(p.since).Round(time.Second/10), m.Waiting, inLane, m.Queued, max(free, r.cfg.Slots-m.Active))
	switch {
	case p.dead >= int(standstill/lookEvery):
		return why + ", nothing is in flight, and no timer is set"
	case p.idle >= int(noProgress/lookEvery):
		return why
	}
	return ""
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// settle waits until the members that ended have left nothing behind, and counts what remains.
func (r *run) settle() {
	leaks, waiters := r.leftovers()
	for i := 0; i < int(settleWithin/sampleEvery) && (leaks > 0 || waiters > 0); i++ {
		time.Sleep(sampleEvery)
		leaks, waiters = r.leftovers()
	}
	if leaks == 0 {
		leaks = r.missing()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts["slot_leaks"] = max(r.counts["slot_leaks"], leaks)
	r.counts["waiters_left"] = max(r.counts["waiters_left"], waiters)
}

// leftovers returns the slots and reservations in use, and the waiting or registered calls and members.
func (r *run) leftovers() (leaks, waiters int) {
	m := r.pool.Metrics()
	leaks, waiters = max(m.Active, 0)+m.Orphans, m.Waiting+m.Queued
	inFlight, waiting := 0, 0
	for _, l := range r.sched.Snapshot().Lanes {
		inFlight += l.InFlight
		waiting += l.Waiting
	}
	if m.Waiting < 0 || m.Active < 0 { // more was given back than taken
		leaks++
	}
	return max(leaks, inFlight, m.Running), max(waiters, waiting, m.Members)
}

// missing takes all free slots of the lane, and returns how many it could not get.
func (r *run) missing() (n int) {
	snap := r.sched.Snapshot()
	if r.cfg.Endpoint != nil || len(snap.Lanes) != 1 {
		return 0 // limits other than that of slots may bind
	}
	l := snap.Lanes[0]
	if l.Held || l.Probing || snap.At.Before(l.Until) || len(l.Budgets) > 0 {
		return 0
	}
	var held []*sluice.Permit
	for range max(l.Slots, r.minSlots()) {
		p := r.sched.TryAcquire(sluice.Call{ID: "leak check", Lane: l.Lane})
		if p == nil {
			n++
			continue
		}
		held = append(held, p)
	}
	for _, p := range held {
		p.TryRelease(sluice.Outcome{Unsent: true})
	}
	return n
}
