package gateway

import (
	"container/heap"
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

// turns order the calls of one tenant among its sessions, before they enter the queue that tenants share.
//
// The Schedulers share what they have among tenants by weight. Were each session a tenant of its own there, who opens many
// sessions would get many shares. So only a few calls of a tenant stand in that queue at a time, and which of the others comes
// next is decided here: the next call of the session that was served least. A tenant's weight holds over all its sessions, and a
// session that has one call to make does not wait for the five hundred of another.
type turns struct {
	mu     sync.Mutex
	models map[string]*queue // a model whose provider pauses must not hold up others
}

const (
	// mostAhead is how many calls of a tenant for a model stand in the shared queue. Fewer would leave a tenant without one there
	// where several slots come free at once, and so cost it a part of its share.
	mostAhead = 8

	// slowAhead is how many where that queue is slow: each call then took longer than slow to leave it. Calls that wait there for
	// half a minute rise in priority, which would give a tenant of little weight more than its share.
	slowAhead = 2
	slow      = 2 * time.Second
)

// queue is that of one model.
type queue struct {
	ahead   int // calls in the shared queue
	slow    bool
	waiting int
	flows   map[string]*flow
	heap    flowHeap // those with calls that wait
	floor   float64  // no session that comes back begins below it
}

// flow is one session.
type flow struct {
	served float64
	turn   int64 // orders equals: the lower came first
	calls  list.List
	at     int // in the heap
}

// waiter is one call.
type waiter struct {
	flow  *flow
	work  float64
	ready chan struct{}
	place *list.Element // nil: it has its turn
}

// enter waits for the call's turn to enter the shared queue. leave is called when it has left that, and only if enter did not
// fail. It fails with the context's error, with sluice.ErrWithdrawn once withdrawn is closed, or with a *sluice.SlotTimeoutError.
func (t *turns) enter(ctx context.Context, withdrawn <-chan struct{}, model, session string, work float64, wait time.Duration) error {
	t.mu.Lock()
	q := t.queue(model)
	f := q.flow(session)
	if q.waiting == 0 && q.ahead < q.most() {
		q.ahead++
		q.serve(f, work)
		t.mu.Unlock()
		return nil
	}
	w := &waiter{flow: f, work: work, ready: make(chan struct{})}
	q.push(w)
	t.mu.Unlock()
	begun, timer := time.Now(), time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-withdrawn:
		err = sluice.ErrWithdrawn
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.place == nil { // its turn came at the same time
		if err != nil {
			t.leaveLocked(model)
		}
		return err
	}
	if err == nil {
		err = &sluice.SlotTimeoutError{Lane: model, Wait: time.Since(begun), Position: q.ahead + q.waiting}
	}
	q.remove(w)
	t.tidy(model, q)
	return err
}

// waiting is how many calls wait for their turn.
func (t *turns) waiting(model string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.models[model]; q != nil {
		return q.waiting
	}
	return 0
}

// leave says that a call has left the shared queue, in which it was for so long.
func (t *turns) leave(model string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.models[model].slow = took > slow
	t.leaveLocked(model)
}

func (t *turns) leaveLocked(model string) {
	q := t.models[model]
	q.ahead--
	for q.open() {
		w := q.heap[0].calls.Front().Value.(*waiter)
		q.remove(w)
		q.ahead++
		q.serve(w.flow, w.work)
		close(w.ready)
	}
	t.tidy(model, q)
}

func (t *turns) queue(model string) *queue {
	if t.models == nil {
		t.models = make(map[string]*queue)
	}
	q := t.models[model]
	if q == nil {
		q = &queue{flows: make(map[string]*flow)}
		t.models[model] = q
	}
	return q
}

// tidy has a queue that nobody is in begin anew, forgets it where there are many, and sessions where there are many: one that
// comes back begins as a new one.
func (t *turns) tidy(model string, q *queue) {
	const mostModels, mostIdle, most = 16, 4, 1024
	switch {
	case q.ahead > 0 || q.waiting > 0:
		if len(q.flows) <= most+2*len(q.heap) {
			return
		}
		for name, f := range q.flows {
			if f.calls.Len() == 0 {
				delete(q.flows, name)
			}
		}
	case len(t.models) > mostModels || len(q.flows) > mostIdle:
		delete(t.models, model)
	default:
		q.floor, q.slow = 0, false
		for _, f := range q.flows {
			f.served, f.turn = 0, 0
		}
	}
}

func (q *queue) most() int {
	if q.slow {
		return slowAhead
	}
	return mostAhead
}

// open reports whether a call that waits may enter the shared queue.
func (q *queue) open() bool { return q.waiting > 0 && q.ahead < q.most() }

func (q *queue) flow(session string) *flow {
	f := q.flows[session]
	if f == nil {
		f = &flow{}
		q.flows[session] = f
	}
	return f
}

func (q *queue) push(w *waiter) {
	f := w.flow
	w.place = f.calls.PushBack(w)
	q.waiting++
	if f.calls.Len() == 1 {
		f.served = max(f.served, q.floor)
		heap.Push(&q.heap, f)
	}
}

func (q *queue) remove(w *waiter) {
	f := w.flow
	f.calls.Remove(w.place)
	w.place = nil
	q.waiting--
	if f.calls.Len() == 0 {
		heap.Remove(&q.heap, f.at)
	}
}

// serve counts a call that enters the shared queue.
func (q *queue) serve(f *flow, work float64) {
	f.served = max(f.served, q.floor)
	q.floor = f.served
	f.served += work
	f.turn++
	if f.calls.Len() > 0 {
		heap.Fix(&q.heap, f.at)
	}
}

// flowHeap has the session that was served least at its top.
type flowHeap []*flow

func (h flowHeap) Len() int { return len(h) }
func (h flowHeap) Less(i, j int) bool {
	if h[i].served != h[j].served {
		return h[i].served < h[j].served
	}
	return h[i].turn < h[j].turn
}
func (h flowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *flowHeap) Push(x any) {
	f := x.(*flow)
	f.at = len(*h)
	*h = append(*h, f)
}
func (h *flowHeap) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return f
}
