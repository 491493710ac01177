package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

// traceClient sends spans to a collector as protobuf over HTTP. It is an otlptrace.Client.
type traceClient struct {
	http   http.Client
	url    string
	header http.Header
}

// Start does nothing and Stop closes idle connections.
func (c *traceClient) Start(context.Context) error { return nil }
func (c *traceClient) Stop(context.Context) error  { c.http.CloseIdleConnections(); return nil }

// UploadTraces sends spans. It retries once if the collector is overloaded and asks for at most 10 seconds.
func (c *traceClient) UploadTraces(ctx context.Context, spans []*traces.ResourceSpans) error {
	body, err := proto.Marshal(&traces.TracesData{ResourceSpans: spans}) // the same bytes as an ExportTraceServiceRequest
	if err != nil {
		return err
	}
	wait, err := c.post(ctx, body)
	if wait > 0 && wait <= 10*time.Second && wake.In(ctx, wait, nil) == nil {
		_, err = c.post(ctx, body)
	}
	return err
}

// post sends one request. Its wait is the one before a retry, and zero if no retry can help.
func (c *traceClient) post(ctx context.Context, body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = c.header
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		wait = max(time.Second, provider.RetryAfter(resp.Header, nil, time.Now()))
	}
	if resp.StatusCode/100 != 2 {
		err = fmt.Errorf("the collector answered %s: %s", resp.Status, text)
	}
	return wait, err
}
