// Package serve runs the process of a gateway, with settings of flags and files. It can read the settings again while it serves.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// Config configures a Gateway. All fields are required, but Check does not use Watch.
type Config struct {
	Account account.Config // accounts of the upstreams; the package sets Purpose, Scheduler and Logger

	Flags     config.Serve                    // values of flags, or their defaults
	Given     func(flag string) bool          // reports whether the command has the flag
	LimitFlag func(d limits.Dimension) string // returns the flag of a limit

	Watch     *telemetry.Watch        // shows the gateway to other programs; it is not closed
	AccessLog gateway.AccessLogConfig // without a File
	Redact    func(string) string     // removes secrets from a text of an event
	Logger    *slog.Logger            // logger for warnings and details
}

const (
	attempts     = 3   // of a request, apart from rate-limited attempts: clients of a gateway also retry
	sharedOnLoss = 0.5 // part of a limit that all gateways use while Redis does not respond: some may still reach Redis
)

// Gateway is a gateway with all that it uses. Open returns it.
type Gateway struct {
	cfg         Config
	description *Description
	gateway     *gateway.Gateway
	tenants     *gateway.Tenants
	shared      *account.Shared    // nil: limits are not shared
	events      *telemetry.Log     // nil: none
	access      *gateway.AccessLog // nil: none
	counts      *telemetry.Gateway

	listener net.Listener   // nil in Check
	drain    chan struct{}  // of size 1
	timeout  atomic.Int64   // of Drain
	retiring sync.WaitGroup // accounts of earlier settings, until their last requests end

	accounts *account.Accounts // Reread replaces the accounts and the settings
	settings *settings
}

// Check checks the settings, and describes the gateway that Open would open with them.
func Check(cfg Config) (*Description, error) {
	cfg.Account.Purpose = account.Check
	g, err := open(cfg, (*Gateway).start)
	if err != nil {
		return nil, err
	}
	return g.description, g.Close()
}

// Open opens a gateway, which listens afterwards. Requests wait for Serve. Close the Gateway.
func Open(ctx context.Context, cfg Config) (*Gateway, error) {
	cfg.Account.Purpose = account.Serve
	openShared := func(g *Gateway) error { return g.openShared(ctx) }
	return open(cfg, openShared, (*Gateway).openLogs, (*Gateway).start, (*Gateway).listen)
}

// open reads the settings and takes the steps of opening a gateway.
func open(cfg Config, steps ...func(*Gateway) error) (g *Gateway, err error) {
	g = &Gateway{cfg: cfg, drain: make(chan struct{}, 1), description: &Description{}}
	g.cfg.Account.Logger = cfg.Logger
	g.cfg.Account.Scheduler = sluice.Config{Attempts: attempts, Observer: sluice.ObserverFunc(g.observe)}
	if g.accounts, err = account.Open(g.cfg.Account); err != nil {
		return nil, err
	}
	for _, step := range append([]func(*Gateway) error{(*Gateway).load}, steps...) {
		if err := step(g); err != nil {
			g.Close()
			return nil, err
		}
	}
	return g, nil
}

// observe passes an event on.
func (g *Gateway) observe(e sluice.Event) {
	if g.cfg.Watch != nil {
		g.cfg.Watch.Observe(e)
	}
	if g.events != nil {
		g.events.Observe(e)
	}
}

// load takes the settings of flags and files, and reads the spending of the tenants.
func (g *Gateway) load() (err error) {
	if g.settings, err = merge(&g.cfg, g.accounts.Settings); err != nil {
		return err
	}
	cfg := gateway.TenantsConfig{Tenants: g.settings.Tenants, Logger: g.cfg.Logger}
	if dir := account.StateDir(); dir != "" {
		cfg.Spent = filepath.Join(dir, "serve-spent.json")
	}
	if g.tenants, err = gateway.OpenTenants(cfg); err != nil {
		return fault.New(fault.File, err, "repair the file, or remove it to count all spending from zero")
	}
	return nil
}

