package gate

import (
	"cmp"
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	guardParts = 240                    // parts of a sliding window. An amount leaves the window up to one part too late
	guardSlack = 250 * time.Millisecond // time that an amount stays longer with a shared ledger, as grants take time to reach its members
	leastPart  = 50 * time.Millisecond  // minimum length of a part
	mostParts  = guardParts + 1 + int64(guardSlack/leastPart)
)

// guardBack is the order of the parts from which an amount is taken back, counted back from the part of the instant. The instant that a
// member of a shared ledger states is a little late, so the part before it is first.
var guardBack = [...]int64{1, 0, 2, 3}

// promise is a configured limit: at most n per period. A burst above 0 is the size of a bucket that refills at that rate, as the time of its
// refill. The zero value limits nothing.
type promise struct {
	n             float64
	period, burst time.Duration
}

// promiseOf returns the configured limit of a dimension. A stated period is a sliding window.
func promiseOf(l limits.Limits, d limits.Dimension) promise {
	w := l.In(d)
	if w.N == 0 || perDay(d) {
		return promise{}
	}
	k := promise{n: float64(w.N), period: w.Period}
	if w.Period == d.Window() {
		k.burst = l.Burst
	}
	return k
}

// rate returns the limit per second.
func (k *promise) rate() float64 { return k.n / k.period.Seconds() }

// size returns the size of the bucket; 0: a sliding window.
func (k *promise) size() float64 {
	if k.burst <= 0 {
		return 0
	}
	return max(1, k.rate()*k.burst.Seconds())
}

// guard keeps a configured limit. In every sliding window at most n is sent, rejected requests included. If the size of a bucket is
// configured, at most the size is sent at once, and more at the rate of n per period.
type guard struct {
	promise
	width time.Duration // of a part. Parts start at multiples of it
	stays int64         // parts for which an amount is in the window

	since time.Time // start of the bucket, or of part 0; amounts that were sent before are not counted

	level float64   // of the bucket
	at    time.Time // instant of the level

	parts [mostParts + 1]float64 // amounts sent in the parts of the window
	part  int64                  // the newest part
	sum   float64                // of the parts
}

// newGuard returns a guard of a configured limit, of a shared ledger or of one process.
func newGuard(k promise, shared bool) *guard {
	g := &guard{promise: k, level: k.size()}
	g.width, g.stays = parts(k.period)
	if shared {
		g.width, g.stays = SharedParts(k.period)
	} else if g.width == leastPart { // requests of one instant do not take the same time to arrive
		g.stays++
	}
	return g
}

// SharedParts returns the length of the parts of a window in a shared ledger, and the number of parts for which an amount is in it.
func SharedParts(period time.Duration) (width time.Duration, stays int64) {
	width, stays = parts(period)
	return width, stays + int64(ceilDiv(guardSlack, width))
}

// parts returns the length of the parts of a window, and the number of parts for which an amount is in it.
func parts(period time.Duration) (width time.Duration, stays int64) {
	width = max(leastPart, ceilDiv(ceilDiv(period, guardParts), time.Microsecond)*time.Microsecond)
	return width, int64(ceilDiv(period, width)) + 1
}

func ceilDiv(a, b time.Duration) time.Duration { return (a + b - 1) / b }

// keep replaces the limit. The amounts that were sent count for the new one, except if a bucket replaces a window.
func (g *guard) keep(now time.Time, k promise, shared bool) *guard {
	size := g.size()
	if g.period == k.period && (size > 0) == (k.burst > 0) {
		if g.promise = k; size > 0 {
			g.level += min(0, k.size()-size)
		}
		return g
	}
	next := newGuard(k, shared)
	if size > 0 || k.burst > 0 {
		return next
	}
	g.renew(now)
	for part := g.part + 1 - g.stays; part <= g.part; part++ {
		if amount := *g.of(part); amount > 0 {
			next.add(now, g.since.Add(time.Duration(part+1)*g.width-time.Microsecond), amount)
		}
	}
	return next
}

// of returns the amount of a part.
func (g *guard) of(part int64) *float64 { return &g.parts[part%int64(len(g.parts))] }

// renew forgets the parts that have left the window.
func (g *guard) renew(now time.Time) {
	if g.burst > 0 {
		if g.since.IsZero() {
			g.since = now
		}
		if now == g.at {
			return
		}
		if dt := now.Sub(g.at).Seconds(); !g.at.IsZero() && dt > 0 {
			g.level = min(g.size(), g.level+dt*g.rate())
		}
		g.at = now
		return
	}
	if g.since.IsZero() {
		g.part = g.stays
		g.since = now.Add(-time.Duration(now.UnixNano())%g.width - time.Duration(g.part)*g.width)
	}
	part := int64(now.Sub(g.since) / g.width)
	if part < g.part { // the clock was set back
		g.since = now.Add(-time.Duration(g.part) * g.width)
	}
	for gone := part - g.part; gone > 0 && g.part < part; g.part++ {
		if gone > g.stays {
			g.parts, g.sum, g.part = [mostParts + 1]float64{}, 0, part
			return
		}
		oldest := g.of(g.part + 1 - g.stays)
		g.sum -= *oldest
		*oldest = 0
	}
}

