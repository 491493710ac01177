package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// halfLife is the time in which the confidence in a learned limit halves.
const halfLife = 6 * time.Hour

// trustUnit is the time for which a limit of confidence 1/2 is not exceeded.
const trustUnit = 500 * time.Millisecond

// confidenceOf returns the confidence of a limit that is not exceeded for that time after it was met: time ÷ (time + 0.5 s).
func confidenceOf(trust time.Duration) float64 {
	return trust.Seconds() / (trust + trustUnit).Seconds()
}

// aged returns a limit with its confidence as of an instant. A configured limit does not age.
func aged(l limits.Limit, now time.Time) limits.Limit {
	if age := now.Sub(l.At); age > 0 && l.Source != limits.SourceTold {
		l.Confidence *= math.Exp2(-age.Hours() / halfLife.Hours())
	}
	return l
}
