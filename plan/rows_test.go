package plan_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// rowCalls are the calls that the published rows are planned for.
func rowCalls() []plan.Workload {
	var out []plan.Workload
	for _, latency := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		for _, w := range []plan.Workload{
			{InputTokens: 200, OutputTokens: 100}, {InputTokens: 200, OutputTokens: 100, MaxTokens: 1000},
			{InputTokens: 1500, OutputTokens: 500}, {InputTokens: 8000, OutputTokens: 1000, MaxTokens: 2000},
		} {
			w.Latency = latency
			out = append(out, w)
		}
	}
	return out
}

// usualCalls are those of the line that is printed for a row.
func usualCalls() plan.Workload {
	return plan.Workload{Latency: 2 * time.Second, InputTokens: 1500, OutputTokens: 500}
}

// published is one row of the registry.
type published struct {
	tier provider.Tier
	by   provider.Provider
}

func (r published) String() string {
	models := "all models"
	for _, m := range r.tier.Models {
		if !strings.HasPrefix(m, "!") {
			models = m
			break
		}
	}
	return fmt.Sprintf("%s %s %s", r.tier.Provider, r.tier.Tier, models)
}

// publishedRows are all of them, each with the usual calls, and with one kind in three of those that differ by what bounds
// them: another third at the next row, so that every kind meets every sort of limits in a fraction of the time. Of rows
// with the same limits, counted and told of in the same way, all but the first come with the usual calls alone. The fast suite
// visits one row in seven.
func publishedRows(t *testing.T, visit func(r published, calls []plan.Workload)) {
	seen := make(map[string]bool)
	turn, row := 0, 0
	for _, by := range provider.Published().All() {
		tiers := provider.Published().Tiers(by.Name)
		if by.Name == "openai-compatible" { // what nobody in the registry has yet: two limits of a day, near each other
			tiers = append(tiers, provider.Tier{Provider: by.Name, Tier: "two of a day",
				Limits: sluice.Limits{RPM: 60, RPD: 12_000, TPD: 20_000_000}})
		}
		for _, tier := range tiers {
			r := published{tier, by}
			var calls, others []plan.Workload
			for _, w := range rowCalls() {
				p, ok := r.plan(t, w, 0)
				key := fmt.Sprint(tier.Limits, by.Charge, by.Dialect, p.Bounds, w.Latency)
				if !ok || seen[key] && !usual(w) {
					continue
				}
				seen[key] = true
				if turn++; usual(w) || turn%3 == 0 {
					calls = append(calls, w)
				} else {
					others = append(others, w)
				}
			}
			if len(calls) == 0 { // the usual ones do not fit
				calls = others[:min(1, len(others))]
			}
			if row++; suite.Full || row%7 == 1 {
				visit(r, calls)
			}
		}
	}
}

func usual(w plan.Workload) bool { return fmt.Sprint(w) == fmt.Sprint(usualCalls()) }

// plan is the row's for a workload, with what buckets hold told or not. ok is false where no call fits, or where an answer
// would take too long to come by: 200,000 calls in 10 minutes.
func (r published) plan(t *testing.T, w plan.Workload, burst time.Duration) (p plan.Plan, ok bool) {
	tier := r.tier
	tier.Limits.Burst = burst
	p, err := plan.ForTier(tier, r.by, w, plan.Options{})
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	for _, b := range p.Bounds {
		if b.Charged > float64(b.Limit) {
			return p, false
		}
	}
	return p, p.Throughput < 20_000
}

// scenario is calls of that kind without end, to a provider with the row's limits whose buckets hold burst. Jitter is a
// lognormal factor of mean 1 on how long they take.
func (r published) scenario(w plan.Workload, burst time.Duration, jitter float64) plan.Scenario {
	l := r.tier.Limits
	l.Burst = burst
	s := plan.Scenario{
		Provider: plan.SimulatorConfig(l, r.by.Charge, time.Duration(float64(w.Latency)*math.Exp(-jitter*jitter/2))),
		Dialect:  r.by.Dialect,
		Calls:    []plan.Call{{Input: w.InputTokens, MaxTokens: w.MaxTokens, Output: w.OutputTokens}},
		Requests: -1, Horizon: 10 * time.Minute,
	}
	s.Provider.Jitter = jitter
	return s
}

