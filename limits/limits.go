// Package limits contains the types that all packages share, such as limits, calls, outcomes, events and snapshots.
// Package limits imports only the standard library.
package limits

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
)

// Dimension is a quantity that a provider limits.
type Dimension uint8

// Dimensions. Limits has a field for each dimension except AnyDimension.
const (
	AnyDimension   Dimension = iota // no dimension, or an unknown dimension
	Concurrency                     // requests in flight
	Requests                        // requests per minute
	Tokens                          // sum of input and output tokens per minute
	InputTokens                     // input tokens per minute
	OutputTokens                    // output tokens per minute
	RequestsPerDay                  // requests per day
	TokensPerDay                    // sum of input and output tokens per day
	NumDimensions                   // number of dimensions, including AnyDimension
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

// String returns the name of the dimension in flags and files, or "" for AnyDimension.
func (d Dimension) String() string {
	if d < NumDimensions {
		return dimensions[d].name
	}
	return fmt.Sprintf("dimension(%d)", uint8(d))
}

// MarshalText returns the name of the dimension.
func (d Dimension) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets the dimension by name, and returns an error for an unknown name.
func (d *Dimension) UnmarshalText(b []byte) error {
	for i := range dimensions {
		if dimensions[i].name == string(b) {
			*d = Dimension(i)
			return nil
		}
	}
	return fmt.Errorf("unknown dimension %q", b)
}

// Window returns the period of the dimension's limit, which is a minute, a day, or 0 for Concurrency.
func (d Dimension) Window() time.Duration {
	if d < NumDimensions {
		return dimensions[d].window
	}
	return 0
}

// Per returns the dimension that counts the same quantity in another period. If no such dimension exists, Per returns d.
func (d Dimension) Per(window time.Duration) Dimension {
	for e := range NumDimensions {
		if dimensions[e].window == window && dimensions[e].counted == dimensions[d].counted {
			return e
		}
	}
	return d
}

// Counted returns the counted quantity with the suffix perMinute or perDay. For InputTokens, Counted("/min", "/day")
// returns "input tokens/min".
func (d Dimension) Counted(perMinute, perDay string) string {
	switch d.Window() {
	case time.Minute:
		return dimensions[d].counted + perMinute
	case day:
		return dimensions[d].counted + perDay
	}
	return dimensions[d].counted
}

// Field returns the name of the field in Limits for the dimension.
func (d Dimension) Field() string {
	if d == Concurrency {
		return "Concurrency"
	}
	return strings.ToUpper(d.String())
}

// Millis is a duration that JSON encodes as a number of milliseconds, rounded to a microsecond.
type Millis struct{ time.Duration }

// MarshalJSON returns the number of milliseconds.
func (m Millis) MarshalJSON() ([]byte, error) { return json.Marshal(math.Round(m.Seconds()*1e6) / 1e3) }

// Limits contains the limits of a provider. A field with the value 0 means that the limit is unknown, not infinite. A negative value is an error.
type Limits struct {
	RPM         int           `json:"rpm,omitempty"`         // Requests per minute.
	TPM         int           `json:"tpm,omitempty"`         // Tokens per minute. Input and output together.
	ITPM        int           `json:"itpm,omitempty"`        // Input tokens per minute.
	OTPM        int           `json:"otpm,omitempty"`        // Output tokens per minute.
	RPD         int           `json:"rpd,omitempty"`         // Requests per day.
	TPD         int           `json:"tpd,omitempty"`         // Tokens per day.
	Concurrency int           `json:"concurrency,omitempty"` // Requests in flight.
	Burst       time.Duration `json:"burst_ns,omitempty"`    // Token bucket size, as the time of its refill. With 10 s, a bucket holds 10 seconds of refill.

	// Requests and Tokens replace RPM and TPM if the period of the limit is not a minute.
	Requests Window `json:"requests,omitzero"` // Request limit in another period, such as `100/10s`.
	Tokens   Window `json:"tokens,omitzero"`   // Token limit in another period, such as `50000/30s`.
}

// At returns a pointer to the limit of a dimension. If Limits has no field for the dimension, At returns nil.
func (l *Limits) At(d Dimension) *int {
	all := [NumDimensions]*int{nil, &l.Concurrency, &l.RPM, &l.TPM, &l.ITPM, &l.OTPM, &l.RPD, &l.TPD}
	if d >= NumDimensions {
		return nil
	}
	return all[d]
}

// All yields every dimension with a pointer to the limit, in the order of the fields, and includes unknown limits.
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

// Each contains one value for each dimension.
type Each[T any] struct {
	RPM         T `json:"rpm,omitempty" yaml:"rpm"`                 // Requests per minute.
	TPM         T `json:"tpm,omitempty" yaml:"tpm"`                 // Tokens per minute.
	ITPM        T `json:"itpm,omitempty" yaml:"itpm"`               // Input tokens per minute.
	OTPM        T `json:"otpm,omitempty" yaml:"otpm"`               // Output tokens per minute.
	RPD         T `json:"rpd,omitempty" yaml:"rpd"`                 // Requests per day.
	TPD         T `json:"tpd,omitempty" yaml:"tpd"`                 // Tokens per day.
	Concurrency T `json:"concurrency,omitempty" yaml:"concurrency"` // Requests in flight.
}

// At returns a pointer to the value of a dimension. If Each has no field for the dimension, At returns nil.
func (e *Each[T]) At(d Dimension) *T {
	all := [NumDimensions]*T{nil, &e.Concurrency, &e.RPM, &e.TPM, &e.ITPM, &e.OTPM, &e.RPD, &e.TPD}
	if d >= NumDimensions {
		return nil
	}
	return all[d]
}

// MaxLimit is the largest limit. Sums of larger numbers could overflow.
const MaxLimit = 1_000_000_000_000

// Check returns an error if a limit is negative or above MaxLimit, or if a quantity has two limits. The error starts with the name of the invalid field.
func (l Limits) Check() error {
	for d, limit := range l.All() {
		if *limit < 0 {
			return fmt.Errorf("%s is %d: a limit cannot be negative", d.Field(), *limit)
		}
		if *limit > MaxLimit {
			return fmt.Errorf("%s is %d: a limit cannot be above %d", d.Field(), *limit, MaxLimit)
		}
		w := l.WindowOf(d)
		if w == nil {
			continue
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("%s is %v: %w", windowField(d), *w, err)
		}
		if w.N > 0 && *limit > 0 {
			return fmt.Errorf("%s and %s are both set: omit one of the two", d.Field(), windowField(d))
		}
	}
	if l.Burst < 0 {
		return fmt.Errorf("%s is %v: a time cannot be negative", "Burst", l.Burst)
	}
	return nil
}

// Source is the origin of a limit's value.
type Source string

// Sources of limits.
const (
	SourceConfigured Source = "configured"        // a flag, a file or an environment variable
	SourceStart      Source = "start"             // an initial estimate, which responses correct
	SourceHeader     Source = "header"            // a header of a response
	SourceRejection  Source = "rejection"         // the numbers or the text in a rejection
	SourceMeasured   Source = "measured"          // the amounts that the provider accepted between rejections
	SourceRegistry   Source = "registry"          // the published limits of the account's tier
	SourcePublished  Source = "published"         // the provider's API that returns the account's rate limits
	SourceAtLeast    Source = "verified-at-least" // an amount that the provider accepted without a rejection
)

// Limit is the value of a limit, with the evidence for the value. The zero Limit is an unknown limit.
type Limit struct {
	Dimension Dimension `json:"dimension"`   // Name of the limit, such as `rpm`.
	Value     float64   `json:"value"`       // Value of the limit. The value applies per window of the dimension; 0 is unknown.
	Source    Source    `json:"source"`      // Origin of the value, such as `header`.
	At        time.Time `json:"at,omitzero"` // Time of the measurement. The time is the start of the newest request whose response is evidence.

	// Confidence is from 0 to 1, at the time At. Configured limits, and limits from headers, have the confidence 1. The
	// Scheduler tests all other limits with requests above the limit. A higher confidence delays such a test.
	Confidence float64 `json:"confidence"` // Confidence from 0 to 1.
}

// Claims contains the values of one limit from different sources (0: unknown).
type Claims struct {
	Configured int64 `json:"configured,omitempty"` // Configured value.
	Published  int64 `json:"published,omitempty"`  // Value from the provider's API.
	Observed   int64 `json:"observed,omitempty"`   // Value from responses.
}

// Add records the value from the given source.
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

// Observed reports whether a value from the source comes from responses.
func (s Source) Observed() bool {
	return s == SourceHeader || s == SourceRejection || s == SourceMeasured
}

// Cost is the expected usage of a request. The Scheduler needs the expected usage before the request is sent.
type Cost struct {
	Input     int // estimated input tokens
	MaxOutput int // maximum number of output tokens in all choices of the response (0: the request states no maximum)
}

// Usage is the actual token usage of a request, as stated in the response.
type Usage struct {
	Input       int `json:"input_tokens"`        // input tokens, including cached tokens
	CachedInput int `json:"cached_input_tokens"` // input tokens that were read from a prompt cache
	Output      int `json:"output_tokens"`       // output tokens

	// CacheWrite and CacheWriteHour are input tokens that were cached for the default time (such as 5 minutes) and for an hour.
	CacheWrite     int `json:"cache_write_tokens,omitempty"`
	CacheWriteHour int `json:"cache_write_1h_tokens,omitempty"`

	// Searches and OtherTools are the numbers of web searches and of other tool calls that the provider ran.
	Searches   int `json:"web_searches,omitempty"`
	OtherTools int `json:"other_tool_calls,omitempty"`

	Service Service `json:"service_tier,omitempty"` // service tier (for several requests, the tier of the first request)

	Estimated bool `json:"estimated,omitempty"` // true if part of the usage was estimated from the text of an interrupted response
}

// Add returns the sum of two usages. The sum has the service tier of u.
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

// Amount returns the part of one request's usage that counts against a limit of the dimension, including cached input.
func (u Usage) Amount(d Dimension) int { return dimensions[d].amount(u) }

// Service is the service tier of a request. The service tier determines the price of the request.
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

// ServiceOf returns the service tier with the given name. For an unknown name, ServiceOf returns ServiceStandard.
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

// MarshalText returns the name of the service tier.
func (s Service) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets the service tier by name. An unknown name means ServiceStandard.
func (s *Service) UnmarshalText(b []byte) error {
	*s = ServiceOf(string(b))
	return nil
}
