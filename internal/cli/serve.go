package cli

import (
	"cmp"
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/serve"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// serveOptions are the flags of the serve command.
type serveOptions struct {
	account  accountFlags
	settings config.Serve
	verbose  bool
	check    bool
	json     bool
}

// newServe returns the command that serves a gateway.
func newServe(s *term.Streams) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve [--listen ADDR] [--config sluice.yaml]",
		Short: "Serve a gateway that queues requests within the limits",
		Long: `Serve a gateway in front of providers. If a request would exceed a limit, the request waits in the gateway, so that the
provider does not reject it with 429. Clients set, for example, OPENAI_BASE_URL=http://127.0.0.1:8787/v1.

Upstreams come from --config. If --config has no upstreams, the gateway uses --provider, or all providers with a key in
the environment. Flags override the settings. The settings are read again when the file changes and on SIGHUP. After the
first interrupt, the gateway waits for open requests. A second interrupt aborts open requests.`,
		Example: `  sluice serve                    # providers with a key in the environment
  sluice serve --provider sim     # a simulator, to try it without a key
  sluice serve --config sluice.yaml --check
  sluice serve --config sluice.yaml --listen 127.0.0.1:9000
  sluice serve key alice          # make a key for a tenant of the settings
  sluice serve --provider openai-compatible --base-url http://127.0.0.1:8000/v1 --concurrency 32`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, s) },
	}
	define(cmd, o.table()...)
	cmd.AddCommand(newServeKey(s))
	return cmd
}

// table returns the flags of serve.
func (o *serveOptions) table() []flagGroup {
	t := &o.settings
	t.Listen, t.Metrics = "127.0.0.1:8787", "127.0.0.1:9464"
	t.QueueTimeout, t.DrainTimeout = 5*time.Minute, 30*time.Second
	return []flagGroup{
		{"Gateway", []flag{
			{name: "listen", field: &t.Listen, metavar: "ADDR", help: "Listen at this address; port 0 picks a free port", common: true},
			configFlag(&o.account.Sources),
			{name: "allow-host", field: &t.Hosts, metavar: "NAME", help: "Also accept requests for this host name; repeatable"},
			{name: "queue-timeout", field: durationFrom(&t.QueueTimeout, 1), help: "Limit the time of a request in the queue", common: true},
			{name: "drain-timeout", field: durationFrom(&t.DrainTimeout, 0), help: "Limit the time for open requests after an interrupt"},
			{name: "check", field: &o.check, help: "Check the settings and print the configuration", common: true},
		}},
		{"Provider", o.account.target("Serve only this model")},
		{"Limits", append(limitFlags(&o.account.Limits, "learned"), redisFlag(&t.Redis))},
		{"Watching", []flag{
			{name: "access-log", field: &t.AccessLog, metavar: "FILE", help: "Log each request as a JSON line; - is standard output"},
			eventsFlag(&t.Events),
			{name: "metrics", field: &t.Metrics, metavar: "ADDR", help: "Serve /metrics and /ui at this address, or none", common: true},
			{name: "json", field: &o.json, help: "Print the configuration as one JSON document"},
			{name: "verbose", field: &o.verbose, help: "Print more details on standard error"},
		}},
	}
}

// run is the serve command.
func (o *serveOptions) run(cmd *cobra.Command, s *term.Streams) error {
	accounts, err := o.account.config(s)
	if err != nil {
		return err
	}
	accounts.Excluded = func(e provider.Exclusion) { s.Errorf("sluice: upstream %s: %s\n", e.Upstream, e) }
	cfg := serve.Config{
		Account: accounts, Flags: o.settings, Given: cmd.Flags().Changed, LimitFlag: limitFlag, Redact: s.Redact, Logger: s.Logger(o.verbose),
		AccessLog: gateway.AccessLogConfig{Stdout: s.Out, Redact: s.RedactData, Logger: s.Logger(true)},
	}
	if !o.check {
		return o.serve(cmd.Context(), s, cfg)
	}
	d, err := serve.Check(cfg)
	if err != nil {
		return err
	}
	return printGateway(s, d, o.json)
}

// serve serves until it is interrupted.
func (o *serveOptions) serve(ctx context.Context, s *term.Streams, cfg serve.Config) (err error) {
	if os.Getenv("GOGC") == "" {
		// A gateway keeps little memory compared with the requests that pass: a few more megabytes save one collection in five.
		defer debug.SetGCPercent(debug.SetGCPercent(125))
	}
	cfg.Watch = newWatch(ctx, s, telemetry.WatchConfig{Metrics: true})
	defer func() { s.Warn(cfg.Watch.Close()) }()
	g, err := serve.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, g.Close()) }()
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	defer signals.Listen(signals.Config{
		Drain: func(os.Signal) {
			s.Errorf("sluice serve: stopping: open requests have %s to finish; Ctrl-C again aborts them\n", prose.Span(g.Drain()))
		},
		Abandon: func(os.Signal) { abandon() },
		Reread:  g.Reread(func(lines []string, err error) { printReread(s, "settings", lines, err) }),
	}).Stop()
	if err := printGateway(s, g.Description(), o.json); err != nil {
		return err
	}
	return g.Serve(ctx)
}