// Where a row has a number of workers that is safe, so many clients that know no rate are throttled never: not with
// buckets of a minute, which is what safe means where nobody says more; not with buckets that hold what the plan asks for;
// and not with buckets of a second, where the plan was told of them.
func TestThePrintedWorkersOfEveryRowAreThrottledNever(t *testing.T) {
	runs := 0
	publishedRows(t, func(r published, calls []plan.Workload) {
		for _, w := range calls {
			for _, c := range []struct {
				told, held time.Duration // 0 held is what the plan asks for
				jitter     float64
			}{{0, time.Minute, 0.3}, {0, 0, 0}, {0, 0, 0.3}, {time.Second, time.Second, 0}, {time.Second, time.Second, 0.3}} {
				p, _ := r.plan(t, w, c.told)
				if !p.WorkersSafe {
					continue
				}
				held := max(c.held, time.Millisecond)
				if c.held == 0 {
					held = max(held, p.WorkersBurst.Duration)
				}
				s := r.scenario(w, held, c.jitter)
				if s.Unpaced = p.Workers; c.held == time.Minute && p.Offered(1, p.Bounds[0]) <= p.Safety*float64(p.Bounds[0].Limit) {
					s.Provider.Latency = s.Provider.Latency * 17 / 20 // calls end 15 % sooner than was planned: the margin is for them
				}
				f := simulate(t, s)
				if runs++; f.Throttled > 0 || f.Failed > 0 || f.Completed == 0 {
					t.Errorf("%s, %+v, told %v, jitter %v: %d workers on buckets of %v: %d of %d throttled, by limit %v", r, w, c.told,
						c.jitter, p.Workers, held, f.Throttled, f.Tries, f.Refused)
				}
			}
		}
	})
	if runs < suite.Size(20, 200) {
		t.Errorf("only %d runs", runs)
	}
}

// headersTellAll reports whether the headers of an answer tell all limits of the row. Gemini has none, and OpenAI's know neither
// input and output tokens apart nor a day beside a minute. No provider here tells of a day's tokens.
func (r published) headersTellAll() bool {
	l := r.tier.Limits
	switch r.by.Dialect {
	case provider.OpenAI:
		return l.ITPM+l.OTPM+l.TPD == 0 && (l.RPD == 0 || l.RPM == 0)
	case provider.Anthropic:
		return l.TPD == 0 && (l.RPD == 0 || l.RPM == 0)
	}
	return false
}

// slotsRun is how the printed slots of a row are put to the test.
type slotsRun struct {
	held    time.Duration // by the provider's buckets
	jitter  float64
	learned bool // only the slots are told; headers tell the rest
}

// measured is what came of it.
type measured struct {
	share     float64 // of the printed throughput, after the start
	throttles int     // in all,
	late      int     // and after the start
}

// With the printed slots, a paced client gets the printed throughput, less the 1 to 3 % that its pace leaves, and stays
// inside every limit.
func TestThePrintedSlotsOfEveryRowReachThePrintedThroughput(t *testing.T) {
	publishedRows(t, func(r published, calls []plan.Workload) {
		worst, debt := measured{share: math.Inf(1)}, measured{share: math.Inf(1)}
		for _, w := range calls {
			p, _ := r.plan(t, w, 0)
			for _, c := range []slotsRun{{time.Minute, 0.3, false}, {time.Second, 0.3, false}, {time.Minute, 0, true}, {time.Second, 0, true}} {
				if c.learned && (!r.headersTellAll() || w.Latency < time.Second) {
					continue
				}
				m := r.slots(t, p, w, c)
				if c.learned {
					continue
				}
				of := &worst
				if r.indebted(c) {
					of = &debt
				}
				*of = measured{share: min(of.share, m.share), throttles: max(of.throttles, m.throttles)}
			}
		}
		if len(calls) == 0 {
			t.Errorf("%s was not put to the test", r)
		}
		usual, _ := r.plan(t, usualCalls(), 0)
		t.Log(r.line(usual, worst, debt))
	})
}

// indebted reports whether output that counts when it is there can overdraw buckets as small as these: two answers that
// end together leave a debt, whoever sent them, and between two that do not the bucket is full and loses refill.
func (r published) indebted(c slotsRun) bool {
	return c.held == time.Second && r.by.Charge == limits.ChargeActual && r.tier.Limits.OTPM+r.tier.Limits.TPM > 0
}

