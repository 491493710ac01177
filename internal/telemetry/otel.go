package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
)

// otelScope names what makes the spans.
const otelScope = "github.com/sluice-llm/sluice"

// OTelConfig shapes an OTel. All fields are needed but Version.
type OTelConfig struct {
	// Version is that of the program.
	Version string

	// Service says whom the calls of a lane go to, and for what. The account is "" where only the lane is known.
	Service func(account, lane string) Service

	// Warn is told the first thing that goes wrong with the exporting, once.
	Warn func(error)
}

// Service is what calls are made of, in the words of OpenTelemetry's conventions for generative AI.
type Service struct {
	Provider  string // gen_ai.provider.name, such as openai
	Operation string // gen_ai.operation.name, such as chat
}

// OTel makes spans of events, and sends them to the collector that the standard environment variables name.
// It is an Observer, safe for concurrent use, and waits for nobody: where the collector is slow or away, what does not
// fit its bounded queues is dropped. Shut it down.
type OTel struct {
	cfg      OTelConfig
	warned   sync.Once
	subjects *table[route, subject]
	tracer   *tracer
	traces   *sdktrace.TracerProvider
	ended    *countedExporter
}

// NewOTel begins to export; it returns nil if the environment asks for no traces. Its error says which of the variables asks for what there is not. What the SDK has to say
// goes to cfg.Warn from then on, in place of standard error: its own log shows headers.
func NewOTel(ctx context.Context, cfg OTelConfig) (*OTel, error) {
	client, err := otelEnvironment(cfg.Version)
	if err != nil || client == nil {
		return nil, err
	}
	o := &OTel{cfg: cfg}
	o.subjects = newTable(o.subject, func() *subject { return o.subject(route{lane: otherLanes}) })
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "sluice"), attribute.String("service.version", cfg.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		o.Warn(err) // what could be read of the variables is there
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	o.ended = &countedExporter{SpanExporter: exporter, warn: o.Warn}
	o.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(o.ended))
	o.tracer = newTracer(o.traces.Tracer(otelScope), o.subjects, o.ended)
	return o, nil
}

// Warn reports the first failure.
func (o *OTel) Warn(err error) {
	o.warned.Do(func() { o.cfg.Warn(fmt.Errorf("OpenTelemetry: %w", err)) })
}

// Observe makes spans of e.
func (o *OTel) Observe(e sluice.Event) { o.tracer.observe(&e) }

// Shutdown ends the spans that are open, as cancelled, and sends what is left. It gives up when ctx ends.
func (o *OTel) Shutdown(ctx context.Context) {
	o.tracer.endAll()
	if err := o.traces.Shutdown(ctx); err != nil {
		o.Warn(err)
	}
	if lost := o.ended.lost(); lost > 0 {
		o.Warn(fmt.Errorf("%d of %d spans were not sent: set OTEL_TRACES_SAMPLER=traceidratio to send fewer", lost, o.ended.made.Load()))
	}
}

// countedExporter counts the spans that were sent, and tells of failures.
type countedExporter struct {
	sdktrace.SpanExporter
	warn       func(error)
	made, sent atomic.Int64
}

// ExportSpans sends spans.
func (c *countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.warn(clipped(err))
		return nil // it was told
	}
	c.sent.Add(int64(len(spans)))
	return nil
}

// lost is how many spans were made and did not arrive.
func (c *countedExporter) lost() int64 { return c.made.Load() - c.sent.Load() }

// clipped is an error of the collector, which may answer with a page.
func clipped(err error) error {
	return errors.New(prose.Clip(strings.Join(strings.Fields(err.Error()), " "), 300))
}
