package proc

import "time"

const (
	firstPause   = time.Minute
	longestPause = 5 * time.Minute
)

// Backoff is how long to pause for a limit that nobody says the end of: min(60·2ⁿ, 300) seconds, where n counts the pauses
// before it that no success has followed. The zero value is ready; it is not safe for concurrent use.
type Backoff struct {
	row   int
	until time.Time // the end of the last pause
}

// Limited takes in that a command which began at an instant met such a limit, and returns when to try again. A command that
// began before the last pause was over tells of the same limit, and lengthens nothing.
func (b *Backoff) Limited(began, now time.Time) time.Time {
	if began.Before(b.until) {
		return b.until
	}
	wait := firstPause
	for range b.row {
		wait = min(2*wait, longestPause)
	}
	b.row++
	b.until = now.Add(wait)
	return b.until
}

// Succeeded takes in that a command which began at an instant ended well. One that began before the last pause was over says
// nothing of what came after.
func (b *Backoff) Succeeded(began time.Time) {
	if !began.Before(b.until) {
		b.row = 0
	}
}
