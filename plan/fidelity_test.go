package plan_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// job is what a run and a simulation of it are both given.
type job struct {
	name     string
	scenario plan.Scenario
	items    int
	body     func(i int) []byte
}

func jobs() []job {
	const s = time.Second
	a := sim.Config{RPM: 900, Burst: 15 * s, Concurrency: 30, Latency: 200 * time.Millisecond}
	with := func(c sim.Config, change func(*sim.Config)) sim.Config {
		change(&c)
		return c
	}
	told := sluice.Limits{RPM: 900, Concurrency: 30}
	return []job{
		{name: "A requests bound", scenario: plan.Scenario{Provider: a, Told: told}, items: 400, body: short},
		{name: "B tokens bound", scenario: plan.Scenario{Provider: sim.Config{TPM: 90000, Burst: 10 * s, Concurrency: 60},
			Told: sluice.Limits{TPM: 90000, Concurrency: 60}}, items: 200, body: lognormal},
		{name: "D silent queue", scenario: plan.Scenario{Provider: sim.Config{Queue: 6, Latency: 400 * time.Millisecond, NoHeaders: true}},
			items: 200, body: short},
		{name: "nothing told", scenario: plan.Scenario{Provider: a}, items: 400, body: short},
		{name: "storm", scenario: plan.Scenario{Provider: with(a, func(c *sim.Config) {
			c.Storms = []sim.Storm{{From: 3 * s, To: 7 * s, Silent: true}}
		}), Told: told}, items: 400, body: short},
		{name: "faults", scenario: plan.Scenario{Provider: with(a, func(c *sim.Config) {
			c.Faults = sim.Faults{ServerError: .05, Reset: .02, Cut: .02}
		}), Told: told}, items: 400, body: short},
		// With jitter: without it calls end and begin at one instant, whose order a bubble does not fix, and a call that comes
		// before another has left is refused below the cap.
		{name: "slots, nothing told", scenario: plan.Scenario{Provider: sim.Config{Concurrency: 9, Latency: 400 * time.Millisecond,
			Jitter: 0.05, NoHeaders: true, VagueBodies: true, RetryAfter: sim.RetryAfterNone}}, items: 400, body: short},
		{name: "round trip", scenario: plan.Scenario{Provider: a, Told: told, RoundTrip: 100 * time.Millisecond}, items: 400, body: short},
		{name: "anthropic", scenario: plan.Scenario{Dialect: provider.Anthropic, Told: sluice.Limits{OTPM: 60000, Concurrency: 40},
			Provider: sim.Config{OTPM: 60000, Burst: 10 * s, Concurrency: 40, Charge: limits.ChargeActual, Latency: 300 * time.Millisecond,
				PerToken: 2 * time.Millisecond, OutputTokens: 250, OutputSigma: .5}}, items: 300, body: lognormal},
		{name: "anthropic streamed", scenario: plan.Scenario{Dialect: provider.Anthropic, Stream: true,
			Told: sluice.Limits{ITPM: 30000, OTPM: 60000, Concurrency: 40},
			Provider: sim.Config{ITPM: 30000, OTPM: 60000, Burst: 10 * s, Concurrency: 40, Charge: limits.ChargeActual,
				Latency: 300 * time.Millisecond, PerToken: 2 * time.Millisecond, OutputTokens: 250, OutputSigma: .5}}, items: 300,
			body: streamed},
		{name: "long answers streamed", scenario: plan.Scenario{Stream: true, Told: sluice.Limits{RPM: 900, Concurrency: 400},
			Provider: with(a, func(c *sim.Config) {
				c.Concurrency, c.Latency, c.PerToken, c.OutputTokens = 400, s, 19*s/16, 16
				c.Storms = []sim.Storm{{From: 5 * s, To: 5*s + 70*time.Millisecond}}
			})}, items: 400, body: streamed},
		// More would now and then be five in a row, in one order of their ends and not in another: the breaker's 60 s.
		{name: "streams that are cut", scenario: plan.Scenario{Stream: true, Provider: with(a, func(c *sim.Config) {
			c.Concurrency, c.PerToken, c.OutputTokens, c.Faults = 5, s/16, 16, sim.Faults{Cut: 0.08}
		}), Told: sluice.Limits{RPM: 900, Concurrency: 5}}, items: 300, body: streamed},
	}
}

func short(i int) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":16}`, i)
}

func streamed(i int) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":600,"stream":true}`, i)
}

// lognormal declares lengths with a median of 250 tokens and a sigma of 0.7.
func lognormal(i int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(i)))
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":%d}`, i,
		int(250*math.Exp(0.7*r.NormFloat64()))+1)
}

func (j job) endpoint() (provider.Provider, provider.Endpoint) {
	if j.scenario.Dialect == provider.Anthropic {
		p, _ := provider.Lookup("anthropic")
		return p, provider.Messages
	}
	p, _ := provider.Lookup("openai")
	return p, provider.ChatCompletions
}

