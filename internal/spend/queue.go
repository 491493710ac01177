package spend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// Config configures a Queue. All fields but Attempts are required.
type Config struct {
	Limit Amount

	// Estimate returns the estimate of an item's next attempt.
	Estimate func(*work.Item) Estimate

	// Used returns the amount that an attempt used, and lets the Model learn from it. It returns false if the attempt may be charged, and
	// nothing states its usage: then its estimate counts.
	Used func(*work.Item, *work.Result, *sluice.Outcome) (used Amount, stated bool)

	// Stop is called once, when no item is open and none fits: with the first that waits, and its estimate.
	Stop func(id string, next Amount)

	// Attempts is the maximum number of failed attempts of an item that waits between them, which no Scheduler counts together. 0 is
	// no maximum.
	Attempts int
}

// Queue lets items in while their estimates fit into a cap, in order. It is a work.Ration: the item's Data is a pointer. An item that does
// not fit waits for the open ones to finish, and holds up no others if it would not fit then. A nil Queue lets all items in.
type Queue struct {
	cfg Config

	mu      sync.Mutex
	cap     Cap
	open    int // requests that hold an estimate, waiting for a permit or sent
	queue   []*entry
	entries map[any]*entry // by Data
	stopped bool
	ends    *time.Timer // set when no item is open and none fits
}

// entry is an item that was not left.
type entry struct {
	id       string
	estimate Estimate
	state    entryState
	ready    chan struct{} // closed when it is let in
	cancel   context.CancelCauseFunc
	again    bool // it waits once more, before another attempt
	failed   int  // attempts
}

type entryState uint8

const (
	entryWaiting entryState = iota
	entryIn                 // it holds its estimate, or nothing after an attempt that used something
	entrySent               // an attempt is under way
	entryStarved            // its next attempt did not fit
)

// NewQueue returns a Queue; nil if nothing is limited.
func NewQueue(cfg Config) *Queue {
	if cfg.Limit == (Amount{}) {
		return nil
	}
	return &Queue{cfg: cfg, cap: Cap{Limit: cfg.Limit}, entries: make(map[any]*entry)}
}

// errStarved ends the attempts of an item that waits for room.
var errStarved = errors.New("the spending cap does not allow another attempt now")

// Enter waits until the item's estimate fits.
func (q *Queue) Enter(ctx context.Context, item *work.Item) (context.Context, error) {
	q.mu.Lock()
	e := q.entries[item.Data]
	if e == nil {
		e = &entry{id: item.ID, estimate: q.cfg.Estimate(item), ready: make(chan struct{})}
		q.entries[item.Data] = e
		q.queue = append(q.queue, e)
	}
	q.pumpLocked()
	q.mu.Unlock()

	select {
	case <-e.ready:
	case <-ctx.Done():
		q.abandon(item, e)
		return nil, context.Cause(ctx)
	}
	attempts, cancel := context.WithCancelCause(ctx)
	e.cancel = cancel
	return attempts, nil
}

// abandon removes an item whose wait was overtaken by the end of the run.
func (q *Queue) abandon(item *work.Item, e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.entries, item.Data)
	if e.state == entryWaiting {
		q.queue = slices.DeleteFunc(q.queue, func(other *entry) bool { return other == e })
	} else {
		q.leaveLocked(e)
	}
	q.pumpLocked()
}

// Send checks at the instant of sending that everything which is held still fits: responses may have shown since that it is more.
func (q *Queue) Send(item *work.Item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[item.Data]
	q.cap.Close(&e.estimate, Amount{})
	e.estimate = q.cfg.Estimate(item) // of this attempt, whose request may be another
	q.cap.Open(&e.estimate)
	if !q.cap.Fits(Amount{}) {
		e.state = entryStarved
		e.cancel(errStarved)
		return false
	}
	e.state = entrySent
	return true
}

