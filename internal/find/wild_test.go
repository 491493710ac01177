package find_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// wild is a provider that nobody has thought of, and a search there.
type wild struct {
	seed    uint64
	sim     sim.Config
	dialect string
	search  find.Config // what is the caller's to choose
	input   int         // tokens of a real call
}

// drawWild draws one: limits alone or together, buckets and windows, told and untold, with latencies and failures of all kinds.
func drawWild(seed uint64) *wild {
	rng := rand.New(rand.NewPCG(seed, 77))
	w := &wild{seed: seed}
	between := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	often := func(p float64) bool { return rng.Float64() < p }
	c := &w.sim
	c.Seed = seed
	w.dialect = "openai-compatible"
	if often(0.25) {
		w.dialect = []string{"anthropic", "gemini", "openai"}[rng.IntN(3)]
	}

	latency := between(0.1, 20)
	perToken := rng.Float64() * 0.95
	output := int(between(30, 1000))
	c.OutputTokens = output
	c.Latency = time.Duration(latency * (1 - perToken) * 1e9)
	c.PerToken = time.Duration(latency * perToken * 1e9 / float64(output))
	c.Jitter = rng.Float64() * 0.4
	if often(0.4) {
		c.OutputSigma = rng.Float64() * 0.5
	}
	c.RefusalLatency = time.Duration(between(1, 200) * 1e6)

	for n := 1 + rng.IntN(3); n > 0; n-- {
		switch rng.IntN(4) {
		case 0:
			c.Concurrency = int(between(1, 100))
		case 1:
			c.RPM = int(between(20, 6000))
		case 2:
			c.TPM = int(between(5e3, 2e6))
		case 3:
			if often(0.5) {
				c.ITPM = int(between(5e3, 1e6))
			} else {
				c.OTPM = int(between(5e3, 5e5))
			}
		}
	}
	if w.dialect == "gemini" {
		c.ITPM, c.TPM, c.OTPM = max(c.TPM, c.ITPM), 0, 0
	}
	c.Burst = time.Duration(between(1, 60) * 1e9)
	if c.TPM+c.ITPM+c.OTPM > 0 {
		c.Burst = time.Duration(between(10, 60) * 1e9)
	}
	if often(0.15) {
		c.FixedWindow, c.Burst = true, []time.Duration{10 * time.Second, time.Minute}[rng.IntN(2)]
	}
	if often(0.5) {
		c.Charge = limits.ChargeActual
	}
	if w.dialect != "openai-compatible" { // as it is
		p, _ := provider.Lookup(w.dialect)
		c.Charge = limits.ChargeActual
		if p.Charge == limits.ChargeDeclared {
			c.Charge = limits.ChargeDeclared
		}
	}

	c.NoHeaders = often(0.65)
	c.LateHeaders = often(0.15)
	c.VagueBodies = often(0.65)
	c.RetryAfter = sim.RetryAfterForm(rng.IntN(4))
	c.ChargeRefusals = often(0.08)
	if often(0.2) {
		c.Faults.Overloaded = rng.Float64() * 0.02
	}
	if often(0.15) {
		c.Faults.Throttled = rng.Float64() * 0.005
	}
	if often(0.15) {
		c.Faults.ServerError = rng.Float64() * 0.01
	}
	if often(0.1) {
		c.Faults.Reset = rng.Float64() * 0.01
	}
	if often(0.03) {
		c.Faults.Hang = rng.Float64() * 0.003
	}
	if often(0.06) {
		from := time.Duration(between(1, 90) * 1e9)
		c.Storms = []sim.Storm{{From: from, To: from + time.Duration(between(2, 25)*1e9), Silent: often(0.5)}}
	}
	if often(0.06) && c.RPM+c.TPM+c.ITPM+c.OTPM > 0 {
		c.Changes = []sim.Change{{At: time.Duration(between(5, 90) * 1e9), Factor: []float64{0.5, 2}[rng.IntN(2)]}}
	}

	w.search = find.Config{MinOutputTokens: int(between(20, 1000)), Seed: seed, Prompt: strings.Repeat("Say all of it. ", int(between(2, 300)))}
	if often(0.15) {
		w.search.MaxWorkers = []int{1, 2, 3, 7, 300}[rng.IntN(5)]
	}
	if often(0.1) {
		w.search.Budget.Tokens = int(between(5_000, 200_000))
	}
	w.input = (nonceChars + len(w.search.Prompt) + 3) / 4
	// A call that is larger than a whole limit, or than half a bucket, is another matter.
	need := 4 * float64(max(w.input, w.search.MinOutputTokens)) * max(1, 60/c.Burst.Seconds())
	for _, limit := range []*int{&c.TPM, &c.ITPM, &c.OTPM} {
		if *limit > 0 {
			*limit = max(*limit, int(need))
		}
	}
	return w
}

