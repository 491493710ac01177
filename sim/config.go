// Package sim simulates LLM providers whose limits are known.
//
// A [Server] speaks the OpenAI dialect (POST /v1/chat/completions, /v1/responses and /v1/embeddings, GET /v1/models),
// Anthropic's (POST /v1/messages and /v1/messages/count_tokens, GET /v1/models), Cohere's (POST /v2/chat) and Gemini's (POST /v1beta/models/MODEL with
// :generateContent, :streamGenerateContent, :embedContent, :batchEmbedContents or :countTokens, GET /v1beta/models, and the
// same under /v1) under the limits of its [Config]. Its headers, bodies and error texts are those of the real providers.
// Faults, storms and changes of the limits can be configured. If a request offers tools, the response calls the first one,
// until a request contains the result of a call. The Batch APIs of OpenAI, Anthropic and Gemini are included ([Batches]). So are the
// APIs by which OpenAI (GET /v1/organization/projects/proj_sim/rate_limits) and Anthropic (GET /v1/organizations/rate_limits)
// publish limits. GET /stats returns the counts. A Server is an [http.Handler], and [Server.Transport] reaches it in process,
// without sockets, also inside a testing/synctest bubble.
//
// [Config.Optimum] computes the least time for a workload.
//
// Of the packages around it, this one uses only limits, a JSON scanner, a timer and the form of numbers. A simulator and a
// client that share code agree on the same mistakes; the scanner is fuzzed against encoding/json.
package sim

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Config describes the limits and the behaviour of a provider. The zero value is a provider without limits that answers after
// 200 ms. Its fields are many because each describes one property of a provider, and the flags of sluice sim fill them.
type Config struct {
	// Seed decides every random choice. Latencies and faults are a pure function of the seed, the request and the number of
	// its earlier attempts, so that every client meets the same ones.
	Seed uint64

	// Limits per minute for requests, tokens in and out together, input tokens and output tokens. Zero: no limit. They refill
	// continuously, and all models share them. Gemini's TPM counts the input only: that is ITPM here. Of Gemini's own quotas
	// there are only the ones for requests and for ITPM.
	RPM, TPM, ITPM, OTPM int
	// Requests and Tokens are limits with a period of their own, in place of RPM and TPM: fixed windows from the first request on.
	Requests, Tokens limits.Window
	// RPD limits requests per day. It refills continuously, and its bucket holds the limit of the whole day.
	RPD int
	// Concurrency rejects requests above that number in flight. Zero: no limit.
	Concurrency int
	// Queue serves that number of requests at once. The others wait in order without a response, as on self-hosted servers.
	// Zero: no queue.
	Queue int
	// Contention serves that number of requests at full speed. If more are in flight, all of them slow down, as on one GPU. None
	// waits or is rejected. Zero: no contention. A [Limiter] returns the end of a request at once, and does not support it.
	Contention int

	// Burst is the capacity of a minute bucket, as the time of its refill, and at least one token or request. Zero: 60 s, the
	// limit of the whole minute. Buckets start full. A request larger than the bucket but not larger than the limit passes
	// when the bucket is full, and leaves a debt.
	Burst time.Duration
	// FixedWindow fills a minute bucket once every Burst, counted from the first request, in place of the continuous refill.
	FixedWindow bool
	// Drained has the minute buckets start empty at the first request, as if other clients had used them.
	Drained bool
	// Charge says what a request costs in tokens, and when. The input is estimated as a quarter of the characters of the texts,
	// rounded up, and at least one. limits.ChargeDeclared charges TPM with the greater of the input and max_tokens (times n), and
	// OTPM with max_tokens, at admission; a request without max_tokens declares none. limits.ChargeActual charges the output when
	// it was produced, TPM and OTPM alike, which may leave a debt. Then OTPM admits while it holds at least one token.
	Charge limits.Charge
	// ChargeRefusals charges the requests buckets for a rejected request, too, down to zero.
	ChargeRefusals bool

	// NoHeaders leaves out every rate limit header but Retry-After. Gemini sends none.
	NoHeaders bool
	// LateHeaders computes the rate limit headers when the response is sent, in place of at admission.
	LateHeaders bool
	// DailyHeaders makes x-ratelimit-*-requests describe the day (RPD), as Groq does. RPM is enforced as well.
	DailyHeaders bool
	// RetryAfter is the form in which a rejection states the wait.
	RetryAfter RetryAfterForm
	// VagueBodies leaves out of a rejection the limit, the use, the wait and the dimension. Gemini then states nothing, as it
	// has no headers.
	VagueBodies bool

	// Latency is the time to the first byte. Zero: 200 ms; negative: none.
	Latency time.Duration
	// PerToken is added to the latency for every output token. A stream sends them at this pace.
	PerToken time.Duration
	// Jitter is the sigma of a lognormal factor on both.
	Jitter float64
	// RefusalLatency is the time of a rejection. Zero: 5 ms; negative: none.
	RefusalLatency time.Duration
	// OutputTokens is the length of a response that max_tokens does not cut. Zero: 64. A prompt that asks for "one word" gets
	// one token.
	OutputTokens int
	// OutputSigma spreads that length lognormally, by request.
	OutputSigma float64

	// Faults are probabilities of failure.
	Faults Faults
	// Storms are times in which every request is rejected.
	Storms []Storm
	// Changes are instants at which the rate limits change.
	Changes []Change
	// SpentAfter is the number of paid responses after which the account has no credit. Requests in flight are answered and paid.
	// Zero: never.
	SpentAfter int

	// Batches configures the Batch APIs.
	Batches Batches

	// Key is the only valid API key. Empty: every key is valid.
	Key string
	// AdminKey is the only key that reads the limits of the account. Empty: every key does.
	AdminKey string
	// Models are the known models; others get a 404. Empty: any model.
	Models []string

	// NoStats leaves out the counts per request ([Stats].Paid), which need memory for millions of different requests.
	NoStats bool
}

