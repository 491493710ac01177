package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/version"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Accounts are the accounts that a Watch shows.
type Accounts interface {
	Snapshot() sluice.Snapshot
	LaneLabel(account, lane string) string             // name of a lane in metrics
	BoundLane(account, lane string) string             // model of a lane in spans
	ProviderOf(account, lane string) provider.Provider // without a Name if it is unknown
}

// WatchConfig configures a Watch. Warn and Hide are required.
type WatchConfig struct {
	Metrics bool                // events are counted, for Serve
	Items   bool                // items are processed, and not requests of clients
	Warn    func(error)         // is called with each warning
	Hide    func(secret string) // is called with each text that must never be printed
}

// Watch shows a program at work to other programs: by metrics for Prometheus, and by spans of OpenTelemetry if the environment asks for
// them. It is an Observer, and safe for concurrent use. Close it.
type Watch struct {
	cfg      WatchConfig
	otel     *OTel                    // nil: no spans
	server   *Server                  // nil: metrics are not served
	metrics  *Metrics                 // nil: events are not counted
	accounts atomic.Pointer[Accounts] // nil: there are none yet
}

// otelShutdown is the maximum time in which the last spans are sent.
const otelShutdown = 5 * time.Second

// NewWatch returns a Watch. If the variables of OpenTelemetry are wrong, it warns and makes no spans, because the variables may be meant
// for other programs.
func NewWatch(ctx context.Context, cfg WatchConfig) *Watch {
	w := &Watch{cfg: cfg}
	switch {
	case cfg.Metrics && cfg.Items:
		w.metrics = NewMetrics(w.snapshot)
	case cfg.Metrics:
		w.metrics = NewLaneMetrics(w.snapshot)
	}
	for _, secret := range OTelSecrets() {
		cfg.Hide(secret)
	}
	var err error
	w.otel, err = NewOTel(ctx, OTelConfig{Version: version.Read().Version, Service: w.service, Warn: cfg.Warn})
	if err != nil {
		err = fmt.Errorf("OpenTelemetry export is off: %w", err)
		cfg.Warn(fault.New(fault.Value, err, "correct the variable, or set OTEL_SDK_DISABLED=true"))
	}
	return w
}

// OTel returns the exporter of spans; nil if there is none.
func (w *Watch) OTel() *OTel { return w.otel }

// Serve serves the metrics and other collectors at an address, and the dashboard unless it is nil.
func (w *Watch) Serve(address string, dashboard http.Handler, more ...prometheus.Collector) (err error) {
	routes := Routes(append(more, w.metrics)...)
	if dashboard != nil {
		routes.Handle("/ui", dashboard)
		routes.Handle("/ui/", dashboard)
	}
	if w.server, err = Serve(address, routes); err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the address
		}
		return fault.New(fault.Value, fmt.Errorf("--metrics %s: %w", address, err), "use another port, or 0 for a free one")
	}
	if w.server.Everywhere() {
		w.cfg.Warn(fmt.Errorf("every host that can reach --metrics %s can read the metrics", address))
	}
	return nil
}

// Server returns the server of the metrics; nil if they are not served.
func (w *Watch) Server() *Server { return w.server }

// Observe counts an event, and makes spans of it.
func (w *Watch) Observe(e sluice.Event) {
	accounts := w.accounts.Load()
	lane := e.Lane
	if w.metrics != nil {
		if accounts != nil {
			e.Lane = (*accounts).LaneLabel(e.Account, lane)
		}
		w.metrics.Observe(e)
	}
	if w.otel != nil {
		if e.Lane = lane; accounts != nil { // addresses distinguish upstreams
			e.Lane = (*accounts).BoundLane(e.Account, lane)
		}
		w.otel.Observe(e)
	}
}

// Follow shows the state of these accounts from now on.
func (w *Watch) Follow(a Accounts) { w.accounts.Store(&a) }

// FollowItems shows the progress of items from now on.
func (w *Watch) FollowItems(progress func() work.Report) {
	if w.metrics != nil {
		w.metrics.SetProgress(progress)
	}
}

func (w *Watch) snapshot() sluice.Snapshot {
	if a := w.accounts.Load(); a != nil {
		return (*a).Snapshot()
	}
	return sluice.Snapshot{}
}

// Close sends the last spans, and stops to serve the metrics.
func (w *Watch) Close() error {
	if w.otel != nil {
		ctx, cancel := context.WithTimeout(context.Background(), otelShutdown)
		defer cancel()
		w.otel.Shutdown(ctx)
	}
	if w.server != nil {
		return w.server.Close()
	}
	return nil
}

// service returns the service of a lane in spans. Events do not have the operation, but models have names that suggest it.
func (w *Watch) service(account, lane string) Service {
	var p provider.Provider
	if a := w.accounts.Load(); a != nil {
		p = (*a).ProviderOf(account, lane)
	}
	operation := "chat"
	switch e := p.PromptEndpoint(lane); {
	case e.Embeds():
		operation = "embeddings"
	case e == provider.GenerateContent:
		operation = "generate_content"
	}
	return Service{Provider: conventional(p.Name), Operation: operation}
}

// conventional returns the name of a provider in the conventions for generative AI. A provider that they do not name keeps its name.
func conventional(name string) string {
	switch name {
	case "":
		return "unknown"
	case "azure-openai":
		return "azure.ai.openai"
	case "bedrock":
		return "aws.bedrock"
	case "gemini":
		return "gcp.gemini"
	case "mistral":
		return "mistral_ai"
	case "vertex":
		return "gcp.vertex_ai"
	case "xai":
		return "x_ai"
	}
	return name
}