// means are the mean latency of a real call, in seconds, and the mean of its tokens out.
func (w *wild) means() (latency, output float64) {
	const steps = 400
	c := &w.sim
	for i := range steps {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/steps-1)
		out := min(float64(w.search.MinOutputTokens), math.Round(float64(c.OutputTokens)*math.Exp(c.OutputSigma*z)))
		output += max(1, out) / steps
	}
	mean := (c.Latency + time.Duration(output*float64(c.PerToken))).Seconds()
	return mean * math.Exp(c.Jitter*c.Jitter/2), output
}

// bounds are how many workers each limit allows, not cut down to whole ones.
func (w *wild) bounds(factor float64) map[limits.Dimension]float64 {
	latency, out := w.means()
	in, declared := float64(w.input), float64(w.search.MinOutputTokens)
	both, outputs := in+out, out
	if w.sim.Charge == limits.ChargeDeclared {
		both, outputs = max(in, declared), declared
	}
	all := map[limits.Dimension]float64{limits.AnyDimension: float64(cmp.Or(w.search.MaxWorkers, find.DefaultWorkers))}
	if w.sim.Concurrency > 0 {
		all[limits.Concurrency] = float64(w.sim.Concurrency)
	}
	for d, one := range map[limits.Dimension]rate{
		limits.Requests: {limit: float64(w.sim.RPM), charge: 1}, limits.Tokens: {limit: float64(w.sim.TPM), charge: both},
		limits.InputTokens: {limit: float64(w.sim.ITPM), charge: in}, limits.OutputTokens: {limit: float64(w.sim.OTPM), charge: outputs},
	} {
		if one.limit > 0 {
			all[d] = factor * one.limit / 60 * latency / one.charge
		}
	}
	return all
}

// truth is how many workers are safe, not cut down to whole ones, and what bounds them. Clear says that nothing else is near.
func (w *wild) truth(factor float64) (exact float64, bound limits.Dimension, clear bool) {
	all := w.bounds(factor)
	exact = math.Inf(1)
	for d, x := range all {
		if x < exact {
			exact, bound = x, d
		}
	}
	clear = true
	for d, x := range all {
		clear = clear && (d == bound || x > 1.4*exact+1)
	}
	return max(1, exact), bound, clear
}

func (w *wild) String() string {
	var b strings.Builder
	c := &w.sim
	latency, out := w.means()
	fmt.Fprintf(&b, "%s L %.2fs in %d out %.0f/%d;", w.dialect, latency, w.input, out, w.search.MinOutputTokens)
	add := func(name string, x any) {
		if s := fmt.Sprint(x); s != "0" && s != "false" && s != "[]" && s != "{0 0 0 0 0 0 0}" && s != "0s" {
			fmt.Fprintf(&b, " %s %s", name, s)
		}
	}
	add("cap", c.Concurrency)
	add("rpm", c.RPM)
	add("tpm", c.TPM)
	add("itpm", c.ITPM)
	add("otpm", c.OTPM)
	add("burst", c.Burst.Round(time.Second/10))
	add("window", c.FixedWindow)
	add("charge", c.Charge)
	add("chargeRefusals", c.ChargeRefusals)
	add("noHeaders", c.NoHeaders)
	add("late", c.LateHeaders)
	add("vague", c.VagueBodies)
	add("retryAfter", int(c.RetryAfter))
	fmt.Fprintf(&b, " jitter %.2f sigma %.2f refusal %v per-token %.2f", c.Jitter, c.OutputSigma, c.RefusalLatency.Round(time.Millisecond),
		1-c.Latency.Seconds()/(c.Latency.Seconds()+float64(c.OutputTokens)*c.PerToken.Seconds()))
	add("faults", c.Faults)
	add("storms", c.Storms)
	add("changes", c.Changes)
	add("max", w.search.MaxWorkers)
	add("budget", w.search.Budget.Tokens)
	return b.String()
}

