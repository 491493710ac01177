package sluice

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/planted"
	"github.com/sluice-llm/sluice/limits"
)

// Config configures a Scheduler. With the zero Config, the Scheduler learns all limits from responses.
type Config struct {
	// Name identifies the account in the state directory, in events and in errors. For example, Name can be the base URL
	// with a hash of the API key, but not the API key itself.
	Name string

	// Limits contains the configured limits of each lane. The Scheduler never exceeds configured limits, even if it learns higher limits.
	Limits Limits

	// Account contains the configured limits of all lanes together. The limits of each lane in Config.Limits apply too.
	Account Limits

	// Start contains initial estimates of the limits, for example from an earlier run. Response headers and rejections
	// raise or lower the estimates.
	Start Limits

	// Charge is the provider's method of counting tokens (default ChargeDeclared).
	Charge limits.Charge

	// CountsCached specifies whether input from a prompt cache counts against the token limits (default false, as with
	// Anthropic). CountsCached applies only with ChargeActual.
	CountsCached bool

	// Attempts is the maximum number of attempts per call, excluding rate-limited attempts (default 6).
	Attempts int

	// MaxThrottles is the maximum number of retries of a call after rate-limited attempts. If MaxThrottles is negative, the first rate-limited
	// attempt ends the call. The default is 20 retries, and more until 10 minutes after the first rate-limited attempt.
	MaxThrottles int

	// Weights contains the relative share of each tenant, by tenant name. A tenant without an entry has weight 1.
	Weights map[string]float64

	// Observer receives every event of the Scheduler. If Observer is nil, the Scheduler reports no events.
	Observer Observer

	// Ledger stores the token buckets and slots that several processes share. If Ledger is nil, the Scheduler shares no token buckets or slots.
	Ledger Ledger

	// StateDir is the directory that stores daily counters, learned limits and cooldowns for later processes (default: no state is stored).
	StateDir string

	// IgnorePauses makes the Scheduler ignore the learned limits and the cooldowns of earlier processes. Configured
	// limits and daily limits still count the requests of earlier processes.
	IgnorePauses bool
}

// Scheduler admits the calls to one account by priority and tenant, within learned and configured limits. A Scheduler is safe for
// concurrent use.
//
// Create a Scheduler with [New], make calls with [Scheduler.Do], and finally call [Scheduler.Close]. Do runs a function once per
// attempt and reads the returned [Outcome], mainly Kind, Err, Wait (as requested by the provider), Usage and HasUsage. Programs with
// their own retry loop call [Scheduler.Acquire] and release each permit exactly once.
type Scheduler struct {
	cfg    Config
	closed chan struct{}

	// mu is taken by every method, around what it tells the gate. Whatever lets go of it does so by unlockAndFlush, which
	// hands out what the gate decided meanwhile.
	mu      sync.Mutex
	gate    *gate.Gate
	tickets []*gate.Ticket // for use again
	timer   *time.Timer
	timerAt time.Time // when timer fires; zero when it is not armed
	ended   bool
	events  []Event // not observed yet
	told    []Event // the buffer that events takes turns with
	telling bool    // somebody is telling the Observer
	quiet   sync.Cond
	waiters sync.WaitGroup // calls that wait for a grant

	retrying atomic.Int64 // calls that wait before they are tried again

	remote *remote // nil: the ledger is local
	store  *store  // nil: nothing outlives the process
}

// New returns a Scheduler. If a field of cfg is invalid, New returns an error that names the field.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Attempts == 0 {
		cfg.Attempts = gate.DefaultAttempts
	}
	throttles, patience := cfg.MaxThrottles, time.Duration(0)
	if throttles == 0 {
		throttles, patience = gate.DefaultMaxThrottles, gate.DefaultPatience
	}
	s := &Scheduler{cfg: cfg, closed: make(chan struct{})}
	s.quiet.L = &s.mu
	s.gate = gate.New(gate.Config{
		Limits: cfg.Limits, Account: cfg.Account, Start: cfg.Start, Charge: cfg.Charge, CountsCached: cfg.CountsCached,
		Attempts: cfg.Attempts, MaxThrottles: max(0, throttles), Patience: patience,
		Weights: cfg.Weights, Remote: cfg.Ledger != nil, Observed: cfg.Observer != nil,
	})
	if cfg.StateDir != "" {
		st, err := newStore(s, cfg.StateDir)
		if err != nil {
			return nil, err
		}
		s.store = st
	}
	if cfg.Ledger != nil {
		s.remote = newRemote(s, cfg.Ledger)
	}
	if cfg.Observer != nil { // told with the first thing that happens: the caller does not have the Scheduler yet
		slots := cfg.Limits.Concurrency
		if most := cfg.Account.Concurrency; most > 0 && (slots == 0 || slots > most) {
			slots = most
		}
		s.events = append(s.events, Event{Type: limits.EventStarted, At: time.Now(), Slots: slots})
	}
	return s, nil
}

