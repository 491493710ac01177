// Package sim simulates LLM providers whose limits are known.
//
// A [Server] is an [http.Handler] with the APIs of several providers. Its [Config] sets limits, faults, storms and other behaviour.
//   - OpenAI: POST /v1/chat/completions, /v1/responses and /v1/embeddings, GET /v1/models
//   - Anthropic: POST /v1/messages and /v1/messages/count_tokens, GET /v1/models
//   - Cohere: POST /v2/chat
//   - Gemini: POST /v1beta/models/MODEL with :generateContent, :streamGenerateContent, :embedContent, :batchEmbedContents or
//     :countTokens, GET /v1beta/models, and the same under /v1
//   - Batch APIs of OpenAI, Anthropic and Gemini: see [Batches]
//   - APIs that publish limits: GET /v1/organization/projects/proj_sim/rate_limits (OpenAI), /v1/organizations/rate_limits (Anthropic)
//   - GET /stats: the [Stats]
//
// Headers, bodies and error texts equal a real provider's. If a request offers tools, the response calls the first tool, until a
// request contains a tool result. [Server.Transport] connects in process, without sockets, also in a testing/synctest bubble.
// [Config.Optimum] computes the minimum time for a workload.
package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Config describes the limits and the behaviour of a provider. The zero value describes a provider without limits that responds after
// 200 ms. Buckets are token buckets of rate limits. Minute buckets belong to limits per minute.
type Config struct {
	// Seed is the seed of all random choices. Latencies and faults depend only on the seed, the request and the number of its earlier
	// attempts, and not on the client.
	Seed uint64

	// RPM, TPM, ITPM and OTPM limit requests, all tokens, input tokens and output tokens per minute. Zero: no limit. Limits per
	// minute refill continuously, and all models share them. For Gemini's TPM, which counts only input tokens, use ITPM. Other Gemini
	// quotas are not simulated.
	RPM, TPM, ITPM, OTPM int
	// Requests and Tokens replace RPM and TPM with fixed windows of another period, counted from the first request.
	Requests, Tokens limits.Window
	// RPD limits requests per day. Zero: no limit. RPD refills continuously, and the capacity of its bucket is the limit of a day.
	RPD int
	// Concurrency is the maximum number of requests in flight. The server rejects requests above this maximum. Zero: no limit.
	Concurrency int
	// Queue is the number of requests that are processed at once. Requests above this number wait in order without a response, as on
	// self-hosted servers. Zero: no queue.
	Queue int
	// Contention is the number of requests in flight that run at full speed. With more requests in flight, all requests slow down, as
	// on one GPU, but no request waits or is rejected. Zero: no contention. A [Limiter] does not support Contention.
	Contention int

	// Burst is the capacity of the minute buckets, as the time in which an empty bucket refills (default 60 s). The minimum capacity
	// is one token or request. Buckets start full. A request above the capacity but within the limit is admitted when the bucket is
	// full, and leaves a debt.
	Burst time.Duration
	// FixedWindow fills the minute buckets once every Burst, counted from the first request, without continuous refill.
	FixedWindow bool
	// Drained makes the minute buckets start empty at the first request, as if other clients had used them.
	Drained bool
	// Charge determines how tokens are charged. The number of input tokens is a quarter of the characters, and at least 1. At
	// admission, limits.ChargeDeclared charges max_tokens times n to OTPM, and the larger of OTPM's charge and the input to TPM. A
	// missing max_tokens counts as 0. limits.ChargeActual charges output tokens to TPM and OTPM during output, which may leave a
	// debt. With limits.ChargeActual, OTPM admits requests while its bucket holds at least one token.
	Charge limits.Charge
	// ChargeRefusals also charges rejected requests to the request buckets, until these buckets are empty.
	ChargeRefusals bool

	// NoHeaders omits all rate limit headers except Retry-After. Gemini never sends rate limit headers.
	NoHeaders bool
	// LateHeaders computes the rate limit headers when the response is sent, not at admission.
	LateHeaders bool
	// DailyHeaders makes x-ratelimit-*-requests describe RPD, as Groq does. RPM still applies. DailyHeaders requires RPD.
	DailyHeaders bool
	// RetryAfter is the form of the wait in rejections (default RetryAfterSeconds).
	RetryAfter RetryAfterForm
	// VagueBodies omits the limit, the usage, the wait and the dimension from the bodies of rejections. With VagueBodies, Gemini
	// gives no wait, because Gemini sends no headers.
	VagueBodies bool

	// Latency is the time to the first byte (default 200 ms). Negative: none.
	Latency time.Duration
	// PerToken is the additional time per output token (default 0). A stream sends one token per PerToken.
	PerToken time.Duration
	// Jitter is the sigma of a lognormal factor on Latency and PerToken (default 0).
	Jitter float64
	// RefusalLatency is the time until a rejection is sent (default 5 ms). Negative: none.
	RefusalLatency time.Duration
	// OutputTokens is the number of output tokens per response, unless max_tokens is lower (default 64). A prompt that asks for "one
	// word" gets one token.
	OutputTokens int
	// OutputSigma is the sigma of a lognormal factor on OutputTokens, drawn once per request body (default 0).
	OutputSigma float64

	// Faults contains the probabilities of failures.
	Faults Faults
	// Storms are periods in which all requests are rejected.
	Storms []Storm
	// Changes lists changes of the rate limits.
	Changes []Change
	// SpentAfter is the number of paid responses after which the account has no credit. After SpentAfter responses, requests in
	// flight still succeed. Zero: no limit.
	SpentAfter int

	// Batches configures the Batch APIs.
	Batches Batches

	// Key is the only valid API key. Empty: every key is valid.
	Key string
	// AdminKey is the only valid key for the APIs that publish limits. Empty: every key is valid.
	AdminKey string
	// Models lists the known models. Requests for other models get a 404. Empty: every model is known.
	Models []string

	// NoStats omits [Stats].Paid, which needs memory for each different request.
	NoStats bool
}

