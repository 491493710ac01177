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
	samples  []sample
	draining bool
}

// sample is the number of finished items at an instant.
type sample struct {
	at   time.Time
	done int
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
	now, perMin := time.Now(), 0.0
	s.Draining = m.draining
	if n := len(m.samples); n < 2 || now.Sub(m.samples[n-1].at) >= sampleInterval {
		m.samples = append(m.samples, sample{now, s.Finished()})
	}
	for len(m.samples) > 2 && now.Sub(m.samples[0].at) > rateWindow {
		m.samples = m.samples[1:]
	}
	first := m.samples[0]
	if d := now.Sub(first.at); d > 0 {
		perMin = float64(s.Finished()-first.done) / d.Minutes()
	}
	return s.measured(now, perMin)
}
