package gate_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// A client that always has requests sends no more than is configured in any minute, whatever becomes of them, and no less if they succeed.
func TestAConfiguredLimitHoldsInEverySlidingMinute(t *testing.T) {
	ok, limited := usage(40, 0, 10), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests}
	mixed := []limits.Outcome{ok, limited, {Kind: limits.Overloaded}, ok, {Kind: limits.ServerError}, {Kind: limits.Network}}
	header := ok
	header.Readings = []limits.Reading{{Dimension: limits.Requests, Limit: 60_000, Remaining: 59_000, Reset: time.Second}}
	for _, tt := range []struct {
		name     string
		told     limits.Limits
		outcomes []limits.Outcome
		cost     float64 // of a request, of the limit
	}{
		{"requests", limits.Limits{RPM: 120}, []limits.Outcome{ok}, 1},
		{"requests that fail", limits.Limits{RPM: 120}, mixed, 1},
		{"requests, and headers show more", limits.Limits{RPM: 120}, []limits.Outcome{header}, 1},
		{"requests in bursts", limits.Limits{RPM: 120, Burst: 10 * time.Second}, []limits.Outcome{ok}, 1},
		{"requests in bursts that fail", limits.Limits{RPM: 120, Burst: 10 * time.Second}, mixed, 1},
		{"a window of requests that fail", limits.Limits{Requests: limits.Window{N: 20, Period: 10 * time.Second}}, mixed, 1},
		{"a window of tokens", limits.Limits{Tokens: limits.Window{N: 3000, Period: 30 * time.Second}}, []limits.Outcome{ok}, 50},
		{"tokens", limits.Limits{TPM: 6000}, []limits.Outcome{ok}, 50},
		{"input", limits.Limits{ITPM: 6000}, []limits.Outcome{ok}, 40},
		{"output in bursts", limits.Limits{OTPM: 6000, Burst: 30 * time.Second}, []limits.Outcome{ok}, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: tt.told})
			window := tt.told.In(limits.Requests)
			for _, d := range []limits.Dimension{limits.Tokens, limits.InputTokens, limits.OutputTokens} {
				if w := tt.told.In(d); w.N > 0 {
					window = w
				}
			}
			limit := float64(window.N)
			var sent []time.Duration
			for r.since() < 5*time.Minute {
				for r.lane().Waiting < 4 {
					r.queue(limits.Call{Cost: limits.Cost{Input: 40, MaxOutput: 50}})
				}
				open := r.take()
				for range open {
					sent = append(sent, r.since())
				}
				r.sleep(20 * time.Millisecond)
				for _, w := range open {
					r.release(w, tt.outcomes[int(w.ID)%len(tt.outcomes)])
				}
			}
			for i := range sent {
				for j, at := range sent[i:] {
					span, n := at-sent[i], float64(j+1)*tt.cost
					most := limit
					if tt.told.Burst > 0 {
						most = limit * (tt.told.Burst + span).Minutes()
					} else if span >= window.Period {
						break
					}
					if n > most+tt.cost/2 {
						t.Fatalf("%.0f in %v from %v on, %.1f allowed", n, at-sent[i], sent[i], most)
					}
				}
			}
			if n := float64(len(sent)) * tt.cost; len(tt.outcomes) == 1 && n < 0.95*limit*float64(5*time.Minute/window.Period) {
				t.Errorf("%.0f in five minutes of %v", n, window)
			}
		})
	}
}

// traffic is requests of random costs at random instants, with random outcomes.
type traffic struct {
	*rig
	rt    *rapid.T
	told  limits.Limits
	d     limits.Dimension
	known time.Time // amounts that were sent before are unknown to the present limit
	open  []*gate.Ticket
	sent  []sending
}

type sending struct {
	at     time.Time
	amount float64
}

// limits draws a limit of requests or tokens.
func (r *traffic) limits() (l limits.Limits) {
	w := limits.Window{N: rapid.SampledFrom([]int{1, 7, 100}).Draw(r.rt, "n"),
		Period: rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, 10 * time.Second, time.Minute, time.Hour}).Draw(r.rt, "period")}
	switch {
	case r.d == limits.Tokens:
		l.Tokens = limits.Window{N: 50 * w.N, Period: w.Period}
	case w.Period == time.Minute:
		l.RPM = w.N
	default:
		l.Requests = w
	}
	return l
}

// send counts the requests that are granted now against the present limit.
func (r *traffic) send() {
	for _, w := range r.take() {
		amount := 1.0
		if r.d == limits.Tokens {
			amount = float64(w.Call.Cost.Input + w.Call.Cost.MaxOutput)
		}
		r.open, r.sent = append(r.open, w), append(r.sent, sending{w.Sent(), amount})
		limit, total := r.told.In(r.d), 0.0
		for _, s := range r.sent {
			if !s.at.Before(r.known) && w.Sent().Sub(s.at) < limit.Period {
				total += s.amount
			}
		}
		if total > float64(limit.N) {
			r.rt.Fatalf("%.0f were sent within %v at %v, the limit is %v", total, limit.Period, w.Sent().Sub(epoch0), limit)
		}
	}
}

