package plan_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// answered is a good answer's event.
func answered(at time.Time, latency time.Duration, in, out int) sluice.Event {
	return sluice.Event{Type: limits.EventSlotReleased, At: at, Lane: "m", Latency: latency, InFlight: 3, Outcome: sluice.Outcome{
		Kind: sluice.OK, HasUsage: true, Usage: sluice.Usage{Input: in, Output: out},
	}}
}

// observe returns the lanes of events that make sense.
func observe(t *testing.T, events ...sluice.Event) []plan.ObservedLane {
	t.Helper()
	var o plan.Observed
	for i := range events {
		if err := o.Add(&events[i]); err != nil {
			t.Fatal(err)
		}
	}
	return o.Lanes()
}

func TestEventsTellLatencyPerTokenApart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n = 30_000
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var events []sluice.Event
	for i := range n { // ten a second, longer and longer
		out := 20 + i*500/n
		latency := time.Duration(float64(800*time.Millisecond+time.Duration(out)*12*time.Millisecond) * math.Exp(0.1*r.NormFloat64()))
		events = append(events, answered(start.Add(time.Duration(i)*100*time.Millisecond), latency, 100+i%50, out))
	}
	l := observe(t, events...)[0]
	if math.Abs(l.Base.Seconds()-0.8) > 0.05 || math.Abs(l.PerToken.Seconds()-0.012) > 0.0005 || math.Abs(l.Jitter-0.1) > 0.02 {
		t.Errorf("%v and %v per token, sigma %.3f; want 0.8 s, 12 ms and 0.1", l.Base, l.PerToken, l.Jitter)
	}
	if len(l.Calls) != plan.MaxSampled || l.Answered != 30_000 || l.PerMinute != 600 {
		t.Errorf("%d of %d sampled, %d a minute", len(l.Calls), l.Answered, l.PerMinute)
	}
	mean := 0.0
	for _, c := range l.Calls {
		mean += float64(c.Output) / float64(len(l.Calls))
	}
	if math.Abs(mean-269.5) > 5 {
		t.Errorf("the sample's mean output is %.1f, want about 269.5", mean)
	}
	if math.Abs(l.Latency.P50.Seconds()-4.03) > 0.1 || l.Latency.P95.Duration <= l.Latency.P50.Duration || l.Latency.Max.Duration < l.Latency.P95.Duration {
		t.Errorf("latency %+v", l.Latency)
	}
}

func TestEventsTellLimitsAndThrottles(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC) }
	throttled := func(d limits.Dimension, limit int64) sluice.Outcome {
		return sluice.Outcome{Kind: sluice.RateLimit, Dimension: d, Limit: limit}
	}
	lanes := observe(t,
		sluice.Event{Type: limits.EventLimitsChanged, At: at(0), Lane: "a", Dimension: limits.Tokens, Limit: 90000},
		sluice.Event{Type: limits.EventThrottled, At: at(1), Lane: "a", Outcome: throttled(limits.Requests, 500), InFlight: 7},
		sluice.Event{Type: limits.EventLimitsChanged, At: at(2), Lane: "a", Dimension: limits.Tokens, Limit: 60000},
		sluice.Event{Type: limits.EventThrottled, At: at(3), Lane: "b", Outcome: throttled(limits.AnyDimension, 0), InFlight: 2},
		sluice.Event{Type: limits.EventGaveUp, At: at(3), Lane: "b", Outcome: throttled(limits.AnyDimension, 0), InFlight: 2},
		sluice.Event{Type: "something new", At: at(3), Lane: "b"},
		sluice.Event{Type: limits.EventStarted, At: at(3)},
		answered(at(5), time.Second, 10, 0))
	if len(lanes) != 3 {
		t.Fatalf("lanes: %+v", lanes)
	}
	by := make(map[string]plan.ObservedLane)
	for _, l := range lanes {
		by[l.Lane] = l
	}
	if a := by["a"]; a.Limits != (sluice.Limits{RPM: 500, TPM: 60000}) || a.Throttled[limits.Requests] != 1 || a.Peak != 7 {
		t.Errorf("a: %+v", a)
	}
	if b := by["b"]; b.Throttled[limits.AnyDimension] != 1 || b.Failed != 1 || b.Limits != (sluice.Limits{}) {
		t.Errorf("b: %+v", b)
	}
	if m := by["m"]; len(m.Calls) != 1 || m.Calls[0] != (plan.Call{Input: 10, Output: -1}) {
		t.Errorf("m: %+v", m)
	}
	b := by["b"]
	if s := b.Scenario(limits.ChargeActual); s.Requests != 0 || s.Provider.Charge == 0 {
		t.Errorf("b again: %+v", s)
	}
}

