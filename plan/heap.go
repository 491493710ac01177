package plan

import "time"

// event is something that happens to a try.
type event struct {
	at   time.Duration
	seq  uint64 // tells events of the same instant apart, in the order they were foreseen
	what func(*run, *try)
	try  *try
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventHeap is what is to happen, the earliest first. Its zero value is empty.
type eventHeap struct {
	heap []event
	seq  uint64
}

func (h *eventHeap) push(e event) {
	h.seq++
	e.seq = h.seq
	h.heap = append(h.heap, e)
	i := len(h.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h.heap[up]) {
			break
		}
		h.heap[i] = h.heap[up]
		i = up
	}
	h.heap[i] = e
}

// pop takes out the earliest. There must be one.
func (h *eventHeap) pop() event {
	first := h.heap[0]
	n := len(h.heap) - 1
	e := h.heap[n]
	h.heap[n] = event{}
	h.heap = h.heap[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		down := 4*i + 1
		if down >= n {
			break
		}
		for c := down + 1; c < min(down+4, n); c++ { // four children: half as deep as with two
			if h.heap[c].before(&h.heap[down]) {
				down = c
			}
		}
		if !h.heap[down].before(&e) {
			break
		}
		h.heap[i] = h.heap[down]
		i = down
	}
	h.heap[i] = e
	return first
}
