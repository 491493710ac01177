package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// watchFlags say how a command shows what it does.
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
	return flag{name: "progress", field: field, metavar: strings.Join([]string{term.ProgressAuto, term.ProgressPlain, term.ProgressJSON, term.ProgressNone}, "|"), help: "Choose the progress display"}
}

// eventsFlag returns the flag of the file that gets the events.
func eventsFlag(field *string) flag {
	return flag{name: "events", field: field, metavar: "FILE", help: "Append each scheduler event to FILE as a JSON line"}
}

// check refuses events on standard output.
func (f *watchFlags) check() error {
	if f.events == "-" {
		return fault.New(fault.Value, errors.New("--events needs a file, because --json uses standard output"), "name a file, for example --events events.jsonl")
	}
	return nil
}

// watch is what tells programs outside of a run how it goes. Close it.
type watch struct {
	s          *term.Streams
	metrics    *telemetry.Metrics // nil: nobody asks for them
	collectors []prometheus.Collector
	server     *telemetry.Server
	otel       *telemetry.OTel

	mu       sync.Mutex
	look     func() sluice.Snapshot // nil: not there yet
	accounts *account.Accounts      // nil: not there, or not yet
}

// open begins to tell what the flags and the environment ask for, and more beside the metrics. A gateway calls serve itself.
func (f *watchFlags) open(ctx context.Context, s *term.Streams, more ...prometheus.Collector) (*watch, error) {
	w := &watch{s: s}
	switch {
	case len(more) > 0: // a gateway, which has no items, and a way of its own to them
		w.metrics = telemetry.NewLaneMetrics(w.snapshot)
	case f.metrics != "":
		w.metrics = telemetry.NewMetrics(w.snapshot)
	}
	w.collectors = append(more, w.metrics)
	if f.metrics != "" && len(more) == 0 {
		if err := w.serve(f.metrics, nil); err != nil {
			return nil, err
		}
		if _, port, _ := net.SplitHostPort(f.metrics); port == "0" || w.server.Everywhere() {
			s.Errorf("sluice: metrics at %s\n", w.server.URL())
		}
	}
	w.openOTel(ctx)
	return w, nil
}

func checkMetricsAddress(address string) error {
	if config.CheckAddress(address) != nil {
		return fault.New(fault.Value, fmt.Errorf("--metrics %q is not an address", address),
			"use a host and a port, for example --metrics 127.0.0.1:9464")
	}
	return nil
}

// serve begins to serve metrics at an address, and the dashboard beside them unless it is nil.
func (w *watch) serve(address string, dashboard http.Handler) error {
	err := checkMetricsAddress(address)
	if err != nil {
		return err
	}
	routes := telemetry.Routes(w.collectors...)
	if dashboard != nil {
		routes.Handle("/ui", dashboard)
		routes.Handle("/ui/", dashboard)
	}
	if w.server, err = telemetry.Serve(address, routes); err != nil {
		return fault.New(fault.Value, fmt.Errorf("--metrics %s: %w", address, cause(err)),
			"use another port, or 0 for a free one")
	}
	if w.server.Everywhere() {
		w.s.Errorf("sluice: warning: every host that can reach --metrics %s can read the metrics\n", address)
	}
	return nil
}

// cause is what the system says of an address that cannot be had, without the address.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// observers are those that events go to.
func (w *watch) observers() []sluice.Observer {
	var os []sluice.Observer
	if w.metrics != nil {
		os = append(os, sluice.ObserverFunc(func(e sluice.Event) {
			if a := w.present(); a != nil {
				e.Lane = a.LaneLabel(e.Account, e.Lane)
			}
			w.metrics.Observe(e)
		}))
	}
	if w.otel != nil {
		os = append(os, sluice.ObserverFunc(func(e sluice.Event) { // whose lanes are models: upstreams are told apart by their addresses
			if a := w.present(); a != nil {
				e.Lane = a.BoundLane(e.Account, e.Lane)
			}
			w.otel.Observe(e)
		}))
	}
	return os
}

// present are the accounts of the settings that hold now; nil: there are none.
func (w *watch) present() *account.Accounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accounts
}

// of has the watch ask the run's accounts how they stand.
func (w *watch) of(a *account.Accounts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look, w.accounts = a.Snapshot, a
}

// at has the watch ask how the run's Scheduler stands.
func (w *watch) at(s *sluice.Scheduler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look = s.Snapshot
}

// follow has the watch ask progress how far the run is.
func (w *watch) follow(progress func() work.Report) {
	if w.metrics != nil {
		w.metrics.SetProgress(progress)
	}
}

func (w *watch) snapshot() sluice.Snapshot {
	w.mu.Lock()
	look := w.look
	w.mu.Unlock()
	if look == nil {
		return sluice.Snapshot{}
	}
	return look()
}

// close ends it. What it has to say by then is said.
func (w *watch) close() error {
	w.closeOTel()
	if w.server != nil {
		return w.server.Close()
	}
	return nil
}
