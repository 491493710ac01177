package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// scenario is a provider, what a client is told of it, and what it has to send.
type scenario struct {
	name string
	sim  sim.Config
	told sluice.Limits

	items   int
	body    func(i int) []byte // nil: a short question
	tenants int
	timeout time.Duration // per attempt; 0: a minute
	rtt     time.Duration // added to every exchange

	dialect     string // "anthropic"; "" is openai
	virtualOnly bool   // takes too long by the clock

	most      float64 // of the optimum, in virtual time; 0: it is only reported
	throttles int
}

// requestsBound is the provider of scenario A and of most others.
func requestsBound(change func(*sim.Config)) sim.Config {
	c := sim.Config{RPM: 900, Burst: 15 * time.Second, Concurrency: 30, Latency: 200 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	return c
}

func halfFrom8To16(c *sim.Config) {
	c.Changes = []sim.Change{{At: 8 * time.Second, Factor: .5}, {At: 16 * time.Second, Factor: 1}}
}

func storm(status int, silent bool, from, to time.Duration) []sim.Storm {
	return []sim.Storm{{From: from, To: to, Status: status, Silent: silent}}
}

func scenarios() []scenario {
	told := sluice.Limits{RPM: 900, Concurrency: 30}
	manySlots := sluice.Limits{RPM: 900, Concurrency: 400} // with 30, nothing would be sent at second 5
	const s = time.Second
	return []scenario{ // the fast suite plays the first dozen, which differ in kind
		{name: "A requests bound", sim: requestsBound(nil), told: told, items: 400, most: 1.02, throttles: 2},
		{name: "B tokens bound", sim: sim.Config{TPM: 90000, Burst: 10 * s, Concurrency: 60}, told: sluice.Limits{TPM: 90000, Concurrency: 60},
			items: 200, body: lognormal, most: 1.02, throttles: 2},
		{name: "C storm with Retry-After", sim: requestsBound(func(c *sim.Config) { c.Storms = storm(429, false, 3*s, 7*s) }), told: told,
			items: 400, most: 1.05, throttles: 40},
		{name: "C storm without", sim: requestsBound(func(c *sim.Config) { c.Storms = storm(429, true, 3*s, 7*s) }), told: told,
			items: 400, most: 1.05, throttles: 60},
		{name: "D silent queue", sim: sim.Config{Queue: 6, Latency: 400 * time.Millisecond, NoHeaders: true}, items: 200, most: 1.04},
		{name: "E slots, nothing told", sim: sim.Config{Concurrency: 9, Latency: 400 * time.Millisecond, NoHeaders: true, VagueBodies: true,
			RetryAfter: sim.RetryAfterNone}, items: 400, most: 1.25, throttles: 10},
		{name: "F faults", sim: requestsBound(func(c *sim.Config) {
			c.Faults = sim.Faults{ServerError: .05, Reset: .02, Cut: .02, BadRequest: .01}
		}), told: told, items: 400, most: 1.04, throttles: 2},
		{name: "G limits only in headers", sim: requestsBound(nil), items: 400, most: 1.03, throttles: 3},
		{name: "L long answers", sim: requestsBound(func(c *sim.Config) {
			c.Concurrency, c.Latency, c.Storms = 400, 20*s, storm(429, false, 5*s, 5*s+70*time.Millisecond)
		}), told: manySlots, items: 400, timeout: 5 * time.Minute, most: 1.05, throttles: 3, virtualOnly: true},
		{name: "H limit halves and doubles", sim: requestsBound(halfFrom8To16), told: told, items: 600, most: 1.10, throttles: 6},
		{name: "J anthropic streamed", dialect: "anthropic", body: streamed, items: 300, told: sluice.Limits{ITPM: 30000, OTPM: 60000, Concurrency: 40},
			sim: sim.Config{ITPM: 30000, OTPM: 60000, Burst: 10 * s, Concurrency: 40, Charge: limits.ChargeActual, Latency: 300 * time.Millisecond,
				PerToken: 2 * time.Millisecond, OutputTokens: 250, OutputSigma: .5}},
		{name: "8 tenants", sim: requestsBound(nil), told: told, items: 400, tenants: 8, most: 1.02, throttles: 2},

		{name: "L long answers streamed", sim: requestsBound(func(c *sim.Config) {
			c.Concurrency, c.Latency, c.PerToken, c.OutputTokens = 400, s, 19*s/16, 16
			c.Storms = storm(429, false, 5*s, 5*s+70*time.Millisecond)
		}), told: manySlots, items: 400, body: streamed, timeout: 5 * time.Minute, most: 1.05, throttles: 3, virtualOnly: true},
		{name: "H limit halves and doubles, in headers", sim: requestsBound(halfFrom8To16), items: 600, most: 1.10, throttles: 6},
		{name: "K 0.5 % hangs", sim: requestsBound(func(c *sim.Config) { c.Faults.Hang = .005 }), told: told, items: 400, timeout: 2 * s, most: 1.05,
			throttles: 2},

		{name: "bursts of 0.1 s", sim: requestsBound(func(c *sim.Config) { c.Burst = s / 10 }), told: told, items: 400, most: 1.04, throttles: 4},
		{name: "bursts of 60 s", sim: requestsBound(func(c *sim.Config) { c.Burst = 60 * s }), items: 1200,
			told: sluice.Limits{RPM: 900, Concurrency: 30, Burst: 60 * s}, most: 1.02, throttles: 2},
		{name: "Retry-After in ms", sim: requestsBound(func(c *sim.Config) {
			c.RetryAfter, c.Storms = sim.RetryAfterMillis, storm(429, false, 3*s, 7*s)
		}), told: told, items: 400, most: 1.05, throttles: 40},
		{name: "Retry-After as a date", sim: requestsBound(func(c *sim.Config) {
			c.RetryAfter, c.Storms = sim.RetryAfterDate, storm(429, false, 3*s, 7*s)
		}), told: told, items: 400, most: 1.12, throttles: 40},
		{name: "529 storm", sim: requestsBound(func(c *sim.Config) { c.Storms = storm(529, true, 3*s, 7*s) }), told: told, items: 400,
			most: 1.08, throttles: 60},
		{name: "limit halves", sim: requestsBound(func(c *sim.Config) { c.Changes = []sim.Change{{At: 5 * s, Factor: .5}} }), told: told,
			items: 400, most: 1.04, throttles: 3},
		{name: "limit doubles", sim: requestsBound(func(c *sim.Config) { c.Changes = []sim.Change{{At: 5 * s, Factor: 2}} }), items: 400,
			most: 1.05, throttles: 3},
		{name: "daily limit in headers", sim: requestsBound(func(c *sim.Config) { c.DailyHeaders, c.RPD = true, 14400 }), told: told,
			items: 400, most: 1.03, throttles: 3},
		{name: "refusals are charged", sim: requestsBound(func(c *sim.Config) { c.ChargeRefusals, c.Burst = true, s }), told: told, items: 400,
			most: 1.04, throttles: 4},
		// Here the last answer may take seconds, in whatever order the calls come to be sent: hence the wide bound.
		{name: "jitter 0.8", sim: requestsBound(func(c *sim.Config) { c.Jitter = .8 }), told: told, items: 400, most: 1.3, throttles: 2},
		{name: "jitter 0.8, nothing told", sim: requestsBound(func(c *sim.Config) { c.Jitter = .8 }), items: 400, most: 1.3, throttles: 6},
		{name: "anthropic whole", dialect: "anthropic", body: lognormal, items: 300, told: sluice.Limits{OTPM: 60000, Concurrency: 40},
			sim: sim.Config{OTPM: 60000, Burst: 10 * s, Concurrency: 40, Charge: limits.ChargeActual, Latency: 300 * time.Millisecond,
				PerToken: 2 * time.Millisecond, OutputTokens: 250, OutputSigma: .5}},
		{name: "1 % hangs", sim: requestsBound(func(c *sim.Config) { c.Faults.Hang = .01 }), told: told, items: 400, timeout: 2 * s},
		{name: "round trip + 100 ms", sim: requestsBound(nil), told: told, items: 400, rtt: 100 * time.Millisecond, most: 1.04, throttles: 4},
		{name: "headers counted at the end", sim: requestsBound(func(c *sim.Config) { c.LateHeaders = true }), told: told, items: 400,
			most: 1.04, throttles: 4},
		{name: "fixed windows", sim: requestsBound(func(c *sim.Config) { c.FixedWindow = true }), told: told, items: 400},
		{name: "bare refusals of a rate", sim: requestsBound(func(c *sim.Config) {
			c.NoHeaders, c.VagueBodies, c.RetryAfter = true, true, sim.RetryAfterNone
		}), items: 400},
		{name: "no headers", sim: requestsBound(func(c *sim.Config) { c.NoHeaders = true }), told: told, items: 400,
			most: 1.02, throttles: 2},
	}
}

func short(i int) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":16}`, i)
}

