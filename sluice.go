// Package sluice lets programs use all of an LLM provider's rate limit and none beyond it.
//
// A program makes one [Scheduler] for each account, which is a key at a provider, and makes every call through it:
//
//	scheduler, err := sluice.New(sluice.Config{}) // nothing is told: limits are learned from answers
//	if err != nil {
//		return err
//	}
//	defer scheduler.Close()
//	tally, err := scheduler.Do(ctx, sluice.Call{Lane: "gpt-4o-mini"}, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
//		return attempt(ctx) // one request, and what came of it
//	})
//
// [Scheduler.Do] is the only attempt loop that there is. It waits until the account's limits allow the call, runs the function, learns
// from the outcome, and tries again what is worth trying again. A call that was throttled goes back to its place in the queue, and
// that spends no attempt. An error of Do is a [*CallError] if the call was given up.
//
// # Five types
//
//   - [Config] shapes a Scheduler. Its zero value learns everything; Limits are ceilings, Start is what is believed at first.
//   - [Call] is what one call says of itself: its lane, which is what the provider limits together (as a rule the model), its tenant and
//     priority, and what it will cost.
//   - [Permit] is a slot and a cost that were granted. Do gives it back; who calls [Scheduler.Acquire], without a loop, releases it once.
//   - [Outcome] is what an attempt came to: its [Kind], the wait that the provider asks for, what was used, and what headers said.
//   - [Event] is what an [Observer] is told, such as each grant, each throttle and each limit that was learned. [Scheduler.Snapshot]
//     says how things stand.
//
// # Where to go on
//
// Who makes calls by an official SDK needs none of this but New: package provider has a Transport, an http.RoundTripper, that does
// all of the above beneath the SDK, and knows what each provider's answers mean. Package work runs many items with a journal, batch those
// of a file, pool shares few slots among many agents, and gateway is an http.Handler in front of providers. A [Ledger], such as that
// of package cluster, shares an account among processes. Package sim is a provider for tests.
package sluice

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Kind is what the answer to a try meant, which decides what follows: Throttle kinds pause and spend no attempt, Transient ones
// are tried again at the price of an attempt, Fatal ones end a run, and the others fail their call alone. The zero value is OK.
// As text it is a name such as rate_limit.
type Kind = gate.Kind

// Kinds of answer.
const (
	OK             = gate.OK
	RateLimit      = gate.RateLimit      // the provider asks to slow down: a throttle
	Overloaded     = gate.Overloaded     // the provider has no capacity, such as 529, or 503 in that meaning: a throttle
	QuotaExhausted = gate.QuotaExhausted // no credit, or a spend cap is reached: fatal
	UsageWindow    = gate.UsageWindow    // the allowance of a day, a week or a plan is used up until it is reset: a throttle
	Timeout        = gate.Timeout        // no answer within the try's time: transient
	Network        = gate.Network        // the connection was refused, reset or cut: transient
	Auth           = gate.Auth           // the key was refused: fatal
	BadRequest     = gate.BadRequest     // the request itself is wrong
	ContextLength  = gate.ContextLength  // the request is larger than the model's context, or than a whole limit
	ContentFilter  = gate.ContentFilter  // refused for its content
	ServerError    = gate.ServerError    // another status from 500 on: transient
	InvalidOutput  = gate.InvalidOutput  // a schema or a rule of the program's own refused the answer: transient
	CommandFailed  = gate.CommandFailed  // a command ended in failure, for reasons of its own: transient
	Internal       = gate.Internal       // a mistake of the program, such as a function that panicked
)

// Dimension is one thing that a provider limits. As text it is a flag's name, such as rpm; "" is AnyDimension.
type Dimension = gate.Dimension

// Dimensions of a limit.
const (
	AnyDimension   = gate.AnyDimension   // not stated
	Concurrency    = gate.Concurrency    // calls open at once
	Requests       = gate.Requests       // requests per minute
	Tokens         = gate.Tokens         // tokens per minute, input and output together
	InputTokens    = gate.InputTokens    // input tokens per minute
	OutputTokens   = gate.OutputTokens   // output tokens per minute
	RequestsPerDay = gate.RequestsPerDay // requests per day
	TokensPerDay   = gate.TokensPerDay   // tokens per day, input and output together
)

// Limits are what a provider allows. A zero field is unknown, not unlimited; one below zero is a mistake.
//
//	RPM, TPM, ITPM, OTPM int  // a minute: requests, tokens, input tokens, output tokens
//	RPD, TPD int              // a day: requests, tokens
//	Concurrent int            // calls open at once
//	Burst time.Duration       // how much refill the provider's buckets hold, as 10 s of a minute's limit
type Limits = gate.Limits