// run is the job done by a Scheduler and a Runner, as sluice run does it.
func (j job) run(tb testing.TB, srv *sim.Server, rt http.RoundTripper, base string) (took time.Duration, throttles int, longest time.Duration) {
	p, endpoint := j.endpoint()
	if endpoint == provider.ChatCompletions {
		base += "/v1"
	}
	s, err := sluice.New(sluice.Config{Limits: j.scenario.Told, Account: j.scenario.Told, Charge: p.Charge, CountsCached: p.CountsCached})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	attempt := func(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
		body := item.Data.([]byte)
		req, err := p.NewRequest(ctx, provider.Target{BaseURL: base, Key: "k", Endpoint: endpoint, Model: "m"}, body)
		if err != nil {
			return work.Result{}, sluice.Outcome{Kind: sluice.Internal, Err: err}
		}
		_, o := provider.Exchange(ctx, delayed{rt, j.scenario.RoundTrip}, permit, req,
			provider.ExchangeConfig{Provider: p, Endpoint: endpoint, Stream: j.scenario.Stream, Cost: item.Cost})
		return work.Result{}, o
	}
	var mu sync.Mutex
	feed := func(context.Context) iter.Seq2[work.Item, error] {
		return func(yield func(work.Item, error) bool) {
			for i := range j.items {
				body := j.body(i)
				est, err := provider.Estimate(endpoint, body)
				if !yield(work.Item{ID: fmt.Sprint(i), Cost: est.Cost, Data: body}, err) || err != nil {
					return
				}
			}
		}
	}
	handler := work.NewCalls(work.CallsConfig{Scheduler: s, Attempt: attempt})
	runner, err := work.New(work.Config{Handler: handler, Feed: feed, OnResult: func(r *work.Result) {
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, r.Tally.Queued+r.Tally.Cooldown)
	}})
	if err != nil {
		tb.Fatal(err)
	}
	start := time.Now()
	if _, err := runner.Run(context.Background()); err != nil {
		tb.Error(err)
	}
	return time.Since(start), srv.Stats().Throttled, longest
}

// simulate is the same job foreseen.
func (j job) simulate(tb testing.TB) plan.Forecast {
	_, endpoint := j.endpoint()
	var bodies [][]byte
	for i := range j.items {
		bodies = append(bodies, j.body(i))
	}
	s := j.scenario
	for _, r := range s.Provider.Workload(endpoint.String(), bodies...) {
		s.Calls = append(s.Calls, plan.Call{Input: r.Input, MaxTokens: r.MaxTokens, Output: r.Output})
	}
	f, err := plan.Simulate(context.Background(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// delayed adds half a round trip on either side.
type delayed struct {
	http.RoundTripper
	rtt time.Duration
}

func (d delayed) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(d.rtt / 2)
	resp, err := d.RoundTripper.RoundTrip(r)
	time.Sleep(d.rtt / 2)
	return resp, err
}

func TestSimulationForeseesARunWithinFivePercent(t *testing.T) {
	for _, j := range jobs() {
		t.Run(j.name, func(t *testing.T) {
			if slices.Contains([]string{"anthropic streamed", "long answers streamed", "storm"}, j.name) {
				suite.FullOnly(t)
			}
			f := j.simulate(t)
			var took, longest time.Duration
			var throttles int
			synctest.Test(t, func(t *testing.T) {
				srv, err := sim.New(j.scenario.Provider)
				if err != nil {
					t.Fatal(err)
				}
				took, throttles, longest = j.run(t, srv, srv.Transport(), "http://sim.invalid")
			})
			off := f.Time.Seconds()/took.Seconds() - 1
			t.Logf("foreseen %v, %d throttles, waits up to %v; run %v, %d and %v: %+.2f %%", f.Time, f.Throttled, f.Wait.Max, took, throttles,
				longest, 100*off)
			most, throttled := 0.05, 2+throttles/5
			if j.name == "slots, nothing told" { // when an unknown concurrency is found depends on the order of requests of one instant
				most, throttled = 0.4, 15
			}
			if math.Abs(off) > most {
				t.Errorf("%+.1f %% off", 100*off)
			}
			if d := f.Throttled - throttles; d > throttled || -d > throttled {
				t.Errorf("%d throttles foreseen, %d met", f.Throttled, throttles)
			}
			// How many workers a run starts in its first instant is a matter of luck, and with it how long its queue is.
			if d := (f.Wait.Max.Duration - longest).Abs(); d > 2*time.Second+longest/5 {
				t.Errorf("waits of %v foreseen, %v met", f.Wait.Max, longest)
			}
			if f.Completed+f.Failed != j.items || f.Stopped != "" {
				t.Errorf("%d answered, %d failed of %d; stopped: %q", f.Completed, f.Failed, j.items, f.Stopped)
			}
		})
	}
}
