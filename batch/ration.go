package batch

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/work"
)

// longestUnknown is how many tokens of output are kept for a call that declares none, before its model answered.
const longestUnknown = 4096

// amount is what calls use, by resource: dollars in units of 1e-12, in which sums of any sensible size are exact, and
// tokens.
type amount [2]float64

const (
	inMoney  = 0
	inTokens = 1
)

// moneyUnit is how many units make a dollar.
const moneyUnit = 1e12

func (a amount) plus(b amount) amount  { return amount{a[0] + b[0], a[1] + b[1]} }
func (a amount) minus(b amount) amount { return amount{a[0] - b[0], a[1] - b[1]} }

// ration lets calls in as long as what they may use fits into a budget. It is work.Ration for all accounts of a run.
//
// What a call may use is held for it from before it waits for its permit until it is over: so those that wait for one,
// a few more than are open, hold a part of the budget too. Where it does not fit, a call waits for others to end, in
// order, but for those that would not fit then. If none is left that could end, and none fits, the run stops.
type ration struct {
	limit amount // 0: none
	stop  func(error)

	mu      sync.Mutex
	used    amount
	held    amount
	open    int // calls that were let in
	queue   []*claim
	claims  map[*call]*claim
	seen    map[seenKey]*seen
	stopped bool
	ends    *time.Timer // set when nobody who waits fits
}

// seenKey is a model of an account.
type seenKey struct {
	account *account
	model   string
}

// seen is what answers of a model taught.
type seen struct {
	output float64 // tokens of the longest one; 0: none yet
	ratio  float64 // of true to estimated input: the highest, at least 1
}

// newRation returns the ration of a budget, nil if that bounds no use.
func newRation(b Budget, stop func(error)) *ration {
	r := &ration{stop: stop, claims: make(map[*call]*claim), seen: make(map[seenKey]*seen)}
	r.limit = amount{math.Round(b.Cost * moneyUnit), float64(b.Tokens)}
	if b.Cost > 0 {
		r.limit[inMoney] = max(1, r.limit[inMoney]) // a sum below the unit is no 0, which would be no bound
	}
	if r.limit == (amount{}) {
		return nil
	}
	return r
}

// claim is one call's part of a budget. Its nil is that of a call without one.
type claim struct {
	ration  *ration
	id      string
	of      *seen
	price   price
	cost    sluice.Cost // of its last try: a corrected one takes more than the first
	embeds  bool
	most    int           // attempts
	times   int           // how many tries are reserved for at once
	ready   chan struct{} // closed when it is let in
	cancel  context.CancelCauseFunc
	let     bool
	held    amount
	sent    bool // a try is under way
	starved bool // there was no room for another try
	turns   int
	tries   int
}

// errStarved ends the tries of a call that must wait for room.
var errStarved = errors.New("the budget has no room for another try now")

// rationed is the ration of one account, or of all upstreams together.
type rationed struct {
	*ration
	owner *account // nil of upstreams
	price func(*work.Item) price
	most  int // attempts
}

// Enter waits until there is room for the item's call.
func (r rationed) Enter(ctx context.Context, item *work.Item) (context.Context, error) {
	c := item.Data.(*call)
	r.mu.Lock()
	k := r.claims[c]
	if k == nil {
		k = r.claimLocked(item, c)
		r.claims[c] = k
		r.queue = append(r.queue, k)
	}
	r.pumpLocked()
	r.mu.Unlock()

	select {
	case <-k.ready:
	case <-ctx.Done():
		r.abandon(c, k)
		return nil, context.Cause(ctx)
	}
	try, cancel := context.WithCancelCause(ctx)
	k.cancel = cancel
	return try, nil
}

func (r rationed) claimLocked(item *work.Item, c *call) *claim {
	key := seenKey{r.owner, item.Lane}
	s := r.seen[key]
	if s == nil {
		s = &seen{ratio: 1}
		r.seen[key] = s
	}
	times := 1
	if c.terms.attempts > 0 { // they are all made before anybody says what they used
		times = c.terms.attempts
	}
	return &claim{
		ration: r.ration, times: times, id: item.ID, of: s, price: r.price(item), cost: item.Cost, embeds: c.endpoint.Embeds(),
		most: r.most, ready: make(chan struct{}),
	}
}

