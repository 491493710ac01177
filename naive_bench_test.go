package sluice_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// naive is what most programs do without Sluice: so many loops, each of which tries a call that failed again after a wait. The
// waits are those of the official SDKs of OpenAI and Anthropic: what Retry-After says, or else 0.5 s, doubled up to 8 s, less up
// to a quarter by chance.
type naive struct {
	loops   int
	retries int // 2 is the default of those SDKs; -1: until it works
}

func (n naive) String() string {
	if n.retries < 0 {
		return fmt.Sprintf("%d loops that never give up", n.loops)
	}
	return fmt.Sprintf("%d loops, %d retries", n.loops, n.retries)
}

// play sends the items of a scenario, which has to be one of OpenAI's form.
func (n naive) play(tb testing.TB, sc scenario, srv *sim.Server, rt http.RoundTripper, url string) figures {
	bodies := make([][]byte, sc.items)
	for i := range bodies {
		if bodies[i] = short(i); sc.body != nil {
			bodies[i] = sc.body(i)
		}
	}
	var next, lost atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for loop := range n.loops {
		luck := rand.New(rand.NewPCG(11, uint64(loop)))
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(sc.items); i = next.Add(1) - 1 {
				if !n.call(tb, rt, url, bodies[i], luck) {
					lost.Add(1)
				}
			}
		})
	}
	wg.Wait()
	f := figures{elapsed: time.Since(start), throttles: srv.Stats().Throttled, lost: int(lost.Load())}
	f.optimum = sc.sim.Optimum(sc.sim.Workload(provider.ChatCompletions.String(), bodies...))
	return f
}

// call makes one call, and reports whether it was answered in the end.
func (n naive) call(tb testing.TB, rt http.RoundTripper, url string, body []byte, luck *rand.Rand) bool {
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(tb.Context(), "POST", url+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			tb.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer k")
		req.Header.Set("Content-Type", "application/json")
		wait := min(time.Second<<min(try, 10)/2, 8*time.Second)
		wait -= time.Duration(luck.Float64() * float64(wait) / 4)
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return true
			}
			if s, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && s > 0 && s <= 60 {
				wait = time.Duration(s) * time.Second
			}
		}
		if try == n.retries {
			return false
		}
		time.Sleep(wait)
	}
}

// bound are the providers that both are measured on. Nobody is told their limits.
func bound() []scenario {
	var all []scenario
	for _, sc := range scenarios() {
		switch sc.name {
		case "A requests bound", "B tokens bound", "C storm with Retry-After", "C storm without", "refusals are charged":
			sc.told = sluice.Limits{}
			all = append(all, sc)
		}
	}
	return all
}

// BenchmarkNaive compares Sluice, which is told nothing, with loops of which somebody chose the number, in virtual time.
func BenchmarkNaive(b *testing.B) {
	clients := []naive{{4, -1}, {8, -1}, {16, -1}, {32, -1}, {64, -1}, {8, 2}, {32, 2}}
	for _, sc := range bound() {
		play := func(name string, with func(t *testing.T, srv *sim.Server) figures) {
			b.Run(sc.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					var f figures
					all := func(string, string) (bool, error) { return true, nil }
					testing.RunTests(all, []testing.InternalTest{{Name: name, F: func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							srv, err := sim.New(sc.sim)
							if err != nil {
								t.Fatal(err)
							}
							f = with(t, srv)
						})
					}}})
					b.ReportMetric(f.elapsed.Seconds(), "s-virtual")
					sc.report(b, f)
				}
			})
		}
		play("sluice", func(t *testing.T, srv *sim.Server) figures {
			return sc.play(t, srv, srv.Transport(), "http://sim.invalid")
		})
		for _, n := range clients {
			play(n.String(), func(t *testing.T, srv *sim.Server) figures {
				return n.play(t, sc, srv, srv.Transport(), "http://sim.invalid")
			})
		}
	}
}