// RetryAfterForm is the form in which a rejection states the wait. Gemini states it in the body, by RetryInfo and in words, for
// every form of a header.
type RetryAfterForm int

const (
	// RetryAfterSeconds is a Retry-After header in seconds, rounded up.
	RetryAfterSeconds RetryAfterForm = iota
	// RetryAfterMillis adds a retry-after-ms header, rounded up.
	RetryAfterMillis
	// RetryAfterDate is a Retry-After header with an HTTP date, rounded up.
	RetryAfterDate
	// RetryAfterNone sends neither, and leaves the wait out of Gemini's body.
	RetryAfterNone
)

// Faults are probabilities per admitted request. Without the last two, their sum is at most 1. A request that fails was charged,
// but does not count as paid.
type Faults struct {
	ServerError float64 // 500 after the time to the first byte
	Overloaded  float64 // 529 (Anthropic) or 503 (OpenAI, Gemini) after RefusalLatency
	Reset       float64 // the connection breaks instead of the first byte
	Hang        float64 // no response
	Cut         float64 // the connection breaks in the middle of the body
	BadRequest  float64 // 400 before admission; every attempt with that body gets it
	Throttled   float64 // 429 before admission, without a cause, a wait or a charge; drawn again for every attempt
}

// attempt reports whether attempts at one request differ.
func (f Faults) attempt() bool { return f.sum() > 0 }

func (f Faults) sum() float64 {
	return f.ServerError + f.Overloaded + f.Reset + f.Hang + f.Cut
}

// Storm is a time in which every request is rejected. No bucket explains it.
type Storm struct {
	From, To time.Duration // since the first request
	Status   int           // 429 (default), or 529 or 503 for an overload, which is 529 of Anthropic and 503 of OpenAI and Gemini
	Silent   bool          // no Retry-After (Gemini: RetryInfo), which else states the end of the storm
}

// Change multiplies all rate limits of the Config by Factor, until the next Change.
type Change struct {
	At     time.Duration // since the first request
	Factor float64       // above zero
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
