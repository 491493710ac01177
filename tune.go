package sluice

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// SetLimits replaces Config.Limits (for each lane) and Config.Account (for all lanes together). Requests in flight
// continue. A removed limit becomes an estimate that headers and rejections correct. If a limit is invalid, SetLimits
// returns an error and changes nothing.
func (s *Scheduler) SetLimits(limits, account Limits) error {
	if err := limits.Check(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if err := account.Check(); err != nil {
		return fmt.Errorf("account: %w", err)
	}
	return s.change(func(now time.Time) { s.gate.SetLimits(now, limits, account) })
}

// SetPublished sets the provider's published limits for each lane of the account. Published limits replace
// Config.Start and limits learned by an earlier process. Configured limits take precedence, and responses correct
// published limits. If a limit is invalid, SetPublished returns an error and changes nothing.
func (s *Scheduler) SetPublished(byLane map[string]Limits) error {
	for lane, l := range byLane {
		if err := l.Check(); err != nil {
			return fmt.Errorf("lane %q: %w", lane, err)
		}
	}
	byLane = maps.Clone(byLane)
	return s.change(func(now time.Time) { s.gate.SetPublished(now, byLane) })
}

// SetWeights replaces Config.Weights, the relative shares of the tenants. Requests in flight continue. If a weight is
// invalid, SetWeights returns an error and changes nothing.
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

// Pause stops sending in all lanes until Resume. Requests in flight continue, and new calls wait. Pause may be called
// repeatedly. If the Scheduler is closed, Pause returns ErrClosed.
func (s *Scheduler) Pause() error {
	return s.change(func(now time.Time) { s.gate.Hold(now, true) })
}

// Resume ends a Pause. If the Scheduler is closed, Resume returns ErrClosed.
func (s *Scheduler) Resume() error {
	return s.change(func(now time.Time) { s.gate.Hold(now, false) })
}

// PauseLane pauses a lane after a rejection outside the Scheduler, for example of a probe request. The pause lasts for o.Wait or until o.Until. If
// o.Wait and o.Until are zero, the Scheduler chooses the duration. If o.Kind is not a throttle kind, PauseLane returns an error.
func (s *Scheduler) PauseLane(lane string, o Outcome) error {
	if !o.Kind.Throttle() {
		return fmt.Errorf("errors of kind %s do not pause a lane", o.Kind)
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

// Delay returns the estimated time that a new call waits for a permit. The estimate assumes typical costs and
// durations for the lane's waiting calls. While the Scheduler is paused, Delay returns the maximum time.Duration. Use
// Delay only to choose among Schedulers, because the estimate is not a guarantee.
func (s *Scheduler) Delay(c Call) time.Duration {
	if s.store != nil {
		s.store.open(c.Lane)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate.Delay(time.Now(), &c)
}

// Earliest returns the minimum time that a new call waits for a permit if it passes all waiting calls. This time ends when the lane's
// cooldown is over and the limits permit the cost of the call. Unlike Delay, Earliest ignores other calls and Scheduler.Pause.
func (s *Scheduler) Earliest(c Call) time.Duration {
	if s.store != nil {
		s.store.open(c.Lane)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate.Earliest(time.Now(), &c)
}