func (c *Config) check() error {
	for _, l := range []struct {
		name string
		Limits
	}{{"Limits", c.Limits}, {"Account", c.Account}, {"Start", c.Start}} {
		if err := l.Check(); err != nil {
			return fmt.Errorf("config: %s.%w", l.name, err)
		}
	}
	if c.Charge > limits.ChargeActual {
		return fmt.Errorf("config: Charge is %d: want ChargeDeclared or ChargeActual", c.Charge)
	}
	if c.Attempts < 0 {
		return fmt.Errorf("config: Attempts is %d: it must be at least 1", c.Attempts)
	}
	if err := checkWeights(c.Weights); err != nil {
		return fmt.Errorf("config: Weights%w", err)
	}
	return nil
}

// Acquire waits until the call may be sent, and returns a permit. Acquire fails with the context's error, ErrClosed,
// ErrWithdrawn, a *SlotTimeoutError, or an error that wraps ErrTooLarge.
func (s *Scheduler) Acquire(ctx context.Context, c Call) (*Permit, error) {
	return s.acquire(ctx, &c, &try{})
}

// TryAcquire returns a permit if the call may be sent immediately, and nil otherwise. With a shared Ledger,
// TryAcquire always returns nil.
func (s *Scheduler) TryAcquire(c Call) *Permit {
	if s.remote != nil {
		return nil
	}
	if s.store != nil {
		s.store.open(c.Lane)
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil
	}
	now := time.Now()
	t := s.ticketLocked(&c, &try{})
	ok := s.gate.Acquire(now, t)
	if ok && t.Granted() {
		p := s.permit(t)
		told := false
		defer func() {
			if !told {
				s.cancel(t, &try{})
			}
		}()
		s.unlockAndFlush()
		told = true
		return p
	}
	if ok {
		s.gate.Cancel(now, t)
	}
	s.recycleLocked(t)
	s.unlockAndFlush()
	return nil
}

// try is what a call's earlier tries came to, and what its last wait was.
type try struct {
	attempts, throttles, overloads int

	throttled      time.Time // when the call was first throttled
	queued         time.Time // when it first asked,
	order          uint64    // and before whom of those at the same instant
	waited, paused time.Duration
}

