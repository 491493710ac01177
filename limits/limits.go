// Package limits has the types that all packages share: limits and dimensions, calls and their costs, outcomes and their kinds,
// usage, events and snapshots. It imports only the standard library.
package limits

import (
	"fmt"
	"iter"
	"strings"
	"time"
)

// Dimension is a quantity that a provider limits.
type Dimension uint8

// Dimensions. The table below has their names in flags and files, and Limits has a field for each.
const (
	AnyDimension   Dimension = iota // not stated
	Concurrency                     // requests in flight
	Requests                        // requests per minute
	Tokens                          // tokens per minute, input and output together
	InputTokens                     // input tokens per minute
	OutputTokens                    // output tokens per minute
	RequestsPerDay                  // requests per day
	TokensPerDay                    // tokens per day, input and output together
	NumDimensions
)

var dimensions = [NumDimensions]struct {
	name    string        // in flags and files
	counted string        // the things that it counts
	window  time.Duration // 0 for a limit at any instant
	amount  func(Usage) int
}{
	AnyDimension:   {amount: Usage.none},
	Concurrency:    {"concurrency", "concurrent requests", 0, Usage.none},
	Requests:       {"rpm", "requests", time.Minute, Usage.one},
	Tokens:         {"tpm", "tokens", time.Minute, Usage.total},
	InputTokens:    {"itpm", "input tokens", time.Minute, func(u Usage) int { return u.Input }},
	OutputTokens:   {"otpm", "output tokens", time.Minute, func(u Usage) int { return u.Output }},
	RequestsPerDay: {"rpd", "requests", day, Usage.one},
	TokensPerDay:   {"tpd", "tokens", day, Usage.total},
}

func (Usage) none() int    { return 0 }
func (Usage) one() int     { return 1 }
func (u Usage) total() int { return u.Input + u.Output }

const day = 24 * time.Hour

// String returns the dimension's name as flags and files spell it, or "" for AnyDimension.
func (d Dimension) String() string {
	if d < NumDimensions {
		return dimensions[d].name
	}
	return fmt.Sprintf("dimension(%d)", uint8(d))
}

// MarshalText writes the dimension's name.
func (d Dimension) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the dimension's name.
func (d *Dimension) UnmarshalText(b []byte) error {
	for i := range dimensions {
		if dimensions[i].name == string(b) {
			*d = Dimension(i)
			return nil
		}
	}
	return fmt.Errorf("unknown dimension %q", b)
}

// Window returns the time to which a limit of the dimension refers: a minute, a day, or 0 for Concurrency.
func (d Dimension) Window() time.Duration {
	if d < NumDimensions {
		return dimensions[d].window
	}
	return 0
}

// Per returns the dimension that counts the same things per window; d itself if there is none.
func (d Dimension) Per(window time.Duration) Dimension {
	for e := range NumDimensions {
		if dimensions[e].window == window && dimensions[e].counted == dimensions[d].counted {
			return e
		}
	}
	return d
}

// Counted returns the things that the dimension counts, followed by the caller's words for a minute or a day: with "/min" and "/day",
// "input tokens/min".
func (d Dimension) Counted(perMinute, perDay string) string {
	switch d.Window() {
	case time.Minute:
		return dimensions[d].counted + perMinute
	case day:
		return dimensions[d].counted + perDay
	}
	return dimensions[d].counted
}

// Field returns the name of the field of Limits that has the limit.
func (d Dimension) Field() string {
	if d == Concurrency {
		return "Concurrency"
	}
	return strings.ToUpper(d.String())
}

