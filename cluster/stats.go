package cluster

import (
	"context"
	"sync"
	"time"
)

// Stats is what passed between this process and the engine. Waits for something to happen there, as for items of a batch, are
// not in it.
type Stats struct {
	Calls    uint64              // commands and scripts that were sent
	Failures uint64              // of those, the ones that got no answer, in time or at all
	Up       bool                // the last call was answered
	Took     time.Duration       // over all calls that were answered
	Within   [statsBounds]uint64 // how many of them took no longer than each of StatsBounds
}

const statsBounds = 10

// StatsBounds are the upper bounds by which Stats counts calls: an engine nearby answers within the first, and a ledger believes
// one that does not within 250 ms to be gone.
func StatsBounds() [statsBounds]time.Duration {
	return [...]time.Duration{
		500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
		25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
	}
}

// Stats returns what passed so far.
func (c *Cluster) Stats() Stats {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	return c.counts.stats
}

// counts counts calls to an engine.
type counts struct {
	mu    sync.Mutex
	stats Stats
}

func (c *counts) add(took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Calls++
	if c.stats.Up = err == nil; err != nil {
		c.stats.Failures++
		return
	}
	c.stats.Took += took
	for i, bound := range StatsBounds() {
		if took <= bound {
			c.stats.Within[i]++
		}
	}
}

// counted counts scripts and commands. Waits are left out.
type counted struct {
	connection
	counts *counts
}

func (c counted) eval(ctx context.Context, s *script, keys, args []string) (reply, error) {
	began := time.Now()
	r, err := c.connection.eval(ctx, s, keys, args)
	c.count(ctx, time.Since(began), err)
	return r, err
}

func (c counted) do(ctx context.Context, command ...string) (reply, error) {
	began := time.Now()
	r, err := c.connection.do(ctx, command...)
	c.count(ctx, time.Since(began), err)
	return r, err
}

// count counts a call, unless its caller gave it up before the engine could have answered.
func (c counted) count(ctx context.Context, took time.Duration, err error) {
	if isRefusal(err) {
		err = nil
	}
	if err != nil && context.Cause(ctx) == context.Canceled {
		return
	}
	c.counts.add(took, err)
}
