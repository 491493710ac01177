package sim

import (
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// checked are the dimensions of the budgets, in the order in which a provider checks them.
var checked = [...]limits.Dimension{limits.Requests, limits.RequestsPerDay, limits.Tokens, limits.InputTokens, limits.OutputTokens}

// Limits yields pointers to RPM, RPD, TPM, ITPM and OTPM of c, in the order in which the provider checks them.
func (c *Config) Limits() iter.Seq2[limits.Dimension, *int] {
	return func(yield func(limits.Dimension, *int) bool) {
		for i, limit := range [len(checked)]*int{&c.RPM, &c.RPD, &c.TPM, &c.ITPM, &c.OTPM} {
			if !yield(checked[i], limit) {
				return
			}
		}
	}
}

// In returns the limit of a dimension, with its period.
func (c *Config) In(d limits.Dimension) limits.Window {
	l := limits.Limits{RPM: c.RPM, TPM: c.TPM, ITPM: c.ITPM, OTPM: c.OTPM, RPD: c.RPD, Requests: c.Requests, Tokens: c.Tokens}
	return l.In(d)
}

// bucket is one budget. It is arithmetic on instants, counted from the first
// request; a bucket whose limit is zero does not exist.
type bucket struct {
	configured int           // limit per period in the Config
	limit      int           // limit per period now
	period     time.Duration // a minute, a day, or the stated one
	burst      time.Duration // refill the bucket can hold
	fixed      bool          // filled once every burst

	level float64
	at    time.Duration
}

// perSecond is the refill.
func (b *bucket) perSecond() float64 { return float64(b.limit) / b.period.Seconds() }

func (b *bucket) capacity() float64 { return max(1, b.perSecond()*b.burst.Seconds()) }

// advance brings the level up to now.
func (b *bucket) advance(now time.Duration) {
	if b.limit == 0 || now <= b.at {
		return
	}
	if b.fixed {
		if now/b.burst > b.at/b.burst {
			b.level = b.capacity()
		}
	} else {
		b.level = min(b.capacity(), b.level+b.perSecond()*(now-b.at).Seconds())
	}
	b.at = now
}

// scale changes the limit to the configured one times factor.
func (b *bucket) scale(factor float64) {
	if b.limit == 0 {
		return
	}
	b.limit = max(1, int(math.Round(float64(b.configured)*factor)))
	b.level = min(b.level, b.capacity())
}

// slack forgives rounding: a call that comes exactly when it may, may.
const slack = 1e-6

// holds reports whether n fits, with the bucket advanced to now.
func (b *bucket) holds(n float64) bool {
	return b.limit == 0 || b.level+slack >= min(n, b.capacity())
}

// wait is how long it takes from now until n fits.
func (b *bucket) wait(n float64) time.Duration {
	return b.until(min(n, b.capacity()) - b.level)
}

// until is how long it takes for the level to rise by n.
func (b *bucket) until(n float64) time.Duration {
	if n <= 0 {
		return 0
	}
	if b.fixed {
		return b.burst - b.at%b.burst
	}
	return time.Duration(math.Ceil(n/b.perSecond()*1e9 - 0.01)) // less the noise of floats
}

// budgets are the buckets of one account. They are not safe for concurrent use.
type budgets struct {
	buckets [limits.NumDimensions]bucket
	changes []Change
}

func newBudgets(c Config) *budgets {
	b := &budgets{changes: c.Changes}
	for d := range c.Limits() {
		w := c.In(d)
		one := bucket{configured: w.N, limit: w.N, period: w.Period, burst: c.Burst, fixed: c.FixedWindow}
		if w.Period != time.Minute {
			one.burst, one.fixed = w.Period, w.Period != d.Window()
		}
		if w.N > 0 && !(c.Drained && d.Window() == time.Minute) {
			one.level = one.capacity()
		}
		b.buckets[d] = one
	}
	return b
}

// advance brings every bucket up to now, through the changes on the way.
func (b *budgets) advance(now time.Duration) {
	for len(b.changes) > 0 && b.changes[0].At <= now {
		change := b.changes[0]
		b.changes = b.changes[1:]
		for d := range b.buckets {
			b.buckets[d].advance(change.At)
			b.buckets[d].scale(change.Factor)
		}
	}
	for d := range b.buckets {
		b.buckets[d].advance(now)
	}
}

// cost is what a call needs to be admitted and what it is then charged.
type cost struct {
	need, charge limits.Vector
}

// shortage says which bucket refused a call, and why.
type shortage struct {
	dimension limits.Dimension
	limit     int
	used      int           // limit - level, in whole units
	requested int           // what the call needs
	tooLarge  bool          // above the limit itself: it can never pass
	wait      time.Duration // as the provider states it, from whole units
	exact     time.Duration // as it is
}

// take charges c if every bucket holds it, and nothing otherwise.
func (b *budgets) take(now time.Duration, c *cost) (shortage, bool) {
	b.advance(now)
	for _, d := range checked {
		if one := &b.buckets[d]; !one.holds(c.need[d]) || one.limit > 0 && c.need[d] > float64(one.limit) {
			return one.shortage(d, c.need[d]), false
		}
	}
	for d := range b.buckets {
		b.buckets[d].level -= c.charge[d]
	}
	return shortage{}, true
}

// shortage states what is missing in whole units, as the providers do: their
// wait is (used + requested - limit) / limit of the period to the millisecond.
// https://github.com/continuedev/continue/issues/11472
func (b *bucket) shortage(d limits.Dimension, need float64) shortage {
	level := int(math.Floor(b.level + slack))
	s := shortage{
		dimension: d,
		limit:     b.limit,
		used:      b.limit - level,
		requested: int(math.Ceil(need)),
		tooLarge:  need > float64(b.limit),
	}
	if !s.tooLarge {
		s.exact = b.wait(need)
		s.wait = s.exact
		if missing := s.requested - level; !b.fixed && need <= b.capacity() && missing > 0 {
			s.wait = b.untilWhole(missing)
		}
	}
	return s
}

// untilWhole is until for whole units, without the rounding of floats.
func (b *bucket) untilWhole(n int) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(b.period))
	q, rest := bits.Div64(hi, lo, uint64(b.limit))
	if rest > 0 {
		q++
	}
	return time.Duration(q)
}

