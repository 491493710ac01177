package telemetry

import (
	"container/list"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// mostCalls bounds the calls that are watched at once, at about half a kilobyte each. Those beyond have no span.
const mostCalls = 1 << 16

// otelPatience is how long a call whose last try ended is waited for: by then its item is recorded.
const otelPatience = 5 * time.Second

// tracer makes a span of each call, when it is over. It is safe for concurrent use: an item that is done is told by
// another than the Scheduler is, so that it may be told before the try that made it.
type tracer struct {
	tracer   trace.Tracer
	subjects *table[route, subject]
	counted  *countedExporter

	mu     sync.Mutex
	calls  map[string]*call // by id
	ending list.List        // of *call: those that nothing more may come of, the oldest first
	swept  time.Time
	closed bool
}

func newTracer(t trace.Tracer, subjects *table[route, subject], counted *countedExporter) *tracer {
	return &tracer{tracer: t, subjects: subjects, counted: counted, calls: make(map[string]*call)}
}

// observe takes e in, and makes spans of what is over by it.
func (t *tracer) observe(e *sluice.Event) {
	if e.Call == "" {
		return
	}
	var over [2]*call // the one of e, and one that nobody waits for any longer
	t.mu.Lock()
	if !t.closed {
		over[0] = t.takeLocked(e)
		over[1] = t.expireLocked(e.At)
	}
	t.mu.Unlock()
	for _, c := range over {
		if c != nil {
			t.tell(c)
		}
	}
}

// takeLocked takes e in, and returns its call if that is over.
func (t *tracer) takeLocked(e *sluice.Event) *call {
	c := t.calls[e.Call]
	switch e.Type {
	case limits.EventSlotWaiting, limits.EventSlotAcquired, limits.EventItemDone:
		if c == nil {
			c = t.openLocked(e)
		}
	}
	if c == nil {
		return nil
	}
	if e.At.After(c.last) {
		c.last = e.At
	}
	switch e.Type {
	case limits.EventSlotWaiting:
		t.goesOnLocked(c)
		c.waiting(e)
	case limits.EventSlotAcquired:
		t.goesOnLocked(c)
		c.acquired(e)
	case limits.EventSlotReleased:
		if unused(e) {
			c.sent = time.Time{}
			c.cutShort(e.At)
			return t.overLocked(c)
		}
		c.released(e)
		t.mayEndLocked(c, e.At)
	case limits.EventThrottled, limits.EventAttemptFailed:
		if e.Wait > 0 {
			t.goesOnLocked(c)
			c.backs = e.At
		}
	case limits.EventSlotCancelled:
		c.cutShort(e.At)
		return t.overLocked(c)
	case limits.EventItemDone:
		c.item = outcomeOf(e)
		t.mayEndLocked(c, e.At)
	}
	if c.whole() {
		return t.overLocked(c)
	}
	return nil
}

// openLocked begins to watch the call of e, if there is room for one more.
func (t *tracer) openLocked(e *sluice.Event) *call {
	if len(t.calls) >= mostCalls && !t.sweepLocked(e.At) {
		return nil
	}
	c := &call{id: e.Call, lane: e.Lane, account: e.Account, start: e.At}
	t.calls[e.Call] = c
	return c
}

// mayEndLocked notes that nothing more may come of a call.
func (t *tracer) mayEndLocked(c *call, at time.Time) {
	c.expires = at.Add(otelPatience)
	if c.ending == nil {
		c.ending = t.ending.PushBack(c)
	} else {
		t.ending.MoveToBack(c.ending)
	}
}

// goesOnLocked notes that a call is not about to end.
func (t *tracer) goesOnLocked(c *call) {
	if c.ending != nil {
		t.ending.Remove(c.ending)
		c.ending = nil
	}
}

// overLocked forgets a call.
func (t *tracer) overLocked(c *call) *call {
	t.goesOnLocked(c)
	delete(t.calls, c.id)
	return c
}

// expireLocked returns a call that ended without an item: it was given up or cut short as the run ended. One at a time
// is enough, since each event brings at most one.
func (t *tracer) expireLocked(now time.Time) *call {
	front := t.ending.Front()
	if front == nil || front.Value.(*call).expires.After(now) {
		return nil
	}
	return t.overLocked(front.Value.(*call))
}

const (
	sweepEvery   = time.Minute
	longestSleep = 10 * time.Minute // of a call before its own next try, which is a minute at most
)

// sweepLocked forgets calls that were cancelled while they waited for their own next try, of which nobody tells. It
// reports whether there is room again.
func (t *tracer) sweepLocked(now time.Time) bool {
	if now.Sub(t.swept) < sweepEvery {
		return false
	}
	t.swept = now
	for id, c := range t.calls {
		if !c.backs.IsZero() && now.Sub(c.last) > longestSleep {
			delete(t.calls, id)
		}
	}
	return len(t.calls) < mostCalls
}

// endAll ends all calls, as the run does. What is observed later is left out.
func (t *tracer) endAll() {
	t.mu.Lock()
	calls := t.calls
	t.calls, t.closed = nil, true
	t.ending.Init()
	t.mu.Unlock()
	for _, c := range calls {
		if c.ending == nil {
			c.cutShort(c.last)
		}
		t.tell(c)
	}
}
