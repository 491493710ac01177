package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

const (
	readEvery  = 10 * time.Minute // interval in which published limits are read
	readWithin = 5 * time.Second  // maximum time of one read, for which a run may wait at its start
)

// errNoAdminKey is the error if no variable holds an admin key.
var errNoAdminKey = errors.New("no admin key")

// limitsReader reads the limits that a provider publishes of one account.
type limitsReader struct {
	api       provider.LimitsAPI
	key, part string
	base      http.RoundTripper
}

// newLimitsReader returns what reads the limits of the account at p and baseURL. hide keeps the admin key out of all that is printed.
func newLimitsReader(p provider.Provider, baseURL string, f *accountFlags, hide func(secret string)) (*limitsReader, error) {
	api, err := provider.LimitsAPIOf(p, baseURL)
	if err != nil {
		return nil, err
	}
	key, err := lookupKey(api.KeyEnv, f.envFile)
	switch {
	case err != nil:
		return nil, err
	case key == "":
		return nil, fmt.Errorf("%w: %s is not set", errNoAdminKey, api.KeyEnv)
	case strings.ContainsFunc(key, notInKey):
		return nil, fmt.Errorf("the key in %s contains invalid characters", api.KeyEnv)
	}
	hide(key)
	part, err := lookupKey(api.PartEnv, f.envFile)
	if err != nil {
		return nil, err
	}
	return &limitsReader{api, key, part, newTransport(0)}, nil // not that of model requests, which may use all of its connections
}

// read reads the limits once.
func (r *limitsReader) read(ctx context.Context) (*provider.AccountLimits, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	found, err := r.api.Read(ctx, r.base, r.key, r.part)
	if failed, ok := errors.AsType[*sluice.CallError](err); ok && (failed.Kind == sluice.Auth || failed.Kind == sluice.Rejected) {
		err = fmt.Errorf("%w (the key in %s must be an admin key that may read limits)", err, r.api.KeyEnv)
	}
	return found, err
}

// follow has a Scheduler keep to the published limits: it reads them now, and every 10 minutes until end is called. It warns once if it cannot.
func (r *limitsReader) follow(s *sluice.Scheduler, warn func(error)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	warned := false
	update := func() {
		found, err := r.read(ctx)
		if err == nil {
			err = s.SetPublished(found.ByModel())
		}
		if err != nil && !warned && ctx.Err() == nil && !errors.Is(err, sluice.ErrClosed) {
			warned = true
			warn(err)
		}
	}
	update()
	var wg sync.WaitGroup
	wg.Go(func() {
		for wake.In(ctx, readEvery, nil) == nil {
			update()
		}
	})
	return func() {
		cancel()
		wg.Wait()
		if t, ok := r.base.(interface{ CloseIdleConnections() }); ok {
			t.CloseIdleConnections()
		}
	}
}

// unpublished is the warning about published limits that cannot be read. The run goes on without them.
const unpublished = "sluice: warning: published limits of %s are not used: %s\n"

// publish has the Scheduler of an account at p keep to the limits that the provider publishes, if there is an admin key.
func (a *accounts) publish(s *sluice.Scheduler, p provider.Provider, baseURL string) {
	if _, err := provider.LimitsAPIOf(p, baseURL); err != nil || a.dry {
		return
	}
	own, err := newLimitsReader(p, baseURL, a.flags, a.hide)
	warn := func(err error) { a.warn(unpublished, p.Name, err) }
	switch {
	case err == nil:
		end := own.follow(s, warn)
		a.mu.Lock()
		a.ends = append(a.ends, func() error { end(); return nil })
		a.mu.Unlock()
	case !errors.Is(err, errNoAdminKey):
		warn(err)
	}
}

// readPublished reads the limits that the provider publishes for the model; nil if there are none. A tier that is named precedes them.
func (o *planOptions) readPublished(ctx context.Context, s *term.Streams, p provider.Provider, model string) *config.Limits {
	if _, err := provider.LimitsAPIOf(p, ""); err != nil || o.settings.tier != "" {
		return nil
	}
	own, err := newLimitsReader(p, "", &accountFlags{}, s.Hide)
	if errors.Is(err, errNoAdminKey) {
		return nil
	}
	var found *provider.AccountLimits
	if err == nil {
		found, err = own.read(ctx)
	}
	if err != nil {
		s.Errorf(unpublished, p.Name, err)
		return nil
	}
	stated, ok := found.ByModel()[model]
	if !ok {
		return nil
	}
	l := &config.Limits{Provider: p.Name, Model: model}
	for d, limit := range stated.All() {
		if *limit > 0 {
			*l.At(d) = &config.Limit{Value: float64(*limit), Source: limits.SourcePublished, Confidence: trustConfigured, At: found.At}
		}
	}
	return l
}

// fromProvider prints the limits that the provider publishes, of one model or all.
func (o *findOptions) fromProvider(ctx context.Context, s *term.Streams) (err error) {
	accounts, err := o.account.open(sluice.Config{}, s)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, accounts.Close()) }()
	p, err := accounts.of(o.account.model)
	if err != nil {
		return err
	}
	own, err := newLimitsReader(p, o.account.baseURL, &o.account, accounts.hide)
	if err != nil {
		return fault.New(fault.Key, err, "export an admin key in ANTHROPIC_ADMIN_KEY or OPENAI_ADMIN_KEY")
	}
	found, err := own.read(ctx)
	if err != nil {
		return &fault.Error{Code: fault.Rejected, Err: fmt.Errorf("limits of %s: %w", p.Name, err)}
	}
	if model := o.account.model; model != "" {
		found.Groups = slices.DeleteFunc(found.Groups, func(g provider.LimitGroup) bool { return !slices.Contains(g.Models, model) })
		if len(found.Groups) == 0 {
			return &fault.Error{Code: fault.Rejected, Err: fmt.Errorf("%s publishes no limits of %s for this account", p.Name, model)}
		}
	}
	if o.asJSON {
		return s.JSON(found)
	}
	return printPublished(s, found)
}

// printPublished prints published limits as a table.
func printPublished(s *term.Streams, found *provider.AccountLimits) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MODELS\tLIMITS")
	for _, g := range found.Groups {
		var words []string
		for _, l := range g.Limits {
			words = append(words, l.Dimension.String()+" "+prose.Group(l.Value))
		}
		for _, name := range slices.Sorted(maps.Keys(g.Other)) {
			words = append(words, name+" "+prose.Group(g.Other[name]))
		}
		fmt.Fprintf(w, "%s\t%s\n", term.Escape(cmp.Or(strings.Join(g.Models, " "), "("+g.Name+")")), term.Escape(cmp.Or(strings.Join(words, ", "), "none")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := s.Out.Write([]byte(b.String()))
	return err
}
