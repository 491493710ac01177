package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// call is a call on its way. It waits at one upstream at a time; one goroutine drives it, and others may end its wait.
type call struct {
	router  *Router
	ctx     context.Context
	spec    sluice.Call
	ways    []Way
	content func() string // see Router.Do
	name    string        // of the item: see item
	fn      func(context.Context, *sluice.Permit, Way, int) sluice.Outcome
	tally   sluice.Tally

	offered []offer // used again
	failures
	attempt
	queued
}

// failures are the failed attempts of a call.
type failures struct {
	tried      uint64 // upstreams that failed it, by index, since all of them last had
	rejectedAt uint64 // upstreams that rejected it, and perhaps nothing else, by index: after maxRejecting, it goes to no other
	spent      int    // attempts
	throttles  int
	throttled  time.Time // the first of those
	inRow      int       // throttles at the present upstream
	atFault    int       // rejections for the key while other items were accepted with it
}

// attempt is the present attempt of a call.
type attempt struct {
	key    int
	sent   time.Time // departure
	unsent bool      // the permit was given back, as the upstream was left out
}

// maxRejecting is the number of upstreams to which a call goes that may be at fault itself.
const maxRejecting = 2

// item returns the name of the item.
func (c *call) item() string {
	switch {
	case c.name != "":
	case c.content != nil:
		c.name = c.content()
	default:
		c.name = cmp.Or(c.spec.ID, fmt.Sprintf("%p", c))
	}
	return c.name
}

// choose returns the way of the next attempt; false if all upstreams are left out.
func (c *call) choose() (Way, bool) {
	q, ok := c.best(c.tried)
	if !ok {
		c.tried = 0
		q, ok = c.best(0)
	}
	return q.Way, ok
}

// visit makes the call at one upstream until it is over or moves. A move ends the wait: Do returns then, also after an
// attempt, once its permit is given back.
func (c *call) visit(at Way) (again bool, err error) {
	r := c.router
	wait, move := context.WithCancel(c.ctx)
	defer move()
	c.at, c.move = at, move
	r.enqueue(c, 0)
	defer r.dequeue(c) // also when an attempt ends the goroutine
	spec := c.spec
	spec.Lane = at.Lane
	tally, err := r.upstreams[at.Upstream].Scheduler.Do(wait, spec, c.try)
	r.dequeue(c)
	unsent := c.unsent
	if unsent {
		tally.Attempts-- // Do counts what was not sent
	}
	c.unsent, c.inRow = false, 0
	c.tally = c.tally.Add(tally)

	failure, failed := errors.AsType[*sluice.CallError](err)
	switch {
	case err == nil:
		return false, nil
	case unsent:
		return true, nil
	case failed && failure.Kind.Fatal() && !failure.Final:
		return true, nil
	case errors.Is(err, sluice.ErrTooLarge) && c.hasOther():
		return true, nil
	case failed:
		return false, &sluice.CallError{Outcome: failure.Outcome, Tally: c.tally}
	case c.ctx.Err() != nil:
		return false, c.ctx.Err()
	case wait.Err() != nil:
		r.moveWaiting() // the cause may concern other calls as well
		return true, nil
	}
	return false, err
}

// hasOther notes that the present upstream cannot serve the call, and reports whether another one may.
func (c *call) hasOther() bool {
	c.tried |= 1 << c.at.Upstream
	return len(c.offers(c.tried)) > 0
}

// try makes one attempt, under a permit of the upstream at which the call waited.
func (c *call) try(_ context.Context, permit *sluice.Permit) sluice.Outcome {
	if !c.router.depart(c) { // the upstream was left out meanwhile
		c.unsent = true
		c.move()
		return sluice.Outcome{Kind: sluice.Network, Unsent: true, Err: context.Canceled}
	}
	up := c.router.upstreams[c.at.Upstream]
	up.sent.Add(1)
	o := c.fn(c.ctx, permit, c.at, c.key)
	if o.Kind.Throttle() {
		up.throttles.Add(1)
	}
	c.settle(permit.Attempt(), &o)
	return o
}

