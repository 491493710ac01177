// Package sim imitates LLM providers whose limits are known.
//
// A [Server] answers the OpenAI dialect (POST /v1/chat/completions,
// /v1/responses and /v1/embeddings, GET /v1/models), Anthropic's (POST
// /v1/messages and /v1/messages/count_tokens, GET /v1/models) and Gemini's
// (POST /v1beta/models/MODEL with :generateContent, :streamGenerateContent, :embedContent, :batchEmbedContents
// or :countTokens, GET /v1beta/models, and the same under /v1) under the limits
// of its [Config], with the headers, bodies and error texts that the real
// providers send, faults, storms and limits that change included. Who offers
// tools gets a call of the first of them, until it tells what came of one. The
// Batch APIs of the three and of Mistral are there as well ([Batches]). GET
// /stats tells what it saw. It is an [http.Handler], and [Server.Transport] reaches it
// in process, without sockets, also inside a testing/synctest bubble.
//
// [Config.Optimum] computes how fast a workload could have gone at best, and
// [Oracle] is a client that goes that fast, since it knows every limit.
//
// The package shares no code with the clients it is there to test: an
// imitation and a client that share code agree on the same mistakes.
package sim

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"
)

// Config says what a provider allows and how it behaves. The zero value is a
// provider without limits that answers after 200 ms.
type Config struct {
	// Seed decides all luck. Latencies and faults are a pure function of it,
	// of the request and of how often that request was admitted before, so
	// every client meets the same luck.
	Seed uint64

	// Limits per minute: requests, tokens in and out together, input tokens,
	// output tokens. Zero means no such limit. They refill continuously, and
	// hold for all models together.
	// What Gemini calls TPM counts the input alone: that is ITPM here, and
	// only ITPM and the requests have a quota of Gemini's own.
	RPM, TPM, ITPM, OTPM int
	// RPD limits requests per day; it refills continuously too, and its
	// bucket holds the whole day's limit.
	RPD int
	// Concurrent refuses calls above so many open ones. Zero: no such limit.
	Concurrent int
	// Queue serves so many calls at once and lets the rest wait without a
	// word, in order, as self-hosted servers do. Zero: no such queue.
	Queue int
	// Contention serves so many calls at full speed; when more are open, all
	// of them get slower together, as those that share one GPU do. None waits
	// and none is refused. Zero: no such thing. A [Limiter], which says at
	// once when a call will end, cannot do that.
	Contention int

	// Burst is what a minute bucket holds, as so much refill, and never less
	// than one token or request. Zero: 60 s, the whole minute's limit.
	// Buckets start full. A request larger than the bucket but not larger
	// than the limit passes when the bucket is full, and leaves a debt.
	Burst time.Duration
	// FixedWindow fills a minute bucket once every Burst, counted from the
	// first request, in place of the continuous refill.
	FixedWindow bool
	// Drained has the minute buckets start empty at the first request, as if
	// others had used them up. An [Oracle], which asks for nothing before it
	// may have it, does not get along with that.
	Drained bool
	// Charge says what a request costs in tokens, and when.
	Charge Charge
	// ChargeRefusals charges the requests buckets for a refused call as well,
	// down to zero.
	ChargeRefusals bool

	// NoHeaders leaves out every rate limit header; Retry-After has its own
	// field. Gemini has none anyway.
	NoHeaders bool
	// LateHeaders computes the rate limit headers when the answer is sent, in
	// place of when the call was admitted.
	LateHeaders bool
	// DailyHeaders makes x-ratelimit-*-requests describe the day (RPD), as
	// Groq does, while RPM is enforced as well.
	DailyHeaders bool
	// RetryAfter is how a refusal says when to come back.
	RetryAfter RetryAfterForm
	// VagueBodies makes a refusal say neither the limit, the use, the wait nor
	// the dimension. Gemini, which has no headers, then says nothing at all.
	VagueBodies bool

	// Latency is the time to the first byte. Zero: 200 ms; negative: none.
	Latency time.Duration
	// PerToken is added to the latency for every output token; a stream sends
	// them at this pace.
	PerToken time.Duration
	// Jitter is the sigma of a lognormal factor on both.
	Jitter float64
	// RefusalLatency is the time a refusal takes. Zero: 5 ms; negative: none.
	RefusalLatency time.Duration
	// OutputTokens is the length of an answer, where max_tokens does not cut
	// it. Zero: 64. A prompt that asks for "one word" gets one token.
	OutputTokens int
	// OutputSigma spreads that length lognormally, by request.
	OutputSigma float64

	// Faults are probabilities of failure.
	Faults Faults
	// Storms are times in which every call is refused.
	Storms []Storm
	// Changes are instants at which the rate limits change.
	Changes []Change
	// SpentAfter is the number of paid answers after which the account's
	// money is spent, for good. Calls that are open then are answered and
	// paid as well. Zero: never.
	SpentAfter int

	// Batches says how the Batch APIs behave.
	Batches Batches

	// Key, if set, is the only API key that is let in.
	Key string
	// Models are the models there are; others get a 404. Empty: any model.
	Models []string

	// NoStats leaves out the accounts per request ([Stats.Paid]), which cost
	// memory when millions of different requests come.
	NoStats bool
}

