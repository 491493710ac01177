package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-llm/sluice"
)

// cancelled is the error type of calls that were cut short. They have no kind.
const cancelled = "cancelled"

// tell makes the spans of a call that is over: one of the item, and one below it for each of its steps. Nothing that a
// provider or a model said is in them, since it may repeat the prompt.
func (t *tracer) tell(c *call) {
	subject := t.subjects.of(route{c.account, c.lane})
	ctx, span := t.tracer.Start(context.Background(), subject.name, trace.WithTimestamp(c.start),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(subject.attributes...))
	if !span.IsRecording() { // the sampler left it out, and what is below
		return
	}
	t.counted.made.Add(int64(1 + len(c.steps)))
	for i := range c.steps {
		t.tellStep(ctx, &c.steps[i])
	}
	attributes := append(make([]attribute.KeyValue, 0, 12),
		attribute.String("sluice.item.id", label(c.id)),
		attribute.Int("sluice.tries", c.tries))
	if c.omitted > 0 {
		attributes = append(attributes, attribute.Int("sluice.steps.omitted", c.omitted))
	}
	failure := ""
	switch {
	case c.item != nil:
		attributes = c.item.describe(attributes)
		if c.item.kind != sluice.OK {
			failure = c.item.kind.String()
		}
	case c.cancelled:
		failure = cancelled
	case c.kind != sluice.OK:
		failure = c.kind.String()
	}
	if failure != "" {
		attributes = append(attributes, attribute.String("error.type", failure))
		span.SetStatus(codes.Error, failure)
	}
	span.SetAttributes(attributes...)
	span.End(trace.WithTimestamp(c.last))
}

// describe adds what the item came to.
func (i *outcome) describe(to []attribute.KeyValue) []attribute.KeyValue {
	to = append(to, attribute.Int("sluice.attempts", i.attempts), attribute.Int("sluice.throttles", i.throttles))
	if i.hasUsage {
		to = append(to, attribute.Int("gen_ai.usage.input_tokens", i.usage.Input),
			attribute.Int("gen_ai.usage.output_tokens", i.usage.Output))
		if i.usage.CachedInput > 0 {
			to = append(to, attribute.Int("gen_ai.usage.cache_read.input_tokens", i.usage.CachedInput))
		}
	}
	if i.finish != "" {
		to = append(to, attribute.StringSlice("gen_ai.response.finish_reasons", []string{label(strings.Clone(i.finish))}))
	}
	if i.cost > 0 {
		to = append(to, attribute.Float64("sluice.cost_usd", i.cost))
		if i.estimated > 0 {
			to = append(to, attribute.Float64("sluice.cost_estimated_usd", i.estimated))
		}
	}
	if i.reused {
		to = append(to, attribute.Bool("sluice.reused", true))
	}
	return to
}

// tellStep makes the span of one step.
func (t *tracer) tellStep(ctx context.Context, s *step) {
	_, span := t.tracer.Start(ctx, s.what.String(), trace.WithTimestamp(s.start))
	if s.what == stepAttempt {
		span.SetAttributes(attribute.Int("sluice.attempt", s.try))
		if s.refused {
			span.SetAttributes(dimension(s.dimension))
		}
		if s.unsent {
			span.SetAttributes(attribute.Bool("sluice.unsent", true))
		}
		if s.unended {
			span.SetAttributes(attribute.String("error.type", cancelled))
			span.SetStatus(codes.Error, cancelled)
		}
		if s.kind != sluice.OK {
			span.SetAttributes(errorType(s.kind))
			span.SetStatus(codes.Error, s.kind.String())
		}
	}
	span.End(trace.WithTimestamp(s.end))
}
