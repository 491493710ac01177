package cluster_test

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// countingProvider refuses whatever is above its limits, and keeps when what it took came. It knows nothing of the gate.
type countingProvider struct {
	w       *world
	rate    float64 // per second
	level   float64
	cap     float64
	at      time.Time
	open    int
	taken   []time.Time
	refused int
	from    int // of taken, the first that is measured
	peak    int // open at once
}

func newCountingProvider(w *world) *countingProvider {
	p := &countingProvider{w: w, rate: float64(w.s.Limits.RPM) / 60, at: w.now}
	p.cap = max(1, p.rate*w.s.Burst.Seconds())
	p.level = p.cap
	return p
}

func (p *countingProvider) measure() { p.from = len(p.taken) }

// serve takes a call that arrives now, or refuses it, and says when the answer leaves.
func (p *countingProvider) serve() (limits.Outcome, time.Duration) {
	w := p.w
	p.level = min(p.cap, p.level+p.rate*w.now.Sub(p.at).Seconds())
	p.at = w.now
	since := w.now.Sub(w.members[0].begun)
	storm := w.s.Storm > 0 && since >= w.s.Storm && since < w.s.Storm+5*time.Second
	switch {
	case storm:
		p.refused++
		return limits.Outcome{Kind: limits.RateLimit}, time.Millisecond
	case w.s.Limits.Concurrency > 0 && p.open >= w.s.Limits.Concurrency:
		p.refused++
		return limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Concurrency, Limit: int64(w.s.Limits.Concurrency)}, time.Millisecond
	case p.rate > 0 && p.level < 1:
		p.refused++
		return limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Readings: p.readings()}, time.Millisecond
	}
	p.level--
	p.open++
	p.peak = max(p.peak, p.open)
	p.taken = append(p.taken, w.now)
	o := limits.Outcome{Readings: p.readings()}
	takes := w.s.Latency/2 + time.Duration(w.random.Int64N(int64(w.s.Latency)))
	w.after(takes, func() { p.open-- })
	return o, takes
}

func (p *countingProvider) readings() []limits.Reading {
	if !p.w.s.Headers {
		return nil
	}
	left := max(0, p.level)
	reset := time.Duration((p.cap - left) / p.rate * float64(time.Second))
	return []limits.Reading{{Dimension: limits.Requests, Limit: int64(p.w.s.Limits.RPM), Remaining: int64(left), Reset: reset}}
}

// most is the largest number of calls that came within any time of that length.
func (p *countingProvider) most(within time.Duration) int {
	most, first := 0, 0
	for i, at := range p.taken {
		for at.Sub(p.taken[first]) >= within {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
