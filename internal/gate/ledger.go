package gate

import (
	"math"
	"time"
)

// Vector holds an amount per dimension.
type Vector [NumDimensions]float64

// Ask is one call that wants its cost from a ledger.
type Ask struct {
	ID   uint64 // the permit's; asking again with the same ID takes nothing twice
	Lane string
	Cost Vector
}

// Reply is a ledger's answer to asks: the first Granted of them fit, the others have to wait.
type Reply struct {
	Granted int
	Marks   []Vector      // per granted ask: all that was ever spent on its lane, it included
	Wait    time.Duration // until the first that did not fit may fit
	Bound   Dimension     // what it waits for
}

// Settlement gives back (or takes, where negative) the difference between what a permit reserved and what it used.
type Settlement struct {
	ID     uint64
	Lane   string
	Refund Vector
}

// Correction moves a budget to what the provider says of it. Lo and Hi bound its level at the instant when Mark had
// been spent; what was spent since is subtracted from both.
type Correction struct {
	ID        uint64
	Lane      string
	Dimension Dimension
	Mark      float64
	Lo, Hi    float64
	Rate      float64 // per second
	Cap       float64
}

// Local is the ledger of one process: plain arithmetic, which answers at once. The zero value is ready. It is not safe
// for concurrent use.
type Local struct {
	books map[string]*Book
}

// Take charges the longest prefix of asks that fits.
func (l *Local) Take(now time.Time, asks []Ask) Reply {
	var r Reply
	for i := range asks {
		b := l.Book(asks[i].Lane)
		if r.Wait, r.Bound = b.wait(now, &asks[i].Cost); r.Wait > 0 {
			break
		}
		r.Granted++
		r.Marks = append(r.Marks, b.charge(&asks[i].Cost))
	}
	return r
}

// Settle applies a settlement.
func (l *Local) Settle(now time.Time, s Settlement) { l.Book(s.Lane).refund(now, &s.Refund) }

// Correct applies a correction.
func (l *Local) Correct(now time.Time, c Correction) { l.Book(c.Lane).correct(now, &c) }

// Book returns the budgets of a lane.
func (l *Local) Book(lane string) *Book {
	b := l.books[lane]
	if b == nil {
		if l.books == nil {
			l.books = make(map[string]*Book)
		}
		b = new(Book)
		l.books[lane] = b
	}
	return b
}

// Book is the budgets of one lane, each a mirror of one of the provider's buckets.
type Book struct {
	budgets [NumDimensions]budget
	spent   Vector // gross: refunds do not reduce it
}

// budget is a bucket that refills continuously. It limits nothing while its rate is zero.
type budget struct {
	level, rate, cap float64
	at               time.Time
	due              float64 // what open calls were charged here, and the provider charges only when they end
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
	if dt := now.Sub(b.at); dt > 0 {
		b.level = min(b.top(), b.level+b.rate*dt.Seconds())
	}
	b.at = now // also when the clock was set back
}

// wait is how long until cost fits, and which budget says so. Zero: it fits now.
func (b *Book) wait(now time.Time, cost *Vector) (longest time.Duration, bound Dimension) {
	for d := Requests; d < NumDimensions; d++ {
		bud := &b.budgets[d]
		if bud.rate == 0 || cost[d] == 0 {
			continue
		}
		bud.refill(now)
		// A call above the bucket's size goes from a full one. A hair of tolerance keeps rounding from costing a wake-up.
		short := min(cost[d], bud.top()) - bud.level - 1e-9
		if short <= 0 {
			continue
		}
		if w := seconds(short / bud.rate); w > longest {
			longest, bound = w, d
		}
	}
	return longest, bound
}

// drain is how long until the cost of several calls has flowed in, beyond what the buckets hold.
func (b *Book) drain(now time.Time, cost *Vector) (longest time.Duration) {
	for d := Requests; d < NumDimensions; d++ {
		bud := &b.budgets[d]
		if bud.rate == 0 {
			continue
		}
		bud.refill(now)
		if short := cost[d] - bud.level; short > 0 {
			longest = max(longest, seconds(short/bud.rate))
		}
	}
	return longest
}

// charge takes cost from every budget and returns what was ever spent.
func (b *Book) charge(cost *Vector) Vector {
	for d := Requests; d < NumDimensions; d++ {
		if c := cost[d]; c != 0 {
			b.spent[d] += c
			b.budgets[d].level -= c
		}
	}
	return b.spent
}

func (b *Book) refund(now time.Time, refund *Vector) {
	for d := Requests; d < NumDimensions; d++ {
		if bud := &b.budgets[d]; bud.rate > 0 && refund[d] != 0 {
			bud.refill(now)
			bud.level = min(bud.top(), bud.level+refund[d])
		}
	}
}

func (b *Book) correct(now time.Time, c *Correction) {
	bud := &b.budgets[c.Dimension]
	bud.refill(now)
	bud.rate, bud.cap, bud.at = c.Rate, c.Cap, now
	since := b.spent[c.Dimension] - c.Mark
	bud.level = min(max(bud.level, c.Lo-since), c.Hi-since, bud.top())
}

// owe notes what the output of open calls will still be charged.
func (b *Book) owe(output float64) {
	b.budgets[Tokens].due, b.budgets[OutputTokens].due = output, output
}

// seconds makes a duration of a number of seconds, without overflow.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
