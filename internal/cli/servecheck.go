package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// checked is what would be served, as --check --json prints it.
type checked struct {
	URL       string            `json:"url,omitempty"`       // Address of the gateway.
	Dashboard string            `json:"dashboard,omitempty"` // Address of the dashboard.
	Metrics   string            `json:"metrics,omitempty"`   // Address of the metrics.
	Env       map[string]string `json:"env,omitempty"`       // Variables for clients.
	Listen    string            `json:"listen"`              // Configured address.
	Hosts     []string          `json:"hosts,omitempty"`     // Allowed host names.
	Prefer    string            `json:"prefer"`              // Choice of upstreams: `soonest` or `cost`.
	Models    map[string]string `json:"models"`              // Aliases of models.
	Upstreams []checkedUpstream `json:"upstreams"`           // Upstreams in order.
	Tenants   []string          `json:"tenants"`             // Names of tenants.
	Shared    *checkedShared    `json:"shared,omitempty"`    // Redis, if limits are shared.
}

// checkedShared is by way of what quotas are shared with others.
type checkedShared struct {
	URL        string `json:"url"`         // URL of Redis without password.
	FailClosed bool   `json:"fail_closed"` // Requests wait while Redis does not respond.
}

// checkedUpstream is one of several ways to send calls.
type checkedUpstream struct {
	Name     string                  `json:"name"`     // Upstream.
	Provider string                  `json:"provider"` // Provider.
	BaseURL  string                  `json:"base_url"` // Address of the API.
	Keys     []string                `json:"keys"`     // Variables or files with the keys.
	Account  string                  `json:"account"`  // Name of the account. "": its own.
	Models   map[string]string       `json:"models"`   // Models of the upstream, if restricted. Null: all models of the provider, or any if it has none.
	Limits   map[string]checkedLimit `json:"limits"`   // Initial limits by name.

	any bool // its provider is recognised for no model
}

// checkedLimit is what a limit is taken to be at the start.
type checkedLimit struct {
	Value  int           `json:"value"`  // Value of the limit.
	Source limits.Source `json:"source"` // Origin of the value, such as `header`.
	From   string        `json:"from"`   // Flag or file with the limit.
}

// check says what would be served, and opens nothing for it.
func (r *serving) check() error {
	a, s := r.accounts, &r.settings
	file := a.Settings.File // before it gets upstreams that it does not have
	if err := r.openUpstreams(a, s); err != nil {
		return err
	}
	if _, err := gateway.New(r.config(a, s)); err != nil {
		return fault.New(fault.Settings, err, "correct the settings of serve")
	}
	explainSettings(r.s, a.Settings, r.o.verbose)
	doc, err := r.describe(&file)
	if err != nil {
		return err
	}
	if r.o.json {
		return r.s.JSON(doc)
	}
	var b strings.Builder
	doc.print(func(format string, args ...any) { fmt.Fprintf(&b, format, args...) })
	_, err = fmt.Fprint(r.s.Out, b.String())
	return err
}

// describe says what is served. The file is that of the settings, as it was read.
func (r *serving) describe(file *config.File) (*checked, error) {
	a, s := r.accounts, &r.settings
	doc := &checked{Listen: s.listen, Hosts: s.hosts, Prefer: cmp.Or(a.Settings.File.Prefer, "soonest"), Models: s.models, Tenants: []string{}}
	if doc.Models == nil {
		doc.Models = map[string]string{}
	}
	if s.redis != "" {
		doc.Shared = &checkedShared{URL: cluster.Redact(s.redis), FailClosed: s.failClosed}
	}
	for _, up := range a.Upstreams().All() {
		one, err := r.checkUpstream(up, file)
		if err != nil {
			return nil, err
		}
		doc.Upstreams = append(doc.Upstreams, one)
	}
	if r.tenants.Keyed() {
		for _, t := range r.tenants.States() {
			doc.Tenants = append(doc.Tenants, t.Name)
		}
	}
	return doc, nil
}

// begins says what is served, and where.
func (r *serving) begins(at net.Addr, doc *checked, dashboard bool) error {
	host := at.String()
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	doc.URL = "http://" + host
	doc.Env = map[string]string{"OPENAI_BASE_URL": doc.URL + "/v1", "ANTHROPIC_BASE_URL": doc.URL, "GOOGLE_GEMINI_BASE_URL": doc.URL}
	r.s.Errorf("sluice serve listens on %s\n", doc.URL)
	if r.watch.server != nil {
		doc.Metrics = r.watch.server.URL()
		if dashboard {
			doc.Dashboard = strings.TrimSuffix(doc.Metrics, "metrics") + "ui"
			r.s.Errorf("dashboard   %s\n", doc.Dashboard)
		}
		r.s.Errorf("metrics     %s\n", doc.Metrics)
	}
	doc.print(r.s.Errorf)
	key := "any text as their key"
	if r.tenants.Keyed() {
		key = "a key that `sluice serve key` made"
	}
	r.s.Errorf("hint: set these variables for clients, and %s:\n", key)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(doc.Env))) {
		r.s.Errorf("export %s=%s\n", name, doc.Env[name])
	}
	if r.o.json {
		return r.s.JSON(doc)
	}
	_, err := fmt.Fprintln(r.s.Out, doc.URL)
	return err
}

