package stress

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

const (
	sampleEvery  = 5 * time.Millisecond
	lookEvery    = 100 * time.Millisecond
	guardEvery   = time.Second
	standstill   = 2 * time.Second  // without a timer or a call in flight: nothing will end it
	noProgress   = 30 * time.Second // while a slot is free
	settleWithin = time.Second      // after the last member ended, nothing may be left
)

// watch looks at a run until it is stopped.
type watch struct {
	r    *run
	dead chan struct{} // closed when the Scheduler does not answer any more
	quit chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	beat    time.Time // when it last answered
	metrics pool.Metrics
}

func startWatch(r *run) *watch {
	w := &watch{r: r, dead: make(chan struct{}), quit: make(chan struct{}), beat: time.Now()}
	w.wg.Go(w.guard)
	w.wg.Go(w.tell)
	go w.sample() // which hangs where the Scheduler does: nobody waits for it then
	return w
}

// stop ends the watching.
func (w *watch) stop() {
	close(w.quit)
	w.wg.Wait()
}

// last is what was seen last.
func (w *watch) last() pool.Metrics {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.metrics
}

// guard finds out that the Scheduler, or the pool, hangs.
func (w *watch) guard() {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	var s silence
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
		w.mu.Lock()
		beat := w.beat
		w.mu.Unlock()
		if s.lasts(beat) {
			w.r.stuck(fmt.Sprintf("for %s the scheduler did not answer\n%s", time.Since(beat).Round(time.Second), stacks()))
			close(w.dead)
			return
		}
	}
}

// silence is how often nothing was heard of the Scheduler. Looks are counted, and not time: of a process that stood still
// nothing can be heard, and who looks first when it goes on proves nothing.
type silence struct {
	beat  time.Time
	looks int
}

// lasts takes in when it last answered, and reports whether that is too long ago.
func (s *silence) lasts(beat time.Time) bool {
	if !beat.Equal(s.beat) {
		*s = silence{beat: beat}
	}
	s.looks++
	return s.looks > int(noProgress/guardEvery)
}

// tell tells how the run stands. It is a goroutine of its own, since who is told may be slow.
func (w *watch) tell() {
	if w.r.cfg.Progress == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.quit:
			return
		case now := <-tick.C:
			w.r.tell(now, w.last())
		}
	}
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
		w.mu.Lock()
		w.beat, w.metrics = time.Now(), m
		w.mu.Unlock()
		if what := last.look(w.r, snap, m); what != "" && w.r.ctx.Err() == nil {
			w.r.stuck(what + "\n" + stacks())
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
	least := r.leastSlots()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range snap.Lanes {
		held := l.Held || snap.At.Before(l.Until) || l.Probing || l.Blocked && l.Binding != sluice.Concurrency
		if l.Waiting > 0 && !held {
			s.used += float64(min(l.InFlight, l.Slots))
			s.slots += float64(max(l.Slots, least))
		}
	}
}

// leastSlots is how many slots there must be, whatever the Scheduler says of them: all, until the imitation refuses something.
// Of an endpoint that is not known.
func (r *run) leastSlots() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Endpoint != nil || r.refused {
		return 0
	}
	return r.cfg.Slots
}

// heldBack is for how long calls had to wait for anything but slots so far.
func (r *run) heldBack() (held time.Duration) {
	for _, l := range r.sched.Snapshot().Lanes {
		for d, by := range l.Bound {
			if sluice.Dimension(d) != sluice.Concurrency {
				held += by
			}
		}
	}
	return held
}

// tell tells how the run stands at an instant.
func (r *run) tell(now time.Time, m pool.Metrics) {
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

	dead, idle int // looks in a row that found nothing which could end it, and a slot free for no reason: see silence
}

// look says what is stuck, or nothing.
func (p *progress) look(r *run, snap sluice.Snapshot, m pool.Metrics) string {
	now := progress{at: snap.At, calls: m.Calls, waits: m.Waits, ended: m.Completed + m.Failed, open: m.Active, sent: r.wire.sent.Load(),
		dead: p.dead, idle: p.idle}
	same := *p
	same.at = now.at
	waiting, queued := m.Waiting, m.Queued
	lane, free := 0, 0
	paused := false
	for _, l := range snap.Lanes {
		lane += l.Waiting
		free += max(0, l.Slots-l.InFlight)
		budget := l.Blocked && l.Binding != sluice.Concurrency && snap.Timer.After(snap.At)
		paused = paused || l.Held || snap.At.Before(l.Until) || budget
	}
	if same != now || waiting+queued+lane == 0 || p.at.IsZero() {
		*p = now
		p.dead, p.idle = 0, 0
		return ""
	}
	r.mu.Lock()
	backoff := snap.At.Before(r.backoff)
	r.mu.Unlock()
	p.dead, p.idle = p.dead+1, p.idle+1
	thinking := waiting+lane == 0 && m.Running > 0 // members at work, which the queue waits for
	if m.Active > 0 || r.wire.open.Load() > 0 || backoff || thinking || !snap.Timer.IsZero() {
		p.dead = 0
	}
	if paused || backoff || m.Active >= r.cfg.Slots {
		p.idle = 0
	}
	what := fmt.Sprintf("for %s nothing moved: %d calls of members wait, %d in the scheduler, %d members in the queue; %d slots are free",
		snap.At.Sub(p.at).Round(time.Second/10), waiting, lane, queued, max(free, r.cfg.Slots-m.Active))
	switch {
	case p.dead >= int(standstill/lookEvery):
		return what + ", nothing is in flight, and no timer is set"
	case p.idle >= int(noProgress/lookEvery):
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
	for range max(l.Slots, r.leastSlots()) {
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