func TestEventsThatMakeNoSenseAreLeftOut(t *testing.T) {
	var o plan.Observed
	for i := range 256 {
		if err := o.Add(&sluice.Event{Type: limits.EventSlotAcquired, Lane: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	before := o.Lanes()
	usage := sluice.Outcome{HasUsage: true, Usage: sluice.Usage{Input: -1}}
	for word, e := range map[string]sluice.Event{
		"no event":              {Lane: "1"},
		"the latency is -1s":    {Type: limits.EventSlotReleased, Lane: "1", Latency: -time.Second},
		"the latency is 721h":   {Type: limits.EventSlotReleased, Lane: "1", Latency: 721 * time.Hour},
		"usage is -1":           {Type: limits.EventSlotReleased, Lane: "1", Outcome: usage},
		"-2 calls":              {Type: limits.EventSlotReleased, Lane: "1", InFlight: -2},
		"the limit is -2":       {Type: limits.EventLimitsChanged, Lane: "1", Limit: -2},
		"one more than the 256": {Type: limits.EventSlotAcquired, Lane: "256"},
	} {
		if err := o.Add(&e); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want an error that says %q: %v", word, err)
		}
	}
	if after := o.Lanes(); !reflect.DeepEqual(before, after) {
		t.Errorf("what was left out shows: %+v", after)
	}
	if lanes := new(plan.Observed).Lanes(); len(lanes) != 0 {
		t.Errorf("lanes of nothing: %+v", lanes)
	}
}

func FuzzObserved(f *testing.F) {
	types := []limits.EventType{limits.EventSlotReleased, limits.EventThrottled, limits.EventLimitsChanged, limits.EventGaveUp, "new"}
	f.Add([]byte{0, 1, 60, 200, 10, 0, 1, 61, 201, 30})
	f.Add([]byte{1, 1, 60, 200, 10, 2, 2, 61, 255, 255, 3, 3, 3, 3, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		var o plan.Observed
		for ; len(b) >= 5; b = b[5:] {
			wide := int64(1) << (b[3] % 63) // any magnitude, and beyond what makes sense
			d := limits.Dimension(b[1]) % limits.NumDimensions
			e := sluice.Event{
				Type: types[int(b[0])%len(types)], At: time.Unix(int64(b[2])*7, 0), Lane: string(rune('a' + b[0]%3)), Dimension: d, Limit: wide,
				Latency: time.Duration(wide), InFlight: int(b[4]), Outcome: sluice.Outcome{
					Kind: sluice.OK, Dimension: d, Limit: wide, HasUsage: b[1]%2 == 0, Usage: sluice.Usage{Input: int(wide >> 20), Output: int(b[4])},
				},
			}
			if err := o.Add(&e); err != nil {
				return
			}
		}
		lanes := o.Lanes()
		for i := range lanes {
			l := &lanes[i]
			if math.IsNaN(l.Jitter) || math.IsInf(l.Jitter, 0) || l.Base.Duration < 0 || l.PerToken.Duration < 0 || len(l.Calls) > plan.MaxSampled {
				t.Fatalf("%+v", l)
			}
			s := l.Scenario(limits.ChargeDeclared)
			s.Horizon, s.MaxTries, s.Requests = time.Hour, 100, min(s.Requests, 100)
			if _, err := plan.Simulate(context.Background(), s); err != nil {
				t.Fatalf("what was observed cannot be simulated: %v", err)
			}
		}
	})
}