// wait returns how long it takes until a cost may be sent.
func (g *guard) wait(now time.Time, cost float64) time.Duration {
	g.renew(now)
	if g.burst > 0 {
		if short := min(cost, g.size()) - g.level - 1e-9; short > 0 {
			return seconds(short / g.rate())
		}
		return 0
	}
	over := g.sum + min(cost, g.n) - g.n - 1e-9
	for part := g.part + 1 - g.stays; over > 0 && part <= g.part; part++ {
		if over -= *g.of(part); over <= 0 {
			return g.since.Add(time.Duration(part+g.stays) * g.width).Sub(now)
		}
	}
	return 0
}

// left returns the amount that may be sent now.
func (g *guard) left(now time.Time) float64 {
	if g.renew(now); g.burst > 0 {
		return g.level
	}
	return g.n - g.sum
}

// ahead returns the maximum amount that may be sent until the next memory is saved.
func (g *guard) ahead(now time.Time) float64 {
	left := g.left(now)
	if g.burst > 0 {
		return max(0, left) + g.rate()*SaveEvery.Seconds()
	}
	for part := g.part + 1 - g.stays; part <= min(g.part, g.part-g.stays+int64(SaveEvery/g.width)+1); part++ {
		left += *g.of(part)
	}
	return max(0, left)
}

// sent returns the amounts that were sent in groups of parts of the window, oldest first, or the missing part of a bucket.
func (g *guard) sent(now time.Time) []float64 {
	if g.renew(now); g.burst > 0 {
		return []float64{g.size() - g.level}
	}
	out := make([]float64, (g.stays+guardGroup-1)/guardGroup)
	for part := g.part + 1 - g.stays; part <= g.part; part++ {
		out[int64(len(out))-1-(g.part-part)/guardGroup] += *g.of(part)
	}
	return out
}

// restore adds the amounts that an earlier process had sent until an instant, and the amount that it may have sent after it.
func (g *guard) restore(now, at time.Time, m *GuardMemory) {
	sent, ahead, saved := m.Sent, m.Ahead, newGuard(promise{period: cmp.Or(m.Period, time.Minute)}, false)
	if age := now.Sub(at); age < 0 || age > saved.period+SaveEvery {
		return
	}
	g.renew(now)
	later := at.Add(SaveEvery)
	if later.After(now) {
		later = now
	}
	if g.burst > 0 {
		g.add(now, now, max(0, sum(sent)-now.Sub(at).Seconds()*g.rate()))
		g.add(now, now, max(0, ahead-now.Sub(later).Seconds()*g.rate()))
		return
	}
	for i, amount := range sent {
		when := at.Add(-time.Duration(len(sent)-1-i) * saved.width * guardGroup)
		if when.Before(g.since) {
			when = g.since
		}
		if amount > 0 {
			g.add(now, when, amount)
		}
	}
	g.add(now, later, ahead)
}

func sum(amounts []float64) (total float64) {
	for _, a := range amounts {
		total += a
	}
	return total
}

// drain returns how long it takes until requests of that total cost may be sent.
func (g *guard) drain(now time.Time, cost float64) time.Duration {
	if g.burst > 0 {
		return g.wait(now, cost) + seconds(max(0, cost-g.size())/g.rate())
	}
	windows := max(0, math.Ceil(cost/g.n)-1)
	return g.wait(now, cost-windows*g.n) + seconds(windows*g.period.Seconds())
}

// add counts an amount that was sent at an instant.
func (g *guard) add(now, sent time.Time, amount float64) {
	g.renew(now)
	switch {
	case sent.Before(g.since):
		return
	case g.burst > 0:
		g.level = min(g.size(), g.level-amount)
		return
	}
	part := min(int64(sent.Sub(g.since)/g.width), g.part)
	if amount > 0 {
		g.move(part, amount)
		return
	}
	for _, back := range guardBack {
		amount -= g.move(part-back, amount)
	}
}

// move adds an amount to a part of the window and returns the added amount. A part does not fall below zero.
func (g *guard) move(part int64, amount float64) float64 {
	if part <= g.part-g.stays || part > g.part {
		return 0
	}
	at := g.of(part)
	amount = max(amount, -*at)
	*at += amount
	g.sum += amount
	return amount
}
