package plan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/plan"
)

// line is a good answer's event.
func line(at time.Time, latency time.Duration, in, out int) string {
	return fmt.Sprintf(`{"event":"slot_released","at":%q,"lane":"m","latency_ms":%d,"kind":"ok","usage":{"input_tokens":%d,"cached_input_tokens":0,`+
		`"output_tokens":%d},"active":3,"waiting":0}`+"\n", at.Format(time.RFC3339Nano), latency.Milliseconds(), in, out)
}

func TestEventsTellLatencyPerTokenApart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n = 30_000
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var events strings.Builder
	for i := range n { // ten a second, longer and longer
		out := 20 + i*500/n
		latency := time.Duration(float64(800*time.Millisecond+time.Duration(out)*12*time.Millisecond) * math.Exp(0.1*r.NormFloat64()))
		events.WriteString(line(start.Add(time.Duration(i)*100*time.Millisecond), latency, 100+i%50, out))
	}
	o, err := plan.FromEvents(strings.NewReader(events.String()))
	if err != nil {
		t.Fatal(err)
	}
	l := o.Lanes[0]
	if math.Abs(l.Base.Seconds()-0.8) > 0.05 || math.Abs(l.PerToken.Seconds()-0.012) > 0.0005 || math.Abs(l.Jitter-0.1) > 0.02 {
		t.Errorf("%v and %v per token, sigma %.3f; want 0.8 s, 12 ms and 0.1", l.Base, l.PerToken, l.Jitter)
	}
	if len(l.Calls) != plan.MostSampled || l.Answered != 30_000 || l.PerMinute != 600 {
		t.Errorf("%d of %d sampled, %d a minute", len(l.Calls), l.Answered, l.PerMinute)
	}
	mean := 0.0
	for _, c := range l.Calls {
		mean += float64(c.Output) / float64(len(l.Calls))
	}
	if math.Abs(mean-269.5) > 5 {
		t.Errorf("the sample's mean output is %.1f, want about 269.5", mean)
	}
	if math.Abs(l.Latency.P50.Seconds()-4.03) > 0.1 || l.Latency.P95 <= l.Latency.P50 || l.Latency.Max < l.Latency.P95 {
		t.Errorf("latency %+v", l.Latency)
	}
}

func TestEventsTellLimitsAndThrottles(t *testing.T) {
	o, err := plan.FromEvents(strings.NewReader(`
{"event":"limits_changed","at":"2026-03-01T12:00:00Z","lane":"a","dimension":"tpm","limit":90000,"active":0,"waiting":0}
{"event":"throttled","at":"2026-03-01T12:00:01Z","lane":"a","dimension":"rpm","limit":500,"kind":"rate_limit","active":7,"waiting":0}
{"event":"limits_changed","at":"2026-03-01T12:00:02Z","lane":"a","dimension":"tpm","limit":60000,"active":0,"waiting":0}
{"event":"throttled","at":"2026-03-01T12:00:03Z","lane":"b","kind":"rate_limit","active":2,"waiting":0}
{"event":"gave_up","at":"2026-03-01T12:00:03Z","lane":"b","kind":"rate_limit","active":2,"waiting":0}
{"event":"something new","at":"2026-03-01T12:00:03Z","lane":"b","more":[1]}
` + line(time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC), time.Second, 10, 0) + `{"event":"slot_released","at":"2026-03-01T1`))
	if err != nil {
		t.Fatal(err)
	}
	if !o.Cut || o.Lines != 7 || len(o.Lanes) != 3 {
		t.Fatalf("%d lines, cut: %v, lanes: %+v", o.Lines, o.Cut, o.Lanes)
	}
	by := make(map[string]plan.ObservedLane)
	for _, l := range o.Lanes {
		by[l.Lane] = l
	}
	if a := by["a"]; a.Limits != (sluice.Limits{RPM: 500, TPM: 60000}) || a.Throttled[sluice.Requests] != 1 || a.Peak != 7 {
		t.Errorf("a: %+v", a)
	}
	if b := by["b"]; b.Throttled[sluice.AnyDimension] != 1 || b.Failed != 1 || b.Limits != (sluice.Limits{}) {
		t.Errorf("b: %+v", b)
	}
	if m := by["m"]; len(m.Calls) != 1 || m.Calls[0] != (plan.Call{Input: 10, Output: -1}) {
		t.Errorf("m: %+v", m)
	}
	b := by["b"]
	if s := b.Scenario(sluice.ChargeActual); s.Requests != 0 || s.Provider.Charge == 0 {
		t.Errorf("b again: %+v", s)
	}
}

func TestEventsThatMakeNoSenseAreNamedByTheirLine(t *testing.T) {
	good := line(time.Unix(0, 0), time.Second, 1, 1)
	for word, text := range map[string]string{
		"line 2: no event":      good + `{"at":"2026-03-01T12:00:00Z"}` + "\n" + good,
		"line 3":                good + good + "nonsense\n",
		"line 1":                `{"event":"slot_released","at":"yesterday"}` + "\n",
		"unknown kind":          `{"event":"slot_released","kind":"nice"}` + "\n",
		"unknown dimension":     `{"event":"limits_changed","dimension":"length"}` + "\n",
		"latency_ms is -1":      `{"event":"slot_released","latency_ms":-1}` + "\n",
		"usage is -1":           `{"event":"slot_released","usage":{"input_tokens":-1}}` + "\n",
		"active is -2":          `{"event":"slot_released","active":-2}` + "\n",
		"limit is -2":           `{"event":"limits_changed","limit":-2}` + "\n",
		"line 2: longer than":   good + strings.Repeat("x", 2<<20),
		"one more than the 256": manyLanes(300),
	} {
		if _, err := plan.FromEvents(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want an error that says %q: %v", word, err)
		}
	}
	broken := io.MultiReader(strings.NewReader(good), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := plan.FromEvents(broken); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the reader's error is lost: %v", err)
	}
	if o, err := plan.FromEvents(strings.NewReader("")); err != nil || len(o.Lanes) != 0 {
		t.Errorf("an empty file: %+v, %v", o, err)
	}
}

func manyLanes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"event":"slot_acquired","lane":"%d"}`+"\n", i)
	}
	return b.String()
}

func FuzzFromEvents(f *testing.F) {
	f.Add([]byte(line(time.Unix(1e9, 0), time.Second, 100, 20) + line(time.Unix(1e9, 5), 2*time.Second, 100, 50)))
	f.Add([]byte(`{"event":"limits_changed","at":"2026-03-01T12:00:00Z","lane":"a","dimension":"tpm","limit":90000}` + "\n{"))
	f.Add([]byte(`{"event":"throttled","dimension":"rpm","kind":"rate_limit"}` + "\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := plan.FromEvents(bytes.NewReader(b))
		if err != nil {
			return
		}
		for i := range o.Lanes {
			l := &o.Lanes[i]
			if math.IsNaN(l.Jitter) || math.IsInf(l.Jitter, 0) || l.Base < 0 || l.PerToken < 0 || len(l.Calls) > plan.MostSampled {
				t.Fatalf("%+v", l)
			}
			s := l.Scenario(sluice.ChargeDeclared)
			s.Horizon, s.MaxTries, s.Requests = time.Hour, 100, min(s.Requests, 100)
			if _, err := plan.Simulate(context.Background(), s); err != nil {
				t.Fatalf("what was observed cannot be simulated: %v", err)
			}
		}
	})
}
