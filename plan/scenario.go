package plan

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// Scenario describes a simulated run with a provider, the limits that the client knows, and the calls. The fields
// Provider and Calls are required. All other fields have defaults.
type Scenario struct {
	// Provider contains the limits, the token counting and the latency of the provider, for example from
	// SimulatorConfig. Provider.Seed determines all random values, so the same Scenario produces the same Forecast.
	Provider sim.Config

	// Dialect is the format of the provider's rejections and headers.
	Dialect provider.Dialect

	// Told contains the configured limits. Start contains initial estimates of limits, for example from an earlier run.
	// The client learns all other limits from headers and rejections, as in a real run.
	Told, Start sluice.Limits

	// Calls contains the calls, which are sent once and in order. If Call.Output is 0, the response has the Provider's
	// default length. For calls without output tokens, such as embeddings, Call.Output is NoOutput.
	Calls []Call

	// Requests is the number of random calls drawn from Calls (0: all Calls in order, negative: random calls until Horizon).
	Requests int

	// Stream specifies that the provider streams responses, so that headers arrive before bodies.
	Stream bool

	// RoundTrip is the total network time of a request and the response.
	RoundTrip time.Duration

	// Workers is the maximum number of workers, which process one call at a time (default 16,384). A new worker starts
	// only while fewer than Spare calls wait (default 16). A negative Spare disables this condition.
	Workers, Spare int

	// Unpaced is the number of workers without a Scheduler (0: none). A worker without a Scheduler sends the next call
	// after each response. After a 429 response, this worker retries after the stated time (default half a second).
	Unpaced int

	Patience

	// Horizon is the maximum simulated time, up to 100 years (default one year). If Requests is negative, Horizon is required.
	Horizon time.Duration

	// MaxTries is the maximum total number of attempts, which limits the computing time (default 100 million).
	MaxTries int

	// Progress is called repeatedly with the number of finished calls and the simulated time (nil: not called).
	Progress func(ended int, at time.Duration)
}

// Patience limits the attempts of one call. The defaults are 6 attempts, 10 minutes per attempt, and 20 rate-limited attempts in
// at least 10 minutes. With a negative MaxThrottles, the first rate-limited attempt ends the call.
type Patience struct {
	Attempts, MaxThrottles int           // maximum number of attempts, and of rate-limited attempts
	Timeout                time.Duration // maximum duration of an attempt, up to 100 years
}

// Scenario returns the simulated run of the plan. Latencies vary by a lognormal factor with mean 1 and sigma jitter. The simulated provider
// has the plan's limits. The provider's token buckets hold Limits.Burst (default: one second's refill, but at least four of the largest
// calls). The client knows no limits unless you set Scenario.Told or Scenario.Start. For an endless plan, set Scenario.Horizon.
func (p Plan) Scenario(jitter float64) Scenario {
	w := &p.Workload
	median := time.Duration(float64(w.Latency) * math.Exp(-jitter*jitter/2))
	s := Scenario{Provider: SimulatorConfig(p.stated, p.Charge, median), Requests: w.Requests}
	s.Provider.Jitter = jitter
	for _, c := range w.calls() {
		s.Calls = append(s.Calls, stated(w.fill(c)))
	}
	switch w.Requests {
	case 0:
		s.Requests = -1
	case len(w.Calls):
		s.Requests = 0 // these themselves, in their order
	}
	if s.Provider.Burst == 0 {
		s.Provider.Burst = p.holding(s.Calls)
	}
	return s
}

// holding is a burst of which calls do not take all at once: providers do not refuse a lone call for its length, and what a
// call returns of its reserve must fit in.
func (p *Plan) holding(calls []Call) time.Duration {
	burst := usualBurst
	for _, c := range calls {
		reserved := gate.Reserve(p.Charge, sluice.Cost{Input: c.Input, MaxOutput: c.MaxTokens})
		for d, limit := range p.Limits.All() {
			if *limit > 0 && minutes(d) == 1 {
				burst = max(burst, time.Duration(min(1, 4*reserved[d]/float64(*limit))*float64(time.Minute)))
			}
		}
	}
	return burst
}

// stated is a call as a Scenario states it.
func stated(c Call) Call {
	c.Input = max(1, c.Input)
	if c.Output == 0 {
		c.Output = NoOutput
	}
	return c
}

