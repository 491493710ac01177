package sluice

import "time"

// Stall holds up every method of s until the function that it returns is called.
func Stall(s *Scheduler) (end func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Look does what a Snapshot does, of a Scheduler that is held up.
func Look(s *Scheduler) { s.gate.Snapshot(time.Now()) }
