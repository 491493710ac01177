package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

// collector keeps what it is sent.
type collector struct {
	mu       sync.Mutex
	raw      strings.Builder // everything, as bytes
	resource map[string]string
	spans    []*traces.Span
}

// collect serves a collector and points the standard variables to it.
func collect(t testing.TB) *collector {
	t.Helper()
	c := &collector{resource: make(map[string]string)}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err == nil {
		var req traces.TracesData
		if r.URL.Path != "/v1/traces" {
			err = fmt.Errorf("no such path: %s", r.URL.Path)
		} else if err = proto.Unmarshal(b, &req); err == nil {
			c.take(&req)
		}
	}
	c.mu.Lock()
	c.raw.Write(b)
	c.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) take(req *traces.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			c.resource[a.Key] = text(a.Value)
		}
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// items are the spans of items, those above the spans of steps.
func (c *collector) items() (all []*traces.Span) {
	for _, s := range c.spans {
		if len(s.ParentSpanId) == 0 {
			all = append(all, s)
		}
	}
	return all
}

// of returns the span of the item of that id, and fails the test where there is not exactly one.
func (c *collector) of(t testing.TB, id string) *traces.Span {
	t.Helper()
	var found *traces.Span
	for _, s := range c.items() {
		if attr(s.Attributes, "sluice.item.id") != id {
			continue
		}
		if found != nil {
			t.Fatalf("%s has two spans", id)
		}
		found = s
	}
	if found == nil {
		t.Fatalf("%s has no span", id)
	}
	return found
}

// below are the names of the spans below another, in order of their start.
func (c *collector) below(parent *traces.Span) (steps []*traces.Span) {
	for _, s := range c.spans {
		if string(s.ParentSpanId) == string(parent.SpanId) && string(s.TraceId) == string(parent.TraceId) {
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b *traces.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return steps
}

// attr is the value of an attribute as text; "" where there is none.
func attr(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			return text(a.Value)
		}
	}
	return ""
}

func text(v *common.AnyValue) string {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *common.AnyValue_ArrayValue:
		var parts []string
		for _, e := range v.ArrayValue.Values {
			parts = append(parts, text(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return ""
}

// warnings keeps what an OTel warns of.
type warnings struct {
	mu   sync.Mutex
	list []error
}

func (w *warnings) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, err)
}

func (w *warnings) all() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

// openOTel opens an OTel as the environment says.
func openOTel(t testing.TB, w *warnings) *telemetry.OTel {
	t.Helper()
	o, err := telemetry.NewOTel(context.Background(), telemetry.OTelConfig{
		Version: "1.2.3", Warn: w.add,
		Service: func(account, lane string) telemetry.Service {
			return telemetry.Service{Provider: "openai", Operation: "chat"}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
