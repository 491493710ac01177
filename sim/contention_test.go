package sim_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// shared is when calls end that come at the given instants and need so much
// service each, by what is left of each in place of what each has had.
func shared(places int, come, need []time.Duration) []time.Duration {
	ends := make([]time.Duration, len(come))
	left := make([]float64, len(come))
	for i := range need {
		left[i] = need[i].Seconds()
	}
	now := 0.0
	for {
		open, next := 0, -1.0
		for i := range come {
			if come[i].Seconds() <= now && left[i] > 0 {
				open++
			}
		}
		speed := min(1, float64(places)/float64(max(1, open)))
		for i := range come {
			step := come[i].Seconds() - now
			if step <= 0 {
				step = left[i] / speed
			}
			if left[i] > 0 && (next < 0 || step < next) {
				next = step
			}
		}
		if next < 0 {
			return ends
		}
		for i := range come {
			if come[i].Seconds() > now || left[i] <= 0 {
				continue
			}
			if left[i] -= next * speed; left[i] < 1e-9 {
				left[i], ends[i] = 0, time.Duration((now+next)*1e9)
			}
		}
		now += next
	}
}

func TestContentionSharesFairly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		places := rapid.IntRange(1, 4).Draw(rt, "places")
		n := rapid.IntRange(1, 20).Draw(rt, "calls")
		come, need, took := make([]time.Duration, n), make([]time.Duration, n), make([]time.Duration, n)
		for i := range come {
			come[i] = time.Duration(rapid.IntRange(0, 3000).Draw(rt, "comes")) * time.Millisecond
			need[i] = time.Duration(rapid.IntRange(1, 900).Draw(rt, "needs")) * time.Millisecond
		}
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, sim.Config{Contention: places, Latency: -1, PerToken: time.Millisecond, OutputTokens: 1000})
			var wg sync.WaitGroup
			for i := range come {
				wg.Go(func() {
					time.Sleep(come[i])
					took[i] = send(t.Context(), s, chatPath, chatBody("a", 1, int(need[i]/time.Millisecond))).took
				})
			}
			wg.Wait()
		})
		for i, end := range shared(places, come, need) {
			if d := come[i] + took[i] - end; d.Abs() > time.Microsecond {
				rt.Fatalf("call %d ended at %v, want %v", i, come[i]+took[i], end)
			}
		}
	})
}

func TestCallThatIsCancelledGivesItsShareBack(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Contention: 1, Latency: -1, PerToken: 100 * time.Millisecond, OutputTokens: 10})
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		go send(impatient, s, chatPath, chatBody("a", 1, 0))
		r := send(ctx, s, chatPath, chatBody("b", 1, 0))
		equal(t, "took", r.took.Round(time.Microsecond), 1500*time.Millisecond) // half a second of its own in the first
		stats := s.Stats()
		equal(t, "abandoned", stats.Abandoned, 1)
		equal(t, "output", stats.OutputTokens, 10+5) // as much as was made by then
	})
}

func TestStreamsContendToo(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Contention: 2, Latency: 100 * time.Millisecond, PerToken: 100 * time.Millisecond, OutputTokens: 9})
		body := strings.Replace(chatBody("a", 1, 0), "{", `{"stream":true,`, 1)
		took := make(chan time.Duration, 3)
		for range cap(took) {
			go func() { took <- send(ctx, s, chatPath, body).took }()
		}
		for range cap(took) {
			if d := <-took - 1500*time.Millisecond; d.Abs() > time.Millisecond {
				t.Errorf("a stream of one second took %v more than one and a half", d)
			}
		}
	})
}

// pipes is a listener of connections in memory, which a bubble can wait for.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func TestContentionOfTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		listener := make(pipes)
		web := &http.Server{Handler: serve(t, sim.Config{Contention: 1, Latency: time.Second})}
		go web.Serve(listener)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			listener <- server
			return client, nil
		}}
		defer web.Close()
		defer transport.CloseIdleConnections()
		begun := time.Now()
		done := make(chan time.Duration, 2)
		for range cap(done) {
			go func() {
				response, err := (&http.Client{Transport: transport}).Post(baseURL+chatPath, "application/json", strings.NewReader(chatBody("a", 1, 1)))
				if err != nil {
					t.Error(err)
				} else {
					io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				done <- time.Since(begun)
			}()
		}
		for range cap(done) {
			equal(t, "took", (<-done).Round(time.Microsecond), 2*time.Second)
		}
	})
}

func TestStrayRefusalsHaveNoReason(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Throttled: 0.3}, RPM: 1000, Charge: limits.ChargeActual, ChargeRefusals: true})
		refused, twice := 0, 0
		for i := range 400 {
			body := chatBody(fmt.Sprint("item ", i), 4, 10)
			r := send(ctx, s, chatPath, body)
			if r.status == 200 {
				continue
			}
			refused++
			equal(t, "status", r.status, 429)
			equal(t, "took", r.took, 5*time.Millisecond)
			equal(t, "message", r.message(), "Rate limit reached")
			equal(t, "Retry-After", r.header.Get("Retry-After"), "")
			if send(ctx, s, chatPath, body).status == 429 {
				twice++
			}
		}
		if refused < 90 || refused > 150 || twice < 15 || twice > 60 {
			t.Errorf("%d of 400 were refused, %d of them again", refused, twice)
		}
		stats := s.Stats()
		equal(t, "strays", stats.Refused["stray"], refused+twice)
		equal(t, "answered", stats.Answered, 400-twice)
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Throttled: 1}, RPM: 60, ChargeRefusals: true})
		for range 5 {
			r := send(ctx, s, chatPath, chatBody("a", 1, 1))
			equal(t, "remaining", r.header.Get("x-ratelimit-remaining-requests"), "60")
		}
		r := send(ctx, s, "/v1/messages", chatBody("a", 1, 9), "Anthropic-Version", "2023-06-01")
		equal(t, "message", r.message(), "This request would exceed your account's rate limit. Please try again later.")
	})
}

func TestStrayRefusalsDrawNoLuckOfOthers(t *testing.T) {
	order := make([]int, 60)
	for i := range order {
		order[i] = i
	}
	c := everyFault
	without := fates(t, c, order, 3)
	c.Faults.Throttled = 0.3
	for name, met := range fates(t, c, order, 20) {
		met = slices.DeleteFunc(met, func(fate string) bool { return strings.HasPrefix(fate, "429") })
		n := min(len(met), 3)
		if slices.Compare(met[:n], without[name][:n]) != 0 {
			t.Errorf("%s met %v with strays and %v without", name, met[:n], without[name])
		}
		if n == 0 {
			t.Errorf("%s was always refused", name)
		}
	}
}

func TestStrayRefusalsOfALimiterAreThoseOfTheServer(t *testing.T) {
	bodies := chatBodies(50, 4, 10)
	c := sim.Config{Faults: sim.Faults{Throttled: 0.5}}
	limiter, err := sim.NewLimiter(c)
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, c)
		for i, r := range c.Workload(chatPath, bodies...) {
			for tries := range 50 {
				_, no, admitted := limiter.Admit(0, time.Minute, i, &r, 0)
				if !admitted && (no.Why != "stray" || !no.Vague) {
					t.Errorf("refused for %+v", no)
				}
				if got := send(ctx, s, chatPath, string(bodies[i])).status == 200; got != admitted {
					t.Fatalf("try %d of item %d: the server admits: %v, the limiter: %v", tries, i, got, admitted)
				}
				if admitted {
					break
				}
			}
		}
	})
}
