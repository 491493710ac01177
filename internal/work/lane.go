package work

import (
	"context"
	"errors"
	"sync/atomic"
)

// spare is how many calls of a lane wait for a permit beyond those that are open, if there are that many items. It
// keeps every slot busy while bounding what waits with its body in memory: a lane has about as many workers as the
// Scheduler can use, and a few more.
const spare = 16

// laneKey tells queues apart. Items with given results have queues of their own, because they wait for no permit.
type laneKey struct {
	lane  string
	given bool
}

// lane is the items of one key that wait, and the workers that take them.
type lane struct {
	runner *Runner
	items  chan Item
	parked []place // of items that found the queue full, to be read again; only the feeding goroutine uses it

	bytes   atomic.Int64            // sizes of the items that wait
	workers atomic.Int32            // started
	in      [numPhases]atomic.Int32 // of those, by phase
}

// phase is what a worker does.
type phase uint8

const (
	fetching  phase = iota // it takes an item
	waiting                // it waits for a permit, or is about to
	sending                // it does all else: it sends, say, or waits before another attempt of its own
	aside                  // it waits in Await
	recording              // it records a result
	numPhases
)

// place is where an item can be read again.
type place struct{ seq, ref int64 }

// grow starts a worker if an item waits that none of the present workers will come for soon. Everything that may make
// this true calls it: an item put, a worker that enters another phase.
func (l *lane) grow() {
	room := func() bool { return l.workers.Load()-l.in[aside].Load() < int32(l.runner.cfg.Workers) }
	for len(l.items) > 0 && l.in[waiting].Load() < spare && room() && l.in[fetching].CompareAndSwap(0, 1) {
		if room() {
			l.workers.Add(1)
			l.runner.workers.Go(l.work)
			return
		}
		l.in[fetching].Add(-1) // and look again: another caller may have found it taken
	}
}

// full says whether the lane would rather not have another item.
func (l *lane) full() bool { return len(l.items) == cap(l.items) || len(l.parked) > 0 }

// hungry says whether the lane may soon run out of items.
func (l *lane) hungry() bool { return len(l.items) <= cap(l.items)/2 && len(l.parked) == 0 }

// work is a worker: it takes items until there are none or the run halts.
func (l *lane) work() {
	r := l.runner
	w := &worker{runner: r, lane: l}
	w.ctx = context.WithValue(r.run, placeKey{}, w)
	defer func() {
		if w.phase == fetching || w.phase == recording { // at the end, or a callback ended the goroutine
			l.in[w.phase].Add(-1)
			return
		}
		// The handler ended the goroutine (runtime.Goexit, as in t.FailNow): the item fails, another worker goes on.
		w.result = Result{}
		w.finish(errGoexit)
		r.workers.Go(l.work)
	}()
	for {
		item, ok := l.take()
		if !ok {
			return
		}
		w.item = item
		if r.cfg.Calls != nil && item.Given == nil {
			w.enter(waiting)
		} else { // it may be long before it waits for a permit, if ever
			w.enter(sending)
		}
		w.finish(w.handle())
	}
}

// errGoexit fails the item of a handler that never returned.
var errGoexit = errors.New("the handler called runtime.Goexit")

// take returns the next item, or false when the lane is at its end or the run halts.
func (l *lane) take() (item Item, ok bool) {
	select {
	case item, ok = <-l.items:
	default: // which takes longer
		select {
		case item, ok = <-l.items:
		case <-l.runner.wait.Done():
		}
	}
	if !ok {
		return Item{}, false
	}
	l.runner.tookOut(l, item)
	if l.runner.wait.Err() != nil {
		return Item{}, false
	}
	return item, true
}

// worker is one goroutine of a lane. Its nil is a call made outside a Runner.
type worker struct {
	runner *Runner
	lane   *lane
	ctx    context.Context // the run's, with the worker in it: made once, for all items
	item   Item            // at hand,
	result Result          // and its result
	line   []byte          // the result's line, reused

	phase      phase
	failed     bool // the item at hand was counted as failed
	unrecorded bool // the call of the item at hand is over, and not in the journal yet
}

// placeKey is for what a context belongs to: the *worker in that of a Handler, the *Runner in that of its feed. It is one
// key for both, so that in a run within another the inner one counts.
type placeKey struct{}

// handle sets the result of the item at hand. A panic becomes an error.
func (w *worker) handle() error {
	if given := w.item.Given; given != nil {
		w.result = given.Result
		return given.Err
	}
	return guard(func() (err error) {
		w.result, err = w.runner.cfg.Handler.Handle(w.ctx, w.item)
		return err
	})
}

// enter changes what the worker does.
func (w *worker) enter(p phase) {
	if w == nil || w.phase == p {
		return
	}
	w.lane.in[p].Add(1) // first, so that no worker goes uncounted
	w.lane.in[w.phase].Add(-1)
	w.phase = p
	w.lane.grow()
}

// finish records the item at hand, which was handled with that error.
func (w *worker) finish(err error) {
	w.enter(recording)
	w.runner.finish(w, &w.item, err)
	w.settle()
	w.item, w.result, w.failed = Item{}, Result{}, false
	w.enter(fetching)
}

// journaled says whether the item's result goes from this handler to the journal directly. Something in between might
// wait for other items, and a slow journal must not hold those back then.
func (w *worker) journaled(c *Calls) bool {
	return w != nil && w.runner.cfg.Journal != nil && w.runner.cfg.Calls == c
}

// settle says that the item's result is recorded, or never will be.
func (w *worker) settle() {
	if w.unrecorded {
		w.unrecorded = false
		w.runner.unrecorded.recorded()
	}
}

// halted returns why no further call may be sent, or nil.
func (w *worker) halted() error {
	if w == nil || w.runner.wait.Err() == nil {
		return nil
	}
	return context.Cause(w.runner.wait)
}
