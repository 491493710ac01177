package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// execBounds stop a run of commands: what runs by then may end, and the same command goes on from there.
type execBounds struct {
	failures int
	cost     float64
	deadline time.Duration

	mu     sync.Mutex
	failed int
}

func (b *execBounds) register(fs *pflag.FlagSet) {
	fs.IntVar(&b.failures, "max-failures", 0, "stop when so many items have failed in this run (0: no bound)")
	fs.Float64Var(&b.cost, "max-cost", 0, "stop before commands cost more in this run, as far as they say (0: no bound)")
	fs.DurationVar(&b.deadline, "deadline", 0, "stop after so long (0: no bound)")
}

func (b *execBounds) check() error {
	switch {
	case b.failures < 0:
		return usageError(fmt.Errorf("--max-failures %d is below zero", b.failures), "leave it out for no bound")
	case !(b.cost >= 0 && b.cost <= mostCost):
		return usageError(fmt.Errorf("--max-cost %v is no sum", b.cost), "leave it out for no bound")
	case b.deadline < 0:
		return usageError(fmt.Errorf("--deadline %v is past", b.deadline), "leave it out for no bound")
	}
	return nil
}

// count takes in a result, and returns why the run is to stop, if it is.
func (b *execBounds) count(r *work.Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Kind != sluice.OK {
		b.failed++
	}
	if b.failures > 0 && b.failed >= b.failures {
		return &boundError{fmt.Sprintf("--max-failures: %s failed", count(b.failed, "item"))}
	}
	return nil
}

// after stops the run at the deadline, unless the returned function is called before.
func (b *execBounds) after(stop func(error)) (cancel func()) {
	if b.deadline == 0 {
		return func() {}
	}
	timer := time.AfterFunc(b.deadline, func() { stop(&boundError{"--deadline: " + span(b.deadline) + " are over"}) })
	return func() { timer.Stop() }
}

// boundError is why a run of commands stopped.
type boundError struct{ text string }

func (e *boundError) Error() string { return e.text }
