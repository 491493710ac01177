package worlds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrReset and ErrDeadline are how an attempt ends without a response.
var (
	ErrReset    = errors.New("connection reset by peer")
	ErrDeadline = errors.New("deadline of the attempt exceeded")
)

// Attempt is one request for an item.
type Attempt struct {
	Item *Item
	Sent time.Time // set when it is sent
}

// Client is a client under test, or one instance of it. It is called from one goroutine, at virtual instants.
type Client interface {
	// Add queues an item.
	Add(now time.Time, item *Item)
	// Next returns the attempts to send now, and when it is to be called again if nothing happens before; zero: not at all.
	// It is called after every other call.
	Next(now time.Time) (send []*Attempt, wake time.Time)
	// Head is called when the status and the headers of a stream are there. The body is not, and the stream may break.
	Head(now time.Time, a *Attempt, r *Response)
	// Done is called when an attempt has ended, with the headers of Head if there was one.
	Done(now time.Time, a *Attempt, r *Response)
}

// End is how a client reports that an item is over: with a result, or given up.
type End func(item *Item, ok bool)

// Maker makes the instances of a client for one world. The function that it returns is called once for each instance,
// and again for each that is started anew after a kill.
type Maker func(w *World) func(instance int, end End) Client

// Result is how a world was played.
type Result struct {
	Time      time.Duration // when the last item that can succeed had its result, or all were given up
	Sent      int           // requests
	Rejected  int           // responses with 429, and other rejections by limits
	Overload  int           // other responses with 503 or 529
	Errors    int           // other failures
	Failed    int           // items that can succeed and were given up too early
	GivenUp   int           // items that can succeed and were given up after all their attempts
	Idle      time.Duration // the longest time without a request while items waited and there was room
	Foreign   int           // requests of foreign clients
	Refused   int           // those that were rejected
	Unended   int           // items that never ended
	Stalled   time.Duration // the longest time without a request while items waited and nothing justified it
	Violation string        // the first invariant that does not hold, or empty

	moments []moment // the requests and the responses, in their order
}

// moment is a request (status -1) or the end of an attempt (0: without a response).
type moment struct {
	at     time.Duration
	status int
}

// play is a world while it is played.
type play struct {
	w        *World
	clock    *clock
	provider *provider
	make     func(instance int, end End) Client
	clients  []*instance
	items    []*status
	guards   []*guards  // the guarantees: one for all instances, or one for each
	waiting  []waiting  // of each lane
	silences []*silence // of each lane, or the same one of lanes that share limits
	open     int        // items without an end
	trace    func(format string, args ...any)
	patience time.Duration // the longest wait that a response asked for
	result   Result
}

// instance is one instance of the client. A kill makes the attempts of its earlier lives void.
type instance struct {
	Client
	life int
	wake time.Duration
}

// status is the state of an item.
type status struct {
	item     *Item
	added    bool
	flying   int // attempts
	failures int // that count as attempts
	answered bool
	ended    bool
}

// waiting says since when a lane could have sent something.
type waiting struct {
	item *Item         // one that waits, or nil
	n    int           // items that wait
	room time.Duration // since then there was room for it
}

// Play plays a world with a client. If trace is not nil it is called with every event.
func Play(w *World, maker Maker, trace func(format string, args ...any)) Result {
	clock := new(clock)
	p := &play{w: w, clock: clock, provider: newProvider(w, clock, false), make: maker(w), waiting: make([]waiting, w.Lanes), trace: trace}
	p.provider.speaker = newSpeaker(w)
	for lane := range w.Lanes {
		p.silences = append(p.silences, new(silence))
		if len(w.Account) > 0 {
			p.silences[lane] = p.silences[0]
		}
	}
	one := *w
	one.Procs = Processes{}
	for i := range max(w.Procs.N, 1) {
		if i == 0 || !w.Procs.Ledger {
			guards := newGuards(&one)
			guards.blind = true
			p.guards = append(p.guards, guards)
		}
		p.clients = append(p.clients, &instance{Client: p.make(i, p.end), wake: never})
	}
	for _, item := range w.Items() {
		p.items = append(p.items, &status{item: item})
		p.open++
		clock.at(item.At, func() { p.add(item) })
	}
	for _, kill := range w.Procs.Kills {
		clock.at(kill.span(), p.kill)
	}
	p.run()
	p.finish()
	return p.result
}

// maxTime is when a play is stopped that does not end. The longest window of a limit comes to it three times.
const maxTime = 20 * time.Minute

