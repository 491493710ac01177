package gate

import (
	"github.com/sluice-llm/sluice/limits"
	"time"
)

const (
	leastPause   = 250 * time.Millisecond // the shortest pause where the provider states none
	longestPause = 15 * time.Second       // and the longest
	longWait     = time.Minute            // a stated wait above it shows no limit without a second item
	longestHint  = 1e6 * time.Hour        // a century: what is beyond is no instant
)

// cooldown is a pause of a whole lane. Methods compare it with now; no goroutine waits for it.
type cooldown struct {
	epoch   uint64    // counts the pauses; a call carries the epoch it was sent in
	until   time.Time // nothing is sent before
	probing bool      // after a pause: few requests are in flight that are not proven
	ramp    int       // maximum of unproven requests while probing
	since   time.Time // when the episode began: probing has not ended since
	cause   limits.Kind

	unproven int // requests of this epoch in flight that are not proven
	burst    burst

	stated time.Time // the stated end of this episode
	tests  int       // rejected requests that were sent before it
	waits  waits
}

// waits is the reliability of the waits that rejections state.
type waits int8

const (
	untested   waits = iota
	kept             // requests before the end of a wait are rejected
	overstated       // requests before the end of a wait are accepted
)

// trusted returns the part of a stated wait for which the lane pauses. Until a wait was right, a request tests it after 0.25, 1, 2, 4 … s, as
// it may be about one item.
func (c *cooldown) trusted(now time.Time, wait time.Duration) time.Duration {
	switch {
	case wait <= time.Second || c.waits == kept:
		return wait
	case c.waits == overstated:
		return 0
	}
	test := leastPause
	if c.probing {
		test = max(time.Second, now.Sub(c.since))
	}
	if 2*test > wait { // a test in the second half gains little
		return wait
	}
	return test
}

// took notes that a request was accepted, which may show that the stated wait is right or too long.
func (c *cooldown) took(sent time.Time) {
	if !c.probing || c.stated.IsZero() || sent.Before(c.since) {
		return
	}
	switch early := c.stated.Sub(sent); {
	case early > max(100*time.Millisecond, c.stated.Sub(c.since)/10):
		c.waits = overstated
	case early <= 0 && c.tests > 0:
		c.waits = kept
	}
	c.stated = time.Time{}
}

// states notes a wait that a rejection states.
func (c *cooldown) states(now time.Time, wait time.Duration) {
	if wait <= 0 {
		return
	}
	if now.Before(c.stated) {
		c.tests++
	}
	c.stated = now.Add(wait)
}

// open starts an epoch after an unexplained throttle of the current one.
func (c *cooldown) open(now time.Time, cause limits.Kind) {
	if !c.probing {
		c.since, c.stated, c.tests = now, time.Time{}, 0
	}
	c.epoch++
	c.probing, c.ramp, c.unproven, c.cause = true, 1, 0, cause
}

// begin starts an epoch with a pause that grows with the episode. hint is the wait that is waited for, gap the time that one call's
// budget takes to refill.
func (c *cooldown) begin(now time.Time, cause limits.Kind, hint, gap time.Duration) {
	c.open(now, cause)
	age := now.Sub(c.since)
	wait := time.Duration(0.15 * float64(age))
	if hint <= 0 { // else extend has set the instant, which may turn out to be too early
		wait = max(wait, leastPause, gap*3/2)
		if cause == limits.RateLimit && age > 0 {
			wait = c.burst.next(now, wait)
		}
	}
	c.pause(now, now.Add(min(wait, longestPause)))
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
	c.ramp++                                 // so that it doubles in the time of a proof
	if c.ramp < min(limit, 2*c.unproven+8) { // beyond that it holds nothing back
		return false
	}
	c.probing = false
	return true
}
