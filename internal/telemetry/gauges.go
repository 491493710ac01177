package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice/limits"
)

// gauges describe how things stand. They have no variables of their own: each scrape asks.
type gauges struct {
	inFlight, waiting, slots, paused, until, breaker *prometheus.Desc
	limit, source, level                             *prometheus.Desc
	input, left                                      *prometheus.Desc
}

func newGauges() gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_"+name, help, labels, nil)
	}
	return gauges{
		inFlight: desc("in_flight", "Requests in flight.", "lane"),
		waiting:  desc("waiting", "Waiting requests.", "lane"),
		slots:    desc("concurrency", "Current limit of requests in flight.", "lane"),
		paused:   desc("paused", "1 during a cooldown, otherwise 0.", "lane"),
		until:    desc("cooldown_until_timestamp_seconds", "Unix time when the cooldown ends; 0 without a cooldown.", "lane"),
		breaker:  desc("breaker_open", "1 while the circuit breaker is open after repeated failures, otherwise 0.", "lane"),
		limit:    desc("limit", "Estimated limit of the provider, per minute or per day.", "dimension", "lane"),
		source:   desc("limit_info", "Source of a limit. The value is 1.", "dimension", "source", "lane"),
		level:    desc("limit_level", "Estimated remaining amount of a limit. The metric is missing if instances share the limit.", "dimension", "lane"),
		input:    desc("input_items", "Items read from the input."),
		left:     desc("items_remaining", "Input items without a result."),
	}
}

func (g *gauges) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		g.inFlight, g.waiting, g.slots, g.paused, g.until, g.breaker, g.limit, g.source, g.level, g.input, g.left,
	}
}

// Describe sends what each metric is.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range m.vecs() {
		v.Describe(ch)
	}
	for _, d := range m.gauges.all() {
		ch <- d
	}
}

// Collect sends the values of all metrics.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, v := range m.vecs() {
		v.Collect(ch)
	}
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	broken := m.broken()
	for lane, st := range gather(m.snapshot(), func(lane string) string { return m.lanes.of(lane).label }) {
		set(m.gauges.inFlight, float64(st.inFlight), lane)
		set(m.gauges.waiting, float64(st.waiting), lane)
		set(m.gauges.slots, float64(st.slots), lane)
		set(m.gauges.paused, float64(st.paused), lane)
		set(m.gauges.until, seconds(st.until), lane)
		set(m.gauges.breaker, float64(broken[lane]), lane)
		for d, b := range st.budgets {
			if b.limit > 0 {
				dimension := limits.Dimension(d).String()
				set(m.gauges.limit, float64(b.limit), dimension, lane)
				if !b.shared {
					set(m.gauges.level, b.level, dimension, lane)
				}
				set(m.gauges.source, 1, dimension, label(string(b.source)), lane)
			}
		}
	}
	if progress := m.progress.Load(); progress != nil {
		p := (*progress)()
		set(m.gauges.input, float64(p.Total))
		set(m.gauges.left, float64(max(0, p.Left())))
	}
}