// openShared connects to Redis.
func (g *Gateway) openShared(ctx context.Context) (err error) {
	s := g.settings
	if s.Redis == "" {
		return nil
	}
	cfg, from := cluster.Config{URL: s.Redis, Role: "serve", Logger: g.cfg.Logger}, "--redis"
	if slices.Contains(s.filed, "redis") {
		from = s.from.File.NameOf("serve.redis") + ": serve.redis"
	}
	if g.shared, err = account.OpenShared(ctx, cfg, from, g.cfg.Account.Hide); err != nil {
		return err
	}
	if !s.FailClosed {
		g.shared.Fallback = sharedOnLoss
	}
	g.accounts.Share(g.shared)
	return nil
}

// openLogs opens the access log and the file of events.
func (g *Gateway) openLogs() (err error) {
	if cfg := g.cfg.AccessLog; g.settings.AccessLog != "" {
		cfg.File = g.settings.AccessLog
		if g.access, err = gateway.OpenAccessLog(cfg); err != nil {
			return fault.New(fault.File, fmt.Errorf("--access-log: %w", err), "name a file in an existing directory, or - for standard output")
		}
	}
	if name := g.settings.Events; name != "" {
		g.events, err = telemetry.OpenLog(name, g.cfg.Redact)
	}
	return err
}

// start opens the upstreams, and makes and describes the gateway.
func (g *Gateway) start() (err error) {
	if err := g.openUpstreams(g.accounts, g.settings); err != nil {
		return err
	}
	g.timeout.Store(int64(g.settings.DrainTimeout))
	cfg := g.config(g.accounts, g.settings)
	cfg.Traffic = gateway.NewTraffic(func(ended *gateway.Record) {
		if g.access != nil {
			g.access.Ended(ended)
		}
		g.counts.Ended(ended)
	})
	g.counts = telemetry.NewGateway(cfg.Traffic.Snapshot)
	if g.gateway, err = gateway.New(cfg); err != nil {
		return fault.New(fault.Settings, err, "correct the settings of serve")
	}
	return g.describe()
}

// openUpstreams opens the upstreams, and refuses one that is the gateway itself.
func (g *Gateway) openUpstreams(a *account.Accounts, s *settings) error {
	if err := a.OpenUpstreams(); err != nil {
		return err
	}
	for _, up := range a.Settings.Upstreams {
		if leadsTo(up.BaseURL, s.Listen) {
			err := fmt.Errorf("upstream %s has the address %s of this gateway itself", up.Name, s.Listen)
			return fault.New(fault.Settings, a.At(up.Name, "base_url", err), "use the provider's address, or listen at another address")
		}
	}
	return nil
}

// config returns the Config of the handler, without Traffic.
func (g *Gateway) config(a *account.Accounts, s *settings) gateway.Config {
	cfg := gateway.Config{
		Upstreams: a.Upstreams(), Base: a.Transport(), Header: a.Header, Tenants: g.tenants, Logger: g.cfg.Logger,
		Models: s.Models, MaxBodyMemory: int64(s.MaxBodyMemory), Passthrough: s.Passthrough, Hosts: s.hosts(), Early: s.Early200,
		Deadlines: gateway.Deadlines{
			Queue: s.QueueTimeout, FirstByte: s.FirstByteTimeout, Idle: s.IdleTimeout, Total: s.TotalTimeout,
		},
	}
	return cfg
}

// listen opens the addresses of the gateway, and of metrics and the dashboard. If a second gateway has the default address of metrics,
// they get a free port.
func (g *Gateway) listen() (err error) {
	s, watch := g.settings, g.cfg.Watch
	watch.Follow(g.accounts)
	if g.listener, err = net.Listen("tcp", s.Listen); err != nil {
		return fault.New(fault.Value, err, "use a free address of this host, for example --listen 127.0.0.1:0")
	}
	if at, ok := g.listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		if err := s.guard(at.IP); err != nil {
			return err
		}
		g.cfg.Logger.Warn("keys and contents cross the network unencrypted: put a TLS proxy in front")
	}
	if s.Metrics != "" {
		page := http.HandlerFunc(g.gateway.ServeUI)
		if err = watch.Serve(s.Metrics, page, g.counts); err != nil && !s.chosen("metrics") {
			err = watch.Serve("127.0.0.1:0", page, g.counts)
		}
	}
	g.description.locate(g.listener.Addr(), watch.Server())
	return err
}

// Description describes the gateway as it was opened.
func (g *Gateway) Description() *Description { return g.description }

