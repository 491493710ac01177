package find_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// row is a provider whose limits are known, and are to be found.
type row struct {
	name    string
	sim     sim.Config
	latency time.Duration // of a real call, at the median. 0: 2 s
	stated  bool          // headers and the words of refusals tell the limits
	dialect string        // a provider's name. "": openai-compatible

	// unsafe: workers without a pace are refused even where they stay below the limit, since the bucket holds but a call or
	// two, or since refusals that are charged keep an empty bucket empty.
	unsafe bool
}

const (
	realTokens = 500 // of the answer to a real call
	nonceChars = 20  // that stand before each prompt
)

// manuscript is the prompt of real calls.
var manuscript = strings.Repeat("Write at length of what you know. ", 14)

// realInput is the tokens of a real call's input, as sim counts them.
func realInput() int { return (nonceChars + len(manuscript) + 3) / 4 }

// config is the provider of the row, whose luck is that of seed.
func (r row) config(seed uint64) sim.Config {
	c := r.sim
	latency := r.latency
	if latency == 0 {
		latency = 2 * time.Second
	}
	c.Seed, c.OutputTokens, c.Jitter = seed, realTokens+20, 0.1
	c.Latency = latency * 15 / 100
	c.PerToken = (latency - c.Latency) / realTokens
	if !r.stated {
		c.NoHeaders, c.VagueBodies, c.RetryAfter = true, true, sim.RetryAfterNone
	}
	return c
}

// later is the provider after the search: nothing happens any more, and others have just used up its buckets.
func (r row) later(seed uint64) sim.Config {
	c := r.config(seed)
	c.Drained, c.Storms = true, nil
	c.Changes = []sim.Change{{Factor: r.factor()}}
	return c
}

// factor is what changes come to in the end.
func (r row) factor() float64 {
	if n := len(r.sim.Changes); n > 0 {
		return r.sim.Changes[n-1].Factor
	}
	return 1
}

// mean is how long a real call takes when its server is not busy, in seconds: its latency is lognormal.
func (r row) mean() float64 {
	c := r.config(0)
	return (c.Latency + realTokens*c.PerToken).Seconds() * math.Exp(c.Jitter*c.Jitter/2)
}

// rate is a limit per minute, and what a real call takes of it.
type rate struct {
	dimension     limits.Dimension
	limit, charge float64
}

func (r row) rates() (rates []rate) {
	in, out := float64(realInput()), float64(realTokens)
	both := in + out
	if r.sim.Charge == limits.ChargeDeclared {
		both = max(in, out)
	}
	for _, one := range []rate{
		{limits.Requests, float64(r.sim.RPM), 1}, {limits.Tokens, float64(r.sim.TPM), both},
		{limits.InputTokens, float64(r.sim.ITPM), in}, {limits.OutputTokens, float64(r.sim.OTPM), out},
	} {
		if one.limit > 0 {
			one.limit *= r.factor()
			rates = append(rates, one)
		}
	}
	return rates
}

// truth is how many workers are safe, not cut down to whole ones; what bounds them; and how many real calls are answered
// in a minute at most.
func (r row) truth() (exact float64, bound limits.Dimension, perMinute float64) {
	exact = find.DefaultWorkers
	for _, n := range []int{r.sim.Concurrency, r.sim.Queue} {
		if n > 0 {
			exact, bound = min(exact, float64(n)), limits.Concurrency
		}
	}
	for _, one := range r.rates() {
		if x := one.limit / 60 * r.mean() / one.charge; x < exact {
			exact, bound = x, one.dimension
		}
	}
	perMinute = exact / r.mean() * 60
	if r.sim.Contention > 0 {
		perMinute = min(perMinute, float64(r.sim.Contention)/r.mean()*60)
	}
	return max(1, exact), bound, perMinute
}

// whole is the truth in workers.
func (r row) whole() int {
	exact, _, _ := r.truth()
	return int(exact + 1e-9)
}

// provider returns the row's provider as a client sees it, and where it is.
func (r row) provider() (provider.Provider, provider.Target) {
	if r.dialect != "" {
		p, _ := provider.Lookup(r.dialect)
		return p, provider.Target{BaseURL: "http://127.0.0.1", Key: "any", Model: "claude-sonnet-4-5"}
	}
	p, _ := provider.Lookup("openai-compatible")
	return p, provider.Target{BaseURL: "http://127.0.0.1/v1", Key: "any", Model: "m"}
}

