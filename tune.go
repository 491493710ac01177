package sluice

import (
	"errors"
	"fmt"
	"time"
)

// SetLimits exchanges the ceilings that Config.Limits and Config.Account told, while calls go on: limits are those of each
// lane, account those of all lanes together. A ceiling that is no longer told leaves the limit as a belief, which headers
// and refusals correct. It fails, and changes nothing, for limits that New would refuse.
func (s *Scheduler) SetLimits(limits, account Limits) error {
	if err := limits.Check(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if err := account.Check(); err != nil {
		return fmt.Errorf("account: %w", err)
	}
	if account != (Limits{}) && s.remote != nil {
		return errors.New("account limits cannot stand beside a Ledger, which knows only lanes")
	}
	return s.change(func(now time.Time) { s.gate.SetLimits(now, limits, account) })
}

// Pause stops the sending of calls in all lanes until Resume. Calls that are open go on; those that ask wait. It is safe to
// call twice, and fails with ErrClosed alone.
func (s *Scheduler) Pause() error {
	return s.change(func(now time.Time) { s.gate.Hold(now, true) })
}

// Resume ends a Pause.
func (s *Scheduler) Resume() error {
	return s.change(func(now time.Time) { s.gate.Hold(now, false) })
}

// PauseLane pauses a lane for a limit that was met outside of its calls, such as by a probe or by an earlier run, as if a call
// had met it: for o.Wait or until o.Until, and as long as the Scheduler thinks where o says neither. o's kind is a throttle.
func (s *Scheduler) PauseLane(lane string, o Outcome) error {
	if !o.Kind.Throttle() {
		return fmt.Errorf("kind %s pauses no lane", o.Kind)
	}
	if s.store != nil {
		s.store.open(lane)
	}
	return s.change(func(now time.Time) { s.gate.Pause(now, lane, &o) })
}

func (s *Scheduler) change(what func(now time.Time)) error {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return ErrClosed
	}
	what(time.Now())
	s.unlockAndFlush()
	return nil
}

// Delay is how long a call that asked now would wait for its permit, as far as is known: those that wait in its lane go
// first, with the costs and times that are usual there. A paused Scheduler says the longest Duration there is. It is for
// choosing among Schedulers; only Acquire can promise anything.
func (s *Scheduler) Delay(c Call) time.Duration {
	if s.store != nil {
		s.store.open(c.Lane)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate.Delay(time.Now(), &c)
}