// RetryAfterForm is the form of the wait in rejections. With all forms except RetryAfterNone, Gemini's body contains the wait, as
// RetryInfo and as text.
type RetryAfterForm int

const (
	// RetryAfterSeconds sends a Retry-After header in seconds, rounded up.
	RetryAfterSeconds RetryAfterForm = iota
	// RetryAfterMillis sends a Retry-After header in seconds and a retry-after-ms header in milliseconds, both rounded up.
	RetryAfterMillis
	// RetryAfterDate sends a Retry-After header with an HTTP date, rounded up to the second.
	RetryAfterDate
	// RetryAfterNone sends no header, and omits the wait from Gemini's body.
	RetryAfterNone
	numRetryAfter
)

var retryAfterNames = [numRetryAfter]string{"seconds", "ms", "date", "none"}

// String returns the name of the form: seconds, ms, date or none.
func (f RetryAfterForm) String() string {
	if f >= 0 && f < numRetryAfter {
		return retryAfterNames[f]
	}
	return fmt.Sprintf("form(%d)", int(f))
}

// UnmarshalText sets the form by name, and returns an error for an unknown name.
func (f *RetryAfterForm) UnmarshalText(b []byte) error {
	i := slices.Index(retryAfterNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown form %q: want seconds, ms, date or none", b)
	}
	*f = RetryAfterForm(i)
	return nil
}

// Faults are probabilities of failures, from 0 to 1. The first five probabilities are for admitted requests, and their sum is at most
// 1. Failed admitted requests are charged, but do not count as paid.
type Faults struct {
	ServerError float64 // status 500 after the time to the first byte
	Overloaded  float64 // status 529 (Anthropic) or 503 (other providers) after RefusalLatency
	Reset       float64 // the connection breaks before the first byte
	Hang        float64 // no response
	Cut         float64 // the connection breaks in the middle of the body
	BadRequest  float64 // status 400 before admission, for every attempt with the same body
	Throttled   float64 // status 429 before admission, without a cause, a wait or a charge, drawn again for every attempt
}

// attempt reports whether attempts at one request differ.
func (f Faults) attempt() bool { return f.sum() > 0 }

func (f Faults) sum() float64 {
	return f.ServerError + f.Overloaded + f.Reset + f.Hang + f.Cut
}

// Storm is a period in which all requests are rejected, independently of the buckets.
type Storm struct {
	From, To time.Duration // start and end of the storm, as time since the first request
	Status   int           // HTTP status 429 (default), or 529 or 503 for an overload (529 from Anthropic, 503 from other providers)
	Silent   bool          // rejections omit the wait until the end of the storm
}

// UnmarshalText reads FROM-TO or FROM-TO:STATUS, such as 3s-7s:529.
func (s *Storm) UnmarshalText(b []byte) error {
	span, status, hasStatus := strings.Cut(string(b), ":")
	from, to, ok := strings.Cut(span, "-")
	var errs [3]error
	*s = Storm{}
	s.From, errs[0] = time.ParseDuration(from)
	s.To, errs[1] = time.ParseDuration(to)
	if hasStatus {
		s.Status, errs[2] = strconv.Atoi(status)
	}
	switch {
	case !ok || errs != [3]error{}:
		return errors.New("want FROM-TO or FROM-TO:STATUS")
	case s.To <= s.From:
		return errors.New("the storm ends before it starts")
	}
	return nil
}

// Change sets all rate limits to the values in Config times Factor, until the next Change.
type Change struct {
	At     time.Duration // start of the change, as time since the first request
	Factor float64       // positive factor
}

// UnmarshalText reads AFTER:FACTOR, such as 30s:0.5.
func (c *Change) UnmarshalText(b []byte) error {
	after, factor, ok := strings.Cut(string(b), ":")
	var errs [2]error
	*c = Change{}
	c.At, errs[0] = time.ParseDuration(after)
	c.Factor, errs[1] = strconv.ParseFloat(factor, 64)
	switch {
	case !ok || errs != [2]error{}:
		return errors.New("want AFTER:FACTOR, a duration and a number")
	case !(c.Factor > 0):
		return errors.New("the factor is not above zero")
	}
	return nil
}

