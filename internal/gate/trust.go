package gate

import "time"

// trustUnit is the time for which a limit of confidence 1/2 is not exceeded.
const trustUnit = 500 * time.Millisecond

// confidenceOf returns the confidence of a limit that is not exceeded for that time after it was met: time ÷ (time + 0.5 s).
func confidenceOf(trust time.Duration) float64 {
	return trust.Seconds() / (trust + trustUnit).Seconds()
}
