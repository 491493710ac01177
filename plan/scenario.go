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

// Scenario is a run to be foreseen: a provider, the limits that the client knows, and the calls. Provider and Calls are
// required; any other zero field means its default.
type Scenario struct {
	// Provider is what the provider allows, how it counts, and how fast it answers. See SimulatorConfig. Its Seed decides all
	// luck, so that the same Scenario comes to the same Forecast.
	Provider sim.Config

	// Dialect is how the provider words its refusals, and what its headers tell.
	Dialect provider.Dialect

	// Told are the configured ceilings, and Start the limits believed at first, for example from a file or an earlier
	// run. As in a real run, the client learns all other limits from headers and rejections.
	Told, Start sluice.Limits

	// Calls are what there is to send, in this order, once. An Output of 0 is as long as the Provider's answers are;
	// NoOutput is none, as of embeddings.
	Calls []Call

	// Requests is how many calls to send in place of that, each drawn from Calls. Negative: without end, until Horizon.
	Requests int

	// Stream says that answers are streamed, so that their headers come before their bodies.
	Stream bool

	// RoundTrip is what the network adds to every exchange.
	RoundTrip time.Duration

	// Workers bounds the workers, each of which has one call at hand. One more is started while fewer than Spare calls
	// wait to be sent. Default 16,384 and 16, as a run has it; a negative Spare is no bound of its own.
	Workers, Spare int

	// Unpaced, if set, is the number of workers that send without a scheduler, each its next call after the last response.
	// After a 429 a worker waits as long as the response asks, or half a second, and retries.
	Unpaced int

	Patience

	// Horizon is when to stop looking, within a century. Default a year; Requests without end need one.
	Horizon time.Duration

	// MaxTries bounds how often calls are sent in all, and so how long the computation takes. Default 100 million.
	MaxTries int

	// Progress, if set, is called now and then with the number of finished calls and the time of the run.
	Progress func(ended int, at time.Duration)
}

// Patience is how often and how long a call is tried. The defaults equal the defaults of a run: 6 attempts, 20 rate-limit rejections
// in 10 minutes at least, and 10 minutes for each attempt, at most a century. A negative MaxThrottles gives up a call that is throttled once.
type Patience struct {
	Attempts, MaxThrottles int
	Timeout                time.Duration
}

// Scenario is the run that the plan is for. Each call is answered after its latency, times a lognormal factor of mean one
// whose sigma is jitter. The provider has the plan's limits, and its buckets hold Limits.Burst, by default a second's worth
// and four of the largest calls. The client knows no limit: see Told and Start. A plan without end needs a Horizon.
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

// SimulatorConfig returns a provider with these limits, which answers after latency. Its
// buckets hold l.Burst of refill, and start full; a Burst of zero is a whole minute's, so that twice the limit may pass in
// the first. The provider does not enforce a limit of tokens per day; a client that knows it keeps to it.
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
		inRange("Scenario.Workers", s.Workers, mostLimit), inRange("Scenario.Unpaced", s.Unpaced, mostLimit),
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
		return s, &FieldError{"Scenario.Told", err}
	}
	if err := s.Start.Check(); err != nil {
		return s, &FieldError{"Scenario.Start", err}
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
			return &FieldError{fmt.Sprintf("Scenario.Calls[%d]", i), err}
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
