// Package stress puts load on the members of a pool and measures whether they keep what the pool promises: no slot is lost,
// nobody waits for ever, nobody starves, a cancelled call leaves no trace, and what is counted is what was sent.
//
// A Level is a program of parts. Run makes real calls, through provider.Exchange, to an imitation of a provider in the same
// process, or to any endpoint.
package stress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

// Level is how hard the load is.
type Level string

// Levels.
const (
	Conservative Level = "conservative" // one member, then one after another
	Aggressive   Level = "aggressive"   // as many members as slots, then more, then many more
	Chaos        Level = "chaos"        // cancellations, a provider that fails and stands still, and then a conservative round
	Hybrid       Level = "hybrid"       // a campaign of phases beside reviews and a loop of tests
)

// Levels returns them all, the easiest first.
func Levels() []Level { return []Level{Conservative, Aggressive, Chaos, Hybrid} }

// Duration is how long a level takes where nobody says how long.
func (l Level) Duration() time.Duration {
	switch l {
	case Conservative:
		return 5 * time.Minute
	case Aggressive:
		return 10 * time.Minute
	case Chaos:
		return 15 * time.Minute
	}
	return 20 * time.Minute
}

// Defaults of Config.
const (
	DefaultSlots   = 5
	DefaultLatency = 100 * time.Millisecond
	DefaultTimeout = 2 * time.Minute
)

// LeastDuration is the shortest time in which a level shows anything.
const LeastDuration = time.Second

// Config says what to run. Level is what it needs.
type Config struct {
	Level    Level
	Slots    int           // calls that may be open at once. Default 5
	Duration time.Duration // of the load; what is open then may end. Default: the level's own
	Seed     uint64        // decides all luck but that of goroutines

	// Endpoint is whom calls go to. Nil: an imitation in the same process, which answers after Latency.
	Endpoint *Endpoint
	Latency  time.Duration // also paces what comes. Default 100 ms; with an Endpoint, as long as the first call took
	Timeout  time.Duration // of one try. Default 2 minutes

	// Program is this program, such as os.Executable says it: a process of it is the provider that is stopped for seconds, at
	// the level chaos. "": that part is left out.
	Program string

	Observer sluice.Observer // of all that happens, also by several at once. Nil is nobody
	Progress func(Progress)  // is told how it stands, about ten times a second. Nil is nobody
}

// Progress is how a run stands.
type Progress struct {
	Part    string // that goes on
	N, Of   int    // which it is
	Elapsed time.Duration
	Total   time.Duration // that was asked for
	Metrics pool.Metrics
}

// FieldError is an error in a field of Config.
type FieldError struct {
	Field string
	Err   error
}

// Error names the field.
func (e *FieldError) Error() string { return fmt.Sprintf("stress: Config.%s: %v", e.Field, e.Err) }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// check fills in defaults.
func (c *Config) check() error {
	c.Slots = cmp.Or(c.Slots, DefaultSlots)
	c.Duration = cmp.Or(c.Duration, c.Level.Duration())
	if c.Endpoint == nil {
		c.Latency = cmp.Or(c.Latency, DefaultLatency)
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	switch {
	case programs[c.Level] == nil:
		return &FieldError{"Level", fmt.Errorf("%q is none of %v", c.Level, Levels())}
	case c.Slots < 1:
		return &FieldError{"Slots", fmt.Errorf("%d is below one", c.Slots)}
	case c.Duration < LeastDuration:
		return &FieldError{"Duration", fmt.Errorf("%s is below %s", c.Duration, LeastDuration)}
	case c.Latency < 0:
		return &FieldError{"Latency", fmt.Errorf("%s is below zero", c.Latency)}
	case c.Timeout < 0:
		return &FieldError{"Timeout", fmt.Errorf("%s is below zero", c.Timeout)}
	}
	return nil
}

// part is a part of a level.
type part struct {
	name  string
	share float64 // of the duration
	run   func(*step)
}

// programs are the parts of the levels, in order.
var programs = map[Level][]part{
	Conservative: conservative,
	Aggressive:   aggressive,
	Chaos:        chaos,
	Hybrid:       hybrid,
}

// ErrInterrupted is the error of a run whose context ended before its time. What it had is in the Result.
var ErrInterrupted = errors.New("interrupted")

// Run runs a level. It returns a Result also for a run that was interrupted, with ErrInterrupted. It fails with a *FieldError,
// or with an *UnreachableError where there is no provider to put load on. It always ends: what is stuck is a deadlock in the
// Result, and is left behind.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r, err := newRun(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer r.close()
	w := startWatch(r)
	ended := make(chan error, 1)
	var last pool.Metrics
	go func() {
		err := r.parts(programs[cfg.Level])
		last = r.pool.Metrics()
		ended <- err
	}()
	select {
	case err = <-ended:
		w.stop()
	case <-w.dead:
		w.stop()
		return r.result(w.last()), interruption(ctx)
	}
	if err != nil {
		return nil, cmp.Or(interruption(ctx), err)
	}
	return r.result(last), interruption(ctx)
}

// interruption is ErrInterrupted if ctx ended.
func interruption(ctx context.Context) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return nil
}