// judge checks, in this order, storm, money, concurrency, requests and tokens,
// and charges all of them or none, for a call that comes while so many are
// open and so many are paid for.
func (b *budgets) judge(c *Config, now time.Duration, price *cost, open, paid int) (no refusal, refused bool) {
	if storm, ok := c.stormAt(now); ok {
		no.reason, no.status, no.wait, no.hint = reasonStorm, storm.Status, storm.To-now, !storm.Silent
	} else if c.SpentAfter > 0 && paid >= c.SpentAfter {
		no.reason = reasonSpent
	} else if c.Concurrency > 0 && open >= c.Concurrency {
		// Nobody knows when a call will end: no hint.
		no.reason, no.shortage.dimension = reasonConcurrent, limits.Concurrency
	} else {
		short, ok := b.take(now, price)
		if ok {
			return no, false
		}
		no.reason, no.shortage, no.wait, no.hint = reasonShortage, short, short.wait, !short.tooLarge
	}
	if c.ChargeRefusals {
		b.refuse(now)
	}
	return no, true
}

// refuse charges the requests buckets for a refused call.
func (b *budgets) refuse(now time.Duration) {
	b.advance(now)
	for _, d := range [...]limits.Dimension{limits.Requests, limits.RequestsPerDay} {
		one := &b.buckets[d]
		one.level = max(0, one.level-1)
	}
}

// produced charges n output tokens that were made by now.
func (b *budgets) produced(now time.Duration, n int) {
	b.advance(now)
	b.buckets[limits.Tokens].level -= float64(n)
	b.buckets[limits.OutputTokens].level -= float64(n)
}

// nextChange is the instant of the next change after now, if there is one.
func (b *budgets) nextChange() (time.Duration, bool) {
	if len(b.changes) == 0 {
		return 0, false
	}
	return b.changes[0].At, true
}

// quota is a bucket as the headers tell it. Its zero value: no such limit.
type quota struct {
	limit     int
	remaining int           // whole units left
	reset     time.Duration // until the bucket is full
}

// quotas describes every bucket at now.
func (b *budgets) quotas(now time.Duration) (q [limits.NumDimensions]quota) {
	b.advance(now)
	for d := range b.buckets {
		one := &b.buckets[d]
		if one.limit == 0 {
			continue
		}
		q[d] = quota{
			limit:     one.limit,
			remaining: max(0, int(math.Floor(one.level+slack))),
			reset:     one.until(one.capacity() - one.level),
		}
	}
	return q
}
