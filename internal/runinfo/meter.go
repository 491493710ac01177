package runinfo

import (
	"sync"
	"time"
)

const (
	rateWindow     = 30 * time.Second       // over which the rate is measured
	sampleInterval = 100 * time.Millisecond // minimum time between samples
)

// Meter measures the rate of a run. It is safe for concurrent use.
type Meter struct {
	mu       sync.Mutex
	start    sample
	samples  []sample // since rateWindow
	draining bool
}

// sample is the number of finished items at an instant.
type sample struct {
	at   time.Time
	done int
}

// rate returns the items per minute until a later sample.
func (s sample) rate(later sample) float64 {
	if d := later.at.Sub(s.at); d > 0 {
		return float64(later.done-s.done) / d.Minutes()
	}
	return 0
}

// Drain marks the following statuses as those of a run that starts no more items.
func (m *Meter) Drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.draining = true
}

// Measure adds the time and the rate to a status.
func (m *Meter) Measure(s Status) Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s.Draining = m.draining
	if n := len(m.samples); n < 2 || now.Sub(m.samples[n-1].at) >= sampleInterval {
		m.samples = append(m.samples, sample{now, s.Finished()})
	}
	if m.start.at.IsZero() {
		m.start = m.samples[0]
	}
	for len(m.samples) > 2 && now.Sub(m.samples[0].at) > rateWindow {
		m.samples = m.samples[1:]
	}
	last := sample{now, s.Finished()}
	return s.measured(now, m.samples[0].rate(last), m.start.rate(last))
}
