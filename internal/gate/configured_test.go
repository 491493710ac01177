package gate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// slidingCounter accepts a request if at most n, with itself and rejected ones, were sent in the last period, as HAProxy does.
func slidingCounter(n int, period time.Duration) limiter {
	var sent []time.Time
	return func(at time.Time) (bool, int64, time.Time) {
		sent = slices.DeleteFunc(append(sent, at), func(s time.Time) bool { return at.Sub(s) >= period })
		return len(sent) <= n, max(0, int64(n-len(sent))), at
	}
}

func TestALimiterWhoseLimitIsConfiguredIsUsedWhole(t *testing.T) {
	window := func(n int) limits.Limits {
		return limits.Limits{Requests: limits.Window{N: n, Period: 10 * time.Second}}
	}
	mid := epoch0.Add(-3700 * time.Millisecond)
	for _, c := range []struct {
		name    string
		told    limits.Limits
		law     limiter
		n       int
		optimum float64 // seconds
		ratio   float64
		most    int // rejections
	}{
		{"window", window(100), fixedWindow(100, 10*time.Second, time.Time{}), 300, 20.3, 1.05, 0},
		{"window of the clock", window(100), fixedWindow(100, 10*time.Second, mid), 300, 20.3, 1.05, 0},
		{"sliding counter", window(150), slidingCounter(150, 10*time.Second), 450, 20.3, 1.05, 0},
		{"bucket", limits.Limits{RPM: 900}, tokenBucket(15, 15, epoch0), 450, 29.3, 1.1, 12},
		{"a counter of all requests", window(150), countsAll(150, 10*time.Second), 300, 20.3, 1.05, 12},
		{"two windows", window(100), twoWindows(100, 10*time.Second, mid), 300, 26.6, 1.2, 5},
		{"sliding counter, configured per minute", limits.Limits{RPM: 900}, slidingCounter(150, 10*time.Second), 450, 20.3, 1.7, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := gate.Config{Limits: c.told, MaxThrottles: 1000, Random: func(n int64) int64 { return n / 2 }}
			took, rejected := meet(t, cfg, c.n, 0, c.law, form{})
			ratio := took.Seconds() / c.optimum
			t.Logf("%.2f x the optimum, %d rejections", ratio, rejected)
			if ratio > c.ratio || rejected > c.most {
				t.Errorf("%.2f x the optimum and %d rejections, want at most %.2f and %d", ratio, rejected, c.ratio, c.most)
			}
		})
	}
}