func (s *Scheduler) acquire(ctx context.Context, c *Call, y *try) (*Permit, error) {
	y.waited, y.paused = 0, 0
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.store != nil {
		s.store.open(c.Lane)
	}
	s.mu.Lock()
	for s.telling && len(s.events) >= mostUntold { // the Observer is slower than the calls: no permit is held here
		s.quiet.Wait()
	}
	if s.ended {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	t := s.ticketLocked(c, y)
	if !s.gate.Acquire(time.Now(), t) {
		limit := *s.gate.Exceeded(time.Now(), t)
		s.recycleLocked(t)
		s.mu.Unlock()
		return nil, fmt.Errorf("call %q may use %d output tokens, but %v is %.0f: %w", c.ID, c.Cost.MaxOutput, limit.Dimension, limit.Value, ErrTooLarge)
	}
	told := false
	defer func() {
		if !told { // the Observer panicked: nobody will have the permit
			s.cancel(t, y)
		}
	}()
	if !t.Granted() {
		t.Ready = make(chan struct{})
		s.waiters.Add(1)
		defer s.waiters.Done()
		if err := s.unlockAndWait(ctx, t, y, &told); err != nil {
			return nil, err
		}
		y.note(t)
		return s.permit(t), nil
	}
	y.note(t)
	p := s.permit(t)
	s.unlockAndFlush()
	told = true
	return p, nil
}

func (s *Scheduler) permit(t *gate.Ticket) *Permit {
	return &Permit{
		s: s, ticket: t, id: t.ID, attempt: t.Attempt, last: t.Attempt >= cmp.Or(t.Call.Attempts, s.cfg.Attempts),
		call: t.Call.ID, lane: t.Call.Lane, granted: t.Sent(), waited: t.Waited + t.Paused,
	}
}

// note keeps what another try of the call needs.
func (y *try) note(t *gate.Ticket) {
	y.queued, y.order, y.waited, y.paused = t.Queued, t.Order, t.Waited, t.Paused
}

// mostTickets bounds how many tickets are kept for use again: half a kilobyte each.
const mostTickets = 1024

// ticketLocked returns a ticket for a call's next try.
func (s *Scheduler) ticketLocked(c *Call, y *try) *gate.Ticket {
	var t *gate.Ticket
	if n := len(s.tickets); n > 0 {
		t, s.tickets = s.tickets[n-1], s.tickets[:n-1]
	} else {
		t = new(gate.Ticket)
	}
	*t = gate.Ticket{Call: *c, Attempt: y.attempts + 1, Throttles: y.throttles, Throttled: y.throttled, Overloads: y.overloads,
		Queued: y.queued, Order: y.order, Front: y.order > 0}
	return t
}

// recycleLocked keeps a ticket that neither the gate nor a waiting caller holds any more.
func (s *Scheduler) recycleLocked(t *gate.Ticket) {
	if len(s.tickets) < mostTickets {
		s.tickets = append(s.tickets, t)
	}
}

// unlockAndFlush hands out what the gate decided: grants, the next timer, asks to a remote ledger, events. It is called with
// mu held and returns without.
func (s *Scheduler) unlockAndFlush() {
	for _, t := range s.gate.Granted() {
		if t.Ready != nil && !planted.Every("wake-up lost", 200) {
			close(t.Ready)
		}
	}
	s.armLocked()
	if s.remote != nil {
		s.remote.sendLocked()
	}
	if s.cfg.Observer == nil {
		s.mu.Unlock()
		return
	}
	s.events = s.gate.Events(s.events)
	if s.telling { // who is at it tells these too, in order
		s.mu.Unlock()
		return
	}
	s.telling = true
	others := false
	defer func() {
		if others {
			s.mu.Unlock()
			return
		}
		s.quietLocked()
	}()
	for i := 0; i < ownTurns && len(s.events) > 0; i++ {
		s.tellLocked()
	}
	if others = len(s.events) > 0; others { // what others did meanwhile must not hold the caller, who may have a permit
		go s.tellOthers()
	}
}

const (
	ownTurns   = 8    // batches that a caller tells; the first is its own
	mostUntold = 1024 // events that wait for a slow Observer, before new calls do
)

func (s *Scheduler) tellOthers() {
	s.mu.Lock()
	defer s.quietLocked()
	for len(s.events) > 0 {
		s.tellLocked()
	}
}

// quietLocked says that nobody tells the Observer any more, and lets go of mu.
func (s *Scheduler) quietLocked() {
	s.telling = false
	s.quiet.Broadcast()
	s.mu.Unlock()
}

// tellLocked tells the Observer of the events at hand. It is called with mu held, lets go of it meanwhile, and has
// it again when it returns or the Observer panics.
func (s *Scheduler) tellLocked() {
	events := s.events
	s.events = s.told[:0]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		clear(events)
		s.told = events[:0]
		s.quiet.Broadcast()
	}()
	for i := range events {
		events[i].Account = s.cfg.Name
		s.cfg.Observer.Observe(events[i])
		if e := &events[i]; s.store != nil && e.Type == limits.EventCooldownStarted && e.Until.Sub(e.At) > gate.SaveEvery {
			s.store.saveSoon()
		}
	}
}

// armLocked sets the one timer to the next instant at which the gate has something to do.
func (s *Scheduler) armLocked() {
	next := s.gate.Next()
	switch {
	case s.ended || next.IsZero():
		return // a timer that still fires finds nothing to do
	case !s.timerAt.IsZero() && !next.Before(s.timerAt):
		return // it fires earlier, and is armed again then
	}
	s.timerAt = next
	wait := time.Until(next)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.tick)
	} else {
		s.timer.Reset(wait)
	}
}

func (s *Scheduler) tick() {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.timerAt = time.Time{}
	s.gate.Tick(time.Now())
	s.unlockAndFlush()
}

// Snapshot returns the current state of all lanes.
func (s *Scheduler) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now() // not before: the gate's time would go back
	limits, account := s.gate.Limits()
	snap := Snapshot{At: now, Lanes: s.gate.Snapshot(now), Limits: limits, Account: account, Retrying: int(s.retrying.Load())}
	if !s.gate.Next().IsZero() { // else it finds nothing to do
		snap.Timer = s.timerAt
	}
	return snap
}

// sayClosedLocked tells the Observer the last that there is.
func (s *Scheduler) sayClosedLocked() {
	if s.cfg.Observer == nil {
		return
	}
	s.events = append(s.gate.Events(s.events), Event{Type: limits.EventClosed, At: time.Now(), InFlight: s.gate.Open()})
	s.telling = true
	defer func() { // also when it panics
		s.telling = false
		s.quiet.Broadcast()
	}()
	for len(s.events) > 0 { // also of what is released meanwhile: who does that leaves it to us
		s.tellLocked()
	}
}

// Close makes waiting calls fail with ErrClosed, stores the state of the lanes, and waits until all goroutines of the
// Scheduler finish. Permits may still be released after Close. Close may be called repeatedly, but not from the Observer.
func (s *Scheduler) Close() error {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil
	}
	s.ended = true
	close(s.closed)
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.waiters.Wait()
	if s.remote != nil {
		s.remote.close()
	}
	s.mu.Lock()
	for s.telling {
		s.quiet.Wait()
	}
	s.sayClosedLocked()
	s.mu.Unlock()
	if s.store != nil {
		return s.store.close()
	}
	return nil
}
