package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// serveOptions are the flags of the serve command.
type serveOptions struct {
	account accountFlags
	verbose bool
	check   bool
	json    bool
	told    serveSettings // by flags
	given   func(flag string) bool
}

// newServe returns the command that serves a gateway.
func newServe(s *term.Streams) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve [--listen ADDR] [--config sluice.yaml]",
		Short: "Serve a gateway that queues requests within the limits",
		Long: `Serve a gateway in front of providers. If a request would exceed a limit, the request waits in the gateway, so that the
provider does not answer 429. Clients set, for example, OPENAI_BASE_URL=http://127.0.0.1:8787/v1.

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
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), s, &o) },
	}
	define(cmd, o.table(cmd.Flags())...)
	cmd.AddCommand(newServeKey(s))
	return cmd
}

// gatewayAttempts is how often a gateway sends a request, apart from rate-limited attempts: its client has retries of its own.
const gatewayAttempts = 3

// table returns the flags of serve.
func (o *serveOptions) table(fs *pflag.FlagSet) []flagGroup {
	o.given = fs.Changed
	t := &o.told
	t.listen, t.deadlines.Queue, t.drain, t.watch.metrics = "127.0.0.1:8787", 5*time.Minute, 30*time.Second, usualLocal
	return []flagGroup{
		{"Gateway", []flag{
			{name: "listen", field: &t.listen, metavar: "ADDR", help: "Listen at this address; port 0 picks a free port", common: true},
			configFlag(&o.account.Sources),
			{name: "allow-host", field: &t.hosts, metavar: "NAME", help: "Also accept requests for this host name; repeatable"},
			{name: "queue-timeout", field: &t.deadlines.Queue, metavar: "DURATION", help: "Limit the time of a request in the queue", common: true},
			{name: "drain-timeout", field: &t.drain, metavar: "DURATION", help: "Limit the time for open requests after an interrupt"},
			{name: "check", field: &o.check, help: "Check the settings and print the configuration", common: true},
		}},
		{"Provider", o.account.target("Serve only this model")},
		{"Limits", append(o.account.limits.flags("learned"), redisFlag(&t.redis))},
		{"Watching", []flag{
			{name: "access-log", field: &t.access, metavar: "FILE", help: "Log each request as a JSON line; - is standard output"},
			eventsFlag(&t.watch.events),
			{name: "metrics", field: &t.watch.metrics, metavar: "ADDR", help: "Serve /metrics and /ui at this address, or none", common: true},
			{name: "json", field: &o.json, help: "Print the configuration as one JSON document"},
			{name: "verbose", field: &o.verbose, help: "Print more details on standard error"},
		}},
	}
}

// runServe is the serve command.
func runServe(ctx context.Context, s *term.Streams, o *serveOptions) (err error) {
	r := &serving{s: s, o: o}
	o.account.Purpose, o.account.Excluded = account.Serve, r.excluded
	if o.check {
		o.account.Purpose = account.Check
	}
	o.account.Scheduler = sluice.Config{Attempts: gatewayAttempts, Observer: &r.observers}
	if r.accounts, err = o.account.open(s); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, r.close()) }()
	if r.settings, err = o.settings(r.accounts.Settings); err != nil {
		return err
	}
	if err := r.openTenants(); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, r.tenants.Close()) }()
	if o.check {
		return r.check()
	}
	if err := r.openShared(ctx); err != nil {
		return err
	}
	endAccessLog, err := r.openAccessLog()
	if err != nil {
		return err
	}
	defer endAccessLog()
	watch, err := r.settings.watch.open(ctx, s, r.count())
	if err != nil {
		return err
	}
	defer func() { r.s.Warn(watch.close()) }()
	r.watch = watch
	r.observers = append(r.observers, watch.observers()...)
	endEvents, err := r.openEvents()
	if err != nil {
		return err
	}
	defer endEvents()
	file := r.accounts.Settings.File // before it gets upstreams that it does not have
	if err := r.openUpstreams(r.accounts, &r.settings); err != nil {
		return err
	}
	watch.of(r.accounts)
	explainSettings(s, r.accounts.Settings, o.verbose)
	cfg := r.config(r.accounts, &r.settings)
	cfg.Tenants, cfg.Logger = r.tenants, s.Logger(o.verbose)
	if r.gateway, err = gateway.New(cfg); err != nil {
		return err
	}
	doc, err := r.describe(&file)
	if err != nil {
		return err
	}
	return r.serve(ctx, doc)
}

// openAccessLog opens the access log of the settings, if there is one. The returned function closes it.
func (r *serving) openAccessLog() (end func(), err error) {
	if r.settings.access == "" {
		return func() {}, nil
	}
	r.access, err = gateway.OpenAccessLog(gateway.AccessLogConfig{
		File: r.settings.access, Stdout: r.s.Out, Redact: r.s.RedactData, Logger: r.s.Logger(true),
	})
	if err != nil {
		return nil, fault.New(fault.File, fmt.Errorf("--access-log: %w", err), "name a file in an existing directory, or - for standard output")
	}
	return func() { r.s.Warn(r.access.Close()) }, nil
}

// openEvents begins to write events to the file that is named for them. The returned function ends it.
func (r *serving) openEvents() (end func(), err error) {
	if r.settings.watch.events == "" {
		return func() {}, nil
	}
	log, err := openEvents(r.s, r.settings.watch.events)
	if err != nil {
		return nil, err
	}
	r.observers = append(r.observers, log)
	return func() { r.s.Warn(log.Close()) }, nil
}

// serving is one gateway at work.
type serving struct {
	s         *term.Streams
	o         *serveOptions
	shared    *account.Shared // nil: quotas are shared with nobody
	gateway   *gateway.Gateway
	tenants   *gateway.Tenants
	observers observers
	watch     *watch
	access    *gateway.AccessLog // nil: none
	traffic   *gateway.Traffic
	retiring  sync.WaitGroup // accounts whose last calls are open

	listed bool // the upstreams are those of the settings file

	mu       sync.Mutex
	accounts *account.Accounts // of the settings that hold now
	settings serveSettings
}

// count begins to count what goes through the gateway.
func (r *serving) count() *telemetry.Gateway {
	counts := telemetry.NewGateway(func() gateway.TrafficSnapshot { return r.traffic.Snapshot() }, conventional)
	r.traffic = gateway.NewTraffic(func(ended *gateway.Record) {
		if r.access != nil {
			r.access.Ended(ended)
		}
		counts.Ended(ended)
	})
	return counts
}

// config is the gateway's.
func (r *serving) config(a *account.Accounts, s *serveSettings) gateway.Config {
	return gateway.Config{
		Upstreams: a.Upstreams(), Base: a.Transport(), Header: a.Header, Models: s.models, Deadlines: s.deadlines, MaxBodyMemory: s.maxBodies,
		Hosts: s.addresses(), Early: s.early, Passthrough: s.passed,
		Traffic: r.traffic,
	}
}

// close lets go of all accounts, whose calls are over.
func (r *serving) close() error {
	r.retiring.Wait()
	return errors.Join(r.accounts.Close(), r.shared.Close())
}

// openUpstreams makes ready where calls go: the upstreams of the settings, or those that flags and the environment tell of.
func (r *serving) openUpstreams(a *account.Accounts, s *serveSettings) error {
	o := r.o
	listed := len(a.Settings.File.Upstreams) > 0 && o.account.Provider == "" && o.account.BaseURL == ""
	if r.listed && !listed {
		return fault.New(fault.Settings, fmt.Errorf("%s: the list upstreams is empty now", a.Settings.File.Name),
			"list the upstreams again, or restart the gateway to serve each provider with a key in the environment")
	}
	if listed && o.account.Model != "" {
		return fault.New(fault.Conflict, errors.New("--model does not apply to upstreams"), "list the models of each upstream in its field models, or set --provider")
	}
	if !listed {
		ups, err := r.told(a)
		if err != nil {
			return err
		}
		a.SetUpstreams(ups)
	}
	for i, up := range a.Settings.File.Upstreams {
		if leadsTo(up.BaseURL, s.listen) {
			err := fmt.Errorf("upstream %s has the address %s of this gateway itself", up.Name, s.listen)
			return fault.New(fault.Settings, a.Settings.File.At(fmt.Sprintf("upstreams[%d].base_url", i), err), "use the provider's address, or listen at another address")
		}
	}
	err := a.OpenUpstreams()
	if err == nil { // else the settings before hold
		r.listed = listed
	}
	return err
}

// excluded prints that an upstream or one of its keys is excluded, or that the exclusion ends.
func (r *serving) excluded(l provider.Exclusion) {
	r.s.Errorf("sluice: upstream %s: %s\n", l.Upstream, l)
}

// leadsTo reports whether calls to a base URL come to an address of this host, as far as the two tell.
func leadsTo(base, address string) bool {
	u, err := url.Parse(base)
	host, port, bad := net.SplitHostPort(address)
	if err != nil || bad != nil || port == "0" || cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]) != port {
		return false
	}
	there, here := net.ParseIP(u.Hostname()), net.ParseIP(host)
	every := host == "" || here != nil && here.IsUnspecified()
	near := strings.EqualFold(u.Hostname(), "localhost")
	return u.Hostname() != "" && strings.EqualFold(u.Hostname(), host) || there != nil && there.Equal(here) ||
		every && (near || there != nil && (there.IsLoopback() || there.IsUnspecified())) ||
		near && here != nil && here.IsLoopback() || there != nil && there.IsLoopback() && strings.EqualFold(host, "localhost")
}

// told are the upstreams without settings: the one of the flags, or each provider whose key the environment has.
func (r *serving) told(a *account.Accounts) ([]config.Upstream, error) {
	f := &r.o.account
	var keys config.Names
	if f.Keys.Env != "" {
		keys = config.Names{f.Keys.Env}
	}
	if f.Provider != "" || f.BaseURL != "" {
		up := config.Upstream{Name: cmp.Or(f.Provider, "openai-compatible"), BaseURL: f.BaseURL, KeyEnv: keys}
		up.Provider = up.Name
		if f.Model != "" {
			up.Models = config.Models{f.Model: f.Model}
		}
		return []config.Upstream{up}, nil
	}
	var ups []config.Upstream
	for _, p := range a.Settings.Registry.All() {
		if p.BaseURL == "" || p.Name == "sim" {
			continue
		}
		if slices.ContainsFunc(p.KeyEnv, func(name string) bool { return os.Getenv(name) != "" }) {
			ups = append(ups, config.Upstream{Name: p.Name, Provider: p.Name})
		}
	}
	if len(ups) == 0 {
		return nil, fault.New(fault.Key, errors.New("no upstream is configured"),
			"export a provider's key, such as OPENAI_API_KEY=..., set --config to a file with upstreams, or try --provider sim, which needs no key")
	}
	return ups, nil
}

// openTenants opens the account of what tenants spend.
func (r *serving) openTenants() (err error) {
	spent := ""
	if dir := account.StateDir(); dir != "" {
		spent = filepath.Join(dir, "serve-spent.json")
	}
	r.tenants, err = gateway.OpenTenants(gateway.TenantsConfig{
		Tenants: r.settings.tenants, Spent: spent, Logger: r.s.Logger(r.o.verbose),
	})
	if err != nil {
		return fault.New(fault.File, err, "repair the file, or remove it to count all spending from zero")
	}
	return nil
}

// guard refuses to listen where strangers may come, unless who calls needs a key.
func (r *serving) guard(at net.Addr) error {
	tcp, ok := at.(*net.TCPAddr)
	switch {
	case !ok || tcp.IP.IsLoopback():
		return nil
	case !r.tenants.Keyed():
		return openToOthers(&r.accounts.Settings.File, r.settings.listen)
	case len(r.settings.addresses()) == 0:
		return fault.New(fault.Missing, fmt.Errorf("--listen %s: the host name that clients use is missing", r.settings.listen),
			"add the name, for example --allow-host gateway.example.com")
	}
	r.s.Errorf("sluice: warning: keys and contents cross the network unencrypted: put a TLS proxy in front\n")
	return nil
}

// serve serves until it is interrupted.
func (r *serving) serve(ctx context.Context, doc *checked) error {
	s, o := r.s, r.o
	l, err := net.Listen("tcp", r.settings.listen)
	if err != nil {
		return fault.New(fault.Value, err, "use a free address of this host, for example --listen 127.0.0.1:0")
	}
	if err := r.guard(l.Addr()); err != nil {
		l.Close()
		return err
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	drain := make(chan struct{})
	if err := r.serveLocal(); err != nil {
		l.Close()
		return err
	}
	dashboard := r.settings.dashboard() // from here on, settings may be read again at any time
	stop := r.follow(func() { close(drain) }, cut)
	defer stop()
	web := &http.Server{
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 20,
		ErrorLog: slog.NewLogLogger(s.Logger(o.verbose).Handler(), slog.LevelInfo),
	}
	if os.Getenv("GOGC") == "" {
		// What a gateway keeps is little beside what passes: a few megabytes more save one collection in five.
		defer debug.SetGCPercent(debug.SetGCPercent(125))
	}
	served := make(chan error, 1)
	go func() { served <- r.gateway.Serve(web, l) }()
	if err := r.begins(l.Addr(), doc, dashboard); err != nil {
		web.Close()
		return err
	}
	select {
	case err := <-served:
		web.Close()
		r.gateway.Wait()
		return err
	case <-ctx.Done():
	case <-drain:
		err = r.drain(ctx, web)
	}
	web.Close()
	r.gateway.Wait()
	<-served
	if err != nil || ctx.Err() != nil {
		return &fault.Error{Code: fault.Interrupted, Err: errors.New("interrupted, with open requests aborted")}
	}
	return nil
}

// drain takes no new requests and waits for the open ones, up to the timeout of the settings.
func (r *serving) drain(ctx context.Context, web *http.Server) error {
	r.gateway.Drain()
	timeout := r.drainTimeout()
	r.s.Errorf("sluice serve: stopping: open requests have %s to finish; Ctrl-C again aborts them\n", prose.Span(timeout))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return web.Shutdown(ctx)
}

// usualLocal is where metrics and the dashboard are served.
const usualLocal = "127.0.0.1:9464"

// serveLocal serves metrics and the dashboard. If nobody chose their address and the default is taken, as by a second gateway, they
// get a free port.
func (r *serving) serveLocal() error {
	address, page := r.settings.watch.metrics, http.HandlerFunc(r.gateway.ServeUI)
	if address == "" {
		return nil
	}
	err := r.watch.serve(address, page)
	if err != nil && !r.o.setsMetrics(&r.settings) {
		err = r.watch.serve("127.0.0.1:0", page)
	}
	return err
}

// names are those of the upstreams.
func (r *serving) names() []string {
	var names []string
	for _, up := range r.accounts.Upstreams().All() {
		names = append(names, up.Name)
	}
	return names
}
