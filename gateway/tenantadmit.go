package gateway

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// admission is what a call holds of its tenant's: a place in its queue, a permit of its own limits, a part of its spending cap. It is
// taken in this order, before anything of the upstreams', so that no two calls wait for each other.
type admission struct {
	tenant  *tenant
	terms   *terms
	session string
	model   string // as it is routed

	budget reserved       // of a known price
	permit *sluice.Permit // of its own limits; nil: it has none
	waited time.Duration  // here

	patience  time.Duration // how long it may wait, in all
	withdrawn chan struct{} // closed when there is no point in waiting on
	looks     *time.Timer

	mu      sync.Mutex
	refusal *refusal      // why it was withdrawn
	idle    time.Time     // since then it waits, when no permit is out,
	idled   time.Duration // and so long it did before
	inTurn  bool          // it stands in the shared queue,
	since   time.Time
	waits   bool // it counts among those that do
	out     int  // permits of upstreams that are not back
	left    bool
	metered bool
	used    sluice.Usage
	over    bool // the call is,
	charged bool // and what its answer took counts, though nobody said how much
	settled bool
}

// identify finds out whose call it is.
func (c *call) identify() *refusal {
	keys := credentials(c.r)
	if len(keys) > 1 {
		// Which of them counts is up to whoever reads it: the gateway might count one, and a proxy before it another.
		return &refusal{status: http.StatusUnauthorized, kind: "invalid_api_key",
			message: "the request contains different keys: send one key, in one header (Authorization, x-api-key, api-key, x-goog-api-key) or as ?key="}
	}
	one, ok := c.g.tenants.identify(cmp.Or(keys...))
	if !ok {
		c.w.Header().Set("Www-Authenticate", "Bearer")
		told := "the gateway does not know this key"
		if len(keys) == 0 {
			told = "the request has no gateway key"
		}
		return &refusal{status: http.StatusUnauthorized, kind: "invalid_api_key",
			message: told + ": create a key with `sluice serve key`, and send it in place of the provider's key"}
	}
	c.tenant = &admission{tenant: one, terms: one.terms.Load(), session: sessionOf(c.r.Header), withdrawn: make(chan struct{})}
	c.visit.of(c.tenant.terms.Name)
	return nil
}

// allowed refuses a model that is not the tenant's.
func (c *call) allowed(names ...string) *refusal {
	if c.tenant.terms.allows(names...) {
		return nil
	}
	return &refusal{status: http.StatusForbidden, kind: "model_not_allowed",
		message: fmt.Sprintf("tenant %s may not use the model %q", c.tenant.terms.Name, shown(names[0]))}
}

// patience is how long the call may wait for its turn, in all.
func (c *call) patience() time.Duration {
	longest := c.cfg.Deadlines.Queue
	if own := c.tenant.terms.MaxWait; own > 0 {
		return min(own, longest)
	}
	return longest
}

// admit waits until the call may stand in the queue that all tenants share. Whatever it returns, leave is to be called, unless
// it panics.
func (c *call) admit(ctx context.Context) (*refusal, error) {
	a := c.tenant
	a.model = c.model
	a.tenant.open.Add(1)
	a.waits, a.idle = true, time.Now()
	if n := a.tenant.waiting.Add(1); n > int64(cmp.Or(a.terms.MaxQueue, usualMaxQueue)) {
		return &refusal{status: http.StatusTooManyRequests, kind: "queue_full", after: max(time.Second, c.delay()),
			message: fmt.Sprintf("the queue is full: %d requests are waiting", n-1)}, nil
	}
	if bad := c.tooEarly(c.patience(), a.terms.limits); bad != nil {
		return bad, nil
	}
	if bad := c.reserve(); bad != nil {
		return bad, nil
	}
	a.mu.Lock()
	a.patience = c.patience()
	a.looks = time.AfterFunc(min(lookEvery, a.patience), c.look)
	a.mu.Unlock()
	begun := a.idle
	defer func() { a.waited = time.Since(begun) }()
	if own := a.terms.limits; own != nil {
		p, err := own.Acquire(ctx, sluice.Call{ID: c.id(), Tenant: a.session, Cost: c.request.Cost,
			MaxWait: c.patience(), Withdrawn: a.withdrawn})
		if err != nil {
			return nil, err
		}
		p.Answered(nil) // these limits are exact: no provider has to prove them
		a.mu.Lock()
		a.permit = p
		a.mu.Unlock()
	}
	work := 1 + float64(c.request.Cost.Input) + 2*float64(c.request.Cost.MaxOutput) // as Schedulers count it where no limit is known
	if err := a.tenant.turns.enter(ctx, a.withdrawn, a.model, a.session, work, max(0, c.patience()-time.Since(begun))); err != nil {
		return nil, err
	}
	a.inTurn, a.since = true, time.Now()
	return nil, nil
}

// lookEvery is how often it is looked after a call that waits.
const lookEvery = time.Second

