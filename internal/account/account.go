// Package account opens accounts at providers: it turns settings, keys and configured limits into Schedulers, and applies the limits again
// when the settings change.
package account

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Purpose is what accounts are opened for.
type Purpose int

// The purposes. Check and Estimate write no state and request no published limits.
const (
	Send     Purpose = iota // send requests
	Serve                   // send requests of clients, which name the models
	Work                    // send requests of runs on other hosts, which set the attempts
	Submit                  // let other hosts send requests
	Start                   // start commands
	Check                   // check the settings and keys
	Estimate                // estimate cost and time, without keys
)

// Config says where requests go, with which key and within which limits.
type Config struct {
	Provider string // name of the provider (default: recognized from the model)
	BaseURL  string // address of the provider, in the form of its SDK (default: the address in the registry)
	Model    string // model of all requests; "" if requests name their models

	Header  []string // headers of all requests, in the form "Name: value"
	Keys    KeySource
	Sources Sources
	Limits  sluice.Limits // configured by flags; they take precedence over all settings
	Rate    *pricing.Rate // price of all models (default: of the settings, or the published price)

	Purpose   Purpose
	Scheduler sluice.Config // template of all Schedulers

	// Excluded, if not nil, is called when an upstream or one of its keys is excluded, and when the exclusion ends.
	Excluded func(provider.Exclusion)

	Hide   func(secret string) // is called with each text that must never be printed
	Logger *slog.Logger        // logger for warnings, and for where settings come from
}

// Accounts are where requests go: one account for each provider of the requests, or the accounts of upstreams. Open returns them. After
// OpenUpstreams, they are safe for concurrent use. Do not modify the exported fields.
type Accounts struct {
	Config   Config
	Provider provider.Provider // without a Name if it is recognized from the model
	Header   http.Header
	Room     int       // maximum number of requests in flight, because each is an open file; 0 means unlimited
	Settings *Settings // nil if they cannot be read

	found     sync.Map // keys by provider; without a Value if the provider needs no key
	pool      *pool
	upstreams *provider.Upstreams // nil: there are none

	current atomic.Pointer[Settings] // with the limits that apply now; nil: Settings. It changes with the turn of pool

	mu        sync.Mutex
	opened    []member
	followers []func() // end the reading of published limits
}

// Open checks cfg and reads the settings. Close the Accounts.
func Open(cfg Config) (*Accounts, error) {
	if err := checkBaseURL(cfg.BaseURL); err != nil {
		return nil, err
	}
	pricing.Models() // takes some 5 ms, for which no request should wait
	a, err := newAccounts(cfg, &pool{})
	if err != nil {
		return nil, err
	}
	if a.Header, err = ParseHeader(cfg.Header); err != nil {
		return nil, err
	}
	if err := checkHeader(a.Header, cfg.Hide); err != nil {
		return nil, err
	}
	if a.Provider.Name == "sim" {
		a.pool.transport, err = simulator()
		return a, err
	}
	a.Room = room()
	t := provider.NewBase(connections)
	t.MaxConnsPerHost = a.Room
	a.pool.transport = t
	return a, nil
}

// Again returns Accounts with the same Config that read the settings again. They share connections and open accounts with a. Also after an
// error, their Settings say which files were read, if any.
func (a *Accounts) Again() (*Accounts, error) {
	next, err := newAccounts(a.Config, a.pool)
	next.Header, next.Room = a.Header, a.Room
	return next, err
}

// newAccounts reads the settings.
func newAccounts(cfg Config, shared *pool) (a *Accounts, err error) {
	a = &Accounts{Config: cfg, pool: shared}
	if a.Settings, err = cfg.Sources.Open(cfg.Logger); err != nil {
		return a, err
	}
	if cfg.Keys.File != "" {
		a.Settings.Files.Note(cfg.Keys.File)
	}
	if cfg.Provider == "" {
		return a, nil
	}
	if a.Provider, err = LookupProvider(a.Settings.Registry, cfg.Provider); err != nil {
		return a, err
	}
	if a.Provider.Name == "sim" && cfg.BaseURL != "" {
		return a, fault.New(fault.Conflict, errors.New("--base-url does not apply to --provider sim, which is built in"),
			"omit it, or use a running `sluice sim` with --provider openai-compatible")
	}
	return a, a.ApplyLimits(&sluice.Config{}, a.Provider, "") // is wrong now rather than later
}

// Share lets all accounts share their limits by a Redis server; nil shares nothing. Call it before an account is opened.
func (a *Accounts) Share(sh *Shared) { a.pool.shared = sh }

// Transport sends the requests.
func (a *Accounts) Transport() http.RoundTripper { return a.pool.transport }

// dry reports whether accounts leave no trace.
func (a *Accounts) dry() bool { return a.Config.Purpose >= Check }

