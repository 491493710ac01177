package sluice

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// SetLimits replaces the ceilings of Config.Limits, which apply to each lane, and of Config.Account, which apply to all lanes
// together. Calls in flight continue. A removed ceiling stays as a belief, which headers and rejections correct. SetLimits
// fails, and changes nothing, for limits that New would refuse.
func (s *Scheduler) SetLimits(limits, account Limits) error {
	if err := limits.Check(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if err := account.Check(); err != nil {
		return fmt.Errorf("account: %w", err)
	}
	return s.change(func(now time.Time) { s.gate.SetLimits(now, limits, account) })
}

// SetPublished sets the limits that the provider publishes for the account, by lane, as package provider reads them. They are in force in
// place of Config.Start and of limits that an earlier process learned. Configured limits precede them, and responses correct them. It fails,
// and changes nothing, for limits that New would refuse.
func (s *Scheduler) SetPublished(byLane map[string]Limits) error {
	for lane, l := range byLane {
		if err := l.Check(); err != nil {
			return fmt.Errorf("lane %q: %w", lane, err)
		}
	}
	byLane = maps.Clone(byLane)
	return s.change(func(now time.Time) { s.gate.SetPublished(now, byLane) })
}

// SetWeights replaces the tenants' shares of Config.Weights. Calls in flight continue. It fails, and changes nothing, for
// weights that New would refuse.
func (s *Scheduler) SetWeights(weights map[string]float64) error {
	if err := checkWeights(weights); err != nil {
		return fmt.Errorf("weights%w", err)
	}
	weights = maps.Clone(weights)
	return s.change(func(time.Time) { s.gate.SetWeights(weights) })
}

// checkWeights names the tenant whose weight is none, as an index of the map; of several the first by name, each time.
func checkWeights(weights map[string]float64) error {
	for _, tenant := range slices.Sorted(maps.Keys(weights)) {
		w := weights[tenant]
		if !(w > 0) || math.IsInf(w, 0) {
			return fmt.Errorf("[%q] is %v: a weight must be a number above 0", tenant, w)
		}
	}
	return nil
}

// Pause stops the sending of calls in all lanes until Resume. Calls in flight continue; new calls wait. It is safe to
// call twice, and fails only with ErrClosed.
func (s *Scheduler) Pause() error {
	return s.change(func(now time.Time) { s.gate.Hold(now, true) })
}

// Resume ends a Pause.
func (s *Scheduler) Resume() error {
	return s.change(func(now time.Time) { s.gate.Hold(now, false) })
}

// PauseLane pauses a lane for a rejection outside of its calls, for example of a probe or an earlier run. It acts as if a call
// had met it: the pause lasts for o.Wait or until o.Until, and if o has neither, the Scheduler chooses. o's kind is a throttle.
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

// Earliest is how long a call that asked now would wait at least for its permit, as far as is known, even if it went before all
// that wait: until its lane's pause ends and the limits hold its cost. Unlike Delay it guesses nothing of other calls, and
// ignores a Pause, whose end is unknown.
func (s *Scheduler) Earliest(c Call) time.Duration {
	if s.store != nil {
		s.store.open(c.Lane)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate.Earliest(time.Now(), &c)
}