// settle decides where the call is retried, if it is, after the Scheduler's attempt of that number. It changes the outcome
// accordingly, and may lengthen the call's own wait.
func (c *call) settle(attempt int, o *sluice.Outcome) {
	proven := c.router.learn(c, o)
	if o.Kind == sluice.Auth && proven != ofKey {
		c.rejectedAt |= 1 << c.at.Upstream
	}
	switch {
	case o.Open || o.Final || o.Kind == sluice.OK || c.ctx.Err() != nil: // it is over, or will be
	case proven == ofItem:
		c.retryRejected(o)
	case o.Kind.Fatal():
		o.Elsewhere = proven == undecided || len(c.offers(0)) > 0
	case o.TooLarge:
		o.Elsewhere = c.hasOther()
	case o.Kind.Throttle():
		if c.throttles++; c.throttles == 1 {
			c.throttled = time.Now()
		}
		if o.Final = c.throttledEnough(); !o.Final {
			c.retryThrottled(o)
		}
	case o.Kind.Transient():
		c.spent++
		if o.Final = c.spent == cmp.Or(c.spec.Attempts, c.router.attempts); !o.Final {
			c.retryFailed(attempt, o)
		}
	}
}

// throttledEnough reports whether a call was throttled too often to be retried. Without a maximum at one upstream, the Scheduler decides.
func (c *call) throttledEnough() bool {
	if most := c.spec.MaxThrottles; most != 0 {
		return c.throttles > most
	}
	return len(c.router.upstreams) > 1 && c.throttles > gate.DefaultMaxThrottles && time.Since(c.throttled) >= gate.DefaultPatience
}

// retryRejected retries a call that was rejected for its key while other items are accepted with it: once here, and once with another
// account.
func (c *call) retryRejected(o *sluice.Outcome) {
	c.atFault++
	if c.atFault == 1 || c.atFault == 2 && c.hasOther() {
		o.Elsewhere = true
	} else {
		o.Kind, o.Final = sluice.Rejected, true
	}
}

// retryFailed moves a call whose attempt failed to an upstream that has not failed it. If there is none, the call waits here.
func (c *call) retryFailed(attempt int, o *sluice.Outcome) {
	// The output of a model and of a command is the same at every upstream.
	if o.Kind != sluice.InvalidOutput && o.Kind != sluice.CommandFailed {
		c.tried |= 1 << c.at.Upstream
		if q, ok := c.best(c.tried); ok && q.delay <= patience {
			c.move()
			return
		}
		c.tried = 1 << c.at.Upstream
	}
	if attempt < c.spent { // the Scheduler does not know all attempts
		o.Wait = max(o.Wait, gate.Backoff(c.spent, rand.Int64N))
	}
	c.router.enqueue(c, o.Wait)
}

const (
	// patience is the maximum delay of the cheapest upstream, and of another one after an attempt failed. It is shorter than the
	// minute for which an upstream that keeps failing is left alone.
	patience = 30 * time.Second

	windowWait       = 15 * time.Minute // assumed length of a usage window whose end is unknown
	minThrottleWait  = time.Second      // assumed minimum wait of a throttled call
	maxThrottleInRow = 3                // throttles in a row at the cheapest upstream before a dearer one is used that is sooner
)