// abandon takes a call out that the end of the run overtook.
func (r *ration) abandon(c *call, k *claim) {
	r.mu.Lock()
	delete(r.claims, c)
	if k.let {
		r.leaveLocked(k)
	} else {
		r.queue = slices.DeleteFunc(r.queue, func(other *claim) bool { return other == k })
	}
	r.pumpLocked()
	r.mu.Unlock()
}

// Leave gives back what was held for a call. One whose next try found no room is first in the queue again.
func (r *ration) Leave(item *work.Item, tally sluice.Tally, err error) (sluice.Tally, bool, error) {
	c := item.Data.(*call)
	r.mu.Lock()
	k := r.claims[c]
	r.leaveLocked(k)
	again := k.starved
	if again {
		tally.Attempts-- // that try was none
		k.starved, k.let, k.ready = false, false, make(chan struct{})
		k.turns++
		r.queue = slices.Insert(r.queue, 0, k)
	} else {
		delete(r.claims, c)
	}
	r.pumpLocked()
	r.mu.Unlock()
	k.cancel(nil)
	return tally, again, err
}

func (r *ration) leaveLocked(k *claim) {
	if k.sent { // it ended without an outcome: all of it counts
		r.used = r.used.plus(k.held)
		k.sent = false
	}
	r.held = r.held.minus(k.held)
	k.held = amount{}
	r.open--
}

// pumpLocked lets in whom there is room for. Who will not fit once the open calls are over holds nobody up. If no call is
// open and none fits, the run stops soon.
func (r *ration) pumpLocked() {
	for i := 0; i < len(r.queue) && !r.stopped; {
		k := r.queue[i]
		switch {
		case r.fitsLocked(k, r.held):
			r.queue = slices.Delete(r.queue, i, i+1)
			r.holdLocked(k)
			r.open++
			k.let = true
			close(k.ready)
		case r.fitsLocked(k, amount{}):
			return // it is next
		default:
			i++
		}
	}
	if r.stuckLocked() && r.ends == nil {
		r.ends = time.AfterFunc(arrival, r.end)
	}
}

// arrival is how long calls that fit may take to come, when those that were first do not.
const arrival = 50 * time.Millisecond

// stuckLocked says that the calls that wait do so for nothing.
func (r *ration) stuckLocked() bool { return r.open == 0 && len(r.queue) > 0 && !r.stopped }

// end stops the run if nobody came who fits.
func (r *ration) end() {
	r.mu.Lock()
	r.ends = nil
	var err error
	if r.stuckLocked() {
		r.stopped = true
		err = r.spentLocked(r.queue[0])
	}
	r.mu.Unlock()
	if err != nil {
		r.stop(err)
	}
}

// waiting is how many calls wait for room; none without a ration.
func (r *ration) waiting() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}

// fitsLocked says whether there is room for a try beside what was used and what is held.
func (r *ration) fitsLocked(k *claim, held amount) bool {
	all := r.used.plus(held).plus(k.need())
	return (r.limit[inMoney] == 0 || all[inMoney] <= r.limit[inMoney]) && (r.limit[inTokens] == 0 || all[inTokens] <= r.limit[inTokens])
}

func (r *ration) holdLocked(k *claim) {
	k.held = k.need()
	r.held = r.held.plus(k.held)
}

// spentLocked says which bound a call does not fit into.
func (r *ration) spentLocked(k *claim) error {
	need, bounds := k.need(), r.usesLocked()
	u := bounds[len(bounds)-1]
	if r.limit[inMoney] > 0 && r.used[inMoney]+need[inMoney] > r.limit[inMoney] {
		u = bounds[0]
	}
	return &BudgetError{Used: u.Used, Next: u.of(need), ID: k.id}
}

// bound is what was used of one of the bounds.
type bound struct {
	Used
	of func(amount) float64
}

