// Package sluice lets programs use all of an LLM provider's rate limit and none beyond it.
//
// A Scheduler stands for one account. Scheduler.Do admits a call when the account's limits allow it, runs it,
// learns from its outcome, and tries again what is worth trying again. Everything else in this module (batch runs,
// an http.RoundTripper, a gateway) is made of Do.
package sluice

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// The words of the admission state machine, which lives in internal/gate.
type (
	Kind      = gate.Kind
	Dimension = gate.Dimension
	Limits    = gate.Limits
	Charge    = gate.Charge
	Cost      = gate.Cost
	Usage     = gate.Usage
	Reading   = gate.Reading
	Outcome   = gate.Outcome
	Priority  = gate.Priority
	Call      = gate.Call
)

// Kinds of answer.
const (
	OK             = gate.OK
	RateLimit      = gate.RateLimit
	Overloaded     = gate.Overloaded
	QuotaExhausted = gate.QuotaExhausted
	UsageWindow    = gate.UsageWindow
	Timeout        = gate.Timeout
	Network        = gate.Network
	Auth           = gate.Auth
	BadRequest     = gate.BadRequest
	ContextLength  = gate.ContextLength
	ContentFilter  = gate.ContentFilter
	ServerError    = gate.ServerError
	InvalidOutput  = gate.InvalidOutput
	CommandFailed  = gate.CommandFailed
	Internal       = gate.Internal
)

// Dimensions of a limit.
const (
	AnyDimension   = gate.AnyDimension
	Concurrency    = gate.Concurrency
	Requests       = gate.Requests
	Tokens         = gate.Tokens
	InputTokens    = gate.InputTokens
	OutputTokens   = gate.OutputTokens
	RequestsPerDay = gate.RequestsPerDay
	TokensPerDay   = gate.TokensPerDay
)

// How a provider charges tokens, and how urgent a call is.
const (
	ChargeDeclared = gate.ChargeDeclared
	ChargeActual   = gate.ChargeActual

	Low      = gate.Low
	Normal   = gate.Normal
	High     = gate.High
	Critical = gate.Critical
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
	Call     string
	Lane     string
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
	Outcome // the last attempt's
	Tally   Tally
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
	HasUsage bool
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