// retryThrottled moves a call to an upstream that can start it sooner than this one, which throttled it, may. If all have throttled it,
// it waits here for the end of the lane's pause.
func (c *call) retryThrottled(o *sluice.Outcome) {
	wait := o.Wait
	if !o.Until.IsZero() {
		wait = max(wait, time.Until(o.Until))
	}
	if o.Kind == sluice.UsageWindow && wait <= 0 {
		wait = windowWait
	}
	c.inRow++
	bare := o.Kind == sluice.RateLimit && (o.Wait == 0 || o.Wait > time.Minute) && o.Dimension == limits.AnyDimension && o.Limit == 0
	if bare && c.inRow == 1 {
		c.router.enqueue(c, minThrottleWait) // the next rejection here tells whether it is about this call
		return
	}
	c.tried |= 1 << c.at.Upstream
	if bare {
		c.rejectedAt |= 1 << c.at.Upstream
	}
	q, ok := c.best(c.tried)
	if c.router.cfg.Cheapest && c.inRow < maxThrottleInRow && wait <= patience {
		ok = false
	}
	if bits.OnesCount64(c.rejectedAt) >= maxRejecting && c.router.delay(c.at, c.spec) <= minThrottleWait {
		ok = false // it may be at fault: a Scheduler spaces its attempts only while it stays there
	}
	if ok && q.delay <= max(wait, minThrottleWait) {
		c.move()
		return
	}
	c.tried = 1 << c.at.Upstream
	c.router.enqueue(c, 0)
}

// offer is a way with its figures for a call.
type offer struct {
	Way
	delay   time.Duration
	waiting int     // calls that wait at the upstream
	price   float64 // infinite if unknown
}

// offers returns the ways that are not left out and whose bits are not among tried.
func (c *call) offers(tried uint64) []offer {
	r, all, now := c.router, c.offered[:0], time.Now()
	r.mu.Lock()
	for _, w := range c.ways {
		if r.upstreams[w.Upstream].leftOutLocked() != nil { // the item was not at fault
			c.rejectedAt &^= 1 << w.Upstream
		}
	}
	if bits.OnesCount64(c.rejectedAt) >= maxRejecting {
		tried |= ^c.rejectedAt
	}
	for _, w := range c.ways {
		up := r.upstreams[w.Upstream]
		if up.admitsLocked(now, c.item) && tried&(1<<w.Upstream) == 0 {
			all = append(all, offer{Way: w, waiting: up.waiting})
		}
	}
	r.mu.Unlock()
	c.offered = all
	for i := range all {
		q := &all[i]
		if q.delay = r.delay(q.Way, c.spec); q.delay > patience { // it pauses for others, too
			c.rejectedAt &^= 1 << q.Upstream
		}
		q.price = math.Inf(+1)
		if q.Price != nil {
			q.price = q.cost(c.spec.Cost)
		}
	}
	return all
}

// delay returns the likely wait of a call that asks now.
func (r *Router) delay(w Way, spec sluice.Call) time.Duration {
	spec.Lane = w.Lane
	return r.upstreams[w.Upstream].Scheduler.Delay(spec)
}

// defaultOutput is the assumed number of output tokens if the request sets no maximum.
const defaultOutput = 500

// cost estimates the cost of a call.
func (w *Way) cost(of sluice.Cost) float64 {
	return w.Price.Cost(sluice.Usage{Input: of.Input, Output: cmp.Or(of.MaxOutput, defaultOutput)}).USD
}

// best returns the preferred offer; false if there is none.
func (c *call) best(tried uint64) (offer, bool) {
	offers := c.offers(tried)
	if len(offers) == 0 {
		return offer{}, false
	}
	soonest := slices.MinFunc(offers, sooner)
	if !c.router.cfg.Cheapest {
		return soonest, true
	}
	cheapest, found := soonest, false
	for _, o := range offers {
		if o.delay <= patience && (!found || cmp.Or(cmp.Compare(o.price, cheapest.price), sooner(o, cheapest)) < 0) {
			cheapest, found = o, true
		}
	}
	return cheapest, true
}

// sooner orders offers by delay. Before the first response all delays are 0: then the number of waiting calls decides.
func sooner(a, b offer) int {
	return cmp.Or(cmp.Compare(a.delay, b.delay), cmp.Compare(a.waiting, b.waiting), cmp.Compare(a.Upstream, b.Upstream))
}
