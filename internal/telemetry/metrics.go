package telemetry

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// numKinds is how many kinds of answer there are.
const numKinds = int(sluice.Internal) + 1

// Metrics counts events for Prometheus. It is an Observer and a prometheus.Collector, and safe for concurrent use.
//
// What happened is counted as it is observed; how things stand is asked for when it is collected.
type Metrics struct {
	snapshot func() sluice.Snapshot
	gauges   gauges
	progress atomic.Pointer[func() work.Report]
	itemless bool

	items, attempts, throttles, gaveUp, retries, cancelled *prometheus.CounterVec
	tokens, cost, estimated, reused, cooldowns             *prometheus.CounterVec
	wait, duration                                         *prometheus.HistogramVec
	lanes                                                  *table[string, laneMetrics]

	mu       sync.Mutex
	breakers map[breaker]struct{} // that are open
}

// breaker names the circuit breaker of a lane.
type breaker struct{ account, lane string }

// laneMetrics are the counters of one lane, looked up once.
type laneMetrics struct {
	label string

	items, attempts, gaveUp [numKinds]prometheus.Counter // nil: of a kind that is not expected there
	throttles               [limits.NumDimensions]prometheus.Counter

	input, output, cached, cost, estimated, reused, retries, cancelled, cooldowns prometheus.Counter

	wait, duration prometheus.Observer
}

// NewMetrics returns Metrics that ask snapshot how the lanes stand. It is called from whoever collects them.
func NewMetrics(snapshot func() sluice.Snapshot) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "sluice", Name: name, Help: help}, append(labels, "lane"))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "sluice", Name: name, Help: help, Buckets: buckets}, []string{"lane"})
	}
	m := &Metrics{
		snapshot:  snapshot,
		gauges:    newGauges(),
		breakers:  make(map[breaker]struct{}),
		items:     counter("items_total", "Recorded items, by kind of result.", "kind"),
		attempts:  counter("attempts_total", "Finished attempts, by kind of result. Rate-limited attempts are not counted.", "kind"),
		throttles: counter("throttles_total", "Rate-limited attempts, by the limit that the provider named.", "dimension"),
		gaveUp:    counter("gave_up_total", "Requests that failed after their last attempt, by kind of failure.", "kind"),
		retries:   counter("retries_total", "Failed attempts that were followed by a retry."),
		cancelled: counter("cancelled_total", "Requests that were cancelled while waiting."),
		tokens:    counter("tokens_total", "Tokens of recorded items, over all attempts. Input tokens include cached input tokens.", "direction"),
		cost:      counter("cost_usd_total", "Cost of recorded items in US dollars, if prices are known."),
		estimated: counter("cost_estimated_usd_total", "Estimated cost in US dollars of responses without usage data."),
		reused:    counter("items_reused_total", "Items with a result from an equal request or the cache."),
		cooldowns: counter("cooldowns_total", "Cooldowns of the lane."),
		wait:      histogram("wait_seconds", "Time that an attempt waited before it was sent, including cooldowns, but not backoffs.", waitBuckets()),
		duration:  histogram("call_duration_seconds", "Duration of an attempt, from sending to the end of the response.", durationBuckets()),
	}
	m.lanes = newTable(
		func(lane string) *laneMetrics { return m.lane(label(strings.Clone(lane))) }, // it may be a piece of a line
		func() *laneMetrics { return m.lane(otherLanes) },
	)
	return m
}

// NewLaneMetrics returns Metrics without what is counted of items, for programs that have none.
func NewLaneMetrics(snapshot func() sluice.Snapshot) *Metrics {
	m := NewMetrics(snapshot)
	m.itemless = true
	return m
}

func waitBuckets() []float64 {
	return []float64{0.001, 0.01, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
}

func durationBuckets() []float64 {
	return []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600}
}

// lane returns the counters of a lane, at zero: a series that begins at one has no rate at first.
func (m *Metrics) lane(label string) *laneMetrics {
	l := &laneMetrics{
		label: label,
		input: m.tokens.WithLabelValues("input", label), output: m.tokens.WithLabelValues("output", label),
		cached: m.tokens.WithLabelValues("cached_input", label),
		cost:   m.cost.WithLabelValues(label), estimated: m.estimated.WithLabelValues(label), reused: m.reused.WithLabelValues(label),
		retries: m.retries.WithLabelValues(label), cancelled: m.cancelled.WithLabelValues(label),
		cooldowns: m.cooldowns.WithLabelValues(label),
		wait:      m.wait.WithLabelValues(label), duration: m.duration.WithLabelValues(label),
	}
	for k := range numKinds {
		kind := sluice.Kind(k)
		l.items[k] = m.items.WithLabelValues(kind.String(), label)
		if !kind.Throttle() || kind == sluice.RateLimit { // of which there are refusals for good
			l.attempts[k] = m.attempts.WithLabelValues(kind.String(), label)
		}
		if kind != sluice.OK {
			l.gaveUp[k] = m.gaveUp.WithLabelValues(kind.String(), label)
		}
	}
	for d := range l.throttles {
		l.throttles[d] = m.throttles.WithLabelValues(dimensionLabel(limits.Dimension(d)), label)
	}
	return l
}

