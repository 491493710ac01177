package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// rates yields the dimensions that limit a rate, in the order of their values.
func rates(yield func(limits.Dimension) bool) {
	for d := limits.Requests; d < limits.NumDimensions && yield(d); d++ {
	}
}

// Book has the token buckets and the configured limits of one lane. It is not safe for concurrent use.
type Book struct {
	budgets  [limits.NumDimensions]*budget
	guards   [limits.NumDimensions]*guard // nil where no limit is configured
	guarding bool                         // some limit is configured
	shared   bool                         // several processes share it
}

// budget is a bucket that refills all the time, or a fixed window, which is whole again at its end. It limits nothing while its rate is zero.
type budget struct {
	level, rate, cap float64
	at               time.Time
	spent            float64       // what was charged and not rejected; unused reserves do not reduce it
	period           time.Duration // length of a window; 0: the bucket refills all the time
	ends             time.Time     // end of the present window; zero: the next request opens one
	ended            time.Time     // when the last one ended
	firm             bool          // a configured limit per day
	over             bool          // it has ended since the lane asked
	full             time.Time     // when the bucket was full last
	due              float64       // what open calls were charged here, and the provider charges only when they end
}

// newBook returns a book without limits, of one process or of several.
func newBook(shared bool) *Book {
	b := &Book{shared: shared}
	for d := range b.budgets {
		b.budgets[d] = new(budget)
	}
	return b
}

// level is the level of a bucket now.
func (b *Book) level(now time.Time, d limits.Dimension) float64 {
	b.budgets[d].refill(now)
	return b.budgets[d].level
}

// used is the missing part of a bucket now; 0 if no limit is known.
func (b *Book) used(now time.Time, d limits.Dimension) float64 {
	if b.budgets[d].rate == 0 {
		return 0
	}
	return b.budgets[d].cap - b.level(now, d)
}

// levels are the levels of all buckets now; 0 where no limit is known.
func (b *Book) levels(now time.Time) *limits.Vector {
	v := new(limits.Vector)
	for d := range rates {
		if b.budgets[d].rate > 0 {
			v[d] = b.level(now, d)
		}
	}
	return v
}

// spent is what was ever charged and not rejected.
func (b *Book) spent() (v limits.Vector) {
	for d, each := range &b.budgets {
		v[d] = each.spent
	}
	return v
}

// top is the level at which the budget is full. A provider's full bucket does not refill, so what is still due would be
// forgotten here, and met by surprise. Answers that take longer than the bucket lasts must not stop all others: a second
// of refill is always believed.
func (b *budget) top() float64 {
	if b.due == 0 {
		return b.cap
	}
	return max(b.cap-b.due, min(b.cap, b.rate))
}

func (b *budget) refill(now time.Time) {
	if b.period > 0 {
		if b.at = now; !b.ends.IsZero() && !now.Before(b.ends) {
			b.level, b.ends, b.ended, b.over = b.cap, time.Time{}, now, true
		}
		return
	}
	if dt := now.Sub(b.at); dt > 0 {
		b.level += b.rate * dt.Seconds()
		if top := b.top(); b.level >= top {
			b.level, b.full = top, now
		}
	}
	b.at = now // also when the clock was set back
}

// open opens a window that is not whole.
func (b *budget) open() {
	if b.period > 0 && b.ends.IsZero() && b.level < b.cap {
		b.ends = b.at.Add(b.period)
	}
}

// lasts returns how long it takes until a missing amount has flowed in.
func (b *budget) lasts(now time.Time, short float64) time.Duration {
	if b.period == 0 {
		return seconds(short / b.rate)
	}
	if short <= 0 {
		return 0
	}
	windows := max(0, math.Ceil(short/max(1, b.cap))-1)
	return max(0, b.ends.Sub(now)) + seconds(windows*b.period.Seconds())
}

// delay is the time until a limit has room, and that limit. 0 is now.
type delay struct {
	time  time.Duration
	bound limits.Dimension
}

// or returns the longer one of two delays; the first of equals.
func (d delay) or(other delay) delay {
	if other.time > d.time {
		return other
	}
	return d
}

// wait returns the time until cost fits.
func (b *Book) wait(now time.Time, cost *limits.Vector) (longest delay) {
	for d := range b.budgets {
		longest = longest.or(delay{b.lacks(now, limits.Dimension(d), cost[d]), limits.Dimension(d)})
	}
	return longest
}