// SimulatorConfig returns the configuration of a simulated provider with the given limits and latency. Token buckets
// start full and hold l.Burst of refill. If l.Burst is 0, token buckets hold a minute's refill, so the first minute
// allows twice the limit. Only the client enforces the limit of tokens per day (l.TPD).
func SimulatorConfig(l sluice.Limits, charge limits.Charge, latency time.Duration) sim.Config {
	if latency == 0 {
		latency = -1 // to the imitation, zero is a default
	}
	c := sim.Config{Concurrency: l.Concurrency, Burst: l.Burst, Charge: charge, Latency: latency}
	for d, limit := range c.Limits() {
		*limit = *l.At(d)
	}
	c.Requests, c.Tokens = l.Requests, l.Tokens
	return c
}

// withDefaults returns the scenario with its defaults filled in, or an error that names the field that makes no sense.
func (s Scenario) withDefaults() (Scenario, error) {
	err := cmp.Or(
		inRange("Scenario.RoundTrip", s.RoundTrip, mostLatency),
		inRange("Scenario.Workers", s.Workers, limits.MaxLimit), inRange("Scenario.Unpaced", s.Unpaced, limits.MaxLimit),
		inRange("Scenario.Attempts", s.Attempts, math.MaxInt), inRange("Scenario.MaxTries", s.MaxTries, math.MaxInt),
		inRange("Scenario.Timeout", s.Timeout, longestTime), inRange("Scenario.Horizon", s.Horizon, longestTime),
		s.checkAnswers(), s.checkCalls(),
	)
	if err != nil {
		return s, err
	}
	if !s.Dialect.Known() {
		return s, wrong("Scenario.Dialect", "%d is not a known dialect", s.Dialect)
	}
	if err := s.Told.Check(); err != nil {
		return s, &FieldError{Field: "Scenario.Told", Err: err}
	}
	if err := s.Start.Check(); err != nil {
		return s, &FieldError{Field: "Scenario.Start", Err: err}
	}
	s.Workers, s.Spare = cmp.Or(s.Workers, 16_384), cmp.Or(s.Spare, 16)
	s.Attempts, s.MaxThrottles = cmp.Or(s.Attempts, gate.DefaultAttempts), max(0, cmp.Or(s.MaxThrottles, gate.DefaultMaxThrottles))
	s.Timeout, s.Horizon = cmp.Or(s.Timeout, 10*time.Minute), cmp.Or(s.Horizon, 365*24*time.Hour)
	s.MaxTries = cmp.Or(s.MaxTries, 100_000_000)
	return s, nil
}

// checkCalls refuses calls that are none.
func (s *Scenario) checkCalls() error {
	switch {
	case s.Requests != 0 && len(s.Calls) == 0:
		return wrong("Scenario.Requests", "%d is set, but Calls is empty", s.Requests)
	case s.Requests > mostRequests:
		return inRange("Scenario.Requests", s.Requests, mostRequests)
	case s.Requests < 0 && s.Horizon == 0:
		return wrong("Scenario.Horizon", "the horizon is missing, although the number of requests is unlimited")
	}
	for i, c := range s.Calls {
		if err := c.check(); err != nil {
			return &FieldError{Field: fmt.Sprintf("Scenario.Calls[%d]", i), Err: err}
		}
	}
	return nil
}

// checkAnswers refuses answers that take longer than a century, the longest of them too.
func (s *Scenario) checkAnswers() error {
	if s.Provider.Latency > mostLatency {
		return inRange("Scenario.Provider.Latency", s.Provider.Latency, mostLatency)
	}
	longest := max(1, s.Provider.OutputTokens)
	for _, c := range s.Calls {
		longest = max(longest, c.Output)
	}
	return inRange("Scenario.Provider.PerToken", s.Provider.PerToken, longestTime/time.Duration(longest))
}

// count is how many calls there are; -1 is without end.
func (s *Scenario) count() int {
	if s.Requests != 0 {
		return max(s.Requests, -1)
	}
	return len(s.Calls)
}

// call is the i-th call.
func (s *Scenario) call(i int) Call {
	if s.Requests == 0 {
		return s.Calls[i]
	}
	return s.Calls[mix(s.Provider.Seed^mix(uint64(i)+1))%uint64(len(s.Calls))]
}

// mix scatters the bits of x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
