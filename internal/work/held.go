package work

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
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
	again map[int64]bool // those that are handled once more, by Seq
	row   []time.Time    // departures of those since which no item succeeded
	since time.Time      // arrival of the first of the row

	spent   time.Time // arrival of the first rejection in words about the account since another outcome
	spentID string    // its item

	failing time.Time // arrival of the first failure of the provider since it succeeded
	failed  time.Time // arrival of the last

	open int           // items that are queued or being handled
	done chan struct{} // told when there are none
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
func (r *Runner) mayHold(item *Item) bool {
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	return r.cfg.Again && r.cfg.Reload != nil && !r.held.again[item.Seq]
}

// attempted takes in an attempt. If the provider does nothing but fail for longestDead, the run stops. Times without an attempt, as in pauses,
// do not count, nor does a network that is away.
func (h *held) attempted(r *Runner, id string, o *sluice.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch now := time.Now(); {
	case !o.Kind.Throttle() || o.Scope == limits.ScopeRequest:
		h.spent = time.Time{}
	case o.Wait > 0 || !o.Until.IsZero(): // the lane waits for that
	case h.spent.IsZero():
		h.spent, h.spentID = now, id
	case now.Sub(h.spent) >= longestSpent && id != h.spentID:
		r.halt(&StoppedError{Kind: o.Kind, ID: id, Err: o.Err})
	}
	sent := !o.Unsent || errors.Is(o.Err, syscall.ECONNREFUSED)
	switch now := time.Now(); {
	case o.Kind != sluice.Timeout && o.Kind != sluice.ServerError && o.Kind != sluice.Network:
		h.failing = time.Time{}
	case !sent || o.Abandoned:
	case h.failing.IsZero() || now.Sub(h.failed) > longestGap:
		h.failing, h.failed = now, now
	case now.Sub(h.failing) >= longestDead:
		r.halt(&StoppedError{Kind: o.Kind, ID: id, Err: fmt.Errorf("no request succeeded for %v: %w", longestDead, o.Err)})
	default:
		h.failed = now
	}
}

// opened counts an item that is queued, and ended one that was handled.
func (h *held) opened() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open++
}

func (h *held) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open--; h.open > 0 {
		return
	}
	wake.Up(h.done)
}

// hold keeps an item for the end, if the run does that, unless it was. If nothing but such items came for too long, it stops the run.
func (r *Runner) hold(item *Item, result *Result) (kept bool) {
	h := &r.held
	h.mu.Lock()
	if item.Again || h.again[item.Seq] {
		h.mu.Unlock()
		return false
	}
	now := time.Now()
	if len(h.row) == 0 {
		h.since = now
	}
	if !result.Cached { // else it is one rejection for several items
		h.row = append(h.row, now.Add(-result.Tally.Latency))
	}
	if kept = r.cfg.Again && r.cfg.Reload != nil; kept {
		h.items = append(h.items, place{item.Seq, item.Ref})
	}
	stop := len(h.row) >= manyHeld || now.Sub(h.since) >= longestHeld
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
	later := h.row[:0]
	for _, at := range h.row {
		if !at.Before(sent) {
			later = append(later, at)
		}
	}
	h.row = later
}

// handleHeld handles the items once more that were kept for the end, when all others are done.
func (r *Runner) handleHeld() error {
	h := &r.held
	for {
		h.mu.Lock()
		items, open := h.items, h.open
		if open == 0 {
			h.items = nil
			for i := range items {
				h.again[items[i].seq] = true
			}
		}
		h.mu.Unlock()
		if open > 0 {
			select {
			case <-h.done:
				continue
			case <-r.wait.Done():
				return nil
			}
		}
		if len(items) == 0 {
			return nil
		}
		for _, at := range items {
			item, err := r.cfg.Reload(at.seq, at.ref)
			if err != nil {
				return fmt.Errorf("an item cannot be read again: %w", err)
			}
			item.Again = true
			l := r.laneOf(item)
			for l.full() || !r.fits(l, item) {
				if !r.awaitRoom() {
					return nil
				}
			}
			r.hand(l, item)
		}
	}
}