// run searches. It runs in a bubble.
func (w *wild) run(t *testing.T) (*find.Result, *sim.Server, error) {
	server, err := sim.New(w.sim)
	if err != nil {
		t.Fatal(err)
	}
	c := w.search
	c.Provider, _ = provider.Lookup(w.dialect)
	c.Base = server.Transport()
	c.Target = provider.Target{BaseURL: "http://127.0.0.1", Key: "any", Model: "m"}
	switch w.dialect {
	case "openai-compatible", "openai":
		c.Target.BaseURL += "/v1"
	case "gemini":
		c.Target.BaseURL += "/v1beta"
	}
	if c.Budget.Tokens == 0 {
		c.Budget.Tokens = -1
	}
	if os.Getenv("SLUICE_LOG") != "" {
		began := time.Now()
		c.Log = func(line string) { fmt.Printf("%8.3f s  %s\n", time.Since(began).Seconds(), line) }
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	found, err := find.Auto(ctx, c)
	return found, server, err
}

// faults are what is wrong with a search's answer, worst first, each with a word that says of what kind it is.
func (w *wild) faults(found *find.Result, server *sim.Server, err error) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	stats := server.Stats()
	if spent := stats.InputTokens + stats.OutputTokens; w.search.Budget.Tokens > 0 && spent > w.search.Budget.Tokens {
		fault("SPENT %d tokens of %d", spent, w.search.Budget.Tokens)
	}
	if err == nil && found.Workers < found.Low || found.Workers > found.High {
		fault("INTERVAL %d is not within %d and %d", found.Workers, found.Low, found.High)
	}
	for d, f := range found.Findings.Limits {
		if !(f.Value >= 0) || !(f.Margin >= 0) || math.IsInf(f.Value, 0) || math.IsInf(f.Margin, 0) {
			fault("NUMBER %v is %v", d, f)
		}
	}
	if found.Took > 10*time.Minute {
		fault("LONG %v", found.Took.Round(time.Second))
	}
	if err != nil {
		if w.search.Budget.Tokens == 0 || !errors.Is(err, find.ErrTokenBudget) {
			fault("ERROR %v", err)
		}
		return faults
	}
	return append(append(faults, w.wrong(found)...), w.wrongLimits(found)...)
}

