package gate_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// limiter is a rate limiter of a kind that servers and proxies use. It returns whether it accepts a request at an instant, what remains, and
// when more does.
type limiter func(at time.Time) (ok bool, remaining int64, reset time.Time)

// fixedWindow accepts n requests in each window. Windows begin with the first request, or every period after an instant if that is set.
func fixedWindow(n int64, period time.Duration, from time.Time) limiter {
	var ends time.Time
	var used int64
	return func(at time.Time) (bool, int64, time.Time) {
		if !at.Before(ends) {
			if used, ends = 0, at.Add(period); !from.IsZero() {
				ends = from.Add((at.Sub(from)/period + 1) * period)
			}
		}
		if used >= n {
			return false, 0, ends
		}
		used++
		return true, n - used, ends
	}
}

// twoWindows weighs the requests of the window before by the part of it that is within one period, as go-chi/httprate and Cloudflare do.
func twoWindows(n int64, period time.Duration, from time.Time) limiter {
	counts := map[int64]float64{}
	return func(at time.Time) (bool, int64, time.Time) {
		k := int64(at.Sub(from) / period)
		left := 1 - float64(at.Sub(from)-time.Duration(k)*period)/float64(period)
		rate := math.Round(counts[k-1]*left + counts[k])
		ends := from.Add(time.Duration(k+1) * period)
		if rate+1 > float64(n) {
			return false, max(0, n-int64(rate)), ends
		}
		counts[k]++
		return true, n - int64(rate) - 1, ends
	}
}

// tokenBucket holds size requests and refills at rate a second.
func tokenBucket(size, rate float64, from time.Time) limiter {
	level, last := size, from
	return func(at time.Time) (bool, int64, time.Time) {
		level, last = min(size, level+rate*at.Sub(last).Seconds()), at
		if level < 1 {
			return false, 0, at.Add(seconds((1 - level) / rate))
		}
		level--
		return true, int64(level), at.Add(seconds((size - level) / rate))
	}
}

// slidingLog accepts a request if fewer than n were accepted within the last period.
func slidingLog(n int, period time.Duration) limiter {
	var log []time.Time
	return func(at time.Time) (bool, int64, time.Time) {
		log = slices.DeleteFunc(log, func(t time.Time) bool { return at.Sub(t) >= period })
		if len(log) >= n {
			return false, 0, log[0].Add(period)
		}
		log = append(log, at)
		return true, int64(n - len(log)), log[0].Add(period)
	}
}

// countsAll is HAProxy's http_req_rate: the estimate of two windows, the first of which begins with the first request. Rejected requests count.
func countsAll(n float64, period time.Duration) limiter {
	var start time.Time
	var now, before float64
	return func(at time.Time) (bool, int64, time.Time) {
		if start.IsZero() {
			start = at
		}
		if k := at.Sub(start) / period; k > 0 {
			if before, now = now, 0; k > 1 {
				before = 0
			}
			start = start.Add(k * period)
		}
		now++
		return now+before*(1-float64(at.Sub(start))/float64(period)) <= n, 0, at
	}
}

// atOnce accepts n requests at once, each of which takes 300 ms.
func atOnce(n int) limiter {
	var ends []time.Time
	return func(at time.Time) (bool, int64, time.Time) {
		ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !end.After(at) })
		if len(ends) >= n {
			return false, 0, at
		}
		ends = append(ends, at.Add(300*time.Millisecond))
		return true, 0, at
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// form is what responses state of a limiter: nothing, or a reading; and how long a rejection asks to wait.
type form struct {
	reading func(at time.Time, limit, remaining int64, reset time.Time) limits.Reading
	wait    func(at, reset time.Time) time.Duration
	refusal limits.Outcome
	late    bool // the remainder is as of the response, as slowapi states it
}

func wholeSeconds(round func(float64) float64) func(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
	return func(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
		return limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: remaining, Window: true, ResetSlack: time.Second,
			Reset: max(0, time.Unix(int64(round(float64(reset.UnixNano())/1e9)), 0).Sub(at))}
	}
}

func noReset(_ time.Time, limit, remaining int64, _ time.Time) limits.Reading {
	return limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: remaining}
}

// usedUp is a response from a cache.
func usedUp(time.Time, int64, int64, time.Time) limits.Reading {
	return limits.Reading{Dimension: limits.Requests, Limit: 100, Window: true, Reset: 30 * time.Second, ResetSlack: time.Second}
}

// nextSecond is Envoy's local rate limit.
func nextSecond(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
	return limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: remaining, Window: true, ResetSlack: time.Second,
		Reset: min(time.Duration(limit-remaining), 1) * time.Second}
}

// inBucketForm is OpenAI's form, as servers with windows use it.
func inBucketForm(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
	return limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: remaining, Reset: reset.Sub(at)}
}

