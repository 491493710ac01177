package account

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

const (
	readEvery  = 10 * time.Minute // interval in which published limits are read
	readWithin = 5 * time.Second  // maximum time of one read, for which a run may wait at its start
)

// ErrNoAdminKey is the error if no variable has an admin key.
var ErrNoAdminKey = errors.New("no admin key")

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
		return nil, fmt.Errorf("%w: %s is not set", ErrNoAdminKey, api.KeyEnv)
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

// Unpublished is the warning about published limits of p that cannot be read. The program continues without them.
func Unpublished(p provider.Provider, err error) string {
	return fmt.Sprintf("published limits of %s are not used: %s", p.Name, err)
}

// publish follows the limits that the provider publishes for the account at p, if there is an admin key.
func (a *Accounts) publish(s *sluice.Scheduler, p provider.Provider, baseURL string) {
	if _, err := provider.LimitsAPIOf(p, baseURL); err != nil || a.dry() {
		return
	}
	warn := func(err error) { a.Settings.Log.Warn(Unpublished(p, err)) }
	read, err := NewLimitsReader(p, baseURL, a.Config.Keys, a.Config.Hide)
	switch {
	case err == nil:
		end := read.follow(s, warn)
		a.mu.Lock()
		a.followers = append(a.followers, end)
		a.mu.Unlock()
	case !errors.Is(err, ErrNoAdminKey):
		warn(err)
	}
}
