package cli

import (
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// leastForShare is how many items end before a share of failures counts.
const leastForShare = 20

// execBounds stop a run of commands: running commands may finish, and the same command resumes.
type execBounds struct {
	boundFlags

	mu            sync.Mutex
	ended, failed int
}

// count takes in a result, and returns why the run is to stop, if it is.
func (b *execBounds) count(r *work.Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended++
	if r.Kind != sluice.OK {
		b.failed++
	}
	tooMany := b.failures.count > 0 && b.failed >= b.failures.count
	if share := b.failures.share; share > 0 && b.ended >= leastForShare && float64(b.failed) > share*float64(b.ended) {
		tooMany = true
	}
	if tooMany {
		return &boundError{"--max-failures " + b.failures.text + " is reached"} // open commands can fail after that
	}
	return nil
}

// after stops the run at the deadline, unless the returned function is called before.
func (b *execBounds) after(stop func(error)) (cancel func()) {
	at := b.deadline.from(time.Now())
	if at.IsZero() {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(at), func() { stop(&boundError{"--deadline " + b.deadline.text + " is over"}) })
	return func() { timer.Stop() }
}

// boundError is why a run of commands stopped.
type boundError struct{ text string }

func (e *boundError) Error() string { return e.text }
