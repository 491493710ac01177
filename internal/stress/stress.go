// Package stress puts load on the members of a pool and measures whether the pool keeps its promises: no slot is lost, nobody waits
// for ever, nobody starves, a cancelled call leaves no trace, and the counts equal the calls that were sent.
//
// A level is a table of parts and thresholds. Run makes real calls, through provider.Exchange, to a simulator in the same process or
// to any endpoint.
package stress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/pool"
)

// Defaults of Config, and the shortest load that shows anything.
const (
	DefaultSlots   = 5
	DefaultLatency = 100 * time.Millisecond
	DefaultTimeout = 2 * time.Minute
	MinDuration    = time.Second
)

// Config is a run. It needs a Level.
type Config struct {
	Level    string        // one of Levels
	Slots    int           // concurrency. Default 5
	Duration time.Duration // of the load; open calls may end after it. Default: by level
	Seed     uint64        // decides all luck except the order of goroutines

	Endpoint *Endpoint     // receives the calls. Nil: a simulator in the same process, which answers after Latency
	Latency  time.Duration // also paces arrivals. Default 100 ms; with an Endpoint, the time of the first call
	Timeout  time.Duration // of one attempt. Default 2 minutes

	// Program is the path of this program: the level chaos starts it as a provider that is stopped for seconds. "": that part is left
	// out.
	Program string

	Observer sluice.Observer // of all events, concurrently. Nil: none
	Progress func(Progress)  // is called about ten times a second. Nil: none
}

// Progress is the state of a run.
type Progress struct {
	Part      string `json:"part"`       // Part that runs.
	N         int    `json:"n"`          // Number of the part.
	Of        int    `json:"of"`         // Number of all parts.
	ElapsedMS int64  `json:"elapsed_ms"` // Time since the start.
	TotalMS   int64  `json:"total_ms"`   // Configured duration.
	Slots     int    `json:"slots"`      // Concurrency of the pool.
	Active    int    `json:"active"`     // Requests in flight.
	Waiting   int    `json:"waiting"`    // Requests that wait for a slot.
	Requests  int64  `json:"requests"`   // Requests so far.
	Members   int    `json:"members"`    // Registered members.
	Metrics   string `json:"-"`          // in one line
}

// check fills in defaults.
func (c *Config) check() (*level, error) {
	i := slices.IndexFunc(levels[:], func(l level) bool { return l.name == c.Level })
	if i < 0 {
		return nil, fmt.Errorf("stress: Config.Level: %q is not one of %v", c.Level, Levels())
	}
	c.Slots = cmp.Or(c.Slots, DefaultSlots)
	c.Duration = cmp.Or(c.Duration, levels[i].duration)
	if c.Endpoint == nil {
		c.Latency = cmp.Or(c.Latency, DefaultLatency)
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	switch {
	case c.Slots < 1:
		return nil, fmt.Errorf("stress: Config.Slots: %d is below one", c.Slots)
	case c.Duration < MinDuration:
		return nil, fmt.Errorf("stress: Config.Duration: %s is below %s", c.Duration, MinDuration)
	case c.Latency < 0:
		return nil, fmt.Errorf("stress: Config.Latency: %s is below zero", c.Latency)
	case c.Timeout < 0:
		return nil, fmt.Errorf("stress: Config.Timeout: %s is below zero", c.Timeout)
	}
	return &levels[i], nil
}

// ErrInterrupted is the error of a run whose context ended early. Its Result holds what was measured.
var ErrInterrupted = fault.New(fault.Interrupted, errors.New("interrupted"), "run the same command again to start a new run")

// Run runs a level. An interrupted run returns a Result and ErrInterrupted. Run fails with a *fault.Error if the first call
// fails. It always ends: a call that is stuck is a deadlock in the Result, and is left behind.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	l, err := cfg.check()
	if err != nil {
		return nil, err
	}
	r, err := newRun(ctx, cfg, l)
	if err != nil {
		return nil, err
	}
	defer r.close()
	w := startWatch(r)
	ended := make(chan error, 1)
	last := new(pool.Metrics)
	go func() {
		err := r.parts()
		*last = r.pool.Metrics()
		ended <- err
	}()
	m := last
	select {
	case err = <-ended:
	case <-w.dead:
		m = w.metrics.Load()
	}
	w.stop()
	if ctx.Err() != nil {
		err = ErrInterrupted
	} else if err != nil {
		return nil, err
	}
	return r.result(*m), err
}
