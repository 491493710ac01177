package account

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/version"
)

// Shared is a Redis server by which processes share limits.
type Shared struct {
	*cluster.Cluster

	// Fallback is the part of each limit that all processes together use while Redis does not respond; 0 stops the requests.
	Fallback float64

	from string // flag or field of its URL
}

// OpenShared connects to the Redis server at cfg.URL. from is the flag or field of the URL, for errors. Passwords come from the
// environment, and are hidden.
func OpenShared(ctx context.Context, cfg cluster.Config, from string, hide func(secret string)) (*Shared, error) {
	cfg.Version = version.Read().Version
	cfg.Password, cfg.SentinelPassword = os.Getenv(cluster.PasswordVariable), os.Getenv(cluster.SentinelPasswordVariable)
	for _, secret := range []string{cfg.Password, cfg.SentinelPassword, cluster.Password(cfg.URL)} {
		hide(secret)
	}
	c, err := cluster.Open(ctx, cfg)
	if err != nil {
		return nil, RedisError(err, from)
	}
	return &Shared{Cluster: c, from: from}, nil
}

// RedisError adds the flag or field of the URL to an error of Redis.
func RedisError(err error, from string) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}

// scheduler returns a Scheduler, which shares its limits unless sh is nil, and the function that closes it.
func (sh *Shared) scheduler(c sluice.Config) (*sluice.Scheduler, func() error, error) {
	if sh == nil {
		s, err := sluice.New(c)
		return s, s.Close, err
	}
	ledger := sh.Ledger(c.Name, cluster.LedgerConfig{Fallback: sh.Fallback})
	if err := sh.check(ledger); err != nil {
		return nil, nil, errors.Join(err, ledger.Close())
	}
	c.Ledger = ledger
	s, err := sluice.New(c)
	if err != nil {
		return nil, nil, errors.Join(err, ledger.Close())
	}
	leave := sh.Join(c.Name)
	return s, func() error {
		defer leave()
		return errors.Join(s.Close(), ledger.Close()) // the Scheduler sends its last changes through the ledger
	}, nil
}

// check refuses an account with keys in Redis of another version, or of another program. If Redis does not respond, it refuses nothing.
func (sh *Shared) check(l *cluster.Ledger) error {
	err := l.Check(context.Background())
	switch {
	case fault.Is[*cluster.Error](err):
		return RedisError(err, sh.from)
	case err == nil || errors.Unwrap(err) != nil: // of the network
		return err
	}
	return fault.New(fault.Job, err, "use the same version of Sluice for all programs at this Redis, or another database")
}

// Close disconnects. Close all Accounts before.
func (sh *Shared) Close() error {
	if sh == nil {
		return nil
	}
	return sh.Cluster.Close()
}