// Limits is what a provider allows. A zero field is unknown, not unlimited. A negative one is an error.
type Limits struct {
	RPM         int           `json:"rpm,omitempty"`         // Requests per minute.
	TPM         int           `json:"tpm,omitempty"`         // Tokens per minute. Input and output together.
	ITPM        int           `json:"itpm,omitempty"`        // Input tokens per minute.
	OTPM        int           `json:"otpm,omitempty"`        // Output tokens per minute.
	RPD         int           `json:"rpd,omitempty"`         // Requests per day.
	TPD         int           `json:"tpd,omitempty"`         // Tokens per day.
	Concurrency int           `json:"concurrency,omitempty"` // Requests in flight.
	Burst       time.Duration `json:"burst,omitempty"`       // Size of token buckets, in nanoseconds of refill. For example 10 s of a minute's limit.

	// Limits with a period that differs from a minute, in place of RPM and TPM.
	Requests Window `json:"requests,omitzero"` // Requests in another period, such as `100/10s`.
	Tokens   Window `json:"tokens,omitzero"`   // Tokens in another period, such as `50000/30s`.
}

// At returns a pointer to the limit of a dimension; nil if it has none.
func (l *Limits) At(d Dimension) *int {
	all := [NumDimensions]*int{nil, &l.Concurrency, &l.RPM, &l.TPM, &l.ITPM, &l.OTPM, &l.RPD, &l.TPD}
	if d >= NumDimensions {
		return nil
	}
	return all[d]
}

// All yields every dimension with its limit, known or not, in the order of the fields.
func (l *Limits) All() iter.Seq2[Dimension, *int] {
	return func(yield func(Dimension, *int) bool) {
		for d := Requests; d < NumDimensions; d++ {
			if !yield(d, l.At(d)) {
				return
			}
		}
		yield(Concurrency, &l.Concurrency)
	}
}

// Each is a value for each dimension.
type Each[T any] struct {
	RPM         T `json:"rpm,omitempty" yaml:"rpm"`                 // Requests per minute.
	TPM         T `json:"tpm,omitempty" yaml:"tpm"`                 // Tokens per minute.
	ITPM        T `json:"itpm,omitempty" yaml:"itpm"`               // Input tokens per minute.
	OTPM        T `json:"otpm,omitempty" yaml:"otpm"`               // Output tokens per minute.
	RPD         T `json:"rpd,omitempty" yaml:"rpd"`                 // Requests per day.
	TPD         T `json:"tpd,omitempty" yaml:"tpd"`                 // Tokens per day.
	Concurrency T `json:"concurrency,omitempty" yaml:"concurrency"` // Requests in flight.
}

// At returns a pointer to the value of a dimension; nil if it has none.
func (e *Each[T]) At(d Dimension) *T {
	all := [NumDimensions]*T{nil, &e.Concurrency, &e.RPM, &e.TPM, &e.ITPM, &e.OTPM, &e.RPD, &e.TPD}
	if d >= NumDimensions {
		return nil
	}
	return all[d]
}

// Check returns an error for a negative limit, and for a quantity that has two limits. The error begins with the field's name.
func (l Limits) Check() error {
	for d, limit := range l.All() {
		if *limit < 0 {
			return fmt.Errorf("%s is %d: a limit cannot be negative", d.Field(), *limit)
		}
		w := l.WindowOf(d)
		if w == nil {
			continue
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("%s is %v: %w", windowField(d), *w, err)
		}
		if w.N > 0 && *limit > 0 {
			return fmt.Errorf("%s and %s are both set: state one of them", d.Field(), windowField(d))
		}
	}
	if l.Burst < 0 {
		return fmt.Errorf("%s is %v: a time cannot be negative", "Burst", l.Burst)
	}
	return nil
}

// Source is the evidence from which a limit is known.
type Source string

// Sources of a limit.
const (
	SourceConfigured Source = "configured"        // a flag, file or environment variable
	SourceStart      Source = "start"             // a start value, to be corrected
	SourceHeader     Source = "header"            // a header of a response
	SourceRejection  Source = "rejection"         // the figures or the words of a rejection
	SourceMeasured   Source = "measured"          // the amounts accepted between rejections
	SourceRegistry   Source = "registry"          // published for the account's tier
	SourcePublished  Source = "published"         // published for the account, by the provider's API of rate limits
	SourceAtLeast    Source = "verified-at-least" // an amount that was used without a rejection
)

