package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice/cluster"
)

// Engine is the metrics of the engine that quotas and batches are shared by. There are none before SetEngine says of which.
type Engine struct {
	stats atomic.Pointer[func() cluster.Stats]

	calls, failures, up, took *prometheus.Desc
}

// NewEngine returns an Engine without anything to tell.
func NewEngine() *Engine {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_engine_"+name, help, nil, nil)
	}
	return &Engine{
		calls:    desc("calls_total", "Calls to the engine that quotas and batches are shared by, waits for something to happen there aside."),
		failures: desc("failures_total", "Those of them that got no answer, in time or at all."),
		up:       desc("up", "1 if the last call was answered."),
		took:     desc("call_seconds", "How long calls took that were answered."),
	}
}

// SetEngine has it tell what stats returns from now on.
func (e *Engine) SetEngine(stats func() cluster.Stats) { e.stats.Store(&stats) }

// Describe sends what each metric is.
func (e *Engine) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{e.calls, e.failures, e.up, e.took} {
		ch <- d
	}
}

// Collect sends the values of all metrics.
func (e *Engine) Collect(ch chan<- prometheus.Metric) {
	stats := e.stats.Load()
	if stats == nil {
		return
	}
	s := (*stats)()
	up := 0.0
	if s.Up {
		up = 1
	}
	within := make(map[float64]uint64)
	for i, bound := range cluster.StatsBounds() {
		within[bound.Seconds()] = s.Within[i]
	}
	ch <- prometheus.MustNewConstMetric(e.calls, prometheus.CounterValue, float64(s.Calls))
	ch <- prometheus.MustNewConstMetric(e.failures, prometheus.CounterValue, float64(s.Failures))
	ch <- prometheus.MustNewConstMetric(e.up, prometheus.GaugeValue, up)
	ch <- prometheus.MustNewConstHistogram(e.took, s.Calls-s.Failures, s.Took.Seconds(), within)
}
