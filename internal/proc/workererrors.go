package proc

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
)

// errWorkersClosed is why there is no answer from workers that were closed.
var errWorkersClosed = errors.New("workers are closed")

// workerDiedError is a worker that ended with an item in hand.
type workerDiedError struct {
	ExitCode int    // -1: it did not exit by itself
	Signal   string // that ended it; "" is none
	Half     string // the beginning of a line that it did not end; "" is none
	Stderr   string // the end of what it said aside since it had the item, without keys
}

// Error says how it ended, and the last it said.
func (e *workerDiedError) Error() string {
	text := fmt.Sprintf("the worker exited without a result: exit code %d", e.ExitCode)
	if e.Signal != "" {
		text = "the worker exited without a result: signal: " + e.Signal
	}
	if e.Half != "" {
		text += fmt.Sprintf(", in the middle of a line: %q", e.Half)
	}
	if said := agents.LastWords(e.Stderr); said != "" {
		text += ": " + said
	}
	return text
}

// protocolError is a worker that said what it must not, and was killed for it.
type protocolError struct {
	What string // came
	Said string // its beginning, without keys
	Late bool   // it belongs to an item that was answered before: the one in hand is not to blame
}

// Error quotes what it said.
func (e *protocolError) Error() string {
	return fmt.Sprintf("the worker violated the protocol and was killed: it printed %s: %q "+
		"(standard output is only for results; write all other text to standard error)", e.What, e.Said)
}

// silentError is a worker that neither answered nor gave a sign of life, and was killed for it.
type silentError struct {
	After  time.Duration
	Stderr string // the end of what it said aside since it had the item, without keys
}

// Error says for how long it was waited for.
func (e *silentError) Error() string {
	text := fmt.Sprintf("the worker sent neither a result nor a heartbeat for %s and was killed", prose.Span(e.After))
	if said := agents.LastWords(e.Stderr); said != "" {
		text += ": " + said
	}
	return text
}

// quarantinedError is an item that was in hand of too many workers that ended.
type quarantinedError struct {
	ID     string
	Causes []error // one for each worker
}

// Error says how each of them ended.
func (e *quarantinedError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "item %q is quarantined after the failure of %s", e.ID, prose.Count(len(e.Causes), "worker"))
	for i, cause := range e.Causes {
		fmt.Fprintf(&text, "; %d: %v", i+1, cause)
	}
	return text.String()
}

// Unwrap returns how they ended.
func (e *quarantinedError) Unwrap() []error { return e.Causes }

// futileError ends a run: workers do not come to their first answer.
type futileError struct {
	Workers int // that ended, in a row
	Err     error
}

// Error says how the last one ended.
func (e *futileError) Error() string {
	return fmt.Sprintf("%s in a row failed before the first result, the last with: %v", prose.Count(e.Workers, "worker"), e.Err)
}

// Unwrap returns how the last one ended.
func (e *futileError) Unwrap() error { return e.Err }
