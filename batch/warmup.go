package batch

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/work"
)

// warmFor is how long a provider keeps the beginning of a prompt after the last call with it. Anthropic's time is the
// shortest of those that say one.
const warmFor = 5 * time.Minute

// mostWarm bounds how many warm prefixes are remembered, twice. What is forgotten goes alone once more.
const mostWarm = 1 << 17

// warmingUp is the layer that lets the first of the calls with the same beginning go alone, so that the provider has that in
// its cache for the others. Those wait before they ask for a permit.
func warmingUp(inner work.Handler) work.Handler { return &warmUp{inner: inner} }

type warmUp struct {
	inner  work.Handler
	warmth warmth
}

// Immediate says that nothing is waited for after the inner handler, and before it by Await.
func (w *warmUp) Immediate() {}

// Handle waits until the item's prefix is warm, or goes alone.
func (w *warmUp) Handle(ctx context.Context, item work.Item) (result work.Result, err error) {
	key, ok := prefixOf(&item)
	if !ok {
		return w.inner.Handle(ctx, item)
	}
	alone, err := w.warmth.enter(ctx, key)
	if err != nil {
		return work.Result{}, err
	}
	answered := false
	defer func() { w.warmth.leave(key, alone, answered) }() // also if the call panics
	result, err = w.inner.Handle(ctx, item)
	answered = err == nil
	return result, err
}

// warmth says which prefixes a provider has in its cache. The zero value is ready. It is safe for concurrent use.
type warmth struct {
	mu     sync.Mutex
	cold   map[work.Hash]*cold     // those with a call that goes alone
	recent map[work.Hash]time.Time // until when the others are warm,
	older  map[work.Hash]time.Time // and what recent was before it was full, or old itself
	begun  time.Time               // of recent
}

// cold is a prefix that one call warms, and those that wait for that, in their order.
type cold struct {
	waiters []*waiter
}

// waiter is one who waits. The fields belong to warmth's lock.
type waiter struct {
	ready chan struct{} // closed when it may go
	alone bool          // it is the next that goes alone
	gone  bool          // it gave up
}

// enter waits until a call with that prefix may go, and says whether it goes alone: then the others wait until it leaves.
func (w *warmth) enter(ctx context.Context, key work.Hash) (alone bool, err error) {
	w.mu.Lock()
	if w.warmLocked(key) {
		w.mu.Unlock()
		return false, nil
	}
	c := w.cold[key]
	if c == nil {
		if w.cold == nil {
			w.cold = make(map[work.Hash]*cold)
		}
		w.cold[key] = &cold{}
		w.mu.Unlock()
		return true, nil
	}
	me := &waiter{ready: make(chan struct{})}
	c.waiters = append(c.waiters, me)
	w.mu.Unlock()

	err = work.Await(ctx, me.ready)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		return me.alone, nil
	}
	me.gone = true
	if me.alone { // its turn came just as it gave up
		w.nextLocked(key)
	}
	return false, err
}

// leave says that a call is over. After one that was answered the prefix is warm.
func (w *warmth) leave(key work.Hash, alone, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answered {
		w.warmedLocked(key)
	}
	switch {
	case alone && answered:
		for _, next := range w.cold[key].waiters {
			close(next.ready)
		}
		delete(w.cold, key)
	case alone:
		w.nextLocked(key)
	}
}

// nextLocked lets the next who waits go alone.
func (w *warmth) nextLocked(key work.Hash) {
	c := w.cold[key]
	for len(c.waiters) > 0 {
		next := c.waiters[0]
		c.waiters = c.waiters[1:]
		if !next.gone {
			next.alone = true
			close(next.ready)
			return
		}
	}
	delete(w.cold, key)
}

func (w *warmth) warmLocked(key work.Hash) bool {
	until, ok := w.recent[key]
	if !ok {
		until = w.older[key]
	}
	return time.Now().Before(until)
}

// warmedLocked remembers that a prefix is warm from now on. What is in older has not been used since recent began: once
// that is long enough ago, all of it is cold.
func (w *warmth) warmedLocked(key work.Hash) {
	now := time.Now()
	if w.recent == nil || len(w.recent) >= mostWarm || now.Sub(w.begun) > warmFor {
		w.older, w.recent, w.begun = w.recent, make(map[work.Hash]time.Time), now
	}
	w.recent[key] = now.Add(warmFor)
}