// exactly is the form of slowapi, which adds a second.
func exactly(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
	return limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: remaining, Window: true, Reset: reset.Sub(at) + time.Second}
}

func stated(period time.Duration) func(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
	return func(at time.Time, limit, remaining int64, reset time.Time) limits.Reading {
		return limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: remaining, Window: true, ResetSlack: time.Second, Period: period,
			Reset: time.Duration(math.Ceil(reset.Sub(at).Seconds())) * time.Second}
	}
}

// inWords is a rejection that states the window, as SlowAPI does: "Rate limit exceeded: 100 per 10 second".
func inWords(n int, period time.Duration) limits.Outcome {
	w := limits.Window{N: n, Period: period}
	return limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Limit: int64(w.Per(time.Minute)), Window: w}
}

func ceilWait(at, reset time.Time) time.Duration {
	return time.Duration(math.Ceil(reset.Sub(at).Seconds())) * time.Second
}

// meet has a gate send n requests to a limiter, which takes 300 ms for each that it accepts. It returns the time until the last response and
// the number of rejections.
func meet(t *testing.T, cfg gate.Config, n int, limit int64, law limiter, f form) (took time.Duration, rejected int) {
	t.Helper()
	return newRig(t, cfg).meet(n, limit, law, f)
}

func (r *rig) meet(n int, limit int64, law limiter, f form) (took time.Duration, rejected int) {
	r.t.Helper()
	began := r.now
	type response struct {
		at     time.Time
		ticket *gate.Ticket
		o      limits.Outcome
	}
	var out []response
	var again []*gate.Ticket
	due := map[*gate.Ticket]time.Time{}
	for range n {
		r.queue(limits.Call{})
	}
	done, current := 0, limit
	for done < n {
		for _, ticket := range r.take() {
			at := r.now.Add(time.Millisecond)
			ok, remaining, reset := law(at)
			current = remaining
			o := limits.Outcome{}
			back := at.Add(300 * time.Millisecond)
			if !ok {
				rejected++
				o, back = f.refusal, at.Add(time.Millisecond)
				if o.Kind == limits.OK {
					o.Kind = limits.RateLimit
				}
				if f.wait != nil {
					o.Wait = f.wait(at, reset)
				}
			}
			if f.reading != nil {
				reading := f.reading(back, limit, remaining, reset)
				reading.At = back
				o.Readings = []limits.Reading{reading}
			}
			out = append(out, response{back, ticket, o})
		}
		next := r.g.Next()
		for i := range out {
			if next.IsZero() || out[i].at.Before(next) {
				next = out[i].at
			}
		}
		for _, ticket := range again {
			if next.IsZero() || due[ticket].Before(next) {
				next = due[ticket]
			}
		}
		if next.IsZero() || next.Sub(began) > time.Hour {
			r.t.Fatalf("nothing is due at %v: %d of %d done", r.since(), done, n)
		}
		if next.After(r.now) {
			r.now = next
		}
		slices.SortStableFunc(out, func(a, b response) int { return a.at.Compare(b.at) })
		for len(out) > 0 && !out[0].at.After(r.now) {
			each := out[0]
			out = out[1:]
			if f.late {
				each.o.Readings[0].Remaining = current
			}
			d := r.g.Release(r.now, each.ticket, &each.o)
			r.drain()
			if d.Action == gate.Again {
				next := &gate.Ticket{Call: each.ticket.Call, Attempt: each.ticket.Attempt, Throttles: each.ticket.Throttles + 1,
					Queued: each.ticket.Queued, Order: each.ticket.Order, Front: true}
				again, due[next] = append(again, next), r.now.Add(d.Wait)
			} else if done++; each.o.Kind != limits.OK {
				r.t.Fatalf("at %v a request failed", r.since())
			}
		}
		for _, ticket := range slices.Clone(again) {
			if !due[ticket].After(r.now) {
				again = slices.DeleteFunc(again, func(other *gate.Ticket) bool { return other == ticket })
				r.queueTicket(ticket)
			}
		}
		r.g.Tick(r.now)
		r.drain()
	}
	return r.now.Sub(began), rejected
}