// representative are the rows of the fast suite: one of each kind.
var representative = []string{"cap 5", "rpm 60, burst 60 s", "tpm 20k declared, burst 60 s", "queue 8", "headers: rpm 500, tpm 90k",
	"headers: anthropic", "1 % 503, cap 20", "0.5 % stray 429, rpm 500", "storm at 5 s, cap 20", "rpm 500 halves at 10 s",
	"cap 20 and rpm 300", "tpm 90k and rpm 100"}

// inSuite skips the other rows in the fast suite.
func (r row) inSuite(t *testing.T) {
	if !slices.Contains(representative, r.name) {
		suite.FullOnly(t)
	}
}

// rows are the providers by which a search is measured.
func rows() []row {
	const s = time.Second
	return []row{
		{name: "cap 1", sim: sim.Config{Concurrency: 1}},
		{name: "cap 2", sim: sim.Config{Concurrency: 2}, latency: 4 * s},
		{name: "cap 5", sim: sim.Config{Concurrency: 5}},
		{name: "cap 20", sim: sim.Config{Concurrency: 20}},
		{name: "cap 80", sim: sim.Config{Concurrency: 80}, latency: s},
		{name: "cap 20, 0.5 s", sim: sim.Config{Concurrency: 20}, latency: s / 2},
		{name: "cap 20, 10 s", sim: sim.Config{Concurrency: 20}, latency: 10 * s},

		{name: "rpm 60, burst 1 s", sim: sim.Config{RPM: 60, Burst: s}, unsafe: true},
		{name: "rpm 60, burst 10 s", sim: sim.Config{RPM: 60, Burst: 10 * s}},
		{name: "rpm 60, burst 60 s", sim: sim.Config{RPM: 60}},
		{name: "rpm 60, burst 60 s, 10 s", sim: sim.Config{RPM: 60}, latency: 10 * s},
		{name: "rpm 500, burst 1 s", sim: sim.Config{RPM: 500, Burst: s}},
		{name: "rpm 500, burst 10 s", sim: sim.Config{RPM: 500, Burst: 10 * s}},
		{name: "rpm 500, burst 60 s", sim: sim.Config{RPM: 500}},
		{name: "rpm 500, burst 60 s, 0.5 s", sim: sim.Config{RPM: 500}, latency: s / 2},
		{name: "rpm 500, burst 10 s, 10 s", sim: sim.Config{RPM: 500, Burst: 10 * s}, latency: 10 * s},
		{name: "rpm 60, window", sim: sim.Config{RPM: 60, FixedWindow: true}},
		{name: "rpm 500, window", sim: sim.Config{RPM: 500, FixedWindow: true}},

		{name: "tpm 60k declared, burst 60 s", sim: sim.Config{TPM: 60_000}, latency: 5 * s},
		{name: "tpm 60k declared, burst 1 s", sim: sim.Config{TPM: 60_000, Burst: s}, latency: 5 * s, unsafe: true},
		{name: "tpm 20k declared, burst 60 s", sim: sim.Config{TPM: 20_000}, latency: 10 * s},
		{name: "tpm 20k declared, burst 1 s", sim: sim.Config{TPM: 20_000, Burst: s}, latency: 10 * s, unsafe: true},
		{name: "tpm 60k actual, burst 60 s", sim: sim.Config{TPM: 60_000, Charge: limits.ChargeActual}, latency: 5 * s},
		{name: "tpm 60k actual, burst 1 s",
			sim: sim.Config{TPM: 60_000, Charge: limits.ChargeActual, Burst: s}, latency: 5 * s, unsafe: true},
		{name: "tpm 20k actual, burst 60 s", sim: sim.Config{TPM: 20_000, Charge: limits.ChargeActual}, latency: 10 * s},
		{name: "tpm 20k actual, burst 1 s",
			sim: sim.Config{TPM: 20_000, Charge: limits.ChargeActual, Burst: s}, latency: 10 * s, unsafe: true},

		{name: "queue 8", sim: sim.Config{Queue: 8}},
		{name: "queue 16", sim: sim.Config{Queue: 16}, latency: s},
		{name: "queue 48", sim: sim.Config{Queue: 48}},
		{name: "queue 16, 10 s", sim: sim.Config{Queue: 16}, latency: 10 * s},
		{name: "contention 12", sim: sim.Config{Contention: 12}},

		{name: "headers: rpm 500, tpm 90k", sim: sim.Config{RPM: 500, TPM: 90_000}, stated: true},
		{name: "headers: rpm 500", sim: sim.Config{RPM: 500, Burst: 10 * s}, stated: true},
		{name: "headers: rpm 500, late", sim: sim.Config{RPM: 500, LateHeaders: true}, stated: true},
		{name: "headers: rpm 500, cap 8", sim: sim.Config{RPM: 500, Concurrency: 8}, stated: true},
		{name: "headers: tpm 60k actual",
			sim: sim.Config{RPM: 1000, TPM: 60_000, Charge: limits.ChargeActual}, stated: true, latency: 5 * s},
		{name: "headers: anthropic", dialect: "anthropic", stated: true, latency: 5 * s,
			sim: sim.Config{RPM: 1000, ITPM: 80_000, OTPM: 40_000, Charge: limits.ChargeActual}},
		{name: "headers: a day's 14400, rpm 300 unsaid",
			sim: sim.Config{RPD: 14_400, RPM: 300, Burst: 10 * s, DailyHeaders: true}, stated: true},

		{name: "1 % 503, cap 20", sim: sim.Config{Concurrency: 20, Faults: sim.Faults{Overloaded: .01}}},
		{name: "1 % 503, rpm 500", sim: sim.Config{RPM: 500, Burst: 10 * s, Faults: sim.Faults{Overloaded: .01}}},
		{name: "1 % 503, queue 16", sim: sim.Config{Queue: 16, Faults: sim.Faults{Overloaded: .01}}},
		{name: "0.5 % stray 429, cap 20", sim: sim.Config{Concurrency: 20, Faults: sim.Faults{Throttled: .005}}},
		{name: "0.5 % stray 429, rpm 500", sim: sim.Config{RPM: 500, Burst: 10 * s, Faults: sim.Faults{Throttled: .005}}},
		{name: "0.5 % stray 429, queue 16", sim: sim.Config{Queue: 16, Faults: sim.Faults{Throttled: .005}}},

		{name: "storm at 5 s, cap 20", sim: sim.Config{Concurrency: 20, Storms: storm(5 * s)}},
		{name: "storm at 15 s, cap 20", sim: sim.Config{Concurrency: 20, Storms: storm(15 * s)}, latency: 5 * s},
		{name: "storm at 5 s, rpm 500", sim: sim.Config{RPM: 500, Burst: 10 * s, Storms: storm(5 * s)}},
		{name: "storm at 15 s, rpm 500", sim: sim.Config{RPM: 500, Burst: 10 * s, Storms: storm(15 * s)}},
		{name: "rpm 500 halves at 10 s", sim: sim.Config{RPM: 500, Burst: 10 * s, Changes: halves(10 * s)}},
		{name: "rpm 500 halves at 45 s", sim: sim.Config{RPM: 500, Burst: 10 * s, Changes: halves(45 * s)}},
		{name: "rpm 60, refusals charged",
			sim: sim.Config{RPM: 60, ChargeRefusals: true}, latency: 4600 * time.Millisecond, unsafe: true},
		{name: "rpm 500, refusals charged", sim: sim.Config{RPM: 500, Burst: 10 * s, ChargeRefusals: true}},

		{name: "cap 20 and rpm 300", sim: sim.Config{Concurrency: 20, RPM: 300, Burst: 10 * s}},
		{name: "cap 10 and rpm 600", sim: sim.Config{Concurrency: 10, RPM: 600, Burst: 10 * s}},
		{name: "cap 20 and rpm 500, 1 s", sim: sim.Config{Concurrency: 20, RPM: 500, Burst: 10 * s}, latency: s},
		{name: "tpm 60k and rpm 500", sim: sim.Config{TPM: 60_000, RPM: 500}, latency: 5 * s},
		{name: "tpm 90k and rpm 100", sim: sim.Config{TPM: 90_000, RPM: 100}, latency: 5 * s},
	}
}

func storm(from time.Duration) []sim.Storm {
	return []sim.Storm{{From: from, To: from + 20*time.Second, Silent: true}}
}

func halves(at time.Duration) []sim.Change { return []sim.Change{{At: at, Factor: 0.5}} }
