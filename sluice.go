// Package sluice lets programs use the full rate limit of an LLM provider without exceeding the limit.
//
// Create one [Scheduler] for each account (an API key at a provider), and send every request through [Scheduler.Do]:
//
//	scheduler, err := sluice.New(sluice.Config{}) // limits are learned from responses
//	if err != nil {
//		return err
//	}
//	defer scheduler.Close()
//
//	call := sluice.Call{Lane: "gpt-4o-mini", Cost: sluice.Cost{Input: 12, MaxOutput: 300}} // tokens, as far as they are known
//	tally, err := scheduler.Do(ctx, call, func(ctx context.Context, _ *sluice.Permit) sluice.Outcome {
//		resp, err := post(ctx) // sends one request, without retries
//		switch {
//		case err != nil:
//			return sluice.Outcome{Kind: sluice.Network, Err: err}
//		case resp.StatusCode == 429:
//			return sluice.Outcome{Kind: sluice.RateLimit, Wait: 2 * time.Second, Err: errors.New(resp.Status)} // of Retry-After
//		case resp.StatusCode >= 500:
//			return sluice.Outcome{Kind: sluice.ServerError, Err: errors.New(resp.Status)}
//		}
//		return sluice.Outcome{Usage: sluice.Usage{Input: 12, Output: 80}, HasUsage: true} // of the body
//	})
//	if failed := new(sluice.CallError); errors.As(err, &failed) {
//		log.Printf("%v after %d attempts: %v", failed.Kind, tally.Attempts, err)
//	}
//
// Do waits until the limits of the account permit the call, runs the function, learns from the outcome, and retries if a retry can
// succeed. A rate-limited call keeps its place in the queue and does not use up an attempt. If Do gives up on a call, Do returns a
// [*CallError].
//
// The HTTP transport in package provider does this for the requests of an official SDK, and derives outcomes from the responses.
//
// # Types
//
//   - [Config] configures a Scheduler, which by default learns every limit. Config.Limits contains ceilings.
//   - [Call] describes one call with its lane, tenant, priority and expected cost. A lane contains the calls that share the same
//     limits, as a rule one model.
//   - [Permit] allows one attempt. Do releases each permit. If you call [Scheduler.Acquire], release the permit exactly once.
//   - [Outcome] is the result of an attempt, with the [Kind], the wait requested by the provider, the usage, and the limits from headers.
//   - [Event] is an event that an [Observer] receives, for example a grant, a rate-limited attempt or a learned limit.
//     [Scheduler.Snapshot] returns the current state of all lanes.
//
// Package limits documents the types that all packages share.
//
// # Other packages
//
// Package provider sends requests and reads responses. Package batch processes the items of a file. Package pool shares a few
// slots among many agents. Package gateway is an http.Handler in front of providers. A [Ledger], such as the Ledger of package
// cluster, shares an account's limits among processes. Package sim simulates a provider for tests.
package sluice

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// These types are aliases of types in package limits.
type (
	Call    = limits.Call    // the lane, tenant, priority and expected cost of a call
	Outcome = limits.Outcome // the result of one attempt
	Kind    = limits.Kind    // the category of an outcome, for example RateLimit
	Limits  = limits.Limits  // rate limits per minute or day, and the maximum concurrency
	Cost    = limits.Cost    // the expected number of tokens of a call
	Usage   = limits.Usage   // the number of tokens that a call used
	Event   = limits.Event   // an event that an Observer receives
)

// Kinds of outcomes, as documented in package limits.
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

// ErrClosed is returned by the methods of a Scheduler after Close.
var ErrClosed = errors.New("scheduler is closed")

// ErrTooLarge is wrapped in the error of a call whose cost exceeds an entire rate limit.
var ErrTooLarge = errors.New("request alone exceeds the limit")

// ErrWithdrawn is returned for a waiting call if its channel Call.Withdrawn is closed.
var ErrWithdrawn = errors.New("call was withdrawn")

// ErrSlotTimeout matches every *SlotTimeoutError in errors.Is.
var ErrSlotTimeout = errors.New("no slot became free in time")

// SlotTimeoutError is returned for a call that receives no permit within Call.MaxWait. If the context's deadline passes
// first, the error is context.DeadlineExceeded.
type SlotTimeoutError struct {
	Call     string        // identifier of the call (Call.ID)
	Lane     string        // lane of the call (Call.Lane)
	Member   string        // pool member that makes the call (Call.Member)
	Wait     time.Duration // waiting time of the call
	Position int           // position of the call in the lane's queue, starting at 1 (0: unknown)
}

// Error returns a message with the member, the call, the waiting time and the position.
func (e *SlotTimeoutError) Error() string {
	whose := fmt.Sprintf("call %q", e.Call)
	switch {
	case e.Member != "" && e.Call == "":
		whose = fmt.Sprintf("member %q", e.Member)
	case e.Member != "":
		whose = fmt.Sprintf("member %q, %s", e.Member, whose)
	}
	return fmt.Sprintf("%s: no slot became free in %v, at position %d of the queue of lane %q", whose, e.Wait, e.Position, e.Lane)
}

// Is reports whether target is ErrSlotTimeout.
func (e *SlotTimeoutError) Is(target error) bool { return target == ErrSlotTimeout }

// CallError is returned by Do for a call that Do gave up on. A CallError wraps the error of the last attempt.
type CallError struct {
	Outcome       // outcome of the last attempt
	Tally   Tally // attempts, waiting times and usage of the call
}

// Error returns the reason for the failure and the number of attempts.
func (e *CallError) Error() string {
	msg := e.Reason()
	if e.Tally.Tries() <= 1 {
		return msg
	}
	return fmt.Sprintf("%s (attempts: %d, throttled: %d)", msg, e.Tally.Attempts, e.Tally.Throttles)
}

// Reason returns the reason for the failure of the last attempt.
func (e *CallError) Reason() string {
	msg := e.Kind.String()
	if e.Err != nil {
		msg = e.Err.Error()
	}
	if e.Others > 0 {
		msg += fmt.Sprintf(" (this request is the cause, because other requests succeeded: %d)", e.Others)
	}
	return msg
}

// Is reports whether target is ErrTooLarge and the request exceeds an entire rate limit.
func (e *CallError) Is(target error) bool { return target == ErrTooLarge && e.TooLarge }

// Unwrap returns the error of the last attempt.
func (e *CallError) Unwrap() error { return e.Err }

// Tally contains the number of attempts, the waiting times and the usage of a call.
type Tally struct {
	Attempts  int // number of attempts, excluding rate-limited attempts
	Throttles int // number of rate-limited attempts

	Queued   time.Duration // waiting time in the queue, including waits for token buckets
	Cooldown time.Duration // waiting time during the lane's cooldowns
	Backoff  time.Duration // waiting time before retries of this call
	Latency  time.Duration // time from sending the last request to releasing the permit

	Usage    Usage // total usage of all attempts
	HasUsage bool  // true if at least one response contained its usage
}

// Tries returns the number of all attempts, including rate-limited attempts.
func (t Tally) Tries() int { return t.Attempts + t.Throttles }

// Wait returns the total waiting time, which is the sum of Queued, Cooldown and Backoff.
func (t Tally) Wait() time.Duration { return t.Queued + t.Cooldown + t.Backoff }

// Add returns the sum of two tallies of the same call. If next contains attempts, the sum has the Latency of next.
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