func streamed(i int) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d %s"}],"max_tokens":600,"stream":true}`, i,
		strings.Repeat("word ", 30))
}

// lognormal declares lengths with a median of 250 tokens and a sigma of 0.7.
func lognormal(i int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(i)))
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":%d}`, i,
		int(250*math.Exp(0.7*r.NormFloat64()))+1)
}

// figures is what became of a scenario.
type figures struct {
	elapsed, optimum time.Duration
	throttles        int
	lost, wrong      int
	doubled          int // answers paid for that were paid for before
}

func (f figures) ratio() float64 { return f.elapsed.Seconds() / f.optimum.Seconds() }

func (f figures) String() string {
	return fmt.Sprintf("%.3f of the optimum (%.2f s of %.2f s), %d throttles, %d lost, %d wrong, %d doubled", f.ratio(),
		f.elapsed.Seconds(), f.optimum.Seconds(), f.throttles, f.lost, f.wrong, f.doubled)
}

// play sends a scenario's items through a Scheduler to the server behind rt.
func (sc scenario) play(tb testing.TB, srv *sim.Server, rt http.RoundTripper, url string) figures {
	p, _ := provider.Lookup("openai")
	endpoint, base := provider.ChatCompletions, url+"/v1"
	if sc.dialect != "" {
		p, _ = provider.Lookup(sc.dialect)
		endpoint, base = provider.Messages, url
	}
	s, err := sluice.New(sluice.Config{Limits: sc.told, Charge: p.Charge, CountsCached: p.CountsCached})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	if sc.rtt > 0 {
		rt = delayed{rt, sc.rtt}
	}
	bodies := make([][]byte, sc.items)
	for i := range bodies {
		if bodies[i] = short(i); sc.body != nil {
			bodies[i] = sc.body(i)
		}
	}
	var next, lost, wrong atomic.Int64
	one := func(i int) {
		est, err := provider.Estimate(endpoint, bodies[i])
		if err != nil {
			tb.Error(err)
		}
		var answer provider.Answer
		call := sluice.Call{ID: strconv.Itoa(i), Cost: est.Cost, Tenant: strconv.Itoa(i % max(1, sc.tenants))}
		_, err = s.Do(context.Background(), call, func(ctx context.Context, permit *sluice.Permit) (o sluice.Outcome) {
			req, err := p.NewRequest(ctx, provider.Target{BaseURL: base, Key: "k", Endpoint: endpoint, Model: "m"}, bodies[i])
			if err != nil {
				return sluice.Outcome{Kind: sluice.Internal, Err: err}
			}
			timeout := sc.timeout
			if timeout == 0 {
				timeout = time.Minute
			}
			time.Sleep(time.Duration(i*7919%1000) * time.Microsecond) // else the order of arrival is that in which goroutines happen to run
			answer, o = provider.Exchange(ctx, rt, permit, req, provider.ExchangeConfig{Provider: p, Endpoint: endpoint,
				Stream: est.Stream, Timeout: timeout, Cost: est.Cost})
			return o
		})
		var gaveUp *sluice.CallError
		switch {
		case err == nil && !strings.Contains(string(answer.Body), "sim:"+sim.RequestHash(bodies[i])):
			wrong.Add(1)
		case errors.As(err, &gaveUp) && gaveUp.Kind == sluice.BadRequest: // as it should be
		case err != nil:
			lost.Add(1)
			tb.Logf("item %d: %v", i, err)
		}
	}
	start := time.Now()
	var wg sync.WaitGroup
	for worker := range min(400, sc.items) {
		wg.Go(func() {
			time.Sleep(time.Duration(worker) * time.Microsecond)
			for i := next.Add(1) - 1; i < int64(sc.items); i = next.Add(1) - 1 {
				one(int(i))
			}
		})
	}
	wg.Wait()
	f := figures{elapsed: time.Since(start), throttles: srv.Stats().Throttled, lost: int(lost.Load()), wrong: int(wrong.Load())}
	for _, n := range srv.Stats().Paid {
		f.doubled += n - 1
	}
	f.optimum = sc.sim.Optimum(sc.sim.Workload(endpoint.String(), bodies...)) + sc.rtt
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

func TestScenariosStayNearTheOptimumInVirtualTime(t *testing.T) {
	for _, sc := range scenarios()[:suite.Size(12, len(scenarios()))] {
		t.Run(sc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := sim.New(sc.sim)
				if err != nil {
					t.Fatal(err)
				}
				f := sc.play(t, srv, srv.Transport(), "http://sim.invalid")
				t.Log(f, srv.Stats().Refused)
				if f.lost+f.wrong+f.doubled > 0 {
					t.Errorf("%d items lost, %d answers wrong, %d paid for twice", f.lost, f.wrong, f.doubled)
				}
				if sc.most > 0 && (f.ratio() > sc.most || f.throttles > sc.throttles) {
					t.Errorf("want at most %.2f of the optimum and %d throttles", sc.most, sc.throttles)
				}
			})
		})
	}
}