// Sent counts an attempt. It marks the outcome as final if the item has no attempt left.
func (q *Queue) Sent(item *work.Item, result *work.Result, o *sluice.Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[item.Data]
	e.state = entryIn
	used, stated := q.cfg.Used(item, result, o)
	if !stated {
		used = e.estimate.Amount()
	}
	if used != (Amount{}) {
		q.cap.Close(&e.estimate, used)
		e.estimate = Estimate{Model: e.estimate.Model}
		q.cap.Open(&e.estimate)
	}
	if !o.Kind.Throttle() && !o.Amended {
		e.failed++
	}
	if e.again && o.Kind.Transient() && q.cfg.Attempts > 0 && e.failed >= q.cfg.Attempts {
		o.Final = true
	}
	q.pumpLocked()
}

// Leave releases the estimate of an item. An item whose next attempt did not fit is first in the queue again.
func (q *Queue) Leave(item *work.Item, tally sluice.Tally, err error) (sluice.Tally, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[item.Data]
	starved := e.state == entryStarved
	q.leaveLocked(e)
	if starved {
		tally.Attempts = max(0, tally.Attempts-1) // the last one was not sent
		e.again, e.state, e.ready, e.estimate = true, entryWaiting, make(chan struct{}), q.cfg.Estimate(item)
		q.queue = slices.Insert(q.queue, 0, e)
	} else {
		delete(q.entries, item.Data)
	}
	q.pumpLocked()
	e.cancel(nil)
	return tally, starved, err
}

func (q *Queue) leaveLocked(e *entry) {
	used := Amount{}
	if e.state == entrySent { // it ended without an outcome: all of its estimate counts
		used = e.estimate.Amount()
	}
	q.cap.Close(&e.estimate, used)
	q.open--
}

// pumpLocked lets items in that fit. If no item is open and none fits, the run stops soon.
func (q *Queue) pumpLocked() {
	for i := 0; i < len(q.queue) && !q.stopped; {
		e := q.queue[i]
		need := e.estimate.Amount()
		switch {
		case q.cap.Fits(need):
			q.queue = slices.Delete(q.queue, i, i+1)
			q.cap.Open(&e.estimate)
			q.open++
			e.state = entryIn
			close(e.ready)
		case q.cap.FitsLater(need):
			return // it is next
		default:
			i++
		}
	}
	if q.stuckLocked() && q.ends == nil {
		q.ends = time.AfterFunc(arrival, q.end)
	}
}

// arrival is the time that items which fit may take to come, when the first ones do not fit.
const arrival = 50 * time.Millisecond

// stuckLocked reports whether no item that waits can ever be let in.
func (q *Queue) stuckLocked() bool { return q.open == 0 && len(q.queue) > 0 && !q.stopped }

// end stops the run if no item came that fits.
func (q *Queue) end() {
	q.mu.Lock()
	q.ends = nil
	stops := q.stuckLocked()
	var first *entry
	if stops {
		q.stopped, first = true, q.queue[0]
	}
	q.mu.Unlock()
	if stops {
		q.cfg.Stop(first.id, first.estimate.Amount())
	}
}

// Status is a Queue as it stands.
type Status struct {
	Cap            // without the open requests
	Held    Amount // their corrected estimates
	Open    int    // items that hold an estimate
	Waiting int    // items that wait for room
	Known   int    // items that entered and were not left
}

// Status returns the Queue as it stands.
func (q *Queue) Status() Status {
	if q == nil {
		return Status{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return Status{Cap{Limit: q.cap.Limit, Used: q.cap.Used}, q.cap.Held(), q.open, len(q.queue), len(q.entries)}
}

// Open holds the estimate of a request that no Scheduler sends, if it fits or force is set. ends reports that it will never fit,
// since nothing is open.
func (q *Queue) Open(e *Estimate, force bool) (ok, ends bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !force && !q.cap.Fits(e.Amount()) {
		q.stopped = q.stopped || q.open == 0
		return false, q.open == 0
	}
	q.cap.Open(e)
	q.open++
	return true, false
}

// Close releases the estimate of a request that Open held, and counts the amount that it used.
func (q *Queue) Close(e *Estimate, used Amount) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cap.Close(e, used)
	q.open--
	q.pumpLocked()
}
