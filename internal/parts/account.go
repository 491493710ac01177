package parts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/provider"
)

// lane is that of all calls to Batch APIs.
const lane = "batch-api"

const (
	mostCalls  = 4                      // to an account's Batch API at once: each may carry a file
	throttles  = 1 << 20                // of one call: there is a day's time
	firstLook  = 500 * time.Millisecond // at a batch after it was made; doubles up to Terms.Poll
	firstPoll  = 5 * time.Second
	longRefuse = 5 * time.Minute // longest wait for room that others take up
)

// account is an account with a Batch API.
type account struct {
	name  string
	api   batchapi.API
	known provider.BatchAPI
	sched *sluice.Scheduler

	// What follows is guarded by the Desk's mu.
	room     int         // tokens that may be enqueued, as a refusal said; 0 is not known
	refusals int         // for lack of room, in a row
	until    time.Time   // before which nothing is submitted
	full     bool        // nothing is submitted before one of our parts ends
	made     []time.Time // batches of the last hour
}

func newAccount(cfg *Config, name string, api batchapi.API) (*account, error) {
	s, err := sluice.New(sluice.Config{
		Name: name, Limits: sluice.Limits{Concurrency: mostCalls}, MaxThrottles: throttles, Observer: cfg.Observer,
	})
	if err != nil {
		return nil, err
	}
	return &account{name: name, api: api, known: cfg.Known[name], sched: s}, nil
}

// roomOf is how many tokens an account may have enqueued; 0 is not known.
func (d *Desk) roomOf(a *account) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.room
}

// call makes a call when the account's gate lets it, and again while it fails in a way that passes.
func (a *account) call(ctx context.Context, id string, fn func(context.Context) error) error {
	return a.do(ctx, id, true, fn)
}

// callOnce is call for what may have been done though it failed: it is repeated only where nothing reached the provider.
func (a *account) callOnce(ctx context.Context, id string, fn func(context.Context) error) error {
	return a.do(ctx, id, false, fn)
}

func (a *account) do(ctx context.Context, id string, again bool, fn func(context.Context) error) error {
	var last error
	_, err := a.sched.Do(ctx, sluice.Call{ID: id, Lane: lane}, func(ctx context.Context, _ *sluice.Permit) sluice.Outcome {
		last = fn(ctx)
		o := outcomeOf(ctx, last)
		o.Final = o.Final || !again && !o.Unsent
		return o
	})
	if _, refused := errors.AsType[*batchapi.ProblemError](last); err != nil && !refused { // what is refused says more
		return a.named(id, err)
	}
	if last != nil {
		return a.named(id, last)
	}
	return nil
}

// named is the error of a call with what it was, and whose, which the provider's own errors say.
func (a *account) named(id string, err error) error {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Provider == a.name {
		return fmt.Errorf("%s: %w", id, err)
	}
	return fmt.Errorf("%s: %s: %w", a.name, id, err)
}

// outcomeOf is what a call's error says to the gate. What an API found out from an answer is none of the gate's business.
func outcomeOf(ctx context.Context, err error) sluice.Outcome {
	var refused *sluice.CallError
	switch {
	case err == nil, errors.Is(err, batchapi.ErrUnknown), errors.Is(err, batchapi.ErrGone):
		return sluice.Outcome{Kind: sluice.OK}
	case ctx.Err() != nil:
		return sluice.Outcome{Kind: sluice.Network, Err: err, Abandoned: true, Final: true}
	case errors.As(err, &refused):
		o := refused.Outcome
		if o.Err == nil {
			o.Err = err
		}
		return o
	case errors.Is(err, io.ErrUnexpectedEOF):
		return sluice.Outcome{Kind: sluice.OK}
	}
	return sluice.Outcome{Kind: sluice.Internal, Err: err, Final: true}
}

// kindOf is how a call failed.
func kindOf(err error) (o sluice.Outcome, ok bool) {
	var refused *sluice.CallError
	if errors.As(err, &refused) {
		return refused.Outcome, true
	}
	return sluice.Outcome{}, false
}

// passes reports whether a call may succeed later as it is.
func passes(err error) bool {
	o, ok := kindOf(err)
	return ok && (o.Kind.Transient() || o.Kind.Throttle())
}

// refused reports whether a call certainly did nothing.
func refused(err error) bool {
	o, ok := kindOf(err)
	if !ok {
		return false
	}
	switch o.Kind {
	case sluice.RateLimit, sluice.UsageWindow, sluice.QuotaExhausted, sluice.Auth, sluice.BadRequest, sluice.ContextLength,
		sluice.ContentFilter:
		return true
	}
	return o.Unsent || o.TooLarge
}
