package stress

import (
	"fmt"
	"runtime"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

const (
	sampleEvery  = 5 * time.Millisecond
	lookEvery    = 100 * time.Millisecond
	standstill   = 2 * time.Second  // without a timer or a call in flight: nothing will end it
	noProgress   = 30 * time.Second // while a slot is free
	settleWithin = time.Second      // after the last member ended, nothing may be left
)

// watch samples how many slots are in use, and looks for deadlocks, until quit is closed.
func (r *run) watch(quit <-chan struct{}) {
	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	var looked time.Time
	var last progress
	for {
		select {
		case <-quit:
			return
		case <-sample.C:
		}
		snap := r.sched.Snapshot()
		r.sample(snap)
		if snap.At.Sub(looked) < lookEvery {
			continue
		}
		looked = snap.At
		m := r.pool.Metrics()
		r.tell(snap.At, m)
		if what := last.look(r, snap, m); what != "" {
			r.stuck(what + "\n" + stacks())
			return
		}
	}
}

// sample takes in how many slots are in use, where calls wait for nothing but a slot.
func (r *run) sample(snap sluice.Snapshot) {
	r.mu.Lock()
	s := r.now
	r.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range snap.Lanes {
		held := l.Held || snap.At.Before(l.Until) || l.Probing || l.Blocked && l.Binding != sluice.Concurrency
		if l.Waiting > 0 && !held {
			s.used += float64(min(l.InFlight, l.Slots))
			s.slots += float64(l.Slots)
		}
	}
}

// tell tells how the run stands.
func (r *run) tell(now time.Time, m pool.Metrics) {
	if r.cfg.Progress == nil {
		return
	}
	r.mu.Lock()
	p := Progress{Elapsed: now.Sub(r.start), Total: r.cfg.Duration, Metrics: m}
	if r.now != nil {
		p.Part, p.N, p.Of = r.now.name, r.now.n, r.now.of
	}
	r.mu.Unlock()
	r.cfg.Progress(p)
}

// progress is what moves while a run does.
type progress struct {
	at    time.Time
	calls int64
	waits int64
	ended int64
	open  int
	sent  int64
}

// look says what is stuck, or nothing.
func (p *progress) look(r *run, snap sluice.Snapshot, m pool.Metrics) string {
	now := progress{snap.At, m.Calls, m.Waits, m.Completed + m.Failed, m.Active, r.wire.sent.Load()}
	same := *p
	same.at = now.at
	waiting, queued := m.Waiting, m.Queued
	lane, free := 0, 0
	paused := false
	for _, l := range snap.Lanes {
		lane += l.Waiting
		free += max(0, l.Slots-l.InFlight)
		paused = paused || l.Held || snap.At.Before(l.Until)
	}
	if same != now || waiting+queued+lane == 0 {
		*p = now
		return ""
	}
	since := snap.At.Sub(p.at)
	r.mu.Lock()
	timer := !snap.Timer.IsZero() || snap.At.Before(r.backoff)
	r.mu.Unlock()
	inFlight := m.Active > 0 || r.wire.open.Load() > 0
	what := fmt.Sprintf("for %s nothing moved: %d calls of members wait, %d in the scheduler, %d members in the queue; %d slots are free",
		since.Round(time.Second/10), waiting, lane, queued, max(free, r.cfg.Slots-m.Active))
	switch {
	case since >= standstill && !inFlight && !timer:
		return what + ", nothing is in flight, and no timer is set"
	case since >= noProgress && !paused && m.Active < r.cfg.Slots:
		return what
	}
	return ""
}

// stacks are those of all goroutines.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// settle waits until nothing is left of the members that ended, and notes what still is.
func (r *run) settle() {
	end := time.Now().Add(settleWithin)
	leaks, waiters := r.leftovers()
	for (leaks > 0 || waiters > 0) && time.Now().Before(end) {
		time.Sleep(sampleEvery)
		leaks, waiters = r.leftovers()
	}
	if leaks == 0 {
		leaks = r.missing()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaks, r.waiters = max(r.leaks, leaks), max(r.waiters, waiters)
}

// leftovers are the slots and reservations that are in use, and the calls and members that wait or are there.
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

// missing takes all slots that the lane says are free, and returns how many could not be had.
func (r *run) missing() (n int) {
	snap := r.sched.Snapshot()
	if r.cfg.Endpoint != nil || len(snap.Lanes) != 1 {
		return 0 // other limits than that of slots may stand in the way
	}
	l := snap.Lanes[0]
	if l.Held || l.Probing || snap.At.Before(l.Until) || len(l.Budgets) > 0 {
		return 0
	}
	var held []*sluice.Permit
	for range l.Slots {
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