// line is what is printed for a row: figures of calls of 2 s, 1,500 tokens in and 500 out, and the worst that was measured
// for all kinds of calls.
func (r published) line(p plan.Plan, worst, debt measured) string {
	workers := fmt.Sprintf("%4d workers on buckets of %.3gs", p.Workers, p.WorkersBurst.Seconds())
	if !p.WorkersSafe {
		workers = fmt.Sprintf("   1 worker NOT SAFE by %v", p.Exceeded)
	}
	line := fmt.Sprintf("%-52s %-38s %4d slots %8.3g a minute: %5.1f %%, %d throttles", r, workers, p.Slots, p.Throughput,
		100*worst.share, worst.throttles)
	if !math.IsInf(debt.share, 1) {
		line += fmt.Sprintf("; buckets of a second in debt: %.1f %%, %d throttles", 100*debt.share, debt.throttles)
	}
	return line
}

// slots runs the gate with the printed slots. Its start is left out of the throughput: until long calls have been answered
// once and 30 of them have shown how long they are, and where a day's budget binds, until what it held at first is gone.
func (r published) slots(t *testing.T, p plan.Plan, w plan.Workload, c slotsRun) measured {
	t.Helper()
	s := r.scenario(w, c.held, c.jitter)
	s.Workers = max(1024, p.Slots+16)
	if s.Told.Concurrency = p.Slots; !c.learned {
		s.Told = r.tier.Limits
		s.Told.Concurrency = p.Slots
	}
	minutes := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
	start := time.Minute + w.Latency + minutes(30/p.Throughput)
	held := p.Throughput * c.held.Minutes()
	switch b := p.Bounds[0]; b.Dimension {
	case limits.Concurrency:
		held = 0.05*float64(b.Limit) + 0.05*p.Throughput*10 // calls end as they like
	case limits.RequestsPerDay, limits.TokensPerDay:
		held = float64(b.Limit) / b.Charged
		faster := float64(p.Slots) / p.Workload.Latency.Minutes()
		for _, other := range p.Bounds { // another day's budget lasts longer than the one that binds
			if other.Dimension != limits.RequestsPerDay && other.Dimension != limits.TokensPerDay {
				faster = min(faster, other.PerMinute)
			}
		}
		start += minutes(1.3 * held / (faster - p.Throughput))
	}
	s.Horizon = start + max(10*time.Minute, minutes(100/p.Throughput))
	f := simulate(t, s)
	m := measured{throttles: f.Throttled}
	answered, first := 0, int(start/f.Width)+1
	for _, step := range f.Steps[first:] {
		answered += step.Completed
		m.late += step.Throttled
	}
	m.share = float64(answered) / (f.Time.Duration - time.Duration(first)*f.Width).Minutes() / p.Throughput

	name := fmt.Sprintf("%s, %+v, %+v: %d slots, %.3g a minute", r, w, c, p.Slots, p.Throughput)
	least, most := 0.75, 25+f.Tries/20
	switch {
	case r.indebted(c):
		least, most = 0.2, f.Tries
	case !c.learned && r.tier.Limits.TPM > 0: // a guarantee counts the reserved or the used tokens, and the provider may charge fewer
		least = 0.4
	case c.learned && c.held == time.Second:
		most = p.Slots + 25 // all go at once before the first answer tells better
		if m.late > 25 {
			t.Errorf("%s: %d throttles after the start", name, m.late)
		}
	}
	if m.share < least || m.throttles > most || f.Failed > 0 {
		t.Errorf("%s: %.3f of it, %d throttles by %v, %d failed", name, m.share, m.throttles, f.Refused, f.Failed)
	}
	if whole := p.Throughput*f.Time.Minutes() + held + 1; float64(f.Completed) > whole {
		t.Errorf("%s: %d answered in %v, where %.0f are the most", name, f.Completed, f.Time, whole)
	}
	if f.Peak > p.Slots {
		t.Errorf("%s: %d in flight", name, f.Peak)
	}
	r.inside(t, name, f, p, c.held)
	return m
}

// inside checks that no limit was exceeded, as a whole and in any minute.
func (r published) inside(t *testing.T, name string, f plan.Forecast, p plan.Plan, held time.Duration) {
	t.Helper()
	for _, q := range f.Quotas {
		if q.Share > 1.01 {
			t.Errorf("%s: %.4f of %v was used", name, q.Share, q.Dimension)
		}
		if q.Dimension == limits.RequestsPerDay {
			continue
		}
		// A call that is larger than a bucket leaves a debt, and so does output that nobody knew of.
		one := 1.0
		for _, b := range p.Bounds {
			if b.Dimension == q.Dimension {
				one = b.Charged
			}
		}
		if most := float64(q.Limit)*(1+held.Minutes()) + one; q.Busiest > most {
			t.Errorf("%s: %.0f of %v %d in a minute", name, q.Busiest, q.Dimension, q.Limit)
		}
	}
}
