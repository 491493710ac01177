package work

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

const (
	manyHeld     = 20               // items in a row whose rejections are taken for the account's
	longestHeld  = 30 * time.Second // time of such a row from which on they are
	longestDead  = 30 * time.Minute // time in which all requests fail, after which the run stops
	longestSpent = 2 * time.Minute  // time in which words about the account reject all requests without a wait, after which the run stops
	longestGap   = 5 * time.Minute  // time between two failures that does not count
)

// held are the items that failed with a rejection which may be about the key or account: a 403, a page, or words that say so. They are
// handled once more at the end. If they come in a row without another item that succeeds, the run stops, and they are not recorded.
type held struct {
	mu    sync.Mutex
	items []place
	row   []time.Time // departures of those since which no item succeeded

	rejected streak // of those in the row
	spent    streak // of attempts that were rejected in words about the account, without a wait
	failing  streak // of attempts at which the provider failed
}

// streak is a row of failures without another outcome between them. The zero value is an empty one.
type streak struct {
	id          string // the first one's item
	first, last time.Time
}

// extend adds a failure, and returns the streak's duration. After longestGap, a new streak begins.
func (s *streak) extend(id string) time.Duration {
	now := time.Now()
	if now.Sub(s.last) > longestGap {
		s.id, s.first = id, now
	}
	s.last = now
	return now.Sub(s.first)
}

// wider reports whether a failure is such a rejection.
func wider(kind sluice.Kind, scope limits.Scope) bool {
	return kind == sluice.Rejected || kind == sluice.Blocked || scope != limits.ScopeRequest
}

// ScopeOf returns the scope of the rejection with which an item failed.
func ScopeOf(err error) limits.Scope {
	if failed, ok := errors.AsType[*sluice.CallError](err); ok {
		return scopeOf(&failed.Outcome)
	}
	return limits.ScopeRequest
}

// scopeOf returns the scope of a rejection. If other requests succeeded after it, it is about the request, whatever it says.
func scopeOf(o *sluice.Outcome) limits.Scope {
	if o.Others > 0 {
		return limits.ScopeRequest
	}
	return o.Scope
}

// fail counts an item that fails, once. One that is kept for the end does not fail yet.
func (w *worker) fail(item *Item, kind sluice.Kind, scope limits.Scope) {
	r := w.runner
	if w.failed || r.cfg.Failed == nil || wider(kind, scope) && r.mayHold(item) {
		return
	}
	w.failed = true
	r.cfg.Failed()
}

// mayHold reports whether an item can be kept for the end.
func (r *Runner) mayHold(item *Item) bool { return r.cfg.Again && r.cfg.Reload != nil && !item.Again }

// attempted takes in an attempt. If the provider does nothing but fail for longestDead, the run stops. Times without an attempt, as in pauses,
// do not count, nor does a network that is away.
func (h *held) attempted(r *Runner, id string, o *sluice.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !o.Kind.Throttle() || o.Scope == limits.ScopeRequest:
		h.spent = streak{}
	case o.Wait > 0 || !o.Until.IsZero(): // the lane waits for that
	case h.spent.extend(id) >= longestSpent && id != h.spent.id:
		r.halt(&StoppedError{Kind: o.Kind, ID: id, Err: o.Err})
	}
	sent := !o.Unsent || errors.Is(o.Err, syscall.ECONNREFUSED)
	switch {
	case o.Kind != sluice.Timeout && o.Kind != sluice.ServerError && o.Kind != sluice.Network:
		h.failing = streak{}
	case !sent || o.Abandoned:
	case h.failing.extend(id) >= longestDead:
		r.halt(&StoppedError{Kind: o.Kind, ID: id, Err: fmt.Errorf("no request succeeded for %v: %w", longestDead, o.Err)})
	}
}

// hold keeps an item for the end, if the run does that, unless it was. If nothing but such items came for too long, it stops the run.
func (r *Runner) hold(item *Item, result *Result) (kept bool) {
	if item.Again {
		return false
	}
	h := &r.held
	h.mu.Lock()
	if len(h.row) == 0 {
		h.rejected = streak{}
	}
	if !result.Cached { // else it is one rejection for several items
		h.row = append(h.row, time.Now().Add(-result.Tally.Latency))
	}
	if kept = r.mayHold(item); kept {
		h.items = append(h.items, place{item.Seq, item.Ref})
	}
	stop := h.rejected.extend(item.ID) >= longestHeld || len(h.row) >= manyHeld
	h.mu.Unlock()
	if stop {
		r.halt(&StoppedError{Kind: result.Kind, ID: item.ID, Err: result.Err})
	}
	return kept || stop
}

// succeeded notes that an item succeeded whose last request was sent at that instant: rejections of earlier ones are their own.
func (h *held) succeeded(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.row = slices.DeleteFunc(h.row, sent.After)
}

// feedHeld feeds the items once more that were kept for the end.
func (r *Runner) feedHeld() error {
	r.again = true
	for _, at := range r.held.items {
		item, err := r.reload(at)
		if err != nil {
			return err
		}
		if !r.put(item) {
			return nil
		}
	}
	return r.placeParked()
}
