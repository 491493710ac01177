package gate

import (
	"math"
	"time"
)

// Vector holds an amount per dimension.
type Vector [NumDimensions]float64

// Asks are calls of one lane that want to go, in their order.
type Asks struct {
	Lane    string
	Waiting int // calls of the lane that wait, these included: the weight of the member's turn
	Calls   []Ask
}

// Ask is one call that wants its cost from a ledger.
type Ask struct {
	ID   uint64 // the permit's; asking again with the same ID takes nothing twice
	Cost Vector
}

// Reply is a ledger's answer to asks: the first Granted of them fit, the others have to wait.
type Reply struct {
	Granted int
	Marks   []Vector      // per granted ask: all that was ever spent on its lane, it included
	Before  Vector        // the part of Marks[0] that was spent before the last 50 to 100 ms
	Wait    time.Duration // until the first that did not fit may fit
	Bound   Dimension     // what it waits for
	News    News
}

// News is what the members of a ledger share of a lane beside its budgets. The zero value says nothing.
type News struct {
	Open  int // calls that are open, of all members
	Pause Pause
	Slots SlotLimit
}

// Pause is the pause of a lane, and what follows it: see cooldown.
type Pause struct {
	Epoch   uint64
	Left    time.Duration // until calls are sent again; 0 or less: they are
	Age     time.Duration // since the episode began
	Probing bool
	Ramp    int
	Cause   Kind
}

// SlotLimit is how many calls may be open, and what is known of more: see slots.
type SlotLimit struct {
	Version uint64  // counts the changes
	Limit   float64 // 0 is none
	Bad     int     // so many were refused once; 0 is not known
	Refused bool
	Hold    time.Duration // how long Bad is believed,
	Left    time.Duration // and how much of that is left
}

// Settlement gives back the difference between what a permit reserved and what it used (or takes it, where negative), and the
// permit's slot.
type Settlement struct {
	ID     uint64
	Lane   string
	Refund Vector
	Proven bool // the provider took the call: see cooldown
	Open   bool // it goes on, and keeps its slot
}

// Correction moves what a ledger knows of a lane to what the provider says of it. Of a budget, Lo and Hi bound its level at
// the instant when Mark had been spent; what was spent since is subtracted from both.
type Correction struct {
	ID        uint64
	Lane      string
	Account   bool      // it is of all lanes together; Lane only says with whose asks it goes
	Dimension Dimension // Concurrency: only Slots counts. AnyDimension: only Pause does
	Mark      float64
	Lo, Hi    float64
	Rate      float64 // per second
	Cap       float64
	Start     float64 // the level of a budget that is new

	Slots SlotLimit // its Version is the one that it was made from: it counts only if there is no newer one
	Pause Pause     // its Epoch is that of the pause; a pause is never shortened
}

// Local is the books of one process, by lane. The zero value is ready. It is not safe for concurrent use.
type Local struct {
	books map[string]*Book
}

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