func TestAConfiguredWindowHoldsForRandomCostsAndInstants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := &traffic{rt: rt, d: rapid.SampledFrom([]limits.Dimension{limits.Requests, limits.Tokens}).Draw(rt, "dimension")}
		r.told = r.limits()
		r.rig = newRig(rt, gate.Config{Limits: r.told, MaxThrottles: 1 << 20})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			for range rapid.SampledFrom([]int{0, 1, 3, 40}).Draw(rt, "requests") {
				if r.lane().Waiting < 40 {
					r.queue(limits.Call{Cost: limits.Cost{Input: rapid.IntRange(1, 40).Draw(rt, "input"), MaxOutput: 1}})
				}
			}
			r.send()
			r.sleep(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 40 * time.Millisecond, 999 * time.Millisecond, 3 * time.Second, 9980 * time.Millisecond}).Draw(rt, "pause"))
			r.send()
			for len(r.open) > 0 && rapid.IntRange(0, 9).Draw(rt, "end") > 0 {
				w := r.open[0]
				o := usage(w.Call.Cost.Input, 0, 1)
				o.Kind = rapid.SampledFrom([]limits.Kind{limits.OK, limits.OK, limits.OK, limits.RateLimit, limits.Timeout}).Draw(rt, "kind")
				r.open = r.open[1:]
				r.release(w, o)
				r.send()
			}
			if rapid.IntRange(0, 15).Draw(rt, "change") == 0 {
				if known := r.now.Add(-r.told.In(r.d).Period); known.After(r.known) {
					r.known = known
				}
				r.told = r.limits()
				r.g.SetLimits(r.now, r.told, r.told)
				r.drain()
				r.send()
			}
		}
	})
}

// A window that is configured may be used at once. After a rejection within it, the provider's window is another one.
func TestAfterARejectionAConfiguredLimitIsSentEvenly(t *testing.T) {
	for name, told := range map[string]limits.Limits{
		"requests": {Requests: limits.Window{N: 100, Period: 10 * time.Second}}, "tokens": {Tokens: limits.Window{N: 1000, Period: 10 * time.Second}},
		"requests per minute": {RPM: 600},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: told, Charge: limits.ChargeActual})
			var sent []time.Time
			answer := usage(9, 0, 1)
			run := func(d time.Duration) {
				for end := r.since() + d; r.since() < end; r.sleep(10 * time.Millisecond) {
					for r.lane().Waiting < 4 {
						r.queue(limits.Call{Cost: limits.Cost{Input: 9, MaxOutput: 1}})
					}
					for open := r.take(); len(open) > 0; open = r.take() {
						for _, w := range open {
							sent = append(sent, w.Sent())
							r.release(w, answer)
						}
					}
				}
			}
			if run(time.Second); told.RPM == 0 && len(sent) != 100 {
				t.Errorf("%d requests in the first second, the window has room for 100", len(sent))
			}
			run(15 * time.Second)
			before := len(sent)
			for answer = (limits.Outcome{Kind: limits.RateLimit}); len(sent) == before; {
				run(10 * time.Millisecond)
			}
			sent, answer = sent[:0], usage(9, 0, 1)
			run(time.Minute)
			for i := range sent {
				for j := i + 1; j < len(sent); j++ {
					if span := sent[j].Sub(sent[i]); float64(j-i) > 9.8*(span.Seconds()+0.005)+0.001 { // a request that is due within 5 ms is sent
						t.Fatalf("%d requests in %v after a rejection, at a pace of 9.8 per second", j-i, span)
					}
				}
			}
			if n := len(sent); n < 560 {
				t.Errorf("%d requests in a minute after a rejection, at a pace of 9.8 per second", n)
			}
		})
	}
}

// Lanes that share a configured limit have one pace, whenever they were opened.
func TestLanesSharePaceAfterARejection(t *testing.T) {
	told := limits.Limits{RPM: 600}
	r := newRig(t, gate.Config{Limits: told, Account: told})
	refuse := true
	sent := map[string]int{}
	send := func(d time.Duration) {
		for end := r.now.Add(d); r.now.Before(end); r.sleep(10 * time.Millisecond) {
			r.queue(limits.Call{Lane: "a"})
			r.queue(limits.Call{Lane: "b"})
			for _, w := range r.take() {
				sent[w.Call.Lane]++
				o := limits.Outcome{}
				if refuse && sent["a"] > 50 {
					o, refuse = limits.Outcome{Kind: limits.RateLimit}, false
				}
				r.release(w, o)
			}
		}
	}
	r.release(r.acquire(limits.Call{Lane: "a"}), limits.Outcome{})
	r.sleep(100 * time.Second)
	r.release(r.acquire(limits.Call{Lane: "b"}), limits.Outcome{})
	r.take()
	send(10 * time.Second)
	sent = map[string]int{}
	send(20 * time.Second)
	if n := sent["a"] + sent["b"]; n < 180 || n > 200 || sent["b"] < 80 {
		t.Errorf("%v requests of two lanes in 20 s at a pace of 9.8 per second", sent)
	}
}

// A permit may be used much later than it was granted.
func TestAConfiguredLimitCountsARequestFromWhenItIsSent(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPM: 60}})
	for range 120 {
		r.queue(limits.Call{})
	}
	r.sleep(50 * time.Second)
	late := r.take()
	for _, w := range late {
		r.sent(w)
		r.release(w, limits.Outcome{})
	}
	r.sleep(59 * time.Second)
	if n := len(r.take()); len(late) != 60 || n != 0 {
		t.Fatalf("%d requests were sent at once, and %d more were granted in the minute after that", len(late), n)
	}
	r.sleep(10 * time.Second)
	if n := len(r.take()); n == 0 {
		t.Fatal("no request was granted after that minute")
	}
}
