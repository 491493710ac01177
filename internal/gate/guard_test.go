package gate_test

import (
	"testing"
	"time"

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
		{"tokens", limits.Limits{TPM: 6000}, []limits.Outcome{ok}, 50},
		{"input", limits.Limits{ITPM: 6000}, []limits.Outcome{ok}, 40},
		{"output in bursts", limits.Limits{OTPM: 6000, Burst: 30 * time.Second}, []limits.Outcome{ok}, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: tt.told})
			limit := float64(tt.told.RPM + tt.told.TPM + tt.told.ITPM + tt.told.OTPM)
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
					span, n := (at - sent[i]).Minutes(), float64(j+1)*tt.cost
					most := limit
					if burst := tt.told.Burst.Minutes(); burst > 0 {
						most = limit * (burst + span)
					} else if span >= 1 {
						break
					}
					if n > most+tt.cost/2 {
						t.Fatalf("%.0f in %v from %v on, %.1f allowed", n, at-sent[i], sent[i], most)
					}
				}
			}
			if n := float64(len(sent)) * tt.cost; len(tt.outcomes) == 1 && n < 0.95*5*limit {
				t.Errorf("%.0f in five minutes of %.0f each", n, limit)
			}
		})
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