// Charge says how a provider counts the tokens of a call against its limits. The zero value is ChargeDeclared.
type Charge = gate.Charge

// Ways to charge tokens.
const (
	ChargeDeclared = gate.ChargeDeclared // max(input, max_tokens) when the call arrives, never refunded, as OpenAI does
	ChargeActual   = gate.ChargeActual   // input when the call arrives, output as it is produced, as Anthropic does
)

// Cost is what a call is expected to use, before it is made, in tokens.
//
//	Input int      // estimated input tokens
//	MaxOutput int  // most output tokens that the request allows, over all choices; 0 when it does not say
type Cost = gate.Cost

// Usage is what an answer says a call used, in tokens.
//
//	Input int        // cached ones included
//	CachedInput int  // the part of Input that was read from a prompt cache
//	Output int
type Usage = gate.Usage

// Reading is one budget as the headers of an answer state it.
//
//	Dimension Dimension
//	Limit, Remaining int64    // requests or tokens
//	Reset time.Duration       // until the budget is full again; 0 when that is not stated
//	Slack int64               // what Remaining is rounded to; 0 is exact
//	ResetSlack time.Duration  // Reset may be so much too long, by rounding
type Reading = gate.Reading

// Outcome is what one try came to. The zero value is a success of unknown usage.
//
//	Kind Kind
//	Err error                          // what went wrong, for the caller; nil for OK
//
//	Wait time.Duration                 // how long a refusal asks to wait; 0 when it does not say
//	Until time.Time                    // when a usage window is reset; zero when that is not said
//	Dimension Dimension                // which limit was exceeded
//	Limit, Used, Requested int64       // that limit, the used part of it, what the call asked for; 0 when not stated
//	TooLarge bool                      // the request alone is above the whole limit: it can never fit
//
//	Usage Usage
//	HasUsage bool                      // Usage was stated, or is what was seen of an answer that was cut
//	Readings []Reading                 // what the headers said, on any answer
//
//	Unsent bool                        // the request never left: its cost is refunded
//	Abandoned bool                     // the caller gave up on it, so that it says nothing of the provider
//	Final bool                         // the caller does not try again, whatever it is
//	Elsewhere bool                     // the caller makes the call at another Scheduler, should it be over at this one
//	Open bool                          // the body is still being read: whoever reads it releases the permit
type Outcome = gate.Outcome

// Priority orders calls of different urgency; a call rises by one for each 30 s that it
// waits. The zero value is Normal.
type Priority = gate.Priority

// Priorities.
const (
	Low      = gate.Low
	Normal   = gate.Normal
	High     = gate.High
	Critical = gate.Critical
)

// Call describes a call that asks to be admitted. The zero value is a small call on the default lane.
//
//	ID string                  // names the call in events and errors
//	Lane string                // what the provider limits together, usually the model; "" is a lane, too
//	Tenant string              // whose turn it is; "" is a tenant, too
//	Member string              // who makes the call, for events
//	Priority Priority
//	Cost Cost
//	MaxWait time.Duration      // how long each try may wait before it fails with a *SlotTimeoutError; 0: as its context allows
//	Withdrawn <-chan struct{}  // ends the call's waits with ErrWithdrawn once it is closed; nil: nothing does
//	Ahead int                  // calls that wait elsewhere and go before it, for Delay to count
type Call = gate.Call

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
	msg := e.Kind.String()
	if e.Err != nil {
		msg = e.Err.Error()
	}
	if e.Tally.Tries() <= 1 {
		return msg
	}
	return fmt.Sprintf("%s (attempts: %d, throttled: %d)", msg, e.Tally.Attempts, e.Tally.Throttles)
}

// Is reports whether the call can never fit, for ErrTooLarge.
func (e *CallError) Is(target error) bool { return target == ErrTooLarge && e.TooLarge }

// Unwrap returns the last attempt's error.
func (e *CallError) Unwrap() error { return e.Err }

// Tally counts what became of a call over all its tries.
type Tally struct {
	Attempts  int // tries that were spent: all but the throttled ones
	Throttles int // tries that the provider refused for now

	Queued   time.Duration // waited for its turn and for budgets
	Cooldown time.Duration // waited while the whole lane paused
	Backoff  time.Duration // waited for its own next attempt
	Latency  time.Duration // the last try, from send to release

	Usage    Usage // over all tries
	HasUsage bool  // an answer stated some of it
}

// Tries is how often the call was sent.
func (t Tally) Tries() int { return t.Attempts + t.Throttles }

// Wait is all the time that the call was held back.
func (t Tally) Wait() time.Duration { return t.Queued + t.Cooldown + t.Backoff }

// Add returns what a call took that went on: what it took before, and then next.
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
