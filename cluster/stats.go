package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
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

// countedClient counts what is sent by way of it. Connections that are dedicated to one purpose are left out.
type countedClient struct {
	rueidis.Client
	counts *counts
}

// Do sends a command.
func (c countedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.IsBlock() {
		return c.Client.Do(ctx, cmd)
	}
	began := time.Now()
	r := c.Client.Do(ctx, cmd)
	c.count(ctx, time.Since(began), r)
	return r
}

// DoMulti sends several commands at once.
func (c countedClient) DoMulti(ctx context.Context, all ...rueidis.Completed) []rueidis.RedisResult {
	for _, cmd := range all {
		if cmd.IsBlock() {
			return c.Client.DoMulti(ctx, all...)
		}
	}
	began := time.Now()
	results := c.Client.DoMulti(ctx, all...)
	took := time.Since(began)
	for _, r := range results {
		c.count(ctx, took, r)
	}
	return results
}

// count counts a call, unless its caller gave it up before the engine could have answered.
func (c countedClient) count(ctx context.Context, took time.Duration, r rueidis.RedisResult) {
	err := r.NonRedisError()
	if err != nil && context.Cause(ctx) == context.Canceled {
		return
	}
	c.counts.add(took, err)
}
