//go:build unix

package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otelSink is a collector that keeps spans by the ids of their requests.
type otelSink struct {
	mu    sync.Mutex
	spans map[string]string
}

func text(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func (c *otelSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	var data traces.TracesData
	if r.URL.Path == "/v1/traces" && proto.Unmarshal(b, &data) == nil {
		for _, s := range data.ResourceSpans[0].ScopeSpans[0].Spans {
			if id := text(s.Attributes, "sluice.item.id"); id != "" {
				c.spans[id] = s.Name + " " + text(s.Attributes, "error.type")
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestTheGatewayExportsByOpenTelemetry(t *testing.T) {
	to := &otelSink{spans: make(map[string]string)}
	web := httptest.NewServer(to)
	defer web.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", web.URL)
	g, _ := startMoody(t)
	for _, model := range []string{"m", "fails", "gpt-of-a-client"} {
		r, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", nil)
		r.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[]}`, model)))
		r.Header.Set("X-Request-Id", "asks-"+model)
		resp, err := (&http.Client{Timeout: time.Minute}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	g.stop(t)
	to.mu.Lock()
	defer to.mu.Unlock()
	for id, want := range map[string]string{"asks-m": "chat m-2026 ", "asks-fails": "chat fails server_error", "asks-gpt-of-a-client": "chat other "} {
		if to.spans[id] != want {
			t.Errorf("the span of %s is %q, want %q", id, to.spans[id], want)
		}
	}
}
