package worlds

import (
	"math"
	"time"
)

// slack is the part of a token by which sums of floats may be off.
const slack = 1e-6

// meter counts the use of one limit.
type meter interface {
	// left returns the room that there is now. It is negative after an overdraft.
	left(now time.Duration) float64
	// refilled returns when there is room for cost if nothing else is taken, or never. There is room for left now, which is less.
	refilled(now time.Duration, cost, left float64) time.Duration
	// take takes cost, even beyond the limit; a negative cost is returned.
	take(now time.Duration, cost float64)
	// size returns the most room that there can be.
	size() float64
	// refit changes the limit to n per minute, or n at once.
	refit(now time.Duration, n float64)
}

// after returns the earliest instant from now on with room for cost if nothing else is taken, or never.
func after(m meter, now time.Duration, cost float64) time.Duration {
	left := m.left(now)
	switch {
	case left+slack >= cost:
		return now
	case cost > m.size()+slack:
		return never
	}
	return m.refilled(now, cost, left)
}

// newMeter returns the meter of a limit as it is at time zero.
func newMeter(l Limit) meter {
	if l.Dim == Concurrency {
		return &counter{limit: l.N, count: math.Round(l.Used * l.N)}
	}
	window := time.Duration(float64(l.Burst) * 1e9)
	full := max(l.N*float64(l.Burst)/l.minute(), 1)
	switch l.Kind {
	case Fixed, Opened, Estimate:
		f := &fixed{kind: l.Kind, window: window, end: window - l.Phase.span()%window, full: full, used: l.Used * full, perMinute: l.minute()}
		if l.Kind == Opened && l.Used == 0 {
			f.end = 0
		}
		return f
	case Sliding:
		s := &sliding{window: window, full: full, perMinute: l.minute()}
		if l.Used > 0 {
			s.take(0, l.Used*full)
		}
		return s
	default:
		return &bucket{rate: l.N / l.minute(), seconds: float64(l.Burst), full: full, level: full * (1 - l.Used), unit: l.minute()}
	}
}

// bucket is a token bucket: it refills all the time.
type bucket struct {
	rate    float64 // per second
	seconds float64
	full    float64
	level   float64 // at the instant of the last take
	at      time.Duration
	unit    float64       // seconds to which the limit's number refers
	filled  time.Duration // the last take from a full bucket
}

func (b *bucket) left(now time.Duration) float64 {
	return min(b.full, b.level+b.rate*(now-b.at).Seconds())
}

func (b *bucket) refilled(now time.Duration, cost, left float64) time.Duration {
	return now + time.Duration(math.Ceil((cost-left)/b.rate*1e9))
}

func (b *bucket) take(now time.Duration, cost float64) {
	if b.left(now) == b.full {
		b.filled = now
	}
	b.level = min(b.full, b.left(now)-cost)
	b.at = now
}

func (b *bucket) size() float64 { return b.full }

func (b *bucket) refit(now time.Duration, n float64) {
	b.level, b.at = b.left(now), now
	b.rate = n / b.unit
	b.full = max(b.rate*b.seconds, 1)
	b.level = min(b.level, b.full)
}

// fixed counts the use in windows that follow each other or, if Opened, start with the first request after the end of the last.
// An Estimate adds the use of the window before, times the share of that window that a sliding window would still cover.
type fixed struct {
	kind      string // Fixed, Opened or Estimate
	window    time.Duration
	end       time.Duration // of the window in which used was counted
	full      float64
	used      float64
	before    float64 // Estimate: used in the window before
	perMinute float64
}

// ends returns the end of the window of an instant. After the end of an Opened one it is that end.
func (f *fixed) ends(now time.Duration) time.Duration {
	if now < f.end || f.kind == Opened {
		return f.end
	}
	return now + f.window - (now-f.end)%f.window
}

func (f *fixed) roll(now time.Duration) {
	if now < f.end {
		return
	}
	if f.before = 0; f.kind == Estimate && now < f.end+f.window {
		f.before = f.used
	}
	f.end, f.used = f.ends(now), 0
}

func (f *fixed) left(now time.Duration) float64 {
	f.roll(now)
	return f.full - f.used - f.before*f.covered(now)
}

// covered returns the share of the window before that a sliding window would still cover.
func (f *fixed) covered(now time.Duration) float64 {
	return max(0, (f.end-now).Seconds()/f.window.Seconds())
}

func (f *fixed) refilled(_ time.Duration, cost, _ float64) time.Duration {
	end, before, room := f.end, f.before, f.full-f.used-cost
	if room < 0 && f.kind == Estimate { // it comes in the next window
		end, before, room = f.end+f.window, f.used, f.full-cost
	}
	if before == 0 {
		return f.end
	}
	share := min(1, room/before) // of the window before, at most
	return max(end-f.window, end-time.Duration(share*float64(f.window)))
}

func (f *fixed) take(now time.Duration, cost float64) {
	if f.roll(now); f.end <= now {
		f.end = now + f.window
	}
	f.used = max(0, f.used+cost)
}

func (f *fixed) size() float64 { return f.full }

func (f *fixed) refit(now time.Duration, n float64) {
	f.roll(now)
	f.full = max(n*f.window.Seconds()/f.perMinute, 1)
}

// sliding counts the use within the time just gone.
type sliding struct {
	window    time.Duration
	full      float64
	sum       float64
	entries   []taken
	perMinute float64
}

type taken struct {
	at   time.Duration
	cost float64
}

func (s *sliding) roll(now time.Duration) {
	gone := 0
	for gone < len(s.entries) && s.entries[gone].at <= now-s.window {
		s.sum -= s.entries[gone].cost
		gone++
	}
	s.entries = s.entries[gone:]
}

func (s *sliding) left(now time.Duration) float64 {
	s.roll(now)
	return s.full - s.sum
}

func (s *sliding) refilled(now time.Duration, cost, left float64) time.Duration {
	for _, entry := range s.entries {
		if left += entry.cost; left+slack >= cost {
			return entry.at + s.window
		}
	}
	return now
}

func (s *sliding) take(now time.Duration, cost float64) {
	s.roll(now)
	s.sum += cost
	if cost >= 0 {
		s.entries = append(s.entries, taken{now, cost})
		return
	}
	for i := len(s.entries) - 1; i >= 0 && cost < 0; i-- { // from the newest entries
		part := min(s.entries[i].cost, -cost)
		s.entries[i].cost -= part
		cost += part
	}
	s.sum -= cost // the rest was taken in an earlier window
}

// amend adds to what was taken at an instant.
func (s *sliding) amend(at time.Duration, cost float64) {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.entries[i].at == at {
			s.entries[i].cost += cost
			s.sum += cost
			return
		}
	}
}

func (s *sliding) size() float64 { return s.full }

func (s *sliding) refit(_ time.Duration, n float64) {
	s.full = max(n*s.window.Seconds()/s.perMinute, 1)
}

// counter counts requests in flight. The provider gives back when a request is released.
type counter struct {
	limit, count float64
}

func (c *counter) left(time.Duration) float64 { return c.limit - c.count }

func (c *counter) refilled(time.Duration, float64, float64) time.Duration { return never }

func (c *counter) take(_ time.Duration, cost float64) { c.count = max(0, c.count+cost) }

func (c *counter) size() float64 { return c.limit }

func (c *counter) refit(_ time.Duration, n float64) { c.limit = n }