func TestLimitersAreUsedWhole(t *testing.T) {
	ceil, floor := math.Ceil, math.Floor
	mid := epoch0.Add(-3700 * time.Millisecond)
	for _, c := range []struct {
		name    string
		law     limiter
		n       int
		limit   int64
		form    form
		optimum float64 // seconds
		ratio   float64
		most    int // rejections
	}{
		{"window, end rounded up", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{reading: wholeSeconds(ceil), wait: ceilWait}, 20.3, 1.05, 3},
		{"window, end rounded down", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{reading: wholeSeconds(floor)}, 20.3, 1.05, 3},
		{"window, remainder of the response", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{reading: exactly, wait: ceilWait, late: true}, 20.3, 1.05, 3},
		{"window in the form of a bucket", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{reading: inBucketForm}, 20.3, 1.05, 3},
		{"window with its period", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{reading: stated(10 * time.Second), wait: ceilWait}, 20.3, 1.05, 3},
		{"window, stated in words", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{refusal: inWords(100, 10*time.Second)}, 20.3, 1.05, 8},
		{"window of a second, stated in words", fixedWindow(20, time.Second, time.Time{}), 400, 20, form{refusal: inWords(20, time.Second)}, 19.3, 1.2, 12},
		{"window of the clock, stated in words", fixedWindow(100, 10*time.Second, mid), 300, 100, form{refusal: inWords(100, 10*time.Second)}, 16.6, 1.3, 8},
		{"window of a minute", fixedWindow(100, time.Minute, time.Time{}), 300, 100, form{reading: wholeSeconds(ceil), wait: ceilWait}, 120.3, 1.05, 3},
		{"window of the clock", fixedWindow(100, 10*time.Second, mid), 300, 100, form{reading: wholeSeconds(ceil), wait: ceilWait}, 16.6, 1.1, 3},
		{"window of a second", fixedWindow(20, time.Second, time.Time{}), 400, 20, form{reading: stated(time.Second), wait: ceilWait}, 19.3, 1.05, 3},
		{"two windows", twoWindows(100, 10*time.Second, mid), 300, 100, form{reading: wholeSeconds(floor), wait: func(_, _ time.Time) time.Duration { return 10 * time.Second }}, 26.6, 1.05, 8},
		{"bucket whose reset is always a second away", tokenBucket(60, 20, epoch0), 400, 60, form{reading: nextSecond}, 17.3, 1.05, 3},
		{"window, no reset", fixedWindow(100, 10*time.Second, time.Time{}), 400, 100, form{reading: noReset}, 30.3, 1.9, 30},
		{"no limit, headers of one that is used up", tokenBucket(1e9, 1e9, epoch0), 400, 100, form{reading: usedUp}, 15, 2.5, 0},
		{"bare window", fixedWindow(100, 10*time.Second, time.Time{}), 300, 100, form{}, 20.3, 1.12, 12},
		{"bare window of the clock", fixedWindow(100, 10*time.Second, mid), 300, 100, form{}, 16.6, 1.12, 12},
		{"bare window of a second", fixedWindow(20, time.Second, time.Time{}), 400, 20, form{}, 19.3, 1.3, 16},
		{"bare window of a minute", fixedWindow(100, time.Minute, time.Time{}), 300, 100, form{}, 120.3, 1.12, 20},
		{"bare two windows", twoWindows(100, 10*time.Second, mid), 300, 100, form{}, 26.6, 1.12, 20},
		{"bare sliding log", slidingLog(100, 10*time.Second), 300, 100, form{}, 20.3, 1.3, 45},
		{"a counter of all requests", countsAll(150, 10*time.Second), 300, 150, form{}, 20.3, 1.2, 25},
		{"leaky bucket", tokenBucket(41, 20, epoch0), 400, 0, form{}, 18.3, 1.12, 16},
		{"bare bucket", tokenBucket(40, 20, epoch0), 400, 0, form{}, 18.3, 1.12, 16},
		{"bucket, waits in whole seconds", tokenBucket(40, 20, epoch0), 400, 0, form{wait: ceilWait}, 18.3, 1.05, 16},
		{"leaky bucket, a proxy's page", tokenBucket(41, 20, epoch0), 400, 0, form{refusal: limits.Outcome{Kind: limits.Overloaded, Proxy: true}}, 18.3, 1.12, 16},
		{"small bucket", tokenBucket(20, 2, epoch0), 300, 0, form{}, 140.3, 1.05, 30},
		{"slow bucket", tokenBucket(10, 0.5, epoch0), 40, 0, form{}, 60.3, 1.12, 35},
		{"concurrency", atOnce(8), 400, 0, form{}, 15, 1.1, 8},
		{"concurrency, a proxy's page", atOnce(8), 400, 0, form{refusal: limits.Outcome{Kind: limits.Overloaded, Proxy: true}}, 15, 1.1, 8},
		{"concurrency, named", atOnce(8), 400, 0, form{refusal: limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Concurrency, Proxy: true}}, 15, 1.1, 8},
		{"concurrency, overloaded", atOnce(8), 400, 0, form{refusal: limits.Outcome{Kind: limits.Overloaded}}, 15, 1.1, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			took, rejected := meet(t, gate.Config{MaxThrottles: 1000, Random: func(n int64) int64 { return n / 2 }}, c.n, c.limit, c.law, c.form)
			ratio := took.Seconds() / c.optimum
			t.Logf("%.2f x the optimum, %d rejections", ratio, rejected)
			if ratio > c.ratio || rejected > c.most {
				t.Errorf("%.2f x the optimum and %d rejections, want at most %.2f and %d", ratio, rejected, c.ratio, c.most)
			}
		})
	}
}