// Charge says what a request costs in tokens, and when. Its input is estimated
// as a quarter of the characters of its texts, rounded up, and at least one.
type Charge int

const (
	// ChargeDeclared charges TPM with the greater of the input estimate and
	// max_tokens (times n), and OTPM with max_tokens, at admission; nothing is
	// ever refunded. A request without max_tokens declares none.
	ChargeDeclared Charge = iota
	// ChargeActual charges the input at admission and the output when it was
	// produced, TPM and OTPM alike, which may leave a debt. OTPM admits while
	// it holds at least one token.
	ChargeActual
)

// RetryAfterForm is how a refusal says when to come back. Gemini says it in
// the body, by RetryInfo and in words, whatever the form of a header is.
type RetryAfterForm int

const (
	// RetryAfterSeconds is a Retry-After header in seconds, rounded up.
	RetryAfterSeconds RetryAfterForm = iota
	// RetryAfterMillis adds a retry-after-ms header, rounded up.
	RetryAfterMillis
	// RetryAfterDate is a Retry-After header with an HTTP date, rounded up.
	RetryAfterDate
	// RetryAfterNone sends neither, and has Gemini's body leave it out.
	RetryAfterNone
)

// Faults are probabilities per admitted call; their sum is at most 1, not
// counting the last two. A call that fails so was charged, but is not counted
// as paid.
type Faults struct {
	// ServerError answers 500 after the usual time to the first byte.
	ServerError float64
	// Overloaded answers 529 (Anthropic) or 503 (OpenAI, Gemini) after
	// RefusalLatency.
	Overloaded float64
	// Reset breaks the connection where the first byte was due.
	Reset float64
	// Hang never answers.
	Hang float64
	// Cut breaks the connection in the middle of the answer's body.
	Cut float64
	// BadRequest answers 400 before admission. It hits a request, not an
	// attempt: the same body always gets it.
	BadRequest float64
	// Throttled answers 429 at once, before admission, without a word of what
	// or how long. No limit explains it, nothing is charged for it, and it is
	// a matter of luck again when the request comes again.
	Throttled float64
}

// attempt reports whether luck of a single attempt is asked for.
func (f Faults) attempt() bool { return f.sum() > 0 }

func (f Faults) sum() float64 {
	return f.ServerError + f.Overloaded + f.Reset + f.Hang + f.Cut
}

// Storm is a time in which every call is refused. No bucket explains it.
type Storm struct {
	// From and To are counted from the first request.
	From, To time.Duration
	// Status is 429 (the default), or 529 or 503 for an overload, which
	// each dialect says in its own way: Anthropic 529, OpenAI and Gemini 503.
	Status int
	// Silent leaves out Retry-After (of Gemini: RetryInfo), which otherwise
	// tells the storm's end.
	Silent bool
}

// Change multiplies all rate limits of the Config by Factor. A later Change
// replaces the factor of an earlier one.
type Change struct {
	// At is counted from the first request.
	At time.Duration
	// Factor is above zero.
	Factor float64
}

// number is a field of a Config that is a number, and its name.
type number struct {
	name string
	x    float64
}

// withDefaults returns c with its defaults filled in, or an error that names
// the field which makes no sense.
func (c Config) withDefaults() (Config, error) {
	// These are lists, not maps, so that of several fields that are wrong the first is named, each time.
	for _, field := range [...]struct {
		name string
		n    int
	}{
		{"RPM", c.RPM}, {"TPM", c.TPM}, {"ITPM", c.ITPM}, {"OTPM", c.OTPM}, {"RPD", c.RPD}, {"Concurrent", c.Concurrent},
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
	if c.Charge < ChargeDeclared || c.Charge > ChargeActual {
		return c, fmt.Errorf("sim: Config.Charge is %d, which is none", c.Charge)
	}
	if c.RetryAfter < RetryAfterSeconds || c.RetryAfter > RetryAfterNone {
		return c, fmt.Errorf("sim: Config.RetryAfter is %d, which is none", c.RetryAfter)
	}
	if c.DailyHeaders && c.RPD == 0 {
		return c, fmt.Errorf("sim: Config.DailyHeaders needs Config.RPD")
	}
	if err := c.checkEvents(); err != nil {
		return c, err
	}
	var err error
	if c.Batches, err = c.Batches.withDefaults(); err != nil {
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
