package sluice_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sim"
)

type scenario struct {
	name   string
	sim    sim.Config
	cfg    sluice.Config
	items  int
	bodies func(n int) [][]byte
	burst1 bool // compare with a provider whose bursts last one second
}

func plainBodies(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":16}`, i)
	}
	return out
}

func lognormalBodies(n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"item %d"}],"max_tokens":%d}`, i, int(250*math.Exp(0.7*r.NormFloat64())))
	}
	return out
}

var a = sim.Config{RPM: 900, Burst: 15 * time.Second, Concurrent: 30, Latency: 200 * time.Millisecond}
var aTold = sluice.Config{Limits: sluice.Limits{RPM: 900, Concurrent: 30}}

func with(c sim.Config, f func(*sim.Config)) sim.Config { f(&c); return c }

var scenarios = []scenario{
	{name: "A", sim: a, cfg: aTold, items: 400},
	{name: "B", sim: sim.Config{TPM: 90000, Burst: 10 * time.Second, Concurrent: 60}, cfg: sluice.Config{Limits: sluice.Limits{TPM: 90000, Concurrent: 60}}, items: 200, bodies: lognormalBodies},
	{name: "C-hint", sim: with(a, func(c *sim.Config) { c.Storms = []sim.Storm{{From: 3 * time.Second, To: 7 * time.Second}} }), cfg: aTold, items: 400},
	{name: "C-silent", sim: with(a, func(c *sim.Config) {
		c.Storms = []sim.Storm{{From: 3 * time.Second, To: 7 * time.Second, Silent: true}}
	}), cfg: aTold, items: 400},
	{name: "D", sim: sim.Config{Queue: 6, Latency: 400 * time.Millisecond, NoHeaders: true}, items: 200},
	{name: "E", sim: sim.Config{Concurrent: 9, Latency: 400 * time.Millisecond, NoHeaders: true, RetryAfter: sim.RetryAfterNone, VagueBodies: true}, items: 400},
	{name: "F", sim: with(a, func(c *sim.Config) {
		c.Faults = sim.Faults{ServerError: .05, Reset: .02, Cut: .02, BadRequest: .01}
	}), cfg: aTold, items: 400},
	{name: "G", sim: a, items: 400},
	{name: "L", sim: with(a, func(c *sim.Config) {
		c.Latency = 20 * time.Second
		c.Storms = []sim.Storm{{From: 5 * time.Second, To: 5*time.Second + 300*time.Millisecond}}
	}), cfg: aTold, items: 400},
	{name: "burst0.1", sim: with(a, func(c *sim.Config) { c.Burst = 100 * time.Millisecond }), cfg: aTold, items: 400},
	{name: "burst60", sim: with(a, func(c *sim.Config) { c.Burst = 60 * time.Second }), cfg: aTold, items: 2000},
	{name: "ms", sim: with(a, func(c *sim.Config) { c.RetryAfter = sim.RetryAfterMillis }), cfg: aTold, items: 400},
	{name: "date", sim: with(a, func(c *sim.Config) { c.RetryAfter = sim.RetryAfterDate }), cfg: aTold, items: 400},
	{name: "529", sim: with(a, func(c *sim.Config) {
		c.Storms = []sim.Storm{{From: 3 * time.Second, To: 5 * time.Second, Status: 529}}
	}), cfg: aTold, items: 400},
	{name: "halves", sim: with(a, func(c *sim.Config) { c.Changes = []sim.Change{{At: 5 * time.Second, Factor: .5}} }), cfg: aTold, items: 400},
	{name: "doubles", sim: with(a, func(c *sim.Config) { c.Changes = []sim.Change{{At: 5 * time.Second, Factor: 2}} }), items: 400},
	{name: "daily", sim: with(a, func(c *sim.Config) { c.DailyHeaders = true; c.RPD = 14400 }), cfg: aTold, items: 400},
	{name: "charged", sim: with(a, func(c *sim.Config) { c.ChargeRefusals = true }), cfg: aTold, items: 400},
	{name: "jitter", sim: with(a, func(c *sim.Config) { c.Jitter = .8 }), cfg: aTold, items: 400},
	{name: "jitter-untold", sim: with(a, func(c *sim.Config) { c.Jitter = .8 }), items: 400},
	{name: "late-headers", sim: with(a, func(c *sim.Config) { c.LateHeaders = true }), cfg: aTold, items: 400},
	{name: "bare-rpm", sim: with(a, func(c *sim.Config) {
		c.NoHeaders, c.VagueBodies, c.RetryAfter = true, true, sim.RetryAfterNone
	}), items: 400},
	{name: "A-noheaders", sim: with(a, func(c *sim.Config) { c.NoHeaders = true }), cfg: aTold, items: 400, burst1: true},
	{name: "hang1%", sim: with(a, func(c *sim.Config) { c.Faults.Hang = .01 }), cfg: aTold, items: 400},
	{name: "window", sim: with(a, func(c *sim.Config) { c.FixedWindow = true }), cfg: aTold, items: 400},
}

type figures struct {
	elapsed, optimum time.Duration
	throttles        int
	lost, wrong      int
	tries            int
}

func (f figures) ratio() float64 { return f.elapsed.Seconds() / f.optimum.Seconds() }

// play runs a scenario at a server.
func (sc scenario) play(tb testing.TB, rt http.RoundTripper, url string, srv *sim.Server) figures {
	bodies := sc.makeBodies()
	s, err := sluice.New(sc.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	var next, lost, wrong atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for range min(256, len(bodies)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(bodies) {
					return
				}
				c := sluice.Call{ID: strconv.Itoa(i), Cost: sluice.Cost{Input: len(bodies[i])/4 - 10, MaxOutput: 16}}
				if m := regexp.MustCompile(`"max_tokens":(\d+)`).FindSubmatch(bodies[i]); m != nil {
					c.Cost.MaxOutput, _ = strconv.Atoi(string(m[1]))
				}
				_, err := s.Do(context.Background(), c, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
					return call(ctx, rt, url, bodies[i], &wrong)
				})
				if err != nil {
					if o := new(sluice.CallError); !asCall(err, &o) || o.Kind != sluice.BadRequest {
						lost.Add(1)
						tb.Log(err)
					}
				}
			}
		})
	}
	wg.Wait()
	f := figures{elapsed: time.Since(start), lost: int(lost.Load()), wrong: int(wrong.Load())}
	st := srv.Stats()
	f.throttles = st.Throttled
	f.tries = st.Requests
	cfg := sc.sim
	if sc.burst1 {
		cfg.Burst = time.Second
	}
	f.optimum = cfg.Optimum(cfg.Workload("/v1/chat/completions", bodies...))
	return f
}

func asCall(err error, o **sluice.CallError) bool {
	e, ok := err.(*sluice.CallError)
	*o = e
	return ok
}

func (sc scenario) makeBodies() [][]byte {
	if sc.bodies != nil {
		return sc.bodies(sc.items)
	}
	return plainBodies(sc.items)
}

var nums = regexp.MustCompile(`Limit (\d+), Used (\d+), Requested (\d+)`)

func call(ctx context.Context, rt http.RoundTripper, url string, body []byte, wrong *atomic.Int64) (o sluice.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", bytes.NewReader(body))
	req.Header.Set("content-type", "application/json")
	res, err := rt.RoundTrip(req)
	if err != nil {
		return sluice.Outcome{Kind: sluice.Network, Err: err}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return sluice.Outcome{Kind: sluice.Network, Err: err}
	}
	for h, d := range map[string]sluice.Dimension{"requests": sluice.Requests, "tokens": sluice.Tokens} {
		l, err := strconv.ParseInt(res.Header.Get("x-ratelimit-limit-"+h), 10, 64)
		if err != nil {
			continue
		}
		r, _ := strconv.ParseInt(res.Header.Get("x-ratelimit-remaining-"+h), 10, 64)
		reset, _ := time.ParseDuration(res.Header.Get("x-ratelimit-reset-" + h))
		o.Readings = append(o.Readings, sluice.Reading{Dimension: d, Limit: l, Remaining: r, Reset: reset})
	}
	switch {
	case res.StatusCode == 200:
		if !bytes.Contains(data, []byte("sim:"+sim.RequestHash(body))) {
			wrong.Add(1)
		}
	case res.StatusCode == 429:
		o.Kind = sluice.RateLimit
		if s, err := strconv.ParseFloat(res.Header.Get("retry-after"), 64); err == nil {
			o.Wait = time.Duration(s * 1e9)
		} else if t, err := http.ParseTime(res.Header.Get("retry-after")); err == nil {
			o.Wait = time.Until(t)
		}
		if s, err := strconv.ParseFloat(res.Header.Get("retry-after-ms"), 64); err == nil {
			o.Wait = time.Duration(s * 1e6)
		}
		if m := nums.FindSubmatch(data); m != nil {
			o.Limit, _ = strconv.ParseInt(string(m[1]), 10, 64)
			o.Used, _ = strconv.ParseInt(string(m[2]), 10, 64)
			o.Requested, _ = strconv.ParseInt(string(m[3]), 10, 64)
			o.Dimension = sluice.Requests
			if bytes.Contains(data, []byte("TPM")) {
				o.Dimension = sluice.Tokens
			}
			o.Wait = time.Duration(float64(o.Used+o.Requested-o.Limit) / float64(o.Limit) * 60e9)
		} else if bytes.Contains(data, []byte("concurrent")) {
			o.Dimension = sluice.Concurrency
		}
	case res.StatusCode == 529 || res.StatusCode == 503:
		o.Kind = sluice.Overloaded
	case res.StatusCode >= 500:
		o.Kind = sluice.ServerError
	default:
		o.Kind = sluice.BadRequest
	}
	if o.Kind != sluice.OK {
		o.Err = fmt.Errorf("%d %s", res.StatusCode, data)
	}
	return o
}

func TestScenarios(t *testing.T) {
	only := os.Getenv("SC")
	for _, sc := range scenarios {
		if only != "" && only != sc.name {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := sim.New(sc.sim)
				if err != nil {
					t.Fatal(err)
				}
				if only != "" {
					start := time.Now()
					sc.cfg.Observer = sluice.ObserverFunc(func(e sluice.Event) {
						if e.Type == sluice.EventGranted || e.Type == sluice.EventReleased && os.Getenv("ALL") == "" {
							return
						}
						fmt.Printf("%8.3f %s %s %v dim=%v limit=%d wait=%v inflight=%d until=%.3f %v\n", e.At.Sub(start).Seconds(), e.Type, e.Call, e.Outcome.Kind, e.Dimension, e.Limit, e.Wait, e.InFlight, e.Until.Sub(start).Seconds(), e.Outcome.Err)
					})
				}
				f := sc.play(t, srv.Transport(), "http://sim", srv)
				fmt.Printf("%-14s ratio %.3f (%.2f / %.2f s) throttles %d tries %d lost %d wrong %d %v\n", sc.name, f.ratio(), f.elapsed.Seconds(), f.optimum.Seconds(), f.throttles, f.tries, f.lost, f.wrong, srv.Stats().Refused)
			})
		})
	}
}

func BenchmarkScenario(b *testing.B) {
	for _, sc := range scenarios {
		b.Run(sc.name, func(b *testing.B) {
			for b.Loop() {
				srv, err := sim.New(sc.sim)
				if err != nil {
					b.Fatal(err)
				}
				ts := httptest.NewServer(srv)
				tr := &http.Transport{MaxIdleConnsPerHost: 256}
				f := sc.play(b, tr, ts.URL, srv)
				b.ReportMetric(f.ratio(), "ratio-to-optimum")
				b.ReportMetric(float64(f.throttles), "throttles")
				b.ReportMetric(float64(f.lost+f.wrong), "lost")
				tr.CloseIdleConnections()
				ts.Close()
			}
		})
	}
}