// look ends the wait of a call that waited as long as it may, or whose limits turned out to be closed for longer than that.
func (c *call) look() {
	a := c.tenant
	a.mu.Lock()
	waits, left, own := a.out == 0 && !a.over, a.leftLocked(), a.terms.limits
	if a.permit != nil {
		own = nil // they let it through
	}
	a.mu.Unlock()
	var bad *refusal
	switch {
	case waits && left <= 0:
		late := c.tooLate(a.patience)
		bad = &late
	case waits:
		bad = c.tooEarly(left, own)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over || a.refusal != nil:
	case bad != nil && a.out == 0:
		a.refusal = bad
		close(a.withdrawn)
	case a.out > 0: // it is looked at again when it waits again
	default:
		a.lookAgainLocked()
	}
}

// lookAgainLocked has a call that waits be looked after again, at the end of its patience at the latest.
func (a *admission) lookAgainLocked() {
	a.looks.Reset(min(lookEvery, max(a.leftLocked(), time.Millisecond)))
}

// leftLocked is how long a call that waits may go on to do so.
func (a *admission) leftLocked() time.Duration { return a.patience - a.idled - time.Since(a.idle) }

// tooLate refuses a call that waited for as long as it may.
func (c *call) tooLate(waited time.Duration) refusal {
	message := fmt.Sprintf("the request waited %v in the queue", waited.Round(time.Millisecond))
	if n := c.visit.tries(); n > 0 {
		message += fmt.Sprintf(", and was sent %s without success", prose.Times(n))
	}
	return refusal{status: http.StatusTooManyRequests, kind: "queue_timeout", after: max(time.Second, c.delay()), message: message}
}

// ended is why the wait of the call was ended by look.
func (a *admission) ended() refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.refusal
}

// tooEarly refuses a call whose limits, those of its tenant included where own is not nil, are known to be closed for longer than it
// may wait.
func (c *call) tooEarly(patience time.Duration, own *sluice.Scheduler) *refusal {
	wait, whose, why := time.Duration(0), "the provider's", sluice.OK
	asked := c.wanted()
	if least, ok := c.cfg.Upstreams.Earliest(asked, c.route.endpoint); ok {
		wait = least
	}
	theirs := wait
	if own != nil {
		if least := own.Earliest(sluice.Call{Cost: c.request.Cost}); least > wait {
			wait, whose = least, "its tenant's"
		}
	}
	switch {
	case wait <= max(0, patience):
		return nil
	case wait == theirs:
		why = c.cfg.Upstreams.Pausing(asked, c.route.endpoint)
	}
	late := refusal{status: http.StatusTooManyRequests, kind: "quota_exhausted", after: wait}
	in, most := wait.Round(time.Second), c.patience()
	switch why {
	case sluice.ServerError:
		late.status, late.kind = http.StatusServiceUnavailable, "upstream_failing"
		late.message = fmt.Sprintf("the upstream keeps failing: the next request is sent in %v, but this request may wait only %v", in, most)
	case sluice.Overloaded:
		late.message = fmt.Sprintf("the provider is overloaded: the next request is sent in %v, but this request may wait only %v", in, most)
	default:
		late.message = fmt.Sprintf("%s limits are reached: the request must wait %v, but may wait only %v", whose, in, most)
	}
	return &late
}

// wanted is the call as Schedulers know it.
func (c *call) wanted() sluice.Call {
	t := c.tenant.terms
	return sluice.Call{Lane: c.model, Cost: c.request.Cost, Tenant: t.Name, Priority: priorities[t.Priority], Withdrawn: c.tenant.withdrawn}
}

// reserve holds what the call may cost below its tenant's spending cap.
func (c *call) reserve() *refusal {
	a := c.tenant
	if a.tenant.purse == nil {
		return nil
	}
	price := c.cfg.Upstreams.Price(c.model, c.route.endpoint)
	if price == nil {
		if !a.terms.capped() {
			return nil
		}
		return &refusal{status: http.StatusForbidden, kind: "price_unknown",
			message: fmt.Sprintf("tenant %s has a spending cap, but the price of model %q is unknown: set the price of its upstream",
				a.terms.Name, shown(c.model))}
	}
	now := time.Now()
	e := c.estimate(price)
	got, until, ok := a.tenant.purse.reserve(now, &a.terms.Tenant, e)
	switch {
	case ok:
		a.budget = got
		return nil
	case until.IsZero():
		return &refusal{status: http.StatusForbidden, kind: "quota_exhausted",
			message: fmt.Sprintf("the request may cost %s, more than the whole spending cap of tenant %s: limit its output", prose.Dollars(e.Amount()[budget.USD]/budget.Dollar), a.terms.Name)}
	}
	return a.spent(now, until)
}

