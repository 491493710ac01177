package account

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

const (
	readEvery  = 10 * time.Minute // interval in which published limits are read
	readWithin = 5 * time.Second  // maximum time of one read, for which a run may wait at its start
)

// errNoAdminKey is the error if no variable has an admin key.
var errNoAdminKey = errors.New("no admin key")

// LimitsReader reads the limits that a provider publishes for one account.
type LimitsReader func(context.Context) (*provider.AccountLimits, error)

// NewLimitsReader returns the reader of the limits of the account at p and baseURL. hide hides the admin key from all that is printed.
func NewLimitsReader(p provider.Provider, baseURL string, from KeySource, hide func(secret string)) (LimitsReader, error) {
	api, err := provider.LimitsAPIOf(p, baseURL)
	if err != nil {
		return nil, err
	}
	key, err := from.first(hide, api.KeyEnv)
	if err != nil {
		return nil, err
	}
	if key.Value == "" {
		return nil, fmt.Errorf("%w: %s is not set", errNoAdminKey, api.KeyEnv)
	}
	part, err := from.lookup(api.PartEnv)
	if err != nil {
		return nil, err
	}
	base := provider.NewBase(connections) // model requests may use all connections of their transport
	return func(ctx context.Context) (*provider.AccountLimits, error) {
		ctx, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		defer base.CloseIdleConnections()
		found, err := api.Read(ctx, base, key.Value, part)
		if failed, ok := errors.AsType[*sluice.CallError](err); ok && (failed.Kind == sluice.Auth || failed.Kind == sluice.Rejected) {
			err = fmt.Errorf("%w (the key in %s must be an admin key that may read limits)", err, api.KeyEnv)
		}
		return found, err
	}, nil
}

// follow sets the published limits of a Scheduler: now, and every 10 minutes until end is called. It warns once if it cannot.
func (read LimitsReader) follow(s *sluice.Scheduler, warn func(error)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	warned := false
	update := func() {
		found, err := read(ctx)
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
	}
}

// limitsReader returns the reader of the limits of the account at p and baseURL; nil if p publishes none, without an admin key, or
// after a warning about it.
func (s *Settings) limitsReader(p provider.Provider, baseURL string, from KeySource, hide func(secret string)) LimitsReader {
	if _, err := provider.LimitsAPIOf(p, baseURL); err != nil {
		return nil
	}
	read, err := NewLimitsReader(p, baseURL, from, hide)
	if err != nil && !errors.Is(err, errNoAdminKey) {
		s.warnUnpublished(p, err)
	}
	return read
}

// warnUnpublished warns of published limits of p that cannot be read. The program continues without them.
func (s *Settings) warnUnpublished(p provider.Provider, err error) {
	s.Log.Warn(fmt.Sprintf("published limits of %s are not used: %s", p.Name, err))
}

// publish follows the limits that the provider publishes for the account at p, if there is an admin key.
func (a *Accounts) publish(s *sluice.Scheduler, p provider.Provider, baseURL string) {
	if a.dry() {
		return
	}
	if read := a.Settings.limitsReader(p, baseURL, a.Config.Keys, a.Config.Hide); read != nil {
		end := read.follow(s, func(err error) { a.Settings.warnUnpublished(p, err) })
		a.mu.Lock()
		defer a.mu.Unlock()
		a.followers = append(a.followers, end)
	}
}

// Published returns the limits that p publishes for a model in this account; nil without an admin key, or after a warning.
func (s *Settings) Published(ctx context.Context, p provider.Provider, model string, hide func(secret string)) *config.Limits {
	read := s.limitsReader(p, "", KeySource{}, hide)
	if read == nil {
		return nil
	}
	found, err := read(ctx)
	if err != nil {
		s.warnUnpublished(p, err)
		return nil
	}
	return sourced(found.ByModel()[model], config.Limit{Source: limits.SourcePublished, Confidence: trustConfigured, At: found.At})
}
