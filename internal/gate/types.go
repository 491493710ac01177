package gate

import (
	"fmt"
	"iter"
	"strings"
	"time"
)

// Limits is what a provider allows. A zero field is unknown, not unlimited.
type Limits struct {
	RPM        int           `json:"rpm,omitempty"`        // requests per minute
	TPM        int           `json:"tpm,omitempty"`        // tokens per minute, input and output together
	ITPM       int           `json:"itpm,omitempty"`       // input tokens per minute
	OTPM       int           `json:"otpm,omitempty"`       // output tokens per minute
	RPD        int           `json:"rpd,omitempty"`        // requests per day
	TPD        int           `json:"tpd,omitempty"`        // tokens per day
	Concurrent int           `json:"concurrent,omitempty"` // calls open at once
	Burst      time.Duration `json:"burst,omitempty"`      // how much refill the provider's buckets hold
}

// At is the limit of a dimension, for reading and for setting; nil for what is none.
func (l *Limits) At(d Dimension) *int {
	switch d {
	case Concurrency:
		return &l.Concurrent
	case Requests:
		return &l.RPM
	case Tokens:
		return &l.TPM
	case InputTokens:
		return &l.ITPM
	case OutputTokens:
		return &l.OTPM
	case RequestsPerDay:
		return &l.RPD
	case TokensPerDay:
		return &l.TPD
	}
	return nil
}

// All yields every dimension with its limit, known or not, in the order of the fields.
func (l *Limits) All() iter.Seq2[Dimension, *int] {
	return func(yield func(Dimension, *int) bool) {
		for d := Requests; d < NumDimensions; d++ {
			if !yield(d, l.At(d)) {
				return
			}
		}
		yield(Concurrency, &l.Concurrent)
	}
}

// Check refuses limits below zero. The error begins with the field's name.
func (l Limits) Check() error {
	for d, limit := range l.All() {
		if *limit < 0 {
			name := strings.ToUpper(d.String())
			if d == Concurrency {
				name = "Concurrent"
			}
			return fmt.Errorf("%s is %d: a limit cannot be negative", name, *limit)
		}
	}
	if l.Burst < 0 {
		return fmt.Errorf("%s is %v: a time cannot be negative", "Burst", l.Burst)
	}
	return nil
}

// Cost is what a call is expected to use, before it is made.
type Cost struct {
	Input     int // estimated input tokens
	MaxOutput int // most output tokens the request allows, over all choices; 0 when it does not say
}

// Usage is what an answer says a call used.
type Usage struct {
	Input       int `json:"input_tokens"`        // all input tokens, cached ones included
	CachedInput int `json:"cached_input_tokens"` // the part of Input that was read from a prompt cache
	Output      int `json:"output_tokens"`
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.CachedInput + v.CachedInput, u.Output + v.Output}
}

// Reading is one budget as the headers of an answer state it.
type Reading struct {
	Dimension Dimension
	Limit     int64
	Remaining int64
	Reset     time.Duration // until the budget is full again; 0 when not stated
	Slack     int64         // Remaining is rounded to this (Anthropic rounds tokens to 1000); 0 is exact

	ResetSlack time.Duration // Reset may be so much too long, by rounding
}

// Outcome is what one attempt came to. The zero value is a success of unknown usage.
type Outcome struct {
	Kind Kind
	Err  error // what went wrong, for the caller; nil for OK

	// What a refusal says of itself.
	Wait      time.Duration // how long the provider asks to wait; 0 when it does not say
	Until     time.Time     // when a usage window resets; zero when not said
	Dimension Dimension     // which limit was exceeded
	Limit     int64         // that limit, the part of it already used, and what this call asked for,
	Used      int64         // where the provider's words state them; 0 otherwise
	Requested int64
	TooLarge  bool // the request alone is above the whole limit: it can never fit

	Usage    Usage
	HasUsage bool      // Usage was stated (or, for a cut answer, is what was seen)
	Readings []Reading // what the headers said, on any answer

	Unsent    bool // the request never left: its cost is refunded
	Abandoned bool // the caller gave up on it, so that it says nothing of the provider
	Final     bool // the caller does not try again, whatever it is
	Elsewhere bool // the caller makes the call at another Scheduler, should it be over at this one
	Open      bool // the answer's body is still being read; whoever reads it releases the permit
}

// Priority orders calls of different urgency. The zero value is Normal.
type Priority int8

const (
	Low      Priority = -1
	Normal   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

// Call describes a call that asks to be admitted. The zero value is a small call on the default lane.
type Call struct {
	ID       string // names the call in events and errors
	Lane     string // what the provider limits together, usually the model; "" is a lane too
	Tenant   string // whose turn it is; "" is a tenant too
	Member   string // who makes the call, for events
	Priority Priority
	Cost     Cost

	// MaxWait is how long each try may wait for its permit before it fails with a *SlotTimeoutError; 0: as long as its
	// context allows.
	MaxWait time.Duration

	// Withdrawn ends the waits of the call with ErrWithdrawn once it is closed. Nil: its context alone does.
	Withdrawn <-chan struct{}

	// Ahead is how many calls wait elsewhere that will go before it, for Delay to count.
	Ahead int
}