func (r *ration) usesLocked() (all []bound) {
	if r.limit[inMoney] > 0 {
		of := func(a amount) float64 { return a[inMoney] / moneyUnit }
		all = append(all, bound{Used{LimitedCost, "usd", of(r.limit), of(r.used)}, of})
	}
	if r.limit[inTokens] > 0 {
		of := func(a amount) float64 { return a[inTokens] }
		all = append(all, bound{Used{LimitedTokens, "tokens", of(r.limit), of(r.used)}, of})
	}
	return all
}

// uses says what was used so far.
func (r *ration) uses() (all []Used) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.usesLocked() {
		all = append(all, u.Used)
	}
	return all
}

// need is the most that the tries may use that are reserved for, as far as it can be told.
func (k *claim) need() amount { return k.needOf(k.times) }

// needOf is that of so many tries.
func (k *claim) needOf(tries int) amount {
	out := float64(k.cost.MaxOutput)
	switch {
	case k.embeds:
		out = 0
	case out == 0 && k.of.output == 0:
		out = longestUnknown
	case out == 0:
		out = math.Ceil(1.1 * k.of.output)
	}
	n := float64(tries)
	return k.price.amount(n*math.Ceil(float64(k.cost.Input)*k.of.ratio), n*out)
}

// amount is what so many tokens come to.
func (p *price) amount(in, out float64) amount {
	return amount{math.Round((in*p.in + out*p.out) * (moneyUnit / 1e6)), in + out}
}

// of returns a call's claim.
func (r *ration) of(c *call) *claim {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims[c]
}

// begin asks for room for a try that may use cost. What was held for the one before is kept where that used nothing and was
// the same.
func (k *claim) begin(cost sluice.Cost) bool {
	if k == nil {
		return true
	}
	r := k.ration
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.cost != cost {
		r.held = r.held.minus(k.held)
		k.cost, k.held = cost, amount{}
	}
	if k.held == (amount{}) {
		if !r.fitsLocked(k, r.held) {
			k.starved = true
			k.cancel(errStarved)
			return false
		}
		r.holdLocked(k)
	}
	k.sent = true
	return true
}

// end counts what a try used, at that price; nil is the one that was reserved for. status is that of its answer; 0 is none. It
// says in the outcome if no attempt is left.
func (k *claim) end(status int, o *sluice.Outcome, at *price) {
	if k == nil {
		return
	}
	r := k.ration
	r.mu.Lock()
	k.sent = false
	if used := k.used(status, o, at); used != (amount{}) {
		r.used = r.used.plus(used)
		r.held = r.held.minus(k.held)
		k.held = amount{}
	}
	if !o.Kind.Throttle() {
		k.tries++
	}
	if k.turns > 0 && o.Kind.Transient() && k.tries >= k.most {
		o.Final = true // in turns, no Scheduler counts them all
	}
	r.pumpLocked()
	r.mu.Unlock()
}

// endFar counts what all tries of a call used that were made elsewhere; nil are none.
func (k *claim) endFar(a *Answer) {
	if k == nil {
		return
	}
	r := k.ration
	r.mu.Lock()
	defer r.mu.Unlock()
	k.sent = false
	if a != nil {
		in, out := float64(max(0, a.Tally.Usage.Input)), float64(max(0, a.Tally.Usage.Output))
		blind := k.needOf(a.Unmetered)
		if n := float64(a.Tally.Attempts - a.Unmetered); a.Tally.HasUsage && n > 0 { // of each try, on average
			k.of.output = max(k.of.output, out/n)
			k.of.ratio = max(k.of.ratio, in/n/float64(max(1, k.cost.Input)))
		}
		r.used = r.used.plus(k.price.amount(in, out)).plus(blind)
	}
	r.held = r.held.minus(k.held)
	k.held = amount{}
	r.pumpLocked()
}

// used is what a try used: where nobody says, and it may be billed, all that was held for it.
func (k *claim) used(status int, o *sluice.Outcome, at *price) amount {
	switch {
	case o.HasUsage:
		in, out := float64(max(0, o.Usage.Input)), float64(max(0, o.Usage.Output))
		k.of.output = max(k.of.output, out)
		k.of.ratio = max(k.of.ratio, in/float64(max(1, k.cost.Input)))
		return cmp.Or(at, &k.price).amount(in, out)
	case mayCost(status, o):
		return k.held
	}
	return amount{}
}