// BenchmarkScenario plays the scenarios over real sockets. It takes minutes.
func BenchmarkScenario(b *testing.B) {
	for _, sc := range scenarios() {
		b.Run(sc.name, func(b *testing.B) {
			for b.Loop() {
				if sc.virtualOnly {
					sc.report(b, sc.inVirtualTime())
					continue
				}
				srv, err := sim.New(sc.sim)
				if err != nil {
					b.Fatal(err)
				}
				ts := httptest.NewServer(srv)
				rt := provider.NewBase(256)
				f := sc.play(b, srv, rt, ts.URL)
				rt.CloseIdleConnections()
				ts.Close()
				sc.report(b, f)
			}
		})
	}
}

func (sc scenario) report(b *testing.B, f figures) {
	b.ReportMetric(f.ratio(), "ratio-to-optimum")
	b.ReportMetric(float64(f.throttles), "throttles")
	b.ReportMetric(float64(f.lost+f.wrong+f.doubled), "lost")
}

// inVirtualTime plays a scenario in a bubble of its own.
func (sc scenario) inVirtualTime() (f figures) {
	all := func(string, string) (bool, error) { return true, nil }
	testing.RunTests(all, []testing.InternalTest{{Name: sc.name, F: func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv, err := sim.New(sc.sim)
			if err != nil {
				t.Fatal(err)
			}
			f = sc.play(t, srv, srv.Transport(), "http://sim.invalid")
		})
	}}})
	return f
}
