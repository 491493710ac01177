package runinfo

import (
	"maps"
	"sync"
	"time"
)

const (
	rateWindow     = 30 * time.Second       // over which the rate is measured
	sampleInterval = 100 * time.Millisecond // minimum time between samples
)

// Meter measures the rate and the outages of a run. It is safe for concurrent use.
type Meter struct {
	mu       sync.Mutex
	start    sample
	samples  []sample // since rateWindow
	draining bool
	last     time.Time                // of the last status,
	outage   string                   // and its outage
	outages  map[string]time.Duration // by reason
}

// sample is the number of finished items at an instant.
type sample struct {
	at   time.Time
	done int
}

// rate returns the items per minute until a later sample.
func (s sample) rate(later sample) Rate {
	if d := later.at.Sub(s.at); d > 0 {
		return Rate(float64(later.done-s.done) / d.Minutes())
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
	if m.outage != "" {
		m.outages[m.outage] += now.Sub(m.last)
	} else if m.outages == nil {
		m.outages = make(map[string]time.Duration)
	}
	m.last, m.outage = now, s.outage(now)
	if n := len(m.samples); n < 2 || now.Sub(m.samples[n-1].at) >= sampleInterval {
		m.samples = append(m.samples, sample{now, s.Finished()})
	}
	if m.start.at.IsZero() {
		m.start = m.samples[0]
	}
	for len(m.samples) > 2 && now.Sub(m.samples[0].at) > rateWindow {
		m.samples = m.samples[1:]
	}
	present := sample{now, s.Finished()}
	return s.measured(now, m.samples[0].rate(present), m.start.rate(present))
}

// Outages returns the total time without Redis, worker, provider or upstream, by reason.
func (m *Meter) Outages() map[string]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.outages)
}
