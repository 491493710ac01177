package budget

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// Config configures a Guard. Estimate and Used are required if Budget has a cost or tokens.
type Config struct {
	Budget

	// Estimate returns the estimate of an item's next attempt.
	Estimate func(*work.Item) Estimate

	// Used returns the amount that an attempt used, and lets the Model learn from it.
	Used func(*work.Item, *work.Result) Amount

	// Stop is called with an *Error when the run must stop.
	Stop func(error)
}

// Guard enforces the Budget of a run. It admits items in order while their estimates fit into the caps. An item that does not fit waits
// for open items to finish. If it would not fit then either, later items may pass it. A Guard is safe for concurrent use.
type Guard struct {
	cfg   Config
	began time.Time

	mu      sync.Mutex
	cap     Cap
	open    int // items that hold an estimate, waiting for a permit or sent
	queue   []*turn
	stopped bool
	ends    *time.Timer // set when no item is open and none fits

	finished, failed int // items
}

// New returns the Guard of a run that begins now.
func New(cfg Config) *Guard {
	limit := Amount{math.Ceil(cfg.Cost * Dollar), float64(cfg.Tokens)}
	return &Guard{cfg: cfg, began: time.Now(), cap: Cap{Limit: limit}}
}

// Ration returns the Ration of the calls; nil without a cap.
func (g *Guard) Ration() work.Ration {
	if !g.Caps() {
		return nil
	}
	return g
}

// Caps reports whether the cost or the tokens are limited.
func (g *Guard) Caps() bool { return g.cap.Limit != Amount{} }

// turn is an item between Turn and its last Leave.
type turn struct {
	*Guard
	item     *work.Item
	estimate Estimate
	state    turnState
	ready    chan struct{} // closed when it is let in
	cancel   context.CancelCauseFunc
	again    bool // it waits once more, before another attempt
	failures int  // attempts
}

type turnState uint8

const (
	waiting turnState = iota
	in                // it holds its estimate, or nothing after an attempt that used something
	sent              // an attempt is under way
	starved           // its next attempt did not fit
)

// errStarved ends the attempts of an item that waits for room.
var errStarved = errors.New("the spending cap does not allow another attempt now")

// Turn begins an item.
func (g *Guard) Turn(item *work.Item) work.Turn {
	return &turn{Guard: g, item: item, estimate: g.cfg.Estimate(item)}
}

// Enter waits until the item's estimate fits. An item whose last attempt did not fit is first in the queue.
func (t *turn) Enter(ctx context.Context) (context.Context, error) {
	t.mu.Lock()
	t.state, t.ready = waiting, make(chan struct{})
	if t.again {
		t.queue = slices.Insert(t.queue, 0, t)
	} else {
		t.queue = append(t.queue, t)
	}
	t.pumpLocked()
	t.mu.Unlock()
	select {
	case <-t.ready:
		ctx, t.cancel = context.WithCancelCause(ctx)
		return ctx, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == waiting {
		t.queue = slices.DeleteFunc(t.queue, func(other *turn) bool { return other == t })
	} else { // it was let in, and the run ends
		t.leaveLocked()
	}
	t.pumpLocked()
	return nil, context.Cause(ctx)
}

// Send checks at the instant of sending that all reserved estimates still fit: new responses may have raised them.
func (t *turn) Send() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cap.Close(&t.estimate, Amount{})
	t.estimate = t.cfg.Estimate(t.item) // of this attempt, whose request may be another
	t.cap.Open(&t.estimate)
	if !t.cap.Fits(Amount{}) {
		t.state = starved
		t.cancel(errStarved)
		return false
	}
	t.state = sent
	return true
}

// Sent counts an attempt. It marks the outcome as final if the item has no attempt left.
func (t *turn) Sent(result *work.Result, o *sluice.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = in
	if used := t.cfg.Used(t.item, result); used != (Amount{}) {
		t.cap.Close(&t.estimate, used)
		t.estimate = Estimate{Model: t.estimate.Model}
		t.cap.Open(&t.estimate)
	}
	if !o.Kind.Throttle() && !o.Amended {
		t.failures++
	}
	if t.again && o.Kind.Transient() && t.cfg.Attempts > 0 && t.failures >= t.cfg.Attempts { // no Scheduler counts them together
		o.Final = true
	}
	t.pumpLocked()
}

// Leave releases the estimate of the item. It reports whether the item must enter once more, since its next attempt did not fit.
func (t *turn) Leave() (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.again = t.state == starved
	t.leaveLocked()
	if t.again {
		t.estimate = t.cfg.Estimate(t.item)
	}
	t.pumpLocked()
	t.cancel(nil)
	return t.again
}

func (t *turn) leaveLocked() {
	used := Amount{}
	if t.state == sent { // it ended without an outcome: all of its estimate counts
		used = t.estimate.Amount()
	}
	t.cap.Close(&t.estimate, used)
	t.open--
}