func (p *play) run() {
	idle, end := 0, maxTime+3*p.w.longestWindow()
	for p.open > 0 {
		before := p.clock.now
		if !p.clock.step() || p.clock.now > end {
			p.result.Unended = p.open
			p.violate("%d items never ended", p.open)
			return
		}
		if idle++; p.clock.now > before {
			idle = 0
		}
		if idle > 100*len(p.items)+100_000 {
			p.violate("the client is asked again and again at %v", p.clock.now)
			return
		}
	}
}

func (p *play) violate(format string, args ...any) {
	if p.result.Violation == "" {
		p.result.Violation = fmt.Sprintf(format, args...)
	}
}

func (p *play) note(format string, args ...any) {
	if p.trace != nil {
		p.trace("%9.3f "+format, append([]any{p.clock.now.Seconds()}, args...)...)
	}
}

func (p *play) time() time.Time { return Epoch.Add(p.clock.now) }

func (p *play) add(item *Item) {
	p.items[item.ID].added = true
	p.wait(item, 1)
	c := p.clients[item.Instance]
	c.Add(p.time(), item)
	if item.ID+1 == len(p.items) || p.items[item.ID+1].item.At > p.clock.now {
		for i := range p.clients {
			p.ask(i)
		}
	}
}

// wait records that an item waits to be sent, or no longer does. When odd items are sent again is the client's affair.
func (p *play) wait(item *Item, by int) {
	if item.odd != "" {
		return
	}
	p.silences[item.Lane].wait(p.clock.now, by)
	lane := &p.waiting[item.Lane]
	lane.n += by
	if by > 0 && lane.item == nil {
		lane.item, lane.room = item, never
	}
	if lane.n == 0 {
		lane.item = nil
	}
}

// observe keeps since when each lane has had room for an item that waits.
func (p *play) observe() {
	for i := range p.waiting {
		lane := &p.waiting[i]
		if lane.item == nil {
			continue
		}
		at := max(p.provider.earliest(lane.item), p.guards[0].earliest(p.clock.now, lane.item))
		if at > p.clock.now || lane.room > p.clock.now {
			lane.room = at
		}
	}
}

// ask lets an instance send.
func (p *play) ask(i int) {
	c := p.clients[i]
	send, wake := c.Next(p.time())
	for _, a := range send {
		p.send(i, a)
	}
	p.observe()
	if wake.IsZero() {
		return
	}
	at := max(wake.Sub(Epoch), p.clock.now)
	if len(send) == 0 && at == p.clock.now {
		at++
	}
	if c.wake > p.clock.now && c.wake <= at {
		return
	}
	c.wake = at
	life := c.life
	p.clock.at(at, func() {
		if c.life == life && c.wake == at {
			c.wake = never
			p.ask(i)
		}
	})
}

func (p *play) send(i int, a *Attempt) {
	now, s := p.clock.now, p.items[a.Item.ID]
	switch {
	case s.ended:
		p.violate("item %d was sent after its end", a.Item.ID)
	case s.flying > 0:
		p.violate("item %d was sent twice at once", a.Item.ID)
	}
	for i := range p.waiting {
		lane := &p.waiting[i]
		if i == a.Item.Lane && lane.item != nil && lane.room < now {
			p.result.Idle = max(p.result.Idle, now-lane.room)
		}
		if i == a.Item.Lane || len(p.w.Account) > 0 { // lanes that share a limit may take turns
			lane.room = never
		}
	}
	a.Sent = p.time()
	s.flying++
	p.silences[a.Item.Lane].send(now)
	p.wait(a.Item, -1)
	p.result.Sent++
	p.result.moments = append(p.result.moments, moment{now, -1})
	if l := p.guard(i).exceeded(now, a.Item); l != nil {
		p.violate("%s: item %d at %v is above the guarantee of %v", l.Dim, a.Item.ID, now, l.N)
	}
	p.guard(i).take(now, a.Item)
	p.note("send %d on %s, client %d", a.Item.ID, a.Item.LaneName(), i)
	expires := now + p.w.Config.deadline()
	up := p.w.Serve.Up.span()
	if p.w.Serve.Jitter > 0 {
		up += time.Duration(draw(p.w.Seed, streamJitter, p.result.Sent) * float64(p.w.Serve.Jitter.span()))
	}
	life := p.clients[i].life
	p.clock.at(now+up, func() { p.arrive(i, life, a, expires) })
}

func (p *play) guard(instance int) *guards { return p.guards[instance%len(p.guards)] }

