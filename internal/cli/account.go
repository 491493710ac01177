package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// accountFlags say where requests go, with which key and within which limits.
type accountFlags struct {
	provider  string
	baseURL   string
	model     string
	keyEnv    string
	envFile   string
	fileFlag  string // by which a command takes that file; "" if it takes none
	headers   []string
	limits    limitFlags
	settings  settingsFlags
	elsewhere bool // other hosts send the requests, and know the address
}

// target returns the flags of the provider, its address, the model and the key. use says what the command does with the model.
func (f *accountFlags) target(use string) []flag {
	return []flag{
		{name: "provider", field: &f.provider, metavar: "NAME", help: "Use this provider (default: recognized from the model)", common: true},
		{name: "base-url", field: &f.baseURL, metavar: "URL", help: "Use this base URL, in the form of the SDK", common: true,
			sets: "BaseURL Target", fix: "write an address such as --base-url https://api.example.com/v1"},
		{name: "model", field: &f.model, metavar: "MODEL", help: use, common: true, sets: "Target.Model"},
		{name: "key-env", field: &f.keyEnv, metavar: "NAME", help: "Read the API key from this variable (default: by provider)"},
	}
}

// fileFlagAs returns the flag of that name which names a file with the key.
func (f *accountFlags) fileFlagAs(name string) flag {
	f.fileFlag = "--" + name
	return flag{name: name, field: &f.envFile, metavar: "FILE", help: "Read the key from this .env file if the variable is unset"}
}

// headerFlag returns the flag of further headers.
func (f *accountFlags) headerFlag() flag {
	return flag{name: "header", field: &f.headers, metavar: "'NAME: VALUE'", help: "Send this header with every request; repeatable"}
}

// accounts are where calls go and how: one account for each provider that the input names.
type accounts struct {
	flags     *accountFlags
	provider  provider.Provider // without a name: recognised from each line's model
	headers   http.Header
	limits    sluice.Limits // of the flags
	settings  *settings
	transport http.RoundTripper
	room      room
	template  sluice.Config // of every account's Scheduler
	hide      func(secret string)
	warn      func(format string, args ...any)
	tuning    *tuning
	upstreams *upstreams // nil: calls go to one provider, or to those that models are recognised as
	prices    priceList
	shares    int            // accounts of upstreams, among which this host's room is shared
	shared    *shared        // with whom the quotas are shared; nil: with nobody
	pool      *schedulerPool // of a gateway; nil: each Scheduler is of these accounts alone
	dry       bool           // nothing is kept of them

	mu         sync.Mutex
	schedulers []*sluice.Scheduler
	pooled     []*pooledScheduler
	ends       []func() error          // of the Schedulers that are of these accounts alone, and of what follows published limits
	names      []string                // of their accounts
	keys       map[string]provider.Key // by provider; empty for one that may do without
}

// open checks the flags. What must never be printed is hidden from s, to which what a user must know of keys is said.
func (f *accountFlags) open(template sluice.Config, s *term.Streams) (*accounts, error) {
	limits, err := f.limits.Limits()
	if err != nil {
		return nil, err
	}
	if err := checkBaseURL(f.baseURL); err != nil {
		return nil, err
	}
	pricing.Models() // read in some 5 ms now, so that no request waits for it
	hide := s.Hide
	a := &accounts{
		flags: f, limits: limits, template: template, hide: hide, warn: s.Errorf, tuning: newTuning(), keys: make(map[string]provider.Key),
	}
	if err := a.read(); err != nil {
		return nil, err
	}
	if a.headers, err = parseHeaders(f.headers); err != nil {
		return nil, err
	}
	if err := checkSent(a.headers); err != nil {
		return nil, err
	}
	for name, values := range a.headers {
		if provider.IsSecretHeader(name) {
			for _, value := range values {
				for _, word := range strings.Fields(value) { // "Bearer" and the key behind it
					hide(word)
				}
			}
		}
	}
	if a.provider.Name == "sim" {
		a.transport, err = simulator()
	} else {
		a.room = newRoom()
		a.transport = newTransport(a.room.calls)
	}
	return a, err
}

// read reads the files of settings.
func (a *accounts) read() (err error) {
	f := a.flags
	if a.settings, err = f.settings.open(); err != nil {
		return err
	}
	if f.envFile != "" {
		a.settings.files.Note(f.envFile)
	}
	if f.provider == "" {
		return nil
	}
	if a.provider, err = f.named(a.settings.registry); err != nil {
		return err
	}
	return a.settings.Apply(&sluice.Config{}, a.provider, f.model, a.limits)
}