// LookupProvider returns the provider of that name.
func LookupProvider(r *provider.Registry, name string) (provider.Provider, error) {
	p, err := r.Get(name)
	if err != nil {
		err = fault.New(fault.Provider, err, "set --provider to one of %s", strings.Join(r.Names(), ", "))
	}
	return p, err
}

// checkAddress refuses a provider without an address.
func (a *Accounts) checkAddress(p provider.Provider) error {
	if a.Config.BaseURL != "" || p.BaseURL != "" || a.Config.Purpose == Submit {
		return nil
	}
	return fault.New(fault.Provider, fmt.Errorf("provider %s has no default address", p.Name),
		"set its address, for example --base-url %s", cmp.Or(p.BaseForm, "http://127.0.0.1:8000/v1"))
}

// Of returns the provider of a model: the named one, or the one that the model is recognized as.
func (a *Accounts) Of(model string) (provider.Provider, error) {
	if a.Provider.Name != "" {
		return a.Provider, nil
	}
	known := a.Settings.Registry
	p, ok := known.Recognise(model)
	if !ok && a.Config.BaseURL != "" {
		p, ok = known.Lookup("openai-compatible")
	}
	if !ok {
		near := ""
		if ids := known.SuggestModel(model); len(ids) > 0 {
			near = ": ids begin with " + strings.Join(ids, " or ")
		}
		return p, fault.New(fault.Provider, fmt.Errorf("the provider of model %q is unknown%s", model, near),
			"set --provider, one of %s, or --base-url for an OpenAI-compatible server", strings.Join(known.Names(), ", "))
	}
	return p, a.checkAddress(p)
}

// Endpoint is where the requests of one model go.
type Endpoint struct {
	Provider provider.Provider
	Target   provider.Target // without a key for Estimate
	Base     http.RoundTripper
}

// Endpoint returns the endpoint of a model.
func (a *Accounts) Endpoint(model string) (e Endpoint, err error) {
	p, err := a.Of(model)
	if err != nil {
		return e, err
	}
	target := provider.Target{BaseURL: a.Config.BaseURL, Model: model, Header: a.Header, Endpoint: p.PromptEndpoint(model)}
	if a.Config.Purpose != Estimate {
		target.Key, err = a.Key(p)
	}
	return Endpoint{p, target, a.pool.transport}, err
}

// ProviderOf returns the provider of a lane of an account; without a Name if it is unknown.
func (a *Accounts) ProviderOf(account, lane string) provider.Provider {
	if m := a.member(account); m.opened != nil {
		return m.provider
	}
	p, _ := a.Of(lane)
	return p
}

// Scheduler returns a Scheduler for the account at p. Close closes it.
func (a *Accounts) Scheduler(p provider.Provider) (*sluice.Scheduler, error) {
	key, err := a.Key(p)
	if err != nil {
		return nil, err
	}
	return a.open(config.Upstream{BaseURL: a.Config.BaseURL}, p, key)
}

// open opens the account of an upstream at p, unless another upstream has opened it.
func (a *Accounts) open(up config.Upstream, p provider.Provider, key string) (*sluice.Scheduler, error) {
	account, name := label(up), accountName(cmp.Or(up.BaseURL, p.BaseURL), key)
	for _, m := range a.members() {
		switch {
		case account == "":
		case m.label == account:
			return m.scheduler, nil
		case m.cfg.Name == name:
			return nil, fault.New(fault.Settings, fmt.Errorf("%s: %s and %s have the same address and key",
				a.Settings.File.Name, m.title(), strings.TrimPrefix(account, "=")),
				"set the same account in both upstreams, so that they share its limits")
		}
	}
	c := a.Config.Scheduler
	c.Name, c.MaxThrottles, c.Charge, c.CountsCached = name, a.MaxThrottles(), p.Charge, p.CountsCached
	if stated := a.Settings.File.Charge; stated != nil {
		c.Charge = *stated
	}
	if !a.dry() && p.Name != "sim" {
		c.StateDir = StateDir()
	}
	s, err := a.openMember(c, member{provider: p, label: account, models: a.Settings.modelsOf(account)})
	if err != nil || slices.ContainsFunc(a.Settings.Upstreams, func(other config.Upstream) bool {
		return other.Provider == p.Name && label(other) != account // an admin key does not say which account has the limits
	}) {
		return s, err
	}
	a.publish(s, p, up.BaseURL)
	return s, nil
}

