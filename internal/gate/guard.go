package gate

import (
	"math"
	"time"
)

const (
	guardParts = 240 // parts of a sliding window. An amount leaves the window up to one part too late
	guardSlack = 1   // parts that an amount stays longer with a shared ledger, as grants take time to reach its members
)

// guardBack is the order of the parts from which an amount is taken back, counted back from the part of the instant. The instant that a
// member of a shared ledger states is a little late, so the part before it is first.
var guardBack = [...]int64{1, 0, 2, 3}

// guard keeps a configured limit. In every sliding window at most n is sent, rejected requests included. If the size of a bucket is
// configured, at most the size is sent at once, and more at the rate of n per window.
type guard struct {
	n      float64
	window time.Duration
	period float64 // window in seconds
	size   float64 // of the bucket; 0: a sliding window
	slack  int64   // parts that an amount stays longer

	since time.Time // start of the bucket, or of part 0; amounts that were sent before are not counted

	level float64   // of the bucket
	at    time.Time // instant of the level

	parts [guardParts + 1 + guardSlack]float64 // amounts sent in the parts of the window
	part  int64                                // the newest part
	sum   float64                              // of the parts
}

// newGuard returns a guard of n per window in seconds. If burst is above 0, it is a bucket of that many seconds of refill.
func newGuard(n, window, burst float64) *guard {
	g := &guard{n: n, window: seconds(window), period: window}
	if burst > 0 {
		g.size = max(1, n*burst/window)
		g.level = g.size
	}
	return g
}

// width returns the length of a part. Parts start at multiples of it.
func (g *guard) width() time.Duration { return g.window / guardParts }

// kept is the number of parts whose amounts are in the window.
func (g *guard) kept() int64 { return guardParts + 1 + g.slack }

// of returns the amount of a part.
func (g *guard) of(part int64) *float64 { return &g.parts[part%int64(len(g.parts))] }

// renew forgets the parts that have left the window.
func (g *guard) renew(now time.Time) {
	if g.size > 0 {
		if g.since.IsZero() {
			g.since = now
		}
		if now == g.at {
			return
		}
		if dt := now.Sub(g.at).Seconds(); !g.at.IsZero() && dt > 0 {
			g.level = min(g.size, g.level+dt*g.n/g.period)
		}
		g.at = now
		return
	}
	if g.since.IsZero() {
		g.part = g.kept()
		g.since = now.Add(-time.Duration(now.UnixNano())%g.width() - time.Duration(g.part)*g.width())
	}
	part := int64(now.Sub(g.since) / g.width())
	if part < g.part { // the clock was set back
		g.since = now.Add(-time.Duration(g.part) * g.width())
	}
	for gone := part - g.part; gone > 0 && g.part < part; g.part++ {
		if gone > g.kept() {
			g.parts, g.sum, g.part = [guardParts + 1 + guardSlack]float64{}, 0, part
			return
		}
		oldest := g.of(g.part + 1 - g.kept())
		g.sum -= *oldest
		*oldest = 0
	}
}

// wait returns how long it takes until a cost may be sent.
func (g *guard) wait(now time.Time, cost float64) time.Duration {
	g.renew(now)
	if g.size > 0 {
		if short := min(cost, g.size) - g.level - 1e-9; short > 0 {
			return seconds(short * g.period / g.n)
		}
		return 0
	}
	over := g.sum + min(cost, g.n) - g.n - 1e-9
	for part := g.part + 1 - g.kept(); over > 0 && part <= g.part; part++ {
		if over -= *g.of(part); over <= 0 {
			return g.since.Add(time.Duration(part+g.kept()) * g.width()).Sub(now)
		}
	}
	return 0
}

// left returns the amount that may be sent now.
func (g *guard) left(now time.Time) float64 {
	if g.renew(now); g.size > 0 {
		return g.level
	}
	return g.n - g.sum
}

// ahead returns the maximum amount that may be sent until the next memory is saved.
func (g *guard) ahead(now time.Time) float64 {
	left := g.left(now)
	if g.size > 0 {
		return max(0, left) + g.n*SaveEvery.Seconds()/g.period
	}
	for part := g.part + 1 - g.kept(); part <= g.part-g.kept()+int64(SaveEvery/g.width())+1; part++ {
		left += *g.of(part)
	}
	return max(0, left)
}

// sent returns the amounts that were sent in each second of the window, oldest first, or the missing part of a bucket.
func (g *guard) sent(now time.Time) []float64 {
	if g.renew(now); g.size > 0 {
		return []float64{g.size - g.level}
	}
	out := make([]float64, (g.kept()+guardGroup-1)/guardGroup)
	for part := g.part + 1 - g.kept(); part <= g.part; part++ {
		out[int64(len(out))-1-(g.part-part)/guardGroup] += *g.of(part)
	}
	return out
}

// restore adds the amounts that an earlier process had sent until an instant, and the amount that it may have sent after it.
func (g *guard) restore(now, at time.Time, sent []float64, ahead float64) {
	if age := now.Sub(at); age < 0 || age > g.window+SaveEvery {
		return
	}
	g.renew(now)
	later := at.Add(SaveEvery)
	if later.After(now) {
		later = now
	}
	if g.size > 0 {
		g.add(now, now, max(0, sum(sent)-now.Sub(at).Seconds()*g.n/g.period))
		g.add(now, now, max(0, ahead-now.Sub(later).Seconds()*g.n/g.period))
		return
	}
	for i, amount := range sent {
		when := at.Add(-time.Duration(len(sent)-1-i) * g.width() * guardGroup)
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
	if g.size > 0 {
		return g.wait(now, cost) + seconds(max(0, cost-g.size)*g.period/g.n)
	}
	windows := max(0, math.Ceil(cost/g.n)-1)
	return g.wait(now, cost-windows*g.n) + seconds(windows*g.period)
}

// add counts an amount that was sent at an instant.
func (g *guard) add(now, sent time.Time, amount float64) {
	g.renew(now)
	switch {
	case sent.Before(g.since):
		return
	case g.size > 0:
		g.level = min(g.size, g.level-amount)
		return
	}
	part := min(int64(sent.Sub(g.since)/g.width()), g.part)
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
	if part <= g.part-g.kept() || part > g.part {
		return 0
	}
	at := g.of(part)
	amount = max(amount, -*at)
	*at += amount
	g.sum += amount
	return amount
}