// Limit is the value of a limit, and the evidence for it. The zero value is an unknown limit.
type Limit struct {
	Dimension Dimension `json:"dimension"`   // Name of the limit, such as `rpm`.
	Value     float64   `json:"value"`       // Value of the limit. Per window of the dimension; 0 is unknown.
	Source    Source    `json:"source"`      // Origin of the value, such as `header`.
	At        time.Time `json:"at,omitzero"` // Time of the measurement. The start of the newest request whose response is evidence.

	// Confidence is from 0 to 1, as of At. A configured limit and one that headers show has 1. Every other value is exceeded as a test, a time
	// after it was last met, that is longer the higher the confidence is.
	Confidence float64 `json:"confidence"` // Confidence from 0 to 1.
}

// Claims are the values of one limit by their sources, side by side. 0 is unknown.
type Claims struct {
	Configured int64 `json:"configured,omitempty"` // Configured value.
	Published  int64 `json:"published,omitempty"`  // Value from the provider's API.
	Observed   int64 `json:"observed,omitempty"`   // Value from responses.
}

// Add notes the value that a source gives.
func (c *Claims) Add(value int64, from Source) {
	switch {
	case from == SourceConfigured:
		c.Configured = value
	case from == SourcePublished:
		c.Published = value
	case from.Observed():
		c.Observed = value
	}
}

// Observed reports whether responses are the source.
func (s Source) Observed() bool {
	return s == SourceHeader || s == SourceRejection || s == SourceMeasured
}

// Cost is the amount that a request is expected to use, before it is sent.
type Cost struct {
	Input     int // estimated input tokens
	MaxOutput int // maximum output tokens that the request allows, over all choices; 0 if it states none
}

// Usage is the amount that a request used, as its response states it.
type Usage struct {
	Input       int `json:"input_tokens"`        // all input tokens, cached ones included
	CachedInput int `json:"cached_input_tokens"` // the part of Input that was read from a prompt cache
	Output      int `json:"output_tokens"`

	// Parts of Input that were written to a prompt cache: for the provider's usual time, as five minutes, and for an hour.
	CacheWrite     int `json:"cache_write_tokens,omitempty"`
	CacheWriteHour int `json:"cache_write_1h_tokens,omitempty"`

	// Calls of tools that the provider ran: web searches, and other tools.
	Searches   int `json:"web_searches,omitempty"`
	OtherTools int `json:"other_tool_calls,omitempty"`

	Service Service `json:"service_tier,omitempty"` // of several requests, the first one's

	Estimated bool `json:"estimated,omitempty"` // a part was counted from the text of a response that broke off before it stated it
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	if u == (Usage{}) {
		return v
	}
	return Usage{
		Input: u.Input + v.Input, CachedInput: u.CachedInput + v.CachedInput, Output: u.Output + v.Output,
		CacheWrite: u.CacheWrite + v.CacheWrite, CacheWriteHour: u.CacheWriteHour + v.CacheWriteHour,
		Searches: u.Searches + v.Searches, OtherTools: u.OtherTools + v.OtherTools, Service: u.Service,
		Estimated: u.Estimated || v.Estimated,
	}
}

// Amount returns how much of the usage of one request counts against a limit of the dimension, with input from a prompt cache.
func (u Usage) Amount(d Dimension) int { return dimensions[d].amount(u) }

// Service is a service tier: the way in which a provider handled a request, which decides its price.
type Service uint8

// Service tiers.
const (
	ServiceStandard Service = iota
	ServiceBatch
	ServiceFlex
	ServicePriority
	NumServices
)

var serviceNames = [NumServices]string{"standard", "batch", "flex", "priority"}

// ServiceOf returns the service tier of that name in a response; the standard one if it is another.
func ServiceOf(name string) Service {
	for i, known := range serviceNames {
		if known == name {
			return Service(i)
		}
	}
	return ServiceStandard
}

// String returns the name of the service tier.
func (s Service) String() string {
	if s < NumServices {
		return serviceNames[s]
	}
	return fmt.Sprintf("service(%d)", uint8(s))
}

// MarshalText writes the name of the service tier.
func (s Service) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a service tier.
func (s *Service) UnmarshalText(b []byte) error {
	*s = ServiceOf(string(b))
	return nil
}
