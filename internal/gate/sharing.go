package gate

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// joint is a limit that lanes of an account share.
type joint struct {
	bucket *bucket
	budget *budget
}

// share has lanes share a bucket while headers show that they share the limit. Lanes whose headers
// state the same limit share it until then.
func (b *buckets) share(now time.Time, t *Ticket, d limits.Dimension, left float64) {
	g, each := b.lane.gate, b.each[d]
	if b.remote() || len(g.sorted) < 2 {
		return
	}
	if g.joints[d] == nil && !t.refused && !b.compared[d].apart && each.cap >= 10*b.mean[d] && left >= b.mean[d] {
		for _, other := range g.sorted {
			if o := other.buckets.each[d]; o != each && !other.buckets.compared[d].apart && o.header.seen && o.Value == each.Value && each.Source == limits.SourceHeader {
				g.join(now, d, &other.buckets, t)
				each = b.each[d]
				break
			}
		}
	}
	joined := g.joints[d] != nil && g.joints[d].bucket == each
	level := b.book.level(now, d) + b.book.budgets[d].spent - t.mark[d] // at the departure, or more
	if joined && left > 0.95*each.cap && level < each.cap/2 {
		g.separate(now, d, b)
		return
	}
	b.compared[d].add(reference{at: t.sent, left: left}, t.own[d], t.total[d], each.cap, each.rate(), b.mean[d])
	switch score := b.compared[d].score; {
	case !joined && score >= sharedAfter:
		b.compared[d].apart = false
		if b.partake(now, d, t); b.each[d] == each {
			g.join(now, d, b, nil)
		}
	case joined && score < 0:
		g.separate(now, d, b)
	}
}

// join has all lanes with the same limit share one bucket. t is the request whose response showed that, or nil.
func (g *Gate) join(now time.Time, d limits.Dimension, b *buckets, t *Ticket) {
	if g.joints[d] == nil { // all lanes counted
		now = time.Time{}
	}
	g.joints[d] = &joint{b.each[d], b.book.budgets[d]}
	b.each[d].header.weight.more = 0
	g.joined = true
	for _, other := range g.sorted {
		other.buckets.partake(now, d, t)
	}
}

// separate gives a lane a bucket of its own. The other lanes that share the limit go on sharing it.
func (g *Gate) separate(now time.Time, d limits.Dimension, b *buckets) {
	each, level := *g.joints[d].bucket, *g.joints[d].budget
	each.doubt = nil
	b.each[d], b.book.budgets[d], b.compared[d] = &each, &level, compared{from: now, apart: true}
	for _, other := range g.sorted { // a header of the lane may just have changed the size
		if other.buckets.each[d] == g.joints[d].bucket {
			other.buckets.resize(now, d)
			return
		}
	}
}

// counts reports whether the requests of a lane count for the total that the headers of other lanes are compared with.
func (b *buckets) counts(d limits.Dimension) bool {
	j := b.lane.gate.joints[d]
	return j == nil || b.each[d] == j.bucket
}

// same reports whether a limit that has become known is the shared one whose level the lane uses. If it is another, the lane gets its own level.
func (b *buckets) same(d limits.Dimension) bool {
	j := b.lane.gate.joints[d]
	if j == nil || b.book.budgets[d] != j.budget {
		return false
	}
	if b.each[d].Value != j.bucket.Value {
		b.book.budgets[d] = &budget{spent: j.budget.spent}
		return false
	}
	return true
}

// partake has a lane use the shared bucket if its limit is the same. While the lane's limit is unknown, it uses the shared level. t is the
// request whose response showed that, or nil. It may have left the flight.
func (b *buckets) partake(now time.Time, d limits.Dimension, t *Ticket) {
	j, each := b.lane.gate.joints[d], b.each[d]
	if j == nil || b.compared[d].apart || each == j.bucket || each.Value != j.bucket.Value && each.Value != 0 {
		return
	}
	ahead := j.budget.spent - b.book.budgets[d].spent
	if t != nil && t.lane == b.lane && t.state == released {
		t.mark[d] += ahead
	}
	for u := b.lane.flight.head; u != nil; u = u.next {
		u.mark[d] += ahead
	}
	if b.book.budgets[d] = j.budget; each.Value == j.bucket.Value {
		b.each[d], b.compared[d].from = j.bucket, now
	}
}
