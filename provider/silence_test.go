package provider_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// anyHeaders draws rate-limit headers of a form that servers use, with any values.
func anyHeaders(t *rapid.T, now time.Time) http.Header {
	h := make(http.Header)
	seconds := rapid.SampledFrom([]int64{0, 1, 9, 30, 59, 600, 3600, 40_000, 86_400, 2_592_000}).Draw(t, "seconds")
	n := rapid.SampledFrom([]int64{1, 5, 100, 5000}).Draw(t, "limit")
	left := rapid.SampledFrom([]int64{0, 0, 0, 1, 3, 99}).Draw(t, "left")
	reset := rapid.SampledFrom([]string{fmt.Sprint(seconds), fmt.Sprint(now.Unix() + seconds), fmt.Sprint(now.UnixMilli() + 1000*seconds), "",
		now.Add(time.Duration(seconds) * time.Second).UTC().Format(http.TimeFormat), now.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339),
		(time.Duration(seconds) * time.Second).String(), fmt.Sprintf("%d.25", seconds), fmt.Sprint(1000 * seconds)}).Draw(t, "reset")
	form := rapid.SampledFrom([]string{"X-Ratelimit-%s", "Ratelimit-%s", "X-Rate-Limit-%s", "X-Ratelimit-%s-Requests", "X-Ratelimit-%s-Tokens",
		"Anthropic-Ratelimit-Requests-%s", "X-Ratelimit-%s-Minute", "X-Ratelimit-%s-Day", "7", "8"}).Draw(t, "form")
	switch form {
	case "7":
		h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%d", n, left, seconds))
		h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%d", n, seconds))
	case "8":
		h.Set("RateLimit", fmt.Sprintf(`"a";r=%d;t=%d`, left, seconds))
		h.Set("RateLimit-Policy", fmt.Sprintf(`"a";q=%d;w=%d`, n, seconds))
	default:
		h.Set(fmt.Sprintf(form, "Limit"), fmt.Sprint(n))
		h.Set(fmt.Sprintf(form, "Remaining"), fmt.Sprint(left))
		h.Set(fmt.Sprintf(form, "Reset"), reset)
	}
	if rapid.Bool().Draw(t, "dated") {
		h.Set("Date", now.UTC().Format(http.TimeFormat))
	}
	return h
}

// A belief that no rejection confirmed holds requests back for 10 s at most; one that rejections confirm, for 10 minutes.
func TestNoHeaderSilencesALane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, now := gate.New(gate.Config{Attempts: 1000, MaxThrottles: 1000}), noon
		longest := 10 * time.Second
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			ticket := &gate.Ticket{Call: limits.Call{Cost: limits.Cost{Input: 10, MaxOutput: 10}}}
			if !g.Acquire(now, ticket) { // a limit of tokens is below its cost
				continue
			}
			asked := now
			for !ticket.Granted() {
				next := g.Next()
				if next.IsZero() || next.Sub(asked) > longest+time.Second {
					t.Fatalf("nothing is sent until %v after the request was due", next.Sub(asked))
				}
				now = next
				g.Tick(now)
			}
			g.Granted()
			o := limits.Outcome{Readings: anybody.Readings(anyHeaders(t, now), now)}
			if rapid.IntRange(0, 3).Draw(t, "rejected") == 0 {
				o.Kind, longest = limits.RateLimit, 10*time.Minute
				o.Wait = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, time.Hour, 900 * time.Hour}).Draw(t, "wait")
			}
			now = now.Add(300 * time.Millisecond)
			g.Release(now, ticket, &o)
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "pause"))
		}
	})
}