// dimensionLabel is the label of a limit; a refusal may leave open which it was.
func dimensionLabel(d limits.Dimension) string {
	if d == limits.AnyDimension {
		return "unstated"
	}
	return d.String()
}

// SetProgress has the Metrics ask progress how far the run is, from now on.
func (m *Metrics) SetProgress(progress func() work.Report) { m.progress.Store(&progress) }

// Observe counts e.
func (m *Metrics) Observe(e sluice.Event) {
	switch e.Type {
	case limits.EventSlotAcquired:
		m.lanes.of(e.Lane).wait.Observe(e.Wait.Seconds())
	case limits.EventSlotReleased:
		m.released(m.lanes.of(e.Lane), &e)
	case limits.EventItemDone:
		m.lanes.of(e.Lane).done(&e)
	case limits.EventSlotCancelled:
		m.lanes.of(e.Lane).cancelled.Inc()
	case limits.EventAttemptFailed:
		if e.Wait > 0 {
			m.lanes.of(e.Lane).retries.Inc()
		}
	case limits.EventGaveUp:
		if c := m.lanes.of(e.Lane).gaveUp[kindIndex(e.Outcome.Kind)]; c != nil {
			c.Inc()
		}
	case limits.EventCooldownStarted:
		m.lanes.of(e.Lane).cooldowns.Inc()
	case limits.EventBreaker:
		m.broke(&e)
	}
}

// released counts a try that ended.
func (m *Metrics) released(l *laneMetrics, e *sluice.Event) {
	if unused(e) {
		return
	}
	if !e.Outcome.Unsent {
		l.duration.Observe(e.Latency.Seconds())
	}
	if throttled(e) {
		l.throttles[min(int(e.Outcome.Dimension), len(l.throttles)-1)].Inc()
		return
	}
	kind := kindIndex(e.Outcome.Kind)
	if l.attempts[kind] == nil {
		m.attempts.WithLabelValues(sluice.Kind(kind).String(), l.label).Inc()
		return
	}
	l.attempts[kind].Inc()
}

// unused reports whether a slot was given back without a try, as when a grant came together with a cancel.
func unused(e *sluice.Event) bool { return e.Outcome.Unsent && e.Outcome.Kind == sluice.OK }

// throttled reports whether a try was refused for now. One that can never fit was refused for good.
func throttled(e *sluice.Event) bool { return e.Outcome.Kind.Throttle() && !e.Outcome.TooLarge }

// kindIndex is where a kind has its counter. One that is not known here would be a fault of ours.
func kindIndex(k sluice.Kind) int { return min(int(k), numKinds-1) }

// done counts an item that was recorded.
func (l *laneMetrics) done(e *sluice.Event) {
	l.items[kindIndex(e.Outcome.Kind)].Inc()
	u := e.Outcome.Usage
	l.input.Add(float64(max(0, u.Input))) // what answers state may be below zero
	l.output.Add(float64(max(0, u.Output)))
	l.cached.Add(float64(max(0, u.CachedInput)))
	if e.Cost > 0 {
		l.cost.Add(e.Cost)
		l.estimated.Add(max(0, e.Estimated))
	}
	if e.Reused {
		l.reused.Inc()
	}
}

// broke notes that a circuit breaker opened or closed.
func (m *Metrics) broke(e *sluice.Event) {
	b := breaker{e.Account, e.Lane}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Until.IsZero() {
		delete(m.breakers, b)
	} else {
		m.breakers[b] = struct{}{}
	}
}

// broken returns how many circuit breakers are open, by label.
func (m *Metrics) broken() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := make(map[string]int)
	for b := range m.breakers {
		n[m.lanes.of(b.lane).label]++
	}
	return n
}

// vecs are the metrics that count events.
func (m *Metrics) vecs() []prometheus.Collector {
	all := []prometheus.Collector{m.attempts, m.throttles, m.gaveUp, m.retries, m.cancelled, m.cooldowns, m.wait, m.duration}
	if m.itemless {
		return all
	}
	return append(all, m.items, m.tokens, m.cost, m.estimated, m.reused)
}

// seconds is an instant as Prometheus has it; 0 is none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