// lacks returns the time until a bucket has room for an amount. An amount above the bucket's size needs a full one.
func (b *Book) lacks(now time.Time, d limits.Dimension, amount float64) time.Duration {
	bud := b.budgets[d]
	if bud.rate == 0 || amount == 0 {
		return 0
	}
	bud.refill(now)
	if short := min(amount, bud.top()) - bud.level - 1e-9; short > 0 { // rounding costs no wake-up
		return max(1, bud.lasts(now, short))
	}
	return 0
}

// daily returns the time until the configured limits per day have room for cost.
func (b *Book) daily(now time.Time, cost *limits.Vector) (longest delay) {
	for d := limits.RequestsPerDay; d < limits.NumDimensions; d++ {
		if b.budgets[d].firm {
			longest = longest.or(delay{b.lacks(now, d, cost[d]), d})
		}
	}
	return longest
}

// drain is how long until the cost of several requests has flowed in and configured limits have room for it.
func (b *Book) drain(now time.Time, cost *limits.Vector) (longest time.Duration) {
	for d, bud := range &b.budgets {
		if g := b.guards[d]; g != nil {
			longest = max(longest, g.drain(now, cost[d]))
		}
		if bud.refill(now); bud.rate > 0 {
			longest = max(longest, bud.lasts(now, cost[d]-bud.level))
		}
	}
	return longest
}

// charge takes cost from every budget, and returns the total that was ever spent.
func (b *Book) charge(cost *limits.Vector) (spent limits.Vector) {
	for d := limits.Requests; d < limits.NumDimensions; d++ { // faster than a range over all
		bud := b.budgets[d]
		bud.spent += cost[d]
		bud.level -= cost[d]
		bud.open()
		spent[d] = bud.spent
	}
	return spent
}

// void takes a charge back that never was one: of a request that was rejected. Levels rise by refund.
func (b *Book) void(now time.Time, cost, refund *limits.Vector) {
	b.refund(now, refund)
	for d, bud := range &b.budgets {
		bud.spent -= cost[d]
	}
}

func (b *Book) refund(now time.Time, refund *limits.Vector) {
	for d := limits.Requests; d < limits.NumDimensions; d++ { // faster than a range over all
		if bud := b.budgets[d]; bud.rate > 0 && refund[d] != 0 {
			bud.refill(now)
			bud.level = min(bud.top(), bud.level+refund[d])
		}
	}
}

func (b *Book) correct(now time.Time, c *limits.Correction) {
	bud := b.budgets[c.Dimension]
	bud.refill(now)
	bud.rate, bud.cap, bud.at, bud.period = c.Rate, c.Cap, now, c.Period
	bud.firm = c.Limit > 0 && perDay(c.Dimension)
	if c.Left >= 0 || !b.shared { // else the window has ended while the correction was on its way
		if c.Left != 0 {
			bud.ends = now.Add(c.Left)
		}
		since := bud.spent - c.Mark
		bud.level = min(max(bud.level, c.Lo-since), c.Hi-since)
	}
	bud.level = min(bud.level, bud.top())
	bud.open()
}

// guarded returns the time until configured limits have room for the amounts of a request.
func (b *Book) guarded(now time.Time, most *limits.Vector) (longest delay) {
	if !b.guarding {
		return longest
	}
	for d, g := range &b.guards {
		if g != nil && most[d] > 0 {
			longest = longest.or(delay{g.wait(now, most[d]), limits.Dimension(d)})
		}
	}
	return longest
}

// guard has the configured limits count amounts that were sent at an instant.
func (b *Book) guard(now, sent time.Time, amount *limits.Vector) {
	if !b.guarding {
		return
	}
	for d, g := range &b.guards {
		if g != nil && amount[d] != 0 {
			g.add(now, sent, amount[d])
		}
	}
}

// configure sets the configured limit of a dimension. Limits per day have no guard.
func (b *Book) configure(now time.Time, d limits.Dimension, k promise) {
	switch g := b.guards[d]; {
	case k.n == 0 || perDay(d):
		b.guards[d] = nil
	case g == nil:
		b.guards[d] = newGuard(k, b.shared)
	default:
		b.guards[d] = g.keep(now, k, b.shared)
	}
	b.guarding = b.guards != [limits.NumDimensions]*guard{}
}

// setDue sets the amount that the output of requests in flight will still be charged.
func (b *Book) setDue(output float64) {
	b.budgets[limits.Tokens].due, b.budgets[limits.OutputTokens].due = output, output
}

// seconds makes a duration of a number of seconds, without overflow.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
