// Package wake has goroutines wait, and wakes them.
package wake

import (
	"context"
	"math/rand/v2"
	"time"
)

// Up wakes the reader of c, a channel of size 1. It does not block: news that waits already covers what is new.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// In returns nil after d or as soon as c, which may be nil, has news, and the cause as soon as ctx ends.
func In(ctx context.Context, d time.Duration, c <-chan struct{}) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Backoff is a wait between attempts that grows by half each time, from Min to Max. It is not safe for concurrent use.
type Backoff struct {
	Min, Max time.Duration
	next     time.Duration
}

// Next returns the next wait, less up to a fifth, so that goroutines that start together do not continue together.
func (b *Backoff) Next() time.Duration {
	t := min(max(b.next, b.Min), b.Max)
	b.next = t + t/2
	return Jitter(t)
}

// Reset has the next wait be the first again.
func (b *Backoff) Reset() { b.next = 0 }

// Jitter returns a duration less up to a fifth.
func Jitter(t time.Duration) time.Duration { return t - rand.N(t/5+1) }
