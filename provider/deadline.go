package provider

import (
	"slices"
	"sync"
	"time"
)

const (
	leastDeadline  = 30 * time.Second // minimum deadline of an attempt
	deadlineFactor = 10               // deadline as a multiple of the 99th percentile of the latency
	leastLatencies = 20               // latencies before which the deadline is defaultTimeout
	mostLatencies  = 512              // newest latencies that count
	mostModels     = 1000             // models whose latencies are kept
)

// Deadlines computes a time limit per attempt for each model: 10 times the 99th percentile of the last 512 latencies, at least 30 s. With
// fewer than 20 latencies of a model, the time limit is 10 min. The zero value is ready to use. A Deadlines is safe for concurrent use.
type Deadlines struct {
	mu     sync.Mutex
	models map[string]*latencies
}

// latencies are the newest of one model.
type latencies struct {
	last     []time.Duration
	next     int
	deadline time.Duration
	since    int // latencies observed since deadline was computed
}

// Of returns the current time limit for an attempt at a request to a model.
func (d *Deadlines) Of(model string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.models[model]
	if l == nil || len(l.last) < leastLatencies {
		return defaultTimeout
	}
	if l.since >= leastLatencies { // few attempts take so long that they ask
		sorted := slices.Sorted(slices.Values(l.last))
		l.deadline, l.since = max(leastDeadline, deadlineFactor*sorted[len(sorted)*99/100]), 0
	}
	return l.deadline
}

// Observe records the latency of a successful response from a model.
func (d *Deadlines) Observe(model string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.models[model]
	if l == nil {
		if d.models == nil || len(d.models) >= mostModels {
			d.models = make(map[string]*latencies)
		}
		l = new(latencies)
		d.models[model] = l
	}
	if len(l.last) < mostLatencies {
		l.last = append(l.last, took)
	} else {
		l.last[l.next] = took
	}
	l.next = (l.next + 1) % mostLatencies
	l.since++
}
