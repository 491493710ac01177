package cli

import (
	"cmp"
	"context"
	"net"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
)

// watchFlags say how a command shows its work.
type watchFlags struct {
	events   string
	metrics  string
	progress string
	json     bool
	verbose  bool
}

// flags returns the flags of a command that runs items.
func (f *watchFlags) flags() []flag {
	return []flag{
		eventsFlag(&f.events),
		{name: "metrics", field: &f.metrics, metavar: "ADDR", help: "Serve Prometheus metrics at ADDR, such as 127.0.0.1:9464"},
		progressFlag(&f.progress),
		{name: "json", field: &f.json, help: "Print the summary as one JSON document"},
		{name: "verbose", field: &f.verbose, help: "Print more details on standard error"},
	}
}

// progressFlag returns the flag of how progress is shown.
func progressFlag(field *string) flag {
	*field = term.ProgressAuto
	ways := strings.Join([]string{term.ProgressAuto, term.ProgressPlain, term.ProgressJSON, term.ProgressNone}, "|")
	return flag{name: "progress", field: field, metavar: ways, help: "Choose the progress display"}
}

// eventsFlag returns the flag of the file that gets the events.
func eventsFlag(field *string) flag {
	return flag{name: "events", field: field, metavar: "FILE", help: "Append each scheduler event to FILE as a JSON line"}
}

// check refuses events on standard output, and a wrong address.
func (f *watchFlags) check() error {
	return cmp.Or(config.CheckEvents(f.events), config.CheckMetrics(f.metrics))
}

// open serves the metrics, if the flags have an address for them.
func (f *watchFlags) open(ctx context.Context, s *term.Streams) (*telemetry.Watch, error) {
	w := newWatch(ctx, s, telemetry.WatchConfig{Metrics: f.metrics != "", Items: true})
	if f.metrics == "" {
		return w, nil
	}
	if err := w.Serve(f.metrics, nil); err != nil {
		s.Warn(w.Close())
		return nil, err
	}
	if _, port, _ := net.SplitHostPort(f.metrics); port == "0" || w.Server().Everywhere() {
		s.Errorf("sluice: metrics at %s\n", w.Server().URL())
	}
	return w, nil
}

// newWatch returns a Watch that warns on s. Errors of the SDK of OpenTelemetry go there, too: its own log shows headers.
func newWatch(ctx context.Context, s *term.Streams, cfg telemetry.WatchConfig) *telemetry.Watch {
	cfg.Hide, cfg.Warn = s.Hide, func(err error) { warnWithHint(s, err) }
	w := telemetry.NewWatch(ctx, cfg)
	if o := w.OTel(); o != nil {
		otel.SetLogger(logr.Discard())
		otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Warn))
	}
	return w
}
