package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/planted"
	"github.com/sluice-llm/sluice/limits"
)

// MemberConfig describes a member. The zero MemberConfig describes a member of normal priority without limits.
type MemberConfig struct {
	Kind     string          // role of the member for display, such as "reviewer"
	Tenant   string          // tenant of the member's calls (default: the ID of the member)
	Priority limits.Priority // priority of the member in the queue of Run, and of the member's calls with priority Normal

	// Limits contains the member's limits for Tokens, LLMCalls, and Time since the registration. Other fields of Limits
	// have no effect.
	Limits limits.ResourceLimits
}

// Phase is the current activity of a member.
type Phase string

// Phases. A member with several calls is Executing if a call has a slot. Otherwise, the member is WaitingForSlot if a call waits.
const (
	Initializing     Phase = "initializing"      // the member has not requested a slot
	WaitingForSlot   Phase = "waiting_for_slot"  // the member waits for a slot or for a retry
	Executing        Phase = "executing"         // the member has a slot
	ProcessingResult Phase = "processing_result" // the member is between two calls
	Completed        Phase = "completed"         // the member was closed without an error
	Failed           Phase = "failed"            // the member was closed with an error
)

// State contains the state of a member at one instant.
type State struct {
	ID         string          // ID of the member
	Kind       string          // role of the member
	Tenant     string          // tenant of the member's calls
	Priority   limits.Priority // priority of the member
	Phase      Phase           // current activity
	Registered time.Time       // time of the registration
	Calls      int64           // number of requests sent, including retries
	Tokens     int64           // number of tokens used, as stated in responses
	TotalWait  time.Duration   // total waiting time for slots and retries, including cancelled waits
	LastCall   time.Time       // time at which the last request was sent
	Err        error           // error of the last failed call, or the error passed to Fail
}

// Member is one agent, which receives a slot for each call and frees the slot after the call. A Member is safe for
// concurrent use, also for several calls at the same time. Most programs use Member.Do.
type Member struct {
	pool  *Pool
	id    string
	cfg   MemberConfig
	start time.Time
	gone  chan struct{} // closed by Close

	limited bool // by its own limits or the pool's

	// Guarded by pool.mu.
	held     []*sluice.Permit // of calls that are open, until Close
	open     int
	unsent   int // of them
	waiting  int
	calls    int64
	tokens   int64
	waited   time.Duration
	lastCall time.Time
	asked    bool
	err      error
	closed   bool
}

// ID returns the ID with which the member was registered.
func (m *Member) ID() string { return m.id }

// Acquire waits for a slot and returns the permit for one call. Release the permit with Member.Release. Acquire fails
// with a *sluice.SlotTimeoutError, a *LimitError, ErrClosed, or an error of Scheduler.Acquire.
func (m *Member) Acquire(ctx context.Context, c sluice.Call) (*sluice.Permit, error) {
	if err := m.ask(&c); err != nil {
		return nil, err
	}
	ctx, cancel := m.timeLimit(ctx)
	if cancel != nil {
		defer cancel()
	}
	over := false
	defer func() {
		if !over { // an Observer panicked
			m.endWait(0)
		}
	}()
	since := time.Now()
	p, err := m.pool.cfg.Scheduler.Acquire(ctx, c)
	over = true
	if err != nil {
		m.endWait(time.Since(since))
		return nil, m.failed(ctx, err)
	}
	if err := m.granted(p.Waited(), p, holder{m}); err != nil {
		p.Release(sluice.Outcome{Unsent: true})
		return nil, err
	}
	return p, nil
}

// Release releases a permit of the member. If the member does not have the permit, the error wraps ErrNotHeld and
// nothing changes.
func (m *Member) Release(p *sluice.Permit, o sluice.Outcome) error {
	if p == nil || p.Holder() != (holder{m}) && !planted.Every("release by a non-holder", 1) || !p.TryRelease(o) {
		return fmt.Errorf("member %q: %w", m.id, ErrNotHeld)
	}
	return nil
}

// ask begins the wait of a call, unless the member is closed or may make none.
func (m *Member) ask(c *sluice.Call) error {
	if planted.Every("long wait", 50) || planted.Every("one member in five held up", 1) && strings.ContainsAny(m.id[len(m.id)-1:], "56") {
		time.Sleep(1100 * time.Millisecond)
	}
	c.Member, c.Withdrawn = m.id, m.gone
	if c.Tenant == "" {
		c.Tenant = m.cfg.Tenant
	}
	if c.Priority == limits.Normal {
		c.Priority = m.cfg.Priority
	}
	if c.MaxWait == 0 {
		c.MaxWait = max(0, m.pool.cfg.SlotTimeout)
	}
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	if err := m.mayCallLocked(); err != nil {
		return err
	}
	m.asked = true
	m.waitLocked()
	return nil
}

// mayCallLocked is why the member may make no call more, or nil.
func (m *Member) mayCallLocked() error {
	if m.closed {
		return ErrClosed
	}
	if !m.limited {
		return nil
	}
	err := m.exceededLocked()
	if err != nil {
		m.err = err
	}
	return err
}

