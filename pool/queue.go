package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// High water: above these shares of MaxQueue, only what is more urgent is let in.
const (
	highWater    = 0.7 // not low priority
	highestWater = 0.9 // nothing but critical priority
)

// ageing lifts what waits by one priority each time it has waited this long, as the Scheduler does with calls.
const ageing = 30 * time.Second

// Errors of Run.
var (
	// ErrQueueFull matches every *QueueFullError in errors.Is.
	ErrQueueFull = errors.New("queue is full")
	// ErrQueueTimeout matches every *QueueTimeoutError in errors.Is.
	ErrQueueTimeout = errors.New("no slot became free in time")
	// ErrQueueStopped is returned by Run after the start of Shutdown.
	ErrQueueStopped = errors.New("pool is shut down")
)

// QueueFullError is returned by Run if the queue does not accept the member.
type QueueFullError struct {
	Member   string          // ID of the member
	Priority limits.Priority // priority of the member
	Queued   int             // number of waiting members
	Why      string          // description of the exceeded queue limit
}

// Error returns a message with the member and the exceeded queue limit.
func (e *QueueFullError) Error() string {
	return fmt.Sprintf("member %q: the queue is full for its priority: %d members wait, %s", e.Member, e.Queued, e.Why)
}

// Is reports whether target is ErrQueueFull.
func (e *QueueFullError) Is(target error) bool { return target == ErrQueueFull }

// QueueTimeoutError is returned by Run if a member cannot start within Config.QueueTimeout.
type QueueTimeoutError struct {
	Member   string        // ID of the member
	Wait     time.Duration // waiting time in the queue
	Position int           // position in the queue, starting at 1
}

// Error returns a message with the member, the waiting time and the position.
func (e *QueueTimeoutError) Error() string {
	return fmt.Sprintf("member %q: no slot became free in %v, at position %d of the queue", e.Member, e.Wait, e.Position)
}

// Is reports whether target is ErrQueueTimeout.
func (e *QueueTimeoutError) Is(target error) bool { return target == ErrQueueTimeout }

// queue is the members that Run has at work, and those that wait.
type queue struct {
	running map[*entry]bool
	waiting []*entry // in the order in which they came
	stopped bool
	idle    chan struct{} // closed by the last that is at work after the stop
}

// entry is a member of Run.
type entry struct {
	id       string
	priority limits.Priority
	since    time.Time
	cancel   context.CancelCauseFunc
	ready    chan struct{} // closed when it may go, or the queue is stopped
	goes     bool
}

// Run registers a member, calls fn with the member, and closes the member. If fn returns an error, the member has the phase Failed.
// At most MaxActive members run at the same time. Run starts waiting members by priority and then by age. The context passed to fn
// ends when ctx ends, the member's time limit is reached, or Shutdown cancels the context.
//
// Run returns the error of fn, a *sluice.PanicError, a *QueueFullError or *QueueTimeoutError, ErrDuplicate, ErrQueueStopped, or the error of
// ctx. If fn itself calls Run, MaxActive must exceed the number of members that call Run. Otherwise, members that call Run may wait forever.
func (p *Pool) Run(ctx context.Context, id string, cfg MemberConfig, fn func(context.Context, *Member) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	priority := min(max(cfg.Priority, limits.Low), limits.Critical)
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &entry{id: id, priority: priority, since: time.Now(), cancel: cancel, ready: make(chan struct{})}
	p.mu.Lock()
	err = p.enterLocked(e)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.await(ctx, e); err != nil {
		return err
	}
	defer p.leave(e)
	p.mu.Lock()
	m := p.registerLocked(id, cfg)
	p.mu.Unlock()
	return p.work(work, m, fn)
}

// work runs fn and closes its member.
func (p *Pool) work(ctx context.Context, m *Member, fn func(context.Context, *Member) error) (err error) {
	ctx, cancel := m.timeLimit(ctx)
	if cancel != nil {
		defer cancel()
	}
	returned := false
	defer func() {
		if !returned {
			if r := recover(); r != nil {
				err = &sluice.PanicError{Value: r, Stack: debug.Stack()}
			} else {
				err = errors.New("the function called runtime.Goexit") // runtime.Goexit: nobody reads this but State
			}
		}
		if err == nil {
			err = m.Close()
		} else {
			m.Fail(err)
		}
	}()
	p.tell(limits.EventMemberRegistered, m, nil)
	err = fn(ctx, m)
	returned = true
	if errors.Is(err, context.DeadlineExceeded) {
		err = m.failed(ctx, err)
	}
	return err
}

// enterLocked gives e a place at work or in the queue.
func (p *Pool) enterLocked(e *entry) error {
	q := &p.queue
	if err := p.reserveLocked(e.id); err != nil {
		return err
	}
	if len(q.running) < p.cfg.MaxActive && len(q.waiting) == 0 {
		p.goLocked(e)
		return nil
	}
	if why := p.fullLocked(e.priority); why != "" {
		delete(p.members, e.id)
		return &QueueFullError{Member: e.id, Priority: e.priority, Queued: len(q.waiting), Why: why}
	}
	q.waiting = append(q.waiting, e)
	return nil
}