// Serve serves until ctx ends or, after Drain, until the open requests end or the drain timeout is over. If requests are aborted, the
// error has the code fault.Interrupted.
func (g *Gateway) Serve(ctx context.Context) (err error) {
	web := &http.Server{
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 20,
		ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelInfo),
	}
	served := make(chan error, 1)
	go func() { served <- g.gateway.Serve(web, g.listener) }()
	interrupted := false
	select {
	case err = <-served:
		served <- err
	case <-ctx.Done():
		interrupted = true
	case <-g.drain:
		ctx, cancel := context.WithTimeout(ctx, time.Duration(g.timeout.Load()))
		defer cancel()
		interrupted = web.Shutdown(ctx) != nil
	}
	web.Close()
	g.gateway.Wait()
	<-served
	if interrupted {
		return &fault.Error{Code: fault.Interrupted, Err: errors.New("interrupted, with open requests aborted")}
	}
	return err
}

// Drain refuses new requests. Serve returns when the open requests end, or after the returned timeout.
func (g *Gateway) Drain() (timeout time.Duration) {
	g.gateway.Drain()
	wake.Up(g.drain)
	return time.Duration(g.timeout.Load())
}

// Reread rereads the settings and serves with them, and opens the access log again. report is called with lines that say what changed,
// or with the error because of which the earlier settings apply.
func (g *Gateway) Reread(report func(lines []string, err error)) signals.Reread {
	files := g.accounts.Settings.Files
	if len(files) == 0 && (g.access == nil || g.settings.AccessLog == "-") {
		return signals.Reread{}
	}
	return signals.Reread{Files: files, Read: func() signals.Files {
		if g.access != nil {
			g.access.Reopen()
		}
		if len(files) == 0 {
			return nil
		}
		var lines []string
		next, err := g.accounts.Again()
		if err == nil {
			lines, err = g.exchange(next)
		}
		if err != nil {
			err = errors.Join(err, next.Close())
		}
		report(lines, err)
		if next.Settings == nil {
			return nil
		}
		return next.Settings.Files
	}}
}

// exchange serves with next from now on, and returns lines that say what changed. The accounts before are closed after their last
// request.
func (g *Gateway) exchange(next *account.Accounts) (lines []string, err error) {
	s, err := merge(&g.cfg, next.Settings)
	file, old := &next.Settings.File, g.accounts
	switch {
	case err != nil:
		return nil, err
	case len(s.Tenants) == 0 && g.tenants.Keyed():
		return nil, fault.New(fault.Settings, file.At("serve.tenants", errors.New("the list of tenants is empty now")),
			"list a tenant, or restart the gateway to serve clients without a key")
	case old.Listed() && !next.Listed():
		return nil, fault.New(fault.Settings, fmt.Errorf("%s: the list upstreams is empty now", file.Name),
			"list the upstreams again, or restart the gateway to serve each provider with a key in the environment")
	}
	if err := g.openUpstreams(next, s); err != nil {
		return nil, err
	}
	s.keep(g.settings, g.cfg.Logger)
	over, err := g.gateway.Swap(g.config(next, s))
	if err != nil {
		return nil, err
	}
	g.warn(g.tenants.Set(s.Tenants)) // the tenants were checked with the file
	g.retiring.Go(func() {
		<-over
		g.warn(old.Close())
	})
	g.accounts, g.settings = next, s
	g.timeout.Store(int64(s.DrainTimeout))
	g.cfg.Watch.Follow(next)
	var names []string
	for _, up := range next.Upstreams().All() {
		names = append(names, up.Name)
	}
	changes, err := next.Settle()
	g.warn(err)
	return append([]string{"settings re-read: " + strings.Join(names, ", ")}, changes...), nil
}

// Close closes all that Open opened. Call it after Serve.
func (g *Gateway) Close() error {
	if g.listener != nil {
		g.listener.Close()
	}
	if g.events != nil {
		g.warn(g.events.Close())
	}
	if g.access != nil {
		g.warn(g.access.Close())
	}
	g.retiring.Wait()
	errs := []error{g.accounts.Close(), g.shared.Close()}
	if g.tenants != nil {
		errs = append(errs, g.tenants.Close())
	}
	return errors.Join(errs...)
}

// warn logs err as a warning, unless it is nil.
func (g *Gateway) warn(err error) {
	if err != nil {
		g.cfg.Logger.Warn(err.Error())
	}
}