// pumpLocked lets items in that fit. If no item is open and none fits, the run stops soon.
func (g *Guard) pumpLocked() {
	for i := 0; i < len(g.queue) && !g.stopped; {
		t := g.queue[i]
		need := t.estimate.Amount()
		switch {
		case g.cap.Fits(need):
			g.queue = slices.Delete(g.queue, i, i+1)
			g.cap.Open(&t.estimate)
			g.open++
			t.state = in
			close(t.ready)
		case g.cap.FitsLater(need):
			return // it is next
		default:
			i++
		}
	}
	if g.stuckLocked() && g.ends == nil {
		g.ends = time.AfterFunc(arrival, g.end)
	}
}

// arrival is the time that items which fit may take to come, when the first ones do not fit.
const arrival = 50 * time.Millisecond

// stuckLocked reports whether no item that waits can ever be let in.
func (g *Guard) stuckLocked() bool { return g.open == 0 && len(g.queue) > 0 && !g.stopped }

// end stops the run if no item came that fits.
func (g *Guard) end() {
	g.mu.Lock()
	g.ends = nil
	stops := g.stuckLocked()
	var spent *Error
	if stops {
		g.stopped, spent = true, g.spentLocked(g.queue[0].item.ID, g.queue[0].estimate.Amount())
	}
	g.mu.Unlock()
	if stops {
		g.cfg.Stop(spent)
	}
}

// spentLocked returns the error for an item that does not fit.
func (g *Guard) spentLocked(id string, next Amount) *Error {
	unit := max(0, g.cap.Exceeded(next))
	return &Error{Used: g.usesLocked()[unit], Next: next[unit] / unitSize[unit], ID: id}
}

var unitSize = Amount{USD: Dollar, Tokens: 1}

// usesLocked returns the cost, tokens, time, failed items and share of failed items that the run used. A Limit is 0 if there is none.
func (g *Guard) usesLocked() [5]Used {
	given := 0.0
	if !g.cfg.Deadline.IsZero() {
		given = g.cfg.Deadline.Sub(g.began).Seconds()
	}
	return [5]Used{
		{Cost, "usd", g.cap.Limit[USD] / Dollar, g.cap.Used[USD] / Dollar},
		{Total, "tokens", g.cap.Limit[Tokens], g.cap.Used[Tokens]},
		{Time, "seconds", given, time.Since(g.began).Seconds()},
		{Failures, "items", float64(g.cfg.Failures), float64(g.failed)},
		{Failures, "share", g.cfg.FailedShare, float64(g.failed) / float64(max(1, g.finished))},
	}
}

// Open holds the estimate of n items that no Scheduler sends, if it fits or they were sent before. It returns an *Error if it will never
// fit, since nothing is open.
func (g *Guard) Open(id string, e *Estimate, n int, before bool) (ok bool, _ error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if before || g.cap.Fits(e.Amount()) {
		g.cap.Open(e)
		g.open += n
		return true, nil
	}
	if g.open == 0 {
		g.stopped = true
		return false, g.spentLocked(id, e.Amount())
	}
	return false, nil
}

// Close releases the estimate of n items that Open held, and counts the amount that they used.
func (g *Guard) Close(e *Estimate, n int, used Amount) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cap.Close(e, used)
	g.open -= n
	g.pumpLocked()
}

// leastJudged is how many items must be finished before a share of them says anything.
const leastJudged = 20

// Finished counts a finished item, and stops the run at too many failures.
func (g *Guard) Finished(failed bool) {
	g.mu.Lock()
	g.finished++
	if failed {
		g.failed++
	}
	uses := g.usesLocked()
	items, share := uses[3], uses[4]
	enough := g.finished >= leastJudged
	g.mu.Unlock()
	switch {
	case !failed:
	case items.Limit > 0 && items.Used >= items.Limit:
		g.cfg.Stop(&Error{Used: items})
	case share.Limit > 0 && enough && share.Used > share.Limit:
		g.cfg.Stop(&Error{Used: share})
	}
}

// longestLook bounds one wait: the timer's clock stops while the machine sleeps.
const longestLook = time.Minute

// Watch stops the run at its deadline, at once if reading the input took that long. The returned function ends the watch.
func (g *Guard) Watch() (end func()) {
	at := g.cfg.Deadline.Round(0) // by the clock on the wall
	var ended atomic.Bool
	var look func()
	look = func() {
		switch left := time.Until(at); {
		case ended.Load():
		case left <= 0:
			g.cfg.Stop(&Error{Used: Used{What: Time, Unit: "seconds"}})
		default:
			time.AfterFunc(min(left, longestLook), look)
		}
	}
	ended.Store(at.IsZero())
	look()
	return func() { ended.Store(true) }
}

// Uses returns the amounts that the run used of all its limits.
func (g *Guard) Uses() (all []Used) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.usesLocked() {
		if u.Limit != 0 {
			all = append(all, u)
		}
	}
	return all
}

// Status is the state of the caps of a Guard.
type Status struct {
	Used    Amount // by requests that are finished
	Held    Amount // corrected estimates of the open requests
	Open    int    // items that hold an estimate
	Waiting int    // items that wait for room
}

// Status returns the state of the caps.
func (g *Guard) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{g.cap.Used, g.cap.Held(), g.open, len(g.queue)}
}