// again returns accounts by the same flags, whose files are read again. They share connections, and Schedulers by the pool.
func (f *accountFlags) again(a *accounts) (*accounts, error) {
	next := &accounts{
		flags: f, limits: a.limits, headers: a.headers, transport: a.transport, room: a.room, template: a.template, hide: a.hide, warn: a.warn,
		shared: a.shared, pool: a.pool, tuning: newTuning(), keys: make(map[string]provider.Key),
	}
	return next, next.read()
}

// checkBaseURL refuses what an address must not hold: it is printed and recorded.
func checkBaseURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return fault.New(fault.Value, errors.New("--base-url is not a valid URL"), "give a URL such as http://127.0.0.1:8000/v1")
	case address != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == ""):
		return fault.New(fault.Value, errors.New("--base-url is not an http or https URL"), "give a URL such as http://127.0.0.1:8000/v1")
	case u.User != nil:
		return fault.New(fault.Value, errors.New("--base-url contains a user or password"), "send the user and password with --header 'Authorization: Basic ...'")
	case u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(address, "#"):
		return fault.New(fault.Value, errors.New("--base-url has a query or a fragment"), "remove the part that starts with ? or #")
	}
	return nil
}

// named returns the provider that the flag names.
func (f *accountFlags) named(known *provider.Registry) (provider.Provider, error) {
	p, ok := known.Lookup(f.provider)
	if !ok {
		return p, unknownProvider(known, f.provider)
	}
	if p.Name == "sim" && f.baseURL != "" {
		return p, fault.New(fault.Conflict, errors.New("--base-url does not apply to --provider sim, which is built in"),
			"omit it, or use a running `sluice sim` with --provider openai-compatible")
	}
	return p, f.checkAddress(p)
}

// checkAddress refuses a provider whose address only the user knows, and who did not say it.
func (f *accountFlags) checkAddress(p provider.Provider) error {
	if f.baseURL != "" || p.BaseURL != "" || f.elsewhere {
		return nil
	}
	return fault.New(fault.Provider, fmt.Errorf("provider %s has no default address", p.Name),
		"set its address, for example --base-url %s", cmp.Or(p.BaseForm, "http://127.0.0.1:8000/v1"))
}

