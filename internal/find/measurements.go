package find

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/fifo"
	"github.com/sluice-llm/sluice/limits"
)

// measurements are what a search has seen. hear and the methods that say so are safe for concurrent use; the rest belongs to
// the goroutine of the search.
type measurements struct {
	of      [kinds]usage    // accepted requests, by kind
	refusal time.Duration   // the longest that a rejection took
	seen    int             // requests that were open at once and accepted
	flights [][]fifo.Flight // of bursts without a rejection
	soak    Soak            // the last one
	none    bool            // every request is rejected

	mu      sync.Mutex
	heard   map[limits.Dimension]evidence
	dayLeft int64         // the most that was left of a day's requests
	longest time.Duration // that a real request took
}

// usage is what the requests of one kind took.
type usage struct {
	took    sample // seconds
	in, out sample // tokens
	perChar sample // tokens of input for a character of the prompt
}

// add takes in a request that is over. It reports whether nothing states the usage of a real one, which then counts as the
// most that it may use.
func (m *measurements) add(s *shape, r *reply) (unstated bool) {
	if r.refused() {
		m.refusal = max(m.refusal, r.took())
	}
	if !r.accepted() {
		return false
	}
	u, in, out := &m.of[s.kind], r.outcome.Usage.Input, r.outcome.Usage.Output
	u.took.add(r.took().Seconds())
	unstated = s.kind == realCall && in+out == 0
	switch {
	case unstated:
		in, out = s.reserve()
	case !r.outcome.HasUsage:
		return false
	}
	u.in.add(float64(in))
	u.out.add(float64(out))
	u.perChar.add(float64(in) / float64(len(s.prompt)+nonceChars))
	return unstated
}

// longestRefusal returns the time after which a request without a response counts as accepted.
func (m *measurements) longestRefusal() time.Duration { return max(50*time.Millisecond, 2*m.refusal) }

// longestReal returns the longest time that a real request took. It is safe for concurrent use.
func (m *measurements) longestReal() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.longest
}

// last returns what responses stated last. It is safe for concurrent use.
func (m *measurements) last() map[limits.Dimension]evidence {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.heard)
}

// hear takes in a response, of a real request or another, and what it states of limits. It fails when half of a day's requests
// are used up.
func (m *measurements) hear(real bool, r *reply) (end error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.accepted() && real {
		m.longest = max(m.longest, r.took())
	}
	if m.heard == nil {
		m.heard = make(map[limits.Dimension]evidence)
	}
	o := &r.outcome
	both := func(d limits.Dimension) bool { // of a minute and of a day
		return slices.ContainsFunc(o.Readings, func(x limits.Reading) bool {
			return x.Dimension != d && x.Dimension.Per(time.Minute) == d.Per(time.Minute)
		})
	}
	for _, reading := range o.Readings {
		of := reading.Dimension
		if !both(of) {
			reading.Dimension = of.Per(time.Minute)
		}
		period := m.heard[reading.Dimension].period.narrowed(&reading, r.took())
		e := evidence{reading, limits.SourceHeader, r.done, period, of != reading.Dimension}
		m.heard[reading.Dimension] = e
		if e.dimension() == limits.RequestsPerDay && reading.Remaining >= 0 {
			m.dayLeft = max(m.dayLeft, reading.Remaining)
			if 2*reading.Remaining < m.dayLeft {
				end = ErrDay
			}
		}
	}
	if e, ok := m.heard[o.Dimension]; r.refused() && o.Limit > 0 && (!ok || e.source != limits.SourceHeader) {
		m.heard[o.Dimension] = evidence{limits.Reading{Dimension: o.Dimension, Limit: o.Limit}, limits.SourceRejection, r.done, e.period, false}
	}
	return end
}

// sample is figures of one kind: their mean, their spread and the least.
type sample struct {
	n                   int
	sum, squares, least float64
}

func (m *sample) add(x float64) {
	m.n, m.sum, m.squares, m.least = m.n+1, m.sum+x, m.squares+x*x, min(cmp.Or(m.least, x), x)
}

func (m *sample) mean() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}

// cv returns the standard deviation over the mean. One or two figures show no spread: it is assumed to be large.
func (m *sample) cv() float64 {
	if m.n < 3 {
		return 0.3
	}
	mean, n := m.mean(), float64(m.n)
	if mean == 0 {
		return 0
	}
	return math.Sqrt(max(0, (m.squares-n*mean*mean)/(n-1))) / mean
}

// evidence is what responses state of one limit.
type evidence struct {
	limits.Reading
	source limits.Source
	at     time.Time
	period period
	day    bool // it was read as a limit per day
}

// period is the time that a stated limit takes to refill, between two bounds, by all readings of it. A token bucket of which
// u are in use, and which refills evenly, is full after u / limit of it. No period explains the readings of a fixed window.
type period struct{ least, most time.Duration }

const (
	longestMinute = 600 * time.Second // a limit that refills more slowly is of a day, not of a minute
	hour, day     = time.Hour, 24 * time.Hour
	never         = time.Duration(math.MaxInt64)
)

// narrowed takes in another reading, of a response that took some time.
func (p period) narrowed(r *limits.Reading, took time.Duration) period {
	used := r.Limit - r.Remaining
	if used <= 0 || r.Reset <= r.ResetSlack {
		return p
	}
	if p.most == 0 {
		p.most = never
	}
	each := func(reset time.Duration, used int64) time.Duration {
		return time.Duration(min(float64(reset)*float64(r.Limit)/float64(used), float64(never)/2))
	}
	// The remaining part is stated in whole units: at least one less is in use, and the request's own, but for the refill since.
	p.least = max(p.least, each(r.Reset-r.ResetSlack, used+r.Slack))
	if surely := used - 1 - r.Slack; surely > 0 {
		p.most = min(p.most, each(r.Reset, surely))
	} else if r.Slack == 0 && r.Dimension == limits.Requests {
		p.most = min(p.most, each(r.Reset+took, 1))
	}
	return p
}

// includes reports whether the period may be d.
func (p period) includes(d time.Duration) bool { return p.least <= d+d/50 && d-d/50 <= p.most }

// dimension returns the dimension that a reading is really of: some headers of requests state the limit per day.
func (e *evidence) dimension() limits.Dimension {
	p := &e.period
	long := e.Reset-e.ResetSlack > longestMinute || p.least > longestMinute && (p.includes(hour) || p.includes(day)) ||
		e.day && (p.most == 0 || p.includes(day))
	if e.source != limits.SourceHeader || !long {
		return e.Dimension
	}
	return e.Dimension.Per(24 * time.Hour)
}

// inUse returns the part of a limit per minute that is in use. Of a bucket that never holds the whole limit, the time until
// it is full tells.
func inUse(r *limits.Reading) float64 {
	return min(float64(r.Limit-r.Remaining-r.Slack), r.Reset.Minutes()*float64(r.Limit)+1)
}