// openMember opens the account m, and applies its limits.
func (a *Accounts) openMember(c sluice.Config, m member) (*sluice.Scheduler, error) {
	a.pool.turn.Lock()
	defer a.pool.turn.Unlock()
	err := a.ApplyLimits(&c, m.provider, m.label)
	if err != nil {
		return nil, err
	}
	m.opened, err = a.pool.take(c, a.members())
	switch {
	case err != nil && c.StateDir == "":
		return nil, err
	case err != nil:
		return nil, fault.New(fault.File, err,
			"set XDG_STATE_HOME to a directory that you can write to, because learned limits are kept in %s", c.StateDir)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened = append(a.opened, m)
	return m.scheduler, nil
}

// OpenCommands opens the account of all processes of a command, and returns its Scheduler and their lane. Processes of an agent on this
// host have one account, and other processes have one for each run. If agent is nil, it is recognized from the name of the program.
func (a *Accounts) OpenCommands(words []string, agent *agents.CLI) (s *sluice.Scheduler, lane string, err error) {
	c, lane := a.Config.Scheduler, filepath.Base(words[0])
	c.Name, c.MaxThrottles = "exec", math.MaxInt32
	if agent == nil {
		agent = agents.Recognise(words[0])
	}
	if agent != nil { // the limits of another program are unknown, and kept only in the directory of its run
		path, err := command.Find(words)
		if err != nil {
			path = words[0]
		}
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		c.Name, c.StateDir, lane = "exec "+path, StateDir(), agent.Name()
	}
	s, err = a.openMember(c, member{})
	return s, lane, err
}

// MaxThrottles returns the setting as a sluice.Config takes it: zero is the default, and a negative number is none.
func (a *Accounts) MaxThrottles() int {
	switch stated := a.Settings.File.MaxThrottles; {
	case stated == nil || a.Config.Purpose == Work:
		return 0
	case *stated == 0:
		return -1
	default:
		return *stated
	}
}

// members returns the open accounts.
func (a *Accounts) members() []member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.opened)
}

// member returns the open account of a Scheduler; the zero member if there is none of that name.
func (a *Accounts) member(name string) member {
	for _, m := range a.members() {
		if m.cfg.Name == name {
			return m
		}
	}
	return member{}
}

// Fill sets the fields of a batch.Config that say where requests go.
func (a *Accounts) Fill(cfg *batch.Config) {
	cfg.Provider, cfg.Registry, cfg.BaseURL = a.Provider, a.Settings.Registry, a.Config.BaseURL
	cfg.Key, cfg.Scheduler, cfg.Price = a.Key, a.Scheduler, a.Price
	cfg.Upstreams, cfg.Transport, cfg.ExtraHeader, cfg.Workers = a.upstreams, a.pool.transport, a.Header, a.Room
	if l := a.Settings.File.Limits; l != nil && cfg.Model == "" {
		owner, ok := a.Settings.Registry.Lookup(l.Provider)
		if !ok || a.Provider.Name == "" || owner.Name == a.Provider.Name {
			cfg.Model = l.Model
		}
	}
}

// Snapshot returns the state of all open accounts.
func (a *Accounts) Snapshot() (all sluice.Snapshot) {
	for _, m := range a.members() {
		snap := m.scheduler.Snapshot()
		for k := range snap.Lanes {
			snap.Lanes[k].Lane = a.LaneLabel(m.cfg.Name, snap.Lanes[k].Lane)
		}
		all.At = snap.At
		all.Lanes = append(all.Lanes, snap.Lanes...)
		all.Retrying += snap.Retrying
	}
	return all
}

// lanesAge is the maximum age of the states that Lanes returns, because a snapshot for each request is too expensive.
const lanesAge = 250 * time.Millisecond

// Lanes returns a function that returns the present state of a model's lane, for concurrent use. With upstreams, which any request can
// use, all lanes are one lane without pauses.
func (a *Accounts) Lanes() func(model string) limits.LaneSnapshot {
	var mu sync.Mutex
	var at time.Time
	var all map[string]limits.LaneSnapshot
	return func(model string) limits.LaneSnapshot {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(at) >= lanesAge {
			at, all = now, make(map[string]limits.LaneSnapshot)
			for _, lane := range a.Snapshot().Lanes {
				if a.upstreams != nil {
					lane = limits.LaneSnapshot{InFlight: all[""].InFlight + lane.InFlight}
				}
				all[lane.Lane] = lane
			}
		}
		if a.upstreams != nil {
			model = ""
		}
		return all[model]
	}
}

// Close gives back the accounts, and closes those that no other Accounts use.
func (a *Accounts) Close() error {
	a.mu.Lock()
	open, followers := a.opened, a.followers // which stay, because observers and metrics still ask for them
	a.mu.Unlock()
	for _, end := range followers {
		end()
	}
	return a.pool.give(open)
}

// accountName distinguishes an account from others, without its key and other secrets of the address.
func accountName(base, key string) string {
	if u, err := url.Parse(base); err == nil {
		base = u.Scheme + "://" + u.Host + u.Path
	}
	sum := sha256.Sum256([]byte(key))
	return base + "#" + hex.EncodeToString(sum[:6])
}

// StateDir returns the directory of learned limits; "" if there is none.
func StateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sluice")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "sluice")
}