// number is a field of a Config that is a number, and its name.
type number struct {
	name string
	x    float64
}

// withDefaults returns c with its defaults filled in, or an error that names
// the field which makes no sense.
func (c Config) withDefaults() (Config, error) {
	for d, limit := range c.Limits() {
		if *limit < 0 {
			return c, fmt.Errorf("sim: Config.%s is %d, below zero", d.Field(), *limit)
		}
	}
	if err := (limits.Limits{RPM: c.RPM, TPM: c.TPM, Requests: c.Requests, Tokens: c.Tokens}).Check(); err != nil {
		return c, fmt.Errorf("sim: Config.%w", err)
	}
	// These are lists, not maps, so that of several fields that are wrong the first is named, each time.
	for _, field := range [...]struct {
		name string
		n    int
	}{
		{"Concurrency", c.Concurrency},
		{"Queue", c.Queue}, {"Contention", c.Contention}, {"OutputTokens", c.OutputTokens}, {"SpentAfter", c.SpentAfter},
	} {
		if field.n < 0 {
			return c, fmt.Errorf("sim: Config.%s is %d, below zero", field.name, field.n)
		}
	}
	for _, field := range [...]number{
		{"Jitter", c.Jitter}, {"OutputSigma", c.OutputSigma}, {"Burst", c.Burst.Seconds()}, {"PerToken", c.PerToken.Seconds()},
	} {
		if field.x < 0 || math.IsNaN(field.x) || math.IsInf(field.x, 0) {
			return c, fmt.Errorf("sim: Config.%s is %v", field.name, field.x)
		}
	}
	if c.Charge > limits.ChargeActual {
		return c, fmt.Errorf("sim: Config.Charge is %d, which is none", c.Charge)
	}
	if c.RetryAfter < RetryAfterSeconds || c.RetryAfter > RetryAfterNone {
		return c, fmt.Errorf("sim: Config.RetryAfter is %d, which is none", c.RetryAfter)
	}
	if c.DailyHeaders && c.RPD == 0 {
		return c, fmt.Errorf("sim: Config.DailyHeaders needs Config.RPD")
	}
	if err := cmp.Or(c.checkEvents(), c.Batches.Check()); err != nil {
		return c, err
	}
	c.Latency = defaultTo(c.Latency, 200*time.Millisecond)
	c.RefusalLatency = defaultTo(c.RefusalLatency, 5*time.Millisecond)
	if c.Burst == 0 {
		c.Burst = time.Minute
	}
	if c.OutputTokens == 0 {
		c.OutputTokens = 64
	}
	c.Models = slices.Clone(c.Models)
	return c, nil
}

// checkEvents checks faults, storms and changes, and puts copies of the
// latter two in order.
func (c *Config) checkEvents() error {
	for _, fault := range [...]number{
		{"ServerError", c.Faults.ServerError}, {"Overloaded", c.Faults.Overloaded}, {"Reset", c.Faults.Reset},
		{"Hang", c.Faults.Hang}, {"Cut", c.Faults.Cut}, {"BadRequest", c.Faults.BadRequest}, {"Throttled", c.Faults.Throttled},
	} {
		if !(fault.x >= 0 && fault.x <= 1) {
			return fmt.Errorf("sim: Config.Faults.%s is %v, not a probability", fault.name, fault.x)
		}
	}
	if sum := c.Faults.sum(); sum > 1+1e-9 {
		return fmt.Errorf("sim: Config.Faults add up to %v, above 1", sum)
	}
	c.Storms = slices.Clone(c.Storms)
	for i := range c.Storms {
		s := &c.Storms[i]
		if s.Status == 0 {
			s.Status = http.StatusTooManyRequests
		}
		if s.From < 0 || s.To <= s.From {
			return fmt.Errorf("sim: Config.Storms[%d] lasts from %v to %v", i, s.From, s.To)
		}
		if s.Status != http.StatusTooManyRequests && s.Status != http.StatusServiceUnavailable && s.Status != statusOverloaded {
			return fmt.Errorf("sim: Config.Storms[%d].Status is %d, not 429, 503 or 529", i, s.Status)
		}
	}
	c.Changes = slices.Clone(c.Changes)
	for i, ch := range c.Changes {
		if ch.At < 0 || !(ch.Factor > 0) || math.IsInf(ch.Factor, 0) {
			return fmt.Errorf("sim: Config.Changes[%d] is ×%v at %v", i, ch.Factor, ch.At)
		}
	}
	slices.SortStableFunc(c.Changes, func(a, b Change) int { return int(a.At - b.At) })
	return nil
}

func defaultTo(d, usual time.Duration) time.Duration {
	if d == 0 {
		return usual
	}
	return max(d, 0)
}

// stormAt returns the storm of the instant t, if there is one.
func (c *Config) stormAt(t time.Duration) (Storm, bool) {
	for _, s := range c.Storms {
		if s.From <= t && t < s.To {
			return s, true
		}
	}
	return Storm{}, false
}