// estimate is the amount that the call may cost.
func (c *call) estimate(price *provider.Price) budget.Estimate {
	usd := func(u sluice.Usage) budget.Amount {
		return budget.Amount{budget.USD: math.Round(price.Cost(u).USD * budget.Dollar)}
	}
	cost := c.request.Cost
	e := budget.Estimate{Model: c.g.tenants.models.Of(c.model, price.MaxOutput), Input: usd(sluice.Usage{Input: cost.Input})}
	switch {
	case c.route.endpoint.Embeds() || c.route.count:
	case cost.MaxOutput > 0:
		e.Declared = usd(sluice.Usage{Output: cost.MaxOutput})
	default:
		e.Unstated = usd(sluice.Usage{Output: c.request.N})
	}
	return e
}

// spent refuses a call that has no room below its tenant's spending cap.
func (a *admission) spent(now, until time.Time) *refusal {
	message := fmt.Sprintf("tenant %s has reached its spending cap until %s", a.terms.Name, until.Format(time.RFC3339))
	if until.Sub(now) <= untilCallsEnd {
		message = fmt.Sprintf("the open requests of tenant %s may use the remaining spending cap", a.terms.Name)
	}
	return &refusal{status: http.StatusTooManyRequests, kind: "quota_exhausted", after: until.Sub(now), message: message}
}

// spentError is the error of a try that the tenant's spending cap has no room for any more.
type spentError struct{ refusal refusal }

// Error says so.
func (e *spentError) Error() string { return e.refusal.message }

// sends checks the tenant's spending cap at the instant of sending.
func (a *admission) sends() error {
	if a.budget.fits() {
		return nil
	}
	now := time.Now()
	return &spentError{*a.spent(now, now.Add(untilCallsEnd))}
}

// granted is told of each try. Its call does not wait any more, even if it comes back to the queue: then it is first.
func (a *admission) granted() {
	a.mu.Lock()
	if a.out == 0 {
		a.idled += time.Since(a.idle)
		a.looks.Stop()
	}
	a.out++
	a.mu.Unlock()
	a.stepOut()
}

// stepOut takes the call out of the counts of those that wait.
func (a *admission) stepOut() {
	a.mu.Lock()
	inTurn, waits := a.inTurn, a.waits
	a.inTurn, a.waits = false, false
	a.mu.Unlock()
	if inTurn {
		a.tenant.turns.leave(a.model, time.Since(a.since))
	}
	if waits {
		a.tenant.waiting.Add(-1)
	}
}

// leave gives back what the call holds, now or when its last permit of an upstream is back. charged says that an answer came, or
// that nobody waited for it: then it counts by estimate, if nobody says what it took, which leave reports.
func (a *admission) leave(charged bool) (estimated bool) {
	a.stepOut()
	a.mu.Lock()
	a.over, a.charged = true, charged
	if a.looks != nil {
		a.looks.Stop()
	}
	a.mu.Unlock()
	a.tenant.open.Add(-1)
	return a.settle()
}

// sent notes that the call left.
func (a *admission) sent() {
	a.mu.Lock()
	a.left = true
	a.mu.Unlock()
}

// released counts what a try of a request with that estimate used and cost.
func (a *admission) released(cost sluice.Cost, used sluice.Usage, usd float64) {
	metered := used != (sluice.Usage{})
	if metered {
		a.budget.spend(usd)
		if m := a.budget.estimate.Model; m != nil {
			m.Learn(cost, float64(max(0, used.Input)), float64(max(0, used.Output)))
		}
	}
	a.mu.Lock()
	if a.out--; a.out == 0 {
		if a.idle = time.Now(); !a.over && a.refusal == nil {
			a.lookAgainLocked()
		}
	}
	a.metered = a.metered || metered
	a.used = a.used.Add(used)
	a.mu.Unlock()
	a.settle()
}

// settle is done once the call is over and no permit is out. It reports whether the call counts by its estimate.
func (a *admission) settle() bool {
	a.mu.Lock()
	if !a.over || a.out > 0 || a.settled {
		a.mu.Unlock()
		return false
	}
	a.settled = true
	o, unstated := sluice.Outcome{Usage: a.used, HasUsage: true}, a.left && !a.metered && a.charged
	switch {
	case !a.left:
		o = sluice.Outcome{Unsent: true}
	case unstated:
		o = sluice.Outcome{}
	}
	a.mu.Unlock()
	a.budget.settle(unstated)
	if a.permit != nil {
		a.permit.Release(o)
	}
	return unstated
}

// delay is how long a call like this one would likely wait now.
func (c *call) delay() time.Duration {
	asked := c.wanted()
	asked.Ahead = c.g.tenants.ahead(c.tenant.tenant, c.model)
	likely, ok := c.cfg.Upstreams.Delay(asked, c.route.endpoint)
	if !ok {
		return 0
	}
	if likely == math.MaxInt64 { // it is paused, and nobody knows for how long
		likely, _ = c.cfg.Upstreams.Earliest(asked, c.route.endpoint)
	}
	if own := c.tenant.terms.limits; own != nil {
		likely = max(likely, own.Delay(sluice.Call{Cost: c.request.Cost}))
	}
	return likely
}
