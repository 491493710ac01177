package find

// SweepAtMost is what a sweep may cost at most.
func SweepAtMost(cfg Config) (Spent, error) { return sweepAtMost(cfg) }
