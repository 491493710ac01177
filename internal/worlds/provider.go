package worlds

import (
	"cmp"
	"math"
	"time"
)

// cause is why a provider answered as it did. Reference clients see it; others have only the response's text.
type cause string

const (
	served   cause = ""
	limited  cause = "limit"
	stormed  cause = "storm"
	stray    cause = "stray"
	overload cause = "overload"
	broken   cause = "broken" // a 500, a reset or a hang
	hopeless cause = "odd"    // the item can't succeed
)

// limit is a Limit in force.
type limit struct {
	Limit
	meter
	foreign float64 // part of N that is left to foreign clients beforehand
	spent   float64 // by the knowing client
}

// change multiplies a limit.
func (l *limit) change(now time.Duration, factor float64) {
	l.N *= factor
	left := max(l.N-l.foreign, l.N/1000)
	if b, ok := l.meter.(*bucket); ok { // it holds as much as before
		b.seconds = float64(l.Burst) * l.N / left
	}
	l.refit(now, left)
}

// provider is the simulated server of a world.
type provider struct {
	w        *World
	clock    *clock
	lanes    [][]*limit // of each lane: its own limits, then the limits of the account
	accepted []int      // requests of each lane for which there was room
	workers  []time.Duration
	speaker  *speaker // nil: responses have neither headers nor bodies
	refused  int      // requests of foreign clients that were rejected
	foreign  int      // requests of foreign clients
	eager    bool     // for the optimum: output is charged at arrival, and foreign requests are never rejected
}

func newProvider(w *World, c *clock, eager bool) *provider {
	p := &provider{w: w, clock: c, accepted: make([]int, w.Lanes), workers: make([]time.Duration, w.Serve.Workers), eager: eager}
	account := inForce(w.Account)
	for range w.Lanes {
		p.lanes = append(p.lanes, append(inForce(w.Lane), account...))
	}
	for _, change := range w.Changes {
		c.at(change.At.span(), func() { p.change(change) })
	}
	for _, storm := range w.Storms { // a client that waits for the end is asked again
		c.at((storm.At + storm.For).span(), func() {})
	}
	if w.Foreign.Share > 0 {
		p.startForeign()
	}
	if eager && w.Foreign.Share > 0 { // a window forgets a debt, so that its foreign part is set aside
		for _, l := range p.lanes[0] {
			if l.Kind != Bucket {
				l.foreign = w.foreignUse(l.Limit)
				l.change(0, 1)
			}
		}
	}
	return p
}

// foreignUse returns the average use of a limit by foreign clients: per minute, or at once.
func (w *World) foreignUse(l Limit) float64 {
	if l.Dim == Concurrency {
		return w.Foreign.Share * w.capacity() * float64(w.Serve.Latency+l.Late)
	}
	return l.minute() * w.Foreign.Share * w.capacity() * w.meanCost(l.Dim)
}

func inForce(limits []Limit) (out []*limit) {
	for _, l := range limits {
		out = append(out, &limit{Limit: l, meter: newMeter(l)})
	}
	return out
}

func (p *provider) change(c Change) {
	seen := map[*limit]bool{}
	for _, lane := range p.lanes {
		for _, l := range lane {
			if c.concerns(l.Dim) && !seen[l] {
				seen[l] = true
				l.change(p.clock.now, c.Factor)
			}
		}
	}
}

// storm returns the storm that rages now, or nil.
func (p *provider) storm() *Storm {
	for i, s := range p.w.Storms {
		if p.clock.now >= s.At.span() && p.clock.now < (s.At+s.For).span() {
			return &p.w.Storms[i]
		}
	}
	return nil
}

// need returns the room that a limit must have for an item.
func (p *provider) need(l *limit, item *Item) float64 {
	cost := p.w.cost(l.Dim, item)
	if p.eager {
		return max(cost, p.w.total(l.Dim, item))
	}
	return max(cost, 1)
}

// earliest returns the earliest instant at which the provider has room for an item if no other takes it, or never if
// only an event can make room.
func (p *provider) earliest(item *Item) time.Duration {
	at := p.clock.now
	if s := p.storm(); s != nil {
		at = (s.At + s.For).span()
	}
	for _, l := range p.lanes[item.Lane] {
		at = max(at, after(l, p.clock.now, p.need(l, item)))
	}
	return at
}

