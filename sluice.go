// Package sluice lets programs use all of an LLM provider's rate limit and none beyond it.
//
// Create one [Scheduler] for each account, which is a key at a provider, and make every call through it:
//
//	scheduler, err := sluice.New(sluice.Config{}) // no limit is configured: the Scheduler learns them from responses
//	if err != nil {
//		return err
//	}
//	defer scheduler.Close()
//	tally, err := scheduler.Do(ctx, sluice.Call{Lane: "gpt-4o-mini"}, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
//		return attempt(ctx) // sends one request and returns its outcome
//	})
//
// [Scheduler.Do] is the only attempt loop. It waits until the limits of the account permit the call, runs the function, learns from
// the outcome, and retries if a retry can succeed. A call that the provider throttled returns to its place in the queue and spends no
// attempt. If Do gives up on a call, its error is a [*CallError].
//
// # Five types
//
//   - [Config] configures a Scheduler. The zero value learns every limit; Limits are ceilings, and Start is the first estimate.
//   - [Call] describes one call: its lane (the calls that the provider limits together, as a rule one model), tenant, priority and
//     expected cost.
//   - [Permit] is a granted slot and cost. Do releases it. If you call [Scheduler.Acquire] yourself, release it exactly once.
//   - [Outcome] is the result of an attempt: its [Kind], the wait that the provider asks for, the usage, and the limits from headers.
//   - [Event] is what an [Observer] receives, for example each grant, each throttle and each learned limit. [Scheduler.Snapshot]
//     returns the current state.
//
// Package limits documents the types that all packages share.
//
// # Other packages
//
// If you call a provider through its official SDK, use the Transport of package provider: an http.RoundTripper that does all of the
// above below the SDK and classifies each provider's responses. Package batch runs the items of a file, pool shares few slots among
// many agents, and gateway is an http.Handler in front of providers. A [Ledger], such as the one of package cluster, shares an account
// among processes. Package sim is a provider for tests.
package sluice

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Types of package limits that every program needs. Their documentation is there.
type (
	Call    = limits.Call    // one call: its lane, tenant, priority and expected cost
	Outcome = limits.Outcome // the result of one attempt
	Kind    = limits.Kind    // the meaning of a response
	Limits  = limits.Limits  // what a provider allows
	Cost    = limits.Cost    // the tokens that a call is expected to use
	Usage   = limits.Usage   // the tokens that a call used
	Event   = limits.Event   // something that happened in a Scheduler
)

// Kinds of outcome. Package limits documents them.
const (
	OK             = limits.OK
	RateLimit      = limits.RateLimit
	Overloaded     = limits.Overloaded
	QuotaExhausted = limits.QuotaExhausted
	UsageWindow    = limits.UsageWindow
	Timeout        = limits.Timeout
	Network        = limits.Network
	Auth           = limits.Auth
	BadRequest     = limits.BadRequest
	ContextLength  = limits.ContextLength
	ContentFilter  = limits.ContentFilter
	Rejected       = limits.Rejected
	Blocked        = limits.Blocked
	ServerError    = limits.ServerError
	InvalidOutput  = limits.InvalidOutput
	CommandFailed  = limits.CommandFailed
	Internal       = limits.Internal
)

// ErrClosed is returned by calls on a Scheduler that was closed.
var ErrClosed = errors.New("scheduler is closed")

// ErrTooLarge is wrapped by the error of a call that is larger than the whole of a limit.
var ErrTooLarge = errors.New("request is larger than the whole limit")

// ErrWithdrawn is returned by a call whose Withdrawn was closed while it waited.
var ErrWithdrawn = errors.New("call was withdrawn")

// ErrSlotTimeout is matched by a *SlotTimeoutError.
var ErrSlotTimeout = errors.New("no slot in time")

// SlotTimeoutError is returned for a call that got no permit within its MaxWait. The deadline of a context is another
// error: context.DeadlineExceeded.
type SlotTimeoutError struct {
	Call     string        // Call.ID
	Lane     string        // Call.Lane
	Member   string        // who made the call, if anybody
	Wait     time.Duration // how long it waited
	Position int           // its place among the calls that wait in the lane, from 1; 0 where that is not known
}

// Error names the member and the call, its wait and its place.
func (e *SlotTimeoutError) Error() string {
	whose := fmt.Sprintf("call %q", e.Call)
	switch {
	case e.Member != "" && e.Call == "":
		whose = fmt.Sprintf("member %q", e.Member)
	case e.Member != "":
		whose = fmt.Sprintf("member %q, %s", e.Member, whose)
	}
	return fmt.Sprintf("%s: no slot in %v, at place %d of those that wait for lane %q", whose, e.Wait, e.Position, e.Lane)
}

// Is reports whether target is ErrSlotTimeout.
func (e *SlotTimeoutError) Is(target error) bool { return target == ErrSlotTimeout }

// CallError is why Do gave up on a call. Use errors.As to reach it; it unwraps to the last attempt's error.
type CallError struct {
	Outcome       // the last attempt's
	Tally   Tally // over all attempts
}

// Error says what the last attempt met, and how often the call was tried.
func (e *CallError) Error() string {
	msg := e.Reason()
	if e.Tally.Tries() <= 1 {
		return msg
	}
	return fmt.Sprintf("%s (attempts: %d, throttled: %d)", msg, e.Tally.Attempts, e.Tally.Throttles)
}

// Reason returns why the last attempt failed.
func (e *CallError) Reason() string {
	msg := e.Kind.String()
	if e.Err != nil {
		msg = e.Err.Error()
	}
	if e.Others > 0 {
		msg += fmt.Sprintf(" (at fault itself: %d other requests succeeded)", e.Others)
	}
	return msg
}

// Is reports whether the call can never fit, for ErrTooLarge.
func (e *CallError) Is(target error) bool { return target == ErrTooLarge && e.TooLarge }

// Unwrap returns the last attempt's error.
func (e *CallError) Unwrap() error { return e.Err }

// Tally counts the attempts of a call, and their time and usage.
type Tally struct {
	Attempts  int // attempts, rate-limited ones excluded
	Throttles int // rate-limited attempts

	Queued   time.Duration // in the queue and for token buckets
	Cooldown time.Duration // while the whole lane paused
	Backoff  time.Duration // before its own retries
	Latency  time.Duration // of the last attempt, from send to release

	Usage    Usage // over all attempts
	HasUsage bool  // a response stated some of it
}

// Tries returns the number of requests that were sent.
func (t Tally) Tries() int { return t.Attempts + t.Throttles }

// Wait returns the sum of the waits.
func (t Tally) Wait() time.Duration { return t.Queued + t.Cooldown + t.Backoff }

// Add returns the sum of two tallies of one call. Latency is the later one.
func (t Tally) Add(next Tally) Tally {
	if next.Tries() > 0 {
		t.Latency = next.Latency
	}
	t.Attempts += next.Attempts
	t.Throttles += next.Throttles
	t.Queued += next.Queued
	t.Cooldown += next.Cooldown
	t.Backoff += next.Backoff
	t.Usage, t.HasUsage = t.Usage.Add(next.Usage), t.HasUsage || next.HasUsage
	return t
}
