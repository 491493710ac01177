package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// instruments are the metrics of OpenTelemetry: those of the conventions for generative AI, and those of our own.
type instruments struct {
	tokens                             metric.Int64Histogram
	duration, wait                     metric.Float64Histogram
	items, throttles, cooldowns        metric.Int64Counter
	cost                               metric.Float64Counter
	inFlight, waiting, slots, pausedIn metric.Int64ObservableGauge
}

// newInstruments makes them; the gauges ask snapshot each time they are read.
func newInstruments(meter metric.Meter, snapshot func() sluice.Snapshot) (*instruments, error) {
	var errs [11]error
	i := &instruments{}
	i.tokens, errs[0] = meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Number of input and output tokens used."), metric.WithExplicitBucketBoundaries(
			1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	i.duration, errs[1] = meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("GenAI operation duration."), metric.WithExplicitBucketBoundaries(
			0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	i.wait, errs[2] = meter.Float64Histogram("sluice.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long tries waited for their turn, pauses included."), metric.WithExplicitBucketBoundaries(waitBuckets()...))
	i.items, errs[3] = meter.Int64Counter("sluice.items", metric.WithUnit("{item}"),
		metric.WithDescription("Items that were recorded."))
	i.throttles, errs[4] = meter.Int64Counter("sluice.throttles", metric.WithUnit("{throttle}"),
		metric.WithDescription("Tries that the provider refused for now."))
	i.cooldowns, errs[5] = meter.Int64Counter("sluice.cooldowns", metric.WithUnit("{cooldown}"),
		metric.WithDescription("Pauses of a whole lane that began."))
	i.cost, errs[6] = meter.Float64Counter("sluice.cost", metric.WithUnit("USD"),
		metric.WithDescription("What recorded items cost, as far as prices are known."))
	gauge := func(name, unit, what string, err *error) (g metric.Int64ObservableGauge) {
		g, *err = meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		return g
	}
	i.inFlight = gauge("sluice.in_flight", "{call}", "Calls that are open.", &errs[7])
	i.waiting = gauge("sluice.waiting", "{call}", "Calls that wait for their turn.", &errs[8])
	i.slots = gauge("sluice.slots", "{call}", "How many calls may be open now.", &errs[9])
	i.pausedIn = gauge("sluice.paused", "{lane}", "Lanes that pause.", &errs[10])
	lanes := newTable(func(lane string) *string { l := label(lane); return &l }, func() *string { l := otherLanes; return &l })
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for lane, st := range gather(snapshot(), func(lane string) string { return *lanes.of(lane) }) {
			model := metric.WithAttributes(attribute.String("gen_ai.request.model", lane))
			to.ObserveInt64(i.inFlight, int64(st.inFlight), model)
			to.ObserveInt64(i.waiting, int64(st.waiting), model)
			to.ObserveInt64(i.slots, int64(st.slots), model)
			to.ObserveInt64(i.pausedIn, int64(st.paused), model)
		}
		return nil
	}, i.inFlight, i.waiting, i.slots, i.pausedIn)
	return i, errors.Join(append(errs[:], err)...)
}

// observe counts e.
func (i *instruments) observe(e *sluice.Event, subjects *table[route, subject]) {
	ctx := context.Background()
	switch e.Type {
	case limits.EventSlotAcquired:
		i.wait.Record(ctx, e.Wait.Seconds(), subjects.of(route{e.Account, e.Lane}).plain)
	case limits.EventSlotReleased:
		i.released(ctx, e, subjects.of(route{e.Account, e.Lane}))
	case limits.EventItemDone:
		s := subjects.of(route{lane: e.Lane})
		i.items.Add(ctx, 1, s.kinds[kindIndex(e.Outcome.Kind)])
		if e.Cost > 0 {
			i.cost.Add(ctx, e.Cost, s.plain)
		}
	case limits.EventCooldownStarted:
		i.cooldowns.Add(ctx, 1, subjects.of(route{e.Account, e.Lane}).plain)
	}
}

// released counts a try that ended: that is the operation which the conventions speak of, without our waiting.
func (i *instruments) released(ctx context.Context, e *sluice.Event, s *subject) {
	if !e.Outcome.Unsent {
		i.duration.Record(ctx, e.Latency.Seconds(), s.kinds[kindIndex(e.Outcome.Kind)])
	}
	if u := e.Outcome.Usage; e.Outcome.HasUsage {
		i.tokens.Record(ctx, int64(max(0, u.Input)), s.input)
		i.tokens.Record(ctx, int64(max(0, u.Output)), s.output)
	}
	if throttled(e) {
		i.throttles.Add(ctx, 1, s.dimensions[min(int(e.Outcome.Dimension), len(s.dimensions)-1)])
	}
}