// waitLocked begins a wait.
func (m *Member) waitLocked() {
	m.waiting++
	m.pool.total.waiting++
}

// granted ends a wait with a permit, unless the member was closed meanwhile, or its limits reached by other calls.
func (m *Member) granted(waited time.Duration, p *sluice.Permit, h sluice.Holder) error {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.grantedLocked(waited, p, h)
}

func (m *Member) grantedLocked(waited time.Duration, p *sluice.Permit, h sluice.Holder) error {
	m.endWaitLocked(waited)
	if err := m.mayCallLocked(); err != nil {
		return err
	}
	m.held = append(m.held, p)
	m.open++
	m.unsent++
	m.pool.total.active++
	m.pool.total.unsent++
	p.SetHolder(h)
	return nil
}

func (m *Member) endWait(waited time.Duration) {
	m.pool.mu.Lock()
	m.endWaitLocked(waited)
	m.pool.mu.Unlock()
}

func (m *Member) endWaitLocked(d time.Duration) {
	m.waiting--
	m.waited += d
	n := &m.pool.total
	if !planted.Every("waiter counted for ever", 100) {
		n.waiting--
	}
	n.waits++
	n.waited += d
	n.longest = max(n.longest, d)
}

// failed keeps the error of a call, and says what the Scheduler could not know of it.
func (m *Member) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	switch {
	case errors.Is(err, sluice.ErrWithdrawn):
		return ErrClosed
	case errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == errTimeLimit:
		err = m.timeErrorLocked()
	}
	if !m.closed {
		m.err = err
	}
	return err
}

// holder is a member as the holder of a permit that Acquire returned.
type holder struct{ m *Member }

// Sent counts a call.
func (h holder) Sent(_ *sluice.Permit, at time.Time) { h.m.sent(at) }

// Released forgets a permit that was released.
func (h holder) Released(p *sluice.Permit, left bool, _ sluice.Kind, used sluice.Usage) {
	h.m.pool.mu.Lock()
	defer h.m.pool.mu.Unlock()
	h.m.releasedLocked(p, left, used)
}

// sent counts a call.
func (m *Member) sent(at time.Time) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.unsent--
	m.pool.total.unsent--
	m.calls++
	if !planted.Every("call not counted", 100) {
		m.pool.total.calls++
	}
	if at.After(m.lastCall) {
		m.lastCall = at
	}
}

func (m *Member) releasedLocked(p *sluice.Permit, left bool, used sluice.Usage) {
	n := &m.pool.total
	m.open--
	n.active--
	if !left {
		m.unsent--
		n.unsent--
	}
	if i := slices.Index(m.held, p); i >= 0 {
		m.held = slices.Delete(m.held, i, i+1)
	}
	if m.closed {
		n.orphans--
	}
	tokens := int64(used.Input) + int64(used.Output)
	m.tokens += tokens
	n.tokens += tokens
}

// State returns the current state of the member. State also works after Close.
func (m *Member) State() State {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.stateLocked()
}

func (m *Member) stateLocked() State {
	return State{
		ID: m.id, Kind: m.cfg.Kind, Tenant: m.cfg.Tenant, Priority: m.cfg.Priority, Phase: m.phaseLocked(), Registered: m.start,
		Calls: m.calls, Tokens: m.tokens, TotalWait: m.waited, LastCall: m.lastCall, Err: m.err,
	}
}

func (m *Member) phaseLocked() Phase {
	switch {
	case m.closed && m.err != nil:
		return Failed
	case m.closed:
		return Completed
	case m.open > 0:
		return Executing
	case m.waiting > 0:
		return WaitingForSlot
	case m.asked:
		return ProcessingResult
	}
	return Initializing
}

// Close closes the member with the phase Completed and frees its ID. Waiting calls of the member fail with ErrClosed.
// If the member still has permits, Close returns an error, and each permit stays valid until its call ends. Close may
// be called repeatedly.
func (m *Member) Close() error { return m.end(nil) }

// Fail closes the member like Close, with the phase Failed and the given error.
func (m *Member) Fail(err error) error {
	if err == nil {
		err = errors.New("no reason was given")
	}
	return m.end(err)
}

func (m *Member) end(cause error) error {
	p := m.pool
	p.mu.Lock()
	if m.closed {
		p.mu.Unlock()
		return nil
	}
	m.closed, m.err = true, cause
	close(m.gone)
	if cause == nil {
		p.total.completed++
	} else {
		p.total.failed++
	}
	delete(p.members, m.id)
	left := m.held
	m.held = nil
	p.total.orphans += len(left)
	p.mu.Unlock()
	for _, permit := range left {
		permit.ReleaseIfLost()
	}
	p.tell(limits.EventMemberClosed, m, nil)
	if len(left) > 0 {
		return fmt.Errorf("member %q was closed with open requests (%d): release each permit first", m.id, len(left))
	}
	return nil
}
