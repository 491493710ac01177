package serve

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"strings"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Description describes a gateway.
type Description struct {
	URL       string            `json:"url,omitempty"`       // Address of the gateway.
	Dashboard string            `json:"dashboard,omitempty"` // Address of the dashboard.
	Metrics   string            `json:"metrics,omitempty"`   // Address of the metrics.
	Env       map[string]string `json:"env,omitempty"`       // Variables for clients.
	Listen    string            `json:"listen"`              // Configured address.
	Hosts     []string          `json:"hosts,omitempty"`     // Allowed host names.
	Prefer    string            `json:"prefer"`              // Choice of upstreams: `soonest` or `cost`.
	Models    map[string]string `json:"models"`              // Aliases of models.
	Upstreams []Upstream        `json:"upstreams"`           // Upstreams in order.
	Tenants   []string          `json:"tenants"`             // Names of tenants.
	Shared    *Shared           `json:"shared,omitempty"`    // Redis, if limits are shared.
}

// Shared describes the Redis server by which gateways share limits.
type Shared struct {
	URL        string `json:"url"`         // URL of Redis without password.
	FailClosed bool   `json:"fail_closed"` // Requests wait while Redis does not respond.
}

// Upstream describes an upstream.
type Upstream struct {
	Name     string   `json:"name"`     // Upstream.
	Provider string   `json:"provider"` // Provider.
	BaseURL  string   `json:"base_url"` // Address of the API.
	Keys     []string `json:"keys"`     // Variables or files with the keys.
	Account  string   `json:"account"`  // Name of the account. "": its own.
	// Models of the upstream, if restricted. Null: all models of the provider, or any if it has none.
	Models map[string]string `json:"models"`
	Limits map[string]Limit  `json:"limits"` // Initial limits by name.

	AnyModel bool `json:"-"` // the provider is recognized from no model
}

// Limit is an initial limit with its origin.
type Limit struct {
	Value  int           `json:"value"`  // Value of the limit.
	Source limits.Source `json:"source"` // Origin of the value, such as `header`.
	From   string        `json:"from"`   // Flag or file with the limit.
}

// describe fills the description, apart from addresses.
func (g *Gateway) describe() error {
	a, s, d := g.accounts, g.settings, g.description
	d.Listen, d.Hosts, d.Prefer, d.Tenants = s.Listen, s.Hosts, a.Settings.File.Prefer.String(), []string{}
	if d.Models = s.Models; d.Models == nil {
		d.Models = map[string]string{}
	}
	if s.Redis != "" {
		d.Shared = &Shared{URL: cluster.Redact(s.Redis), FailClosed: s.FailClosed}
	}
	if g.tenants.Keyed() {
		for _, t := range g.tenants.States() {
			d.Tenants = append(d.Tenants, t.Name)
		}
	}
	for _, up := range a.Upstreams().All() {
		found, err := g.limitsOf(up)
		if err != nil {
			return err
		}
		one := Upstream{
			Name: up.Name, Provider: up.Provider.Name, BaseURL: cmp.Or(up.BaseURL, up.Provider.BaseURL), Account: up.Account,
			Keys: []string{}, Models: maps.Clone(up.Models), Limits: found, AnyModel: len(up.Provider.Models) == 0,
		}
		for _, key := range up.Keys {
			one.Keys = append(one.Keys, key.From)
		}
		d.Upstreams = append(d.Upstreams, one)
	}
	return nil
}

// limitsOf returns the initial limits of an open upstream by name.
func (g *Gateway) limitsOf(up *provider.Upstream) (map[string]Limit, error) {
	from, flags := g.accounts.Settings, g.accounts.Config.Limits
	layered, err := from.Layered(flags, up.Provider, g.accounts.Label(up.Name), g.accounts.Config.Model, nil)
	if err != nil {
		return nil, err
	}
	fields := "limits."
	if layered.Own {
		fields = "upstreams."
	}
	all, perMinute := make(map[string]Limit), layered.Amounts().PerMinute()
	for d, value := range perMinute.All() {
		one, source := *layered.At(d), limits.SourceConfigured
		if one != nil {
			source = one.Source
		}
		limit := Limit{*value, source, from.File.NameOf(fields + d.String())}
		switch {
		case *value == 0, source == limits.SourceAtLeast:
			continue
		case flags.In(d).N != 0:
			limit.From = g.cfg.LimitFlag(d)
		case one == nil: // the period is not a minute
			limit.From = from.File.NameOf(fields + d.WindowName())
		case source == limits.SourceRegistry && *layered.Tier.Limits.At(d) != 0:
			limit.From = from.File.NameOf("tier") + ": tier"
		}
		all[d.String()] = limit
	}
	return all, nil
}

// locate adds the addresses. metrics is nil if they are not served.
func (d *Description) locate(at net.Addr, metrics *telemetry.Server) {
	host := at.String()
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	d.URL = "http://" + host
	d.Env = map[string]string{"OPENAI_BASE_URL": d.URL + "/v1", "ANTHROPIC_BASE_URL": d.URL, "GOOGLE_GEMINI_BASE_URL": d.URL}
	if metrics == nil {
		return
	}
	d.Metrics = metrics.URL()
	if metrics.Local() {
		d.Dashboard = strings.TrimSuffix(d.Metrics, "metrics") + "ui"
	}
}