// lacking returns the limit that an item would exceed, the one with the longest wait, and that wait.
func (p *provider) lacking(item *Item) (worst *limit, wait time.Duration) {
	for _, l := range p.lanes[item.Lane] {
		at := after(l, p.clock.now, p.need(l, item))
		if at == p.clock.now {
			continue
		}
		if l.Dim == Concurrency {
			at = p.clock.now + p.w.Serve.Latency.span()
		}
		if worst == nil || at-p.clock.now > wait {
			worst, wait = l, at-p.clock.now
		}
	}
	return worst, wait
}

// arrive answers a request for an item that arrives now, and whose client gives up at expires. The response is complete
// once its instants come.
func (p *provider) arrive(item *Item, expires time.Duration) *Response {
	if s := p.storm(); s != nil {
		v := verdict{status: s.Status, cause: stormed, wait: s.RetryAfter.span()}
		if v.wait < 0 {
			v.wait = (s.At + s.For).span() - p.clock.now
		}
		return p.reject(item, v)
	}
	if l := p.tooSmall(item); l != nil {
		return p.reject(item, verdict{status: 429, cause: hopeless, limit: l, large: true})
	}
	if l, wait := p.lacking(item); l != nil {
		return p.reject(item, verdict{status: cmp.Or(l.Status, 429), cause: limited, limit: l, left: l.left(p.clock.now), cost: p.w.cost(l.Dim, item), wait: wait})
	}
	switch item.odd {
	case "429", "words":
		return p.reject(item, verdict{status: 429, cause: hopeless, words: item.odd == "words"})
	case "500":
		return p.accept(item, expires, 500, hopeless, p.w.Serve.Reject.span())
	case "hang":
		return p.accept(item, expires, 0, hopeless, never)
	case "large": // yet no limit is too small for it
		return p.accept(item, expires, 400, hopeless, p.w.Serve.Reject.span())
	}
	lane := item.Lane
	k := p.accepted[lane]*p.w.Lanes + lane
	p.accepted[lane]++
	return p.serve(item, expires, k)
}

// tooSmall returns a limit into which an item never fits, or nil.
func (p *provider) tooSmall(item *Item) *limit {
	for _, l := range p.lanes[item.Lane] {
		if l.size()+slack < p.w.cost(l.Dim, item) {
			return l
		}
	}
	return nil
}

// serve answers the request number k for which there was room: latencies and faults belong to that number, so that they
// are the same for every client.
func (p *provider) serve(item *Item, expires time.Duration, k int) *Response {
	latency := p.latency(k)
	u, f := draw(p.w.Seed, streamFault, k), p.w.Faults
	below := func(share float64) bool {
		u -= share
		return u < 0
	}
	switch {
	case below(f.Stray):
		return p.reject(item, verdict{status: 429, cause: stray})
	case below(f.Overloaded):
		return p.reject(item, verdict{status: cmp.Or(f.Status, 529), cause: overload})
	case below(f.Fast):
		return p.accept(item, expires, 500, broken, p.w.Serve.Reject.span())
	case below(f.Slow):
		return p.accept(item, expires, 500, broken, latency)
	case below(f.Reset):
		return p.accept(item, expires, 0, broken, latency/2)
	case below(f.Hang):
		return p.accept(item, expires, 0, broken, never)
	}
	return p.accept(item, expires, 200, served, latency)
}

func (p *provider) latency(k int) time.Duration {
	s := p.w.Serve
	seconds := float64(s.Latency)
	if s.Spread > 0 {
		seconds *= math.Exp(s.Spread*normal(p.w.Seed, streamLatency, k) - s.Spread*s.Spread/2)
	}
	if s.Tail > 0 && draw(p.w.Seed, streamTail, k) < s.Tail {
		seconds *= 5
	}
	return Seconds(min(seconds, float64(s.Latency)*8)).span()
}

// accept charges a request and schedules its end.
func (p *provider) accept(item *Item, expires time.Duration, status int, why cause, latency time.Duration) *Response {
	now := p.clock.now
	start := now
	if status == 200 {
		start = p.worker(latency)
	}
	r := &Response{Status: status, cause: why, done: never}
	if latency != never {
		r.done = start + latency
	}
	r.head = r.done
	if p.w.Serve.Stream && latency != never && (status == 200 || status == 0) {
		r.head = start + latency/5
	}
	p.charge(item, r, min(r.done, expires))
	if p.speaker != nil {
		p.speaker.write(p, item, r, verdict{status: status, cause: why})
	}
	return r
}

// worker returns when a worker starts on a request, which takes it for latency.
func (p *provider) worker(latency time.Duration) time.Duration {
	if len(p.workers) == 0 {
		return p.clock.now
	}
	first := 0
	for i, free := range p.workers {
		if free < p.workers[first] {
			first = i
		}
	}
	start := max(p.clock.now, p.workers[first])
	p.workers[first] = start + latency
	return start
}