// wrong is what is wrong with the number.
func (w *wild) wrong(found *find.Result) (faults []string) {
	exact, bound, clear := w.truth(1)
	low, high := exact, exact
	for _, change := range w.sim.Changes {
		then, _, _ := w.truth(change.Factor)
		low, high = min(low, then), max(high, then)
		clear = false
	}
	if w.search.MaxWorkers > 0 && found.Workers > w.search.MaxWorkers {
		faults = append(faults, "ABOVE the workers asked for")
	}
	n := float64(found.Workers)
	latency, _ := w.means()
	luck := found.Findings.Latency.Mean.Seconds() / latency // of those that were measured
	certified := found.Bound == find.BoundCertified && found.Hint != ""
	soaked := found.Bound == find.BoundSoak
	switch {
	case n > math.Floor(high+1e-9) && n > 1.05*high:
		word := "ABOVE"
		if bound == limits.OutputTokens && found.Findings.Limits[bound].Source == "" { // which nothing tells, and no probe tests
			word = "OUTPUT-ABOVE"
		}
		if n <= math.Floor(high*max(luck, 1)+1e-9) {
			word = "LUCK-ABOVE"
		}
		faults = append(faults, fmt.Sprintf("%s %d for %.2f", word, found.Workers, high))
	case n < 0.9*low && n < math.Floor(low)-1 && !certified:
		word := "BELOW"
		switch {
		case soaked && n < low/2:
			word = "SOAK-BELOW-HALF"
		case soaked:
			word = "SOAK-BELOW"
		case found.Binding.Margin > 0.08 || n >= 0.9*low*luck*(1-found.Binding.Margin)-1:
			word = "LUCK-BELOW"
		}
		faults = append(faults, fmt.Sprintf("%s %d for %.2f", word, found.Workers, low))
	}
	label := map[find.Bound][]limits.Dimension{
		find.BoundConcurrency: {limits.Concurrency}, find.BoundRequests: {limits.Requests}, find.BoundWorkers: {limits.AnyDimension},
		find.BoundTokens: {limits.Tokens, limits.InputTokens, limits.OutputTokens},
	}[found.Bound]
	if clear && exact >= 2 && !certified && !soaked && !slices.Contains(label, bound) {
		faults = append(faults, fmt.Sprintf("LABEL %s for %v", found.Bound, bound))
	}
	return faults
}

// wrongLimits are limits that are said to be measured, and are not so.
func (w *wild) wrongLimits(found *find.Result) (faults []string) {
	if len(w.sim.Changes) > 0 {
		return nil
	}
	if s := found.Findings.Limits[limits.Concurrency]; s.Source == limits.SourceMeasured && !found.Findings.Queue && int(s.Value) != w.sim.Concurrency {
		faults = append(faults, fmt.Sprintf("CAP %.0f for %d", s.Value, w.sim.Concurrency))
	} else if found.Findings.Queue {
		faults = append(faults, fmt.Sprintf("QUEUE %.0f", s.Value))
	}
	for d, limit := range map[limits.Dimension]int{
		limits.Requests: w.sim.RPM, limits.Tokens: w.sim.TPM, limits.InputTokens: w.sim.ITPM, limits.OutputTokens: w.sim.OTPM,
	} {
		f := found.Findings.Limits[d]
		if f.Source != limits.SourceMeasured && f.Source != limits.SourceHeader {
			continue
		}
		off := f.Value/float64(limit) - 1
		if limit > 0 && math.Abs(off) > 0.05 {
			faults = append(faults, fmt.Sprintf("LIMIT %v %s %+.0f %%", d, f.Source, 100*off))
		} else if limit == 0 && !(d == limits.Tokens && w.sim.ITPM+w.sim.OTPM > 0) {
			faults = append(faults, fmt.Sprintf("PHANTOM %v %.0f", d, f.Value))
		}
	}
	return faults
}

// TestWildProvidersAreNotOverrated searches providers that nobody chose. It logs and counts all faults; the worst kinds fail the
// test.
func TestWildProvidersAreNotOverrated(t *testing.T) {
	kinds := map[string]int{}
	for seed := range suite.Size[uint64](5, 60) {
		w := drawWild(seed + 1)
		synctest.Test(t, func(t *testing.T) {
			found, server, err := w.run(t)
			for _, fault := range w.faults(found, server, err) {
				kind, _, _ := strings.Cut(fault, " ")
				kinds[kind]++
				report := t.Logf
				if slices.Contains([]string{"ABOVE", "SPENT", "INTERVAL", "NUMBER"}, kind) {
					report = t.Errorf
				}
				exact, bound, _ := w.truth(1)
				report("seed %d: %s: truth %.2f %v, found %d after %v: %v: %s", seed+1, fault, exact, bound, found.Workers, found.Took, w, belief(found))
			}
		})
	}
	t.Log(kinds)
}