func (p *play) arrive(i, life int, a *Attempt, expires time.Duration) {
	r := p.provider.arrive(a.Item, expires)
	down := p.w.Serve.Down.span()
	deliver := func(at time.Duration, call func(c Client)) {
		p.clock.at(at, func() {
			if c := p.clients[i]; c.life == life {
				call(c.Client)
				p.ask(i)
			}
		})
	}
	if r.head < r.done && r.head+down < expires {
		head := *r
		deliver(r.head+down, func(c Client) {
			head.Status, head.Body, head.Err, head.Header = 200, nil, nil, r.Header
			c.Head(p.time(), a, &head)
		})
	}
	if r.done == never || r.done+down > expires {
		r = &Response{Err: ErrDeadline, cause: cmp.Or(r.cause, broken), done: never, head: never}
		deliver(expires, func(c Client) { p.done(c, a, r) })
		return
	}
	deliver(r.done+down, func(c Client) { p.done(c, a, r) })
}

func (p *play) done(c Client, a *Attempt, r *Response) {
	s := p.items[a.Item.ID]
	s.flying--
	p.silences[a.Item.Lane].done(p.clock.now, r)
	p.wait(a.Item, 1)
	p.guard(a.Item.Instance).release(a.Item)
	p.result.moments = append(p.result.moments, moment{p.clock.now, r.Status})
	switch {
	case r.Status == 200:
		s.answered = true
		if p.w.Show.Dialect != "bare" { // it states the usage
			p.guard(a.Item.Instance).learn(p.clock.now, a.Sent.Sub(Epoch), a.Item)
		}
	case r.limited():
		p.result.Rejected++
	case r.Status == 503 || r.Status == 529:
		p.result.Overload++
	default:
		s.failures++
		p.result.Errors++
	}
	if r.Err != nil {
		p.note("%d: %v", a.Item.ID, r.Err)
	} else {
		p.note("%d: %d %v %s", a.Item.ID, r.Status, r.Header, r.Body)
	}
	p.patience = max(p.patience, retryAfter(r))
	c.Done(p.time(), a, r)
}

// end is called by the client when an item is over.
func (p *play) end(item *Item, ok bool) {
	s := p.items[item.ID]
	if s.ended {
		p.violate("item %d ended twice", item.ID)
		return
	}
	if ok != s.answered {
		p.violate("item %d: recorded %v, but answered %v", item.ID, ok, s.answered)
	}
	s.ended = true
	p.open--
	p.wait(item, -1)
	p.note("end %d: %v", item.ID, ok)
	if item.odd != "" {
		return
	}
	p.result.Time = p.clock.now
	if !ok && s.failures >= p.w.Config.attempts() {
		p.result.GivenUp++
	} else if !ok {
		p.result.Failed++
	}
}

// kill ends all instances and starts them anew with the items that have no end.
func (p *play) kill() {
	p.note("kill")
	for i, c := range p.clients {
		p.clients[i] = &instance{Client: p.make(i, p.end), life: c.life + 1, wake: never}
	}
	for _, s := range p.items {
		if s.ended || !s.added {
			continue
		}
		if s.flying > 0 {
			s.flying = 0
			p.silences[s.item.Lane].kill()
			p.wait(s.item, 1)
			p.guard(s.item.Instance).release(s.item)
		}
		p.clients[s.item.Instance].Add(p.time(), s.item)
	}
	for i := range p.clients {
		p.ask(i)
	}
}

// idleBound is how long a client may send nothing while items wait and the provider has room: beyond the longest window
// of a limit, twice the longest wait that a response asked for and, where requests may hang, twice the deadline of an
// attempt.
const idleBound = 10 * time.Second

func (p *play) finish() {
	r := &p.result
	r.Foreign, r.Refused = p.provider.foreign, p.provider.refused
	if bound := idleBound + p.w.longestWindow() + 2*p.patience + p.hangs(); r.Idle > bound {
		p.violate("nothing was sent for %v while there was room (bound %v)", r.Idle, bound)
	}
	for _, s := range p.silences {
		if s.check(p.clock.now); len(p.w.Config.Limits) == 0 {
			r.Stalled = max(r.Stalled, s.stalled)
		}
	}
}

func (w *World) longestWindow() (longest time.Duration) {
	for _, l := range w.limits() {
		if l.Kind != Bucket {
			longest = max(longest, l.Burst.span())
		}
	}
	return longest
}

// hangs returns the addition to the bound of idle time in a world where requests may hang.
func (p *play) hangs() time.Duration {
	if p.w.Faults.Hang > 0 || slices.ContainsFunc(p.w.Odd, func(o Odd) bool { return o.Kind == "hang" }) {
		return 2 * p.w.Config.deadline()
	}
	return 0
}
