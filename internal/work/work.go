// Package work runs items through a Handler: many at once, each exactly once, with a journal that a killed run resumes
// from.
//
// A Runner takes items from a feed, lets them wait per lane, and hands each to its Handler. The Handler is outside the attempt loop, so
// that a response from a cache takes no permit. Calls goes through sluice.Scheduler.Do, which admits, retries and learns. Results go to a
// Journal, one line each, before the worker that made them takes another item.
package work

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
)

// Item is one piece of work.
type Item struct {
	ID    string      // names the item in results, events and errors
	Seq   int64       // its place in the source, such as its line number
	Lane  string      // what the provider limits together, usually the model
	Cost  sluice.Cost // what it is expected to use
	Hash  Hash        // of the request, so that a resume can tell whether it changed
	Size  int         // bytes that the item holds in memory, about; bounds what waits
	Ref   int64       // where Config.Reload finds it, such as its offset
	Data  any         // for the Handler
	Note  []byte      // goes into the result as it is
	Again bool        // it is handled once more at the end of a run: a further rejection shows nothing about the account

	// Withdrawn ends the waits of its calls with sluice.ErrWithdrawn once it is closed. Nil: nothing does.
	Withdrawn <-chan struct{}

	Given *Given // its result: the item is not handled, only recorded
}

// Given is the result of an item that has one before it is handled.
type Given struct {
	Result Result
	Err    error
}

// Result is what became of an item.
type Result struct {
	ID   string // these five are the item's
	Seq  int64
	Lane string
	Hash Hash
	Note []byte

	Kind  sluice.Kind  // OK, or why it failed
	Err   error        // nil for OK
	Tally sluice.Tally // over all its tries

	Response
	Charge
	Data any // from the Handler

	Cached bool  // it came from the call of an equal request
	Offset int64 // where its line is in the journal
}

// Response has the figures of an item's last response. Items with equal requests share it.
type Response struct {
	Status       int    `json:"status,omitzero"`        // HTTP status; 0 when there was none
	RequestID    string `json:"request_id,omitzero"`    // the provider's name for the response
	FinishReason string `json:"finish_reason,omitzero"` // why the model stopped
	Payload      []byte `json:"-"`                      // the response's body, also of a failure that came with one
}

// Charge has the figures of an item's attempts: their account and their cost. Each item has its own.
type Charge struct {
	Upstream string `json:"upstream,omitzero"` // the upstream that responded, if there are several
	Via      string `json:"-"`                 // batch-api, if a Batch API returned the response
	Batch    string `json:"-"`                 // and the ID of its batch

	Cost    float64 `json:"cost,omitzero"`     // in US dollars, of all attempts;
	HasCost bool    `json:"has_cost,omitzero"` // that is known

	Estimated float64 `json:"cost_estimated,omitzero"` // the part of Cost that is an estimate, as no response states the usage
	Unpriced  int     `json:"unpriced,omitzero"`       // calls of the provider's tools that are not in Cost, as their price is unknown
}

// Hash is the identity of a request. The zero value is none.
type Hash [16]byte

// HashOf returns the hash of a text made of parts. Where one part ends and the next begins does not matter.
func HashOf(parts ...[]byte) Hash {
	if len(parts) == 1 {
		sum := sha256.Sum256(parts[0])
		return Hash(sum[:16])
	}
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return Hash(h.Sum(nil)[:16])
}

// String returns the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash as String does.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what String wrote.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHash(text)
	return err
}

// ParseHash reads what String wrote.
func ParseHash(s []byte) (h Hash, err error) {
	if len(s) != hex.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("hash %q: want %d hexadecimal digits", s, hex.EncodedLen(len(h)))
	}
	if _, err := hex.Decode(h[:], s); err != nil {
		return Hash{}, fmt.Errorf("hash %q: %w", s, err)
	}
	return h, nil
}

// Handler handles items. It must be safe for concurrent use. An error fails the item, with the Result's payload, if it
// has one; the Runner fills the Result's ID, Seq, Lane, Hash, Note, Kind and Err.
//
// A Handler with Prepare(ctx) error is prepared once, before it handles the first item: an error ends the run. A Handler that
// is an io.Closer is closed once at the end of a run, prepared or not.
type Handler interface {
	Handle(ctx context.Context, item Item) (Result, error)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, item Item) (Result, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, item Item) (Result, error) { return f(ctx, item) }

// Errors of a run.
var (
	// ErrCalledOff is for a Conclude to return where a run did no more than to call off what was pending elsewhere, with items
	// left to do.
	ErrCalledOff = errors.New("the run was cancelled")

	// ErrDrained is returned by a run that Drain ended before all items were done.
	ErrDrained error = drainedError{}
)

type drainedError struct{}

func (drainedError) Error() string     { return "the run was stopped before all items were done" }
func (drainedError) FaultCode() string { return fault.Interrupted }

// StoppedError is returned by a run that stopped because nothing more could succeed, or because Stop said so. What was
// not done is left to do. It unwraps to the cause.
type StoppedError struct {
	Kind sluice.Kind // Auth or QuotaExhausted; OK when Stop ended the run
	ID   string      // the item that met it; "" when Stop ended the run, or when it is of no one item
	Err  error
}

// Error says why the run stopped.
func (e *StoppedError) Error() string {
	switch e.FaultCode() {
	case fault.KeyRejected:
		return "the key was rejected: " + e.Err.Error()
	case fault.Quota:
		return "the account's quota is spent: " + e.Err.Error()
	case fault.SameError:
		return "the last items all failed with the same error: " + e.Err.Error()
	}
	return e.Err.Error()
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *StoppedError) FaultCode() string {
	code := fault.CodeOf(e.Err)
	switch {
	case code != "" || e.Kind == sluice.OK:
		return code
	case e.Kind == sluice.Auth:
		return fault.KeyRejected
	case e.Kind == sluice.QuotaExhausted:
		return fault.Quota
	}
	return fault.SameError
}

// Unwrap returns the cause.
func (e *StoppedError) Unwrap() error { return e.Err }

// KindOf returns the kind of a Handler's error: that of a *sluice.CallError, ContextLength for sluice.ErrTooLarge, Timeout
// for a deadline, Internal for whatever else went wrong.
func KindOf(err error) sluice.Kind {
	if err == nil {
		return sluice.OK
	}
	if call, ok := errors.AsType[*sluice.CallError](err); ok {
		return call.Kind
	}
	switch {
	case errors.Is(err, sluice.ErrTooLarge):
		return sluice.ContextLength
	case errors.Is(err, context.DeadlineExceeded):
		return sluice.Timeout
	}
	return sluice.Internal
}
