package gate

import "time"

const (
	leastPause   = 250 * time.Millisecond // the shortest pause where the provider states none
	longestPause = 15 * time.Second       // and the longest
	longestHint  = 1e6 * time.Hour        // a century: what is beyond is no instant
	breakerTrips = 5                      // infrastructure failures in a row that open the breaker,
	breakerPause = 60 * time.Second       // for so long
	retryBudget  = 10                     // failures that a lane may retry without delay
)

// cooldown is a pause of a whole lane. It is data, looked at by whoever asks; nobody performs it or waits for it.
type cooldown struct {
	epoch   uint64    // counts the pauses; a call carries the epoch it was sent in
	until   time.Time // nothing is sent before
	probing bool      // after a pause: only a few calls that have not proven themselves may be out
	ramp    int       // so many
	since   time.Time // when the episode began: probing has not ended since
	cause   Kind

	unproven int // calls of this epoch that are out and not proven
}

// begin starts an epoch after an unexplained throttle of the current one. hint is the wait the provider asks for,
// gap the time that one call's budget takes to refill.
func (c *cooldown) begin(now time.Time, cause Kind, hint, gap time.Duration) {
	if !c.probing {
		c.since = now
	}
	c.epoch++
	c.probing, c.ramp, c.unproven, c.cause = true, 1, 0, cause
	if hint > 0 {
		return // extend has set the instant
	}
	wait := time.Duration(0.15 * float64(now.Sub(c.since)))
	c.pause(now, now.Add(min(max(wait, leastPause, gap*3/2), longestPause)))
}

// extend moves the end of the pause to what a throttle asks for, never earlier. The provider's wait is a floor.
func (c *cooldown) extend(now time.Time, hint time.Duration, random func(int64) int64) {
	if hint <= 0 {
		return
	}
	hint = min(hint, longestHint)
	margin := min(hint/50, 100*time.Millisecond)
	c.pause(now, now.Add(hint+margin+time.Duration(random(int64(margin)+1))+2*time.Millisecond))
}

// pause extends the pause until then, never shortens it. Long pauses are instants of the wall clock: laptops sleep.
func (c *cooldown) pause(now, until time.Time) {
	if until.Sub(now) > time.Minute {
		until = until.Round(0)
	}
	if until.After(c.until) {
		c.until = until
	}
}

// proven counts a call of the current epoch that was taken. It reports whether that ended the episode.
func (c *cooldown) proven(limit int) bool {
	if !c.probing {
		return false
	}
	c.ramp *= 4
	if c.ramp < limit {
		return false
	}
	c.probing = false
	return true
}

// breaker opens after failures in a row that are not about limits.
type breaker struct {
	failures int
	open     bool
}

// failed counts a failure and reports whether it opens the breaker (again, where it was a probe).
func (b *breaker) failed() bool {
	b.failures++
	if b.open || b.failures >= breakerTrips {
		b.open = true
		return true
	}
	return false
}

// answered closes the breaker, and reports whether it was open: whatever a host answers, it is there.
func (b *breaker) answered() (closed bool) {
	closed = b.open
	b.failures, b.open = 0, false
	return closed
}

// retries delays retries while a lane fails more than it succeeds; it never ends a call that has attempts left.
type retries struct{ spent float64 }

func (r *retries) failed()    { r.spent = min(r.spent+1, 3*retryBudget) }
func (r *retries) succeeded() { r.spent = max(r.spent-0.1, 0) }

// delay is what a retry waits beside its own backoff: a second for each failure that the budget is overdrawn.
func (r *retries) delay() time.Duration {
	return seconds(max(0, r.spent-retryBudget))
}