// fullLocked says why the queue takes no more of a priority; "" if it does.
func (p *Pool) fullLocked(priority limits.Priority) string {
	n, of := len(p.queue.waiting), 0
	for _, w := range p.queue.waiting {
		if w.priority == priority {
			of++
		}
	}
	share := float64(n) / float64(p.cfg.MaxQueue)
	switch {
	case n >= p.cfg.MaxQueue:
		return fmt.Sprintf("and the maximum is %d", p.cfg.MaxQueue)
	case of >= p.cfg.MaxQueuePriority:
		return fmt.Sprintf("%d of them with its priority, and the maximum is %d", of, p.cfg.MaxQueuePriority)
	case share > highestWater && priority < limits.Critical:
		return fmt.Sprintf("and above %.0f %% of %d waiting members, the queue accepts only critical members", 100*highestWater, p.cfg.MaxQueue)
	case share > highWater && priority <= limits.Low:
		return fmt.Sprintf("and above %.0f %% of %d waiting members, the queue accepts no low-priority members", 100*highWater, p.cfg.MaxQueue)
	}
	return ""
}

// goLocked lets e go to work.
func (p *Pool) goLocked(e *entry) {
	p.queue.running[e] = true
	e.goes = true
	close(e.ready)
}

// await waits until e may go.
func (p *Pool) await(ctx context.Context, e *entry) error {
	var late <-chan time.Time
	if p.cfg.QueueTimeout > 0 {
		timer := time.NewTimer(p.cfg.QueueTimeout)
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case <-e.ready:
	case <-late:
		err = &QueueTimeoutError{Member: e.id, Wait: p.cfg.QueueTimeout}
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.goes {
		if ctx.Err() == nil { // a place that came with the timeout is taken
			return nil
		}
		delete(p.members, e.id)
		p.doneLocked(e)
		return ctx.Err()
	}
	if timeout, ok := errors.AsType[*QueueTimeoutError](err); ok {
		timeout.Position = 1 + p.aheadLocked(e)
	}
	p.queue.waiting = slices.DeleteFunc(p.queue.waiting, func(w *entry) bool { return w == e })
	delete(p.members, e.id)
	if err == nil || p.queue.stopped {
		return ErrQueueStopped
	}
	return err
}

// leave ends the work of e.
func (p *Pool) leave(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doneLocked(e)
}

// doneLocked frees the place of e and lets the next go.
func (p *Pool) doneLocked(e *entry) {
	q := &p.queue
	delete(q.running, e)
	for len(q.running) < p.cfg.MaxActive && len(q.waiting) > 0 {
		next := p.nextLocked()
		q.waiting = slices.DeleteFunc(q.waiting, func(w *entry) bool { return w == next })
		p.goLocked(next)
	}
	if q.stopped && len(q.running) == 0 {
		close(q.idle)
	}
}

// nextLocked is the most urgent of those that wait, age counted, and the oldest of those.
func (p *Pool) nextLocked() *entry {
	best := p.queue.waiting[0]
	now := time.Now()
	for _, w := range p.queue.waiting[1:] {
		if w.urgency(now) > best.urgency(now) {
			best = w
		}
	}
	return best
}

// aheadLocked counts those that go before e.
func (p *Pool) aheadLocked(e *entry) int {
	n, now, older := 0, time.Now(), true
	for _, w := range p.queue.waiting {
		if w == e {
			older = false
		} else if d := w.urgency(now) - e.urgency(now); d > 0 || d == 0 && older {
			n++
		}
	}
	return n
}

func (e *entry) urgency(now time.Time) int {
	return min(int(e.priority)+int(now.Sub(e.since)/ageing), int(limits.Critical))
}

// ShutdownError contains the IDs of the members that did not stop.
type ShutdownError struct{ Members []string } // IDs of the members

// Error returns a message with the IDs of the members.
func (e *ShutdownError) Error() string {
	return fmt.Sprintf("members are still active after the shutdown: %s", strings.Join(e.Members, ", "))
}

// Shutdown stops Run. Waiting members fail with ErrQueueStopped, and active members may finish within DrainTimeout.
// After DrainTimeout, or when ctx ends, Shutdown cancels the contexts of active members with the cause ErrQueueStopped
// and waits five more seconds. If members still run, Shutdown returns a *ShutdownError. Shutdown may be called
// repeatedly, and ignores members added by Register.
func (p *Pool) Shutdown(ctx context.Context) error {
	idle := p.stop()
	if p.cfg.DrainTimeout > 0 {
		drained, cancel := context.WithTimeout(ctx, p.cfg.DrainTimeout)
		defer cancel()
		select {
		case <-idle:
			return nil
		case <-drained.Done():
		}
	}
	p.mu.Lock()
	for e := range p.queue.running {
		e.cancel(ErrQueueStopped)
	}
	p.mu.Unlock()
	timer := time.NewTimer(cancelGrace)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue.running) == 0 {
		return nil
	}
	err := &ShutdownError{}
	for e := range p.queue.running {
		err.Members = append(err.Members, e.id)
	}
	slices.Sort(err.Members)
	return err
}

// cancelGrace is how long members at work may take to see that their contexts ended.
const cancelGrace = 5 * time.Second

// stop refuses what comes and what waits, and returns what is closed once nobody is at work.
func (p *Pool) stop() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := &p.queue
	if !q.stopped {
		q.stopped = true
		for _, w := range q.waiting {
			close(w.ready)
		}
		q.waiting = nil
		q.idle = make(chan struct{})
		if len(q.running) == 0 {
			close(q.idle)
		}
	}
	return q.idle
}