// charge takes a request's cost from all limits, and schedules later charges and returns until end.
func (p *provider) charge(item *Item, r *Response, end time.Duration) {
	now := p.clock.now
	for _, l := range p.lanes[item.Lane] {
		cost, total := p.w.cost(l.Dim, item), p.w.total(l.Dim, item)
		if r.Status != 200 {
			total = p.w.wasted(l.Dim, item)
		}
		switch {
		case l.foreign > 0 && item.ID < 0:
		case l.Dim == Concurrency:
			l.take(now, 1)
			p.clock.at(end+l.Late.span(), func() { l.take(p.clock.now, -1) })
		case p.eager:
			l.take(now, max(cost, total))
			if total < cost {
				p.clock.at(end, func() { l.take(p.clock.now, total-cost) })
			}
		case total > cost:
			l.take(now, cost)
			p.produce(l, total-cost, end)
		default:
			l.take(now, cost)
			if total < cost {
				p.clock.at(end, func() { l.take(p.clock.now, total-cost) })
			}
		}
	}
}

// wasted returns the charge of an item that failed without output.
func (w *World) wasted(d Dimension, item *Item) float64 {
	return w.total(d, &Item{input: item.input, Max: item.Max})
}

// produce charges output in four parts until a request ends.
func (p *provider) produce(l *limit, output float64, end time.Duration) {
	step := (end - p.clock.now) / 4
	for part := range 4 {
		p.clock.at(end-time.Duration(3-part)*step, func() { l.take(p.clock.now, output/4) })
	}
}

// verdict is the decision of a provider about a request.
type verdict struct {
	status int
	cause  cause
	limit  *limit        // that lacks room, or nil
	left   float64       // in it
	cost   float64       // of the request
	wait   time.Duration // until it has room
	large  bool          // the item is larger than the limit
	words  bool          // the rejection speaks of something else
}

func (p *provider) reject(item *Item, v verdict) *Response {
	done := p.clock.now + p.w.Serve.Reject.span()
	r := &Response{Status: v.status, cause: v.cause, head: done, done: done}
	if r.limited() && p.w.Charge.Rejected || !r.limited() && p.w.Charge.Overload {
		for _, l := range p.lanes[item.Lane] {
			if l.Dim != Concurrency && (l.Kind == Estimate || l.left(p.clock.now) > -l.size()) { // a counter still counts
				l.take(p.clock.now, p.w.cost(l.Dim, item))
			}
		}
	}
	if v.cause == limited {
		r.limit = v.limit.Dim
		_, r.wait = p.lacking(item) // longer than the stated wait if the rejection was charged
	}
	if p.speaker != nil {
		p.speaker.write(p, item, r, v)
	}
	return r
}

// startForeign lets other clients of the account send their mean request, on the first lane.
func (p *provider) startForeign() {
	item, burst := p.w.meanItem(), max(1, p.w.Foreign.Burst)
	pause := Seconds(float64(burst) / (p.w.capacity() * p.w.Foreign.Share)).span()
	var next func()
	next = func() {
		for range burst {
			p.sendForeign(item)
		}
		p.clock.at(p.clock.now+pause, next)
	}
	p.clock.at(pause/2, next)
}

func (p *provider) sendForeign(item *Item) {
	p.foreign++
	l, _ := p.lacking(item)
	if l != nil && !p.eager || p.storm() != nil {
		p.refused++
		return
	}
	p.charge(item, &Response{Status: 200}, p.clock.now+p.w.Serve.Latency.span())
}

// meanItem returns an item of mean size.
func (w *World) meanItem() *Item {
	item := &Item{ID: -1, Max: cmp.Or(w.Load.Max, 100), input: cmp.Or(w.Load.Input, 100)}
	item.output = max(1, int(cmp.Or(w.Load.Output, 0.5)*float64(item.Max)))
	w.clip([]*Item{item})
	return item
}

// capacity returns how many mean items the limits of a lane allow in a second.
func (w *World) capacity() float64 {
	least := math.Inf(1)
	for _, l := range w.limits() {
		if l.Dim == Concurrency {
			least = min(least, l.N/float64(w.Serve.Latency+l.Late+w.Serve.Up+w.Serve.Down))
		} else {
			least = min(least, l.N/l.minute()/max(w.meanCost(l.Dim), 1))
		}
	}
	if w.Serve.Workers > 0 {
		least = min(least, float64(w.Serve.Workers)/float64(w.Serve.Latency))
	}
	return least
}