func (r *serving) checkUpstream(up *provider.Upstream, file *config.File) (checkedUpstream, error) {
	one := checkedUpstream{
		Name: up.Name, Provider: up.Provider.Name, BaseURL: cmp.Or(up.BaseURL, up.Provider.BaseURL),
		Account: up.Account, Keys: []string{}, Models: maps.Clone(up.Models), any: len(up.Provider.Models) == 0,
	}
	for _, key := range up.Keys {
		one.Keys = append(one.Keys, key.From)
	}
	var err error
	one.Limits, err = startLimits(r.accounts, up, file)
	return one, err
}

// startLimits says what the limits of an account are taken to be at the start, and where each is from.
func startLimits(a *account.Accounts, up *provider.Upstream, file *config.File) (map[string]checkedLimit, error) {
	var c sluice.Config
	label := a.Label(up.Name)
	if err := a.ApplyLimits(&c, up.Provider, label); err != nil {
		return nil, err
	}
	all := make(map[string]checkedLimit)
	written, own, err := a.Settings.LimitsFor(up.Provider, label, a.Config.Model)
	if err != nil {
		return nil, err
	}
	fields := "limits."
	if own {
		fields = "upstreams."
	}
	perMinute := c.Limits.PerMinute()
	for d, ceiling := range perMinute.All() {
		value := cmp.Or(*ceiling, *c.Start.At(d))
		limit := checkedLimit{Value: value, Source: limits.SourceRegistry, From: "--tier " + a.Settings.Tier}
		switch {
		case value == 0:
			continue
		case a.Config.Limits.In(d).N != 0:
			limit.Source, limit.From = limits.SourceConfigured, limitFlag(d)
		case c.Limits.In(d).Period != d.Window():
			limit.Source, limit.From = limits.SourceConfigured, file.NameOf(fields+d.WindowName())
		case written != nil && *written.At(d) != nil:
			limit.Source, limit.From = (*written.At(d)).Source, file.NameOf(fields+d.String())
		}
		all[d.String()] = limit
	}
	return all, nil
}

// print says it for people.
func (c *checked) print(to func(format string, args ...any)) {
	row := func(name, text string) { to("%-10s  %s\n", name, text) }
	if c.URL == "" {
		row("listens at", c.Listen)
	}
	for _, up := range c.Upstreams {
		keys := "no key"
		if len(up.Keys) > 0 {
			keys = "key of " + strings.Join(up.Keys, ", ")
		}
		where := fmt.Sprintf("%s at %s, %s", up.Provider, up.BaseURL, keys)
		if up.Provider == "sim" {
			where = "a simulator in this process, for tests"
		}
		row("upstream", fmt.Sprintf("%s: %s", up.Name, where))
		models := "all of " + up.Provider
		switch {
		case up.Models != nil:
			models = c.list(pairs(up.Models))
		case up.any:
			models = "any model"
		}
		row("  models", models)
		limits := make([]string, 0, len(up.Limits))
		for _, d := range slices.Sorted(maps.Keys(up.Limits)) {
			l := up.Limits[d]
			limits = append(limits, fmt.Sprintf("%s %s (%s, %s)", d, prose.Group(l.Value), l.Source, l.From))
		}
		row("  limits", cmp.Or(strings.Join(limits, ", "), "learned from responses"))
	}
	if len(c.Models) > 0 {
		row("aliases", strings.Join(pairs(c.Models), ", "))
	}
	if c.Shared != nil {
		row("shared", "limits, through "+c.Shared.URL+"; "+c.Shared.text())
	}
	if len(c.Tenants) == 0 {
		row("tenants", "none: clients need no key")
	} else {
		row("tenants", c.list(c.Tenants)+": each client sends the key of its tenant")
	}
}

// text says how requests continue while Redis is away.
func (c *checkedShared) text() string {
	if c.FailClosed {
		return "while Redis is unreachable, requests wait"
	}
	return "while Redis is unreachable, the instances divide half of each limit among themselves"
}

// list writes names: all of them to whom checks, and the first to whom serves.
func (c *checked) list(names []string) string {
	const most = 8
	if c.URL == "" || len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// pairs writes names with what they stand for, where that is another.
func pairs(models map[string]string) []string {
	all := slices.Sorted(maps.Keys(models))
	for i, name := range all {
		if models[name] != name {
			all[i] = name + " -> " + models[name]
		}
	}
	return all
}