// of returns the provider of a model: the one that is named, or else that which the model is recognised as.
func (a *accounts) of(model string) (provider.Provider, error) {
	if a.provider.Name != "" {
		return a.provider, nil
	}
	known := a.settings.registry
	p, ok := known.Recognise(model)
	if !ok && a.flags.baseURL != "" {
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
	return p, a.flags.checkAddress(p)
}

// Scheduler makes the Scheduler of the account at p.
func (a *accounts) Scheduler(p provider.Provider) (*sluice.Scheduler, error) {
	s, err := a.newScheduler(p)
	if err == nil {
		a.publish(s, p, a.flags.baseURL)
	}
	return s, err
}

func (a *accounts) newScheduler(p provider.Provider) (*sluice.Scheduler, error) {
	if err := a.flags.checkAddress(p); err != nil {
		return nil, err
	}
	a.tuning.begin()
	defer a.tuning.end()
	c := a.template
	if err := a.shape(&c, p, ""); err != nil {
		return nil, err
	}
	key, err := a.Key(p)
	if err != nil {
		return nil, err
	}
	c.Name = accountName(cmp.Or(a.flags.baseURL, p.BaseURL), key)
	return a.schedulerOf(c, p, "")
}

// schedulerOf makes the Scheduler of an account at p, of which c says the name and the limits. The label is that of an
// account of upstreams, "" of any other. It is called with the turn of tuning.
func (a *accounts) schedulerOf(c sluice.Config, p provider.Provider, label string) (*sluice.Scheduler, error) {
	if !a.dry {
		c.StateDir = stateDir(p)
	}
	c.Charge, c.CountsCached = p.Charge, p.CountsCached
	if text := a.settings.file.Charge; text != "" {
		if err := c.Charge.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
	}
	c.MaxThrottles = a.settings.maxThrottles()
	scheduler, err := a.make(&c)
	if err != nil && c.StateDir != "" {
		return nil, fault.New(fault.File, err, "set XDG_STATE_HOME to a directory that you can write to, because learned limits are kept in %s", c.StateDir)
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.schedulers, a.names = append(a.schedulers, scheduler), append(a.names, c.Name)
	a.mu.Unlock()
	a.tuning.add(p, label, scheduler, c)
	return scheduler, nil
}

// make makes a Scheduler, or has the pool find the one of the account. Of such, c gets what cannot be changed any more.
func (a *accounts) make(c *sluice.Config) (*sluice.Scheduler, error) {
	if a.pool == nil {
		scheduler, end, err := a.shared.scheduler(*c)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ends = append(a.ends, end)
		return scheduler, nil
	}
	one, err := a.pool.take(c, a.shared)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pooled = append(a.pooled, one)
	return one.scheduler, nil
}

// Snapshot is the state of all accounts.
func (a *accounts) Snapshot() sluice.Snapshot {
	a.mu.Lock()
	schedulers, names := a.schedulers, a.names
	a.mu.Unlock()
	var all sluice.Snapshot
	for i, s := range schedulers {
		snap := s.Snapshot()
		for k := range snap.Lanes {
			snap.Lanes[k].Lane = a.laneLabel(names[i], snap.Lanes[k].Lane)
		}
		all.At = snap.At
		all.Lanes = append(all.Lanes, snap.Lanes...)
		all.Retrying += snap.Retrying
	}
	return all
}

// laneLabel names a lane of an account as metrics do.
func (a *accounts) laneLabel(account, lane string) string {
	return a.upstreams.label(account, a.boundLane(account, lane))
}

// boundLane is the model of a lane. Of a gateway's, whose clients name the models, it is other where the settings do not.
func (a *accounts) boundLane(account, lane string) string {
	if a.pool == nil || a.upstreams == nil || lane == "" || a.upstreams.models[a.upstreams.labels[account]][lane] {
		return lane
	}
	return otherModels
}

// otherModels stands for all models that no settings name.
const otherModels = "other"

// Close closes the accounts' Schedulers and connections. Those of a pool may have other users.
func (a *accounts) Close() error {
	a.mu.Lock()
	ends, pooled := a.ends, a.pooled
	a.mu.Unlock()
	var errs []error
	for _, end := range ends {
		errs = append(errs, end())
	}
	if a.pool != nil {
		return errors.Join(append(errs, a.pool.give(pooled))...)
	}
	if t, ok := a.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

// simulator returns a simulator in the process, with the limits of a new account. Only the headers of its responses state them.
func simulator() (http.RoundTripper, error) {
	server, err := sim.New(sim.Config{
		Seed: 1, RPM: 900, Burst: 3 * time.Second, Concurrency: 30,
		Latency: 200 * time.Millisecond, Jitter: 0.2, OutputTokens: 80, OutputSigma: 0.4,
	})
	if err != nil {
		return nil, err
	}
	return server.Transport(), nil
}

// accountName tells an account from others, without giving its key or what else the address may hold away.
func accountName(base, key string) string {
	if u, err := url.Parse(base); err == nil {
		base = u.Scheme + "://" + u.Host + u.Path
	}
	sum := sha256.Sum256([]byte(key))
	return base + "#" + hex.EncodeToString(sum[:6])
}

// stateDir is where what was learned of an account at p is kept; empty is nowhere.
func stateDir(p provider.Provider) string {
	if p.Name == "sim" {
		return ""
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sluice")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "sluice")
}

// parseHeaders reads headers of the form "Name: value".
func parseHeaders(texts []string) (http.Header, error) {
	h := make(http.Header)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		badName := name == "" || strings.ContainsFunc(name, notInName)
		badValue := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
		if !ok || badName || badValue { // the text may hold a secret: it is not quoted
			return nil, fault.New(fault.Value, errors.New("a --header is not of the form 'Name: value'"),
				"write --header 'X-Project: blue'")
		}
		h.Add(name, value)
	}
	return h, nil
}

// notInName reports whether no name of a header has that sign.
func notInName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// checkSent refuses headers of a call that are the connection's: those would count for nothing, and answers that come packed
// because they were asked for so could not be read.
func checkSent(h http.Header) error {
	for _, name := range [...]string{"Accept-Encoding", "Connection", "Content-Length", "Host", "Trailer", "Transfer-Encoding", "Upgrade"} {
		if h.Get(name) != "" && !(name == "Accept-Encoding" && h.Get(name) == "identity") {
			return fault.New(fault.Value, fmt.Errorf("--header %s: Sluice sets this header for each connection", name), "omit it, and set the address with --base-url")
		}
	}
	return nil
}

// newTransport returns a transport for many calls to one host, which trusts the certificates in that file too. It has at
// most so many connections to it; 0 is no bound.
func newTransport(most int) http.RoundTripper {
	t := provider.NewBase(connections)
	t.MaxConnsPerHost = most
	return t
}

// connections is how many are kept for reuse: as many as a run may have calls in flight.
const connections = work.UsualWorkers
