package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/version"
)

// The variables that passwords of an engine are in: a command line can be read by everybody on the host.
const (
	redisPassword    = cluster.PasswordVariable
	sentinelPassword = cluster.SentinelPasswordVariable
)

// sharedFlags say with whom a quota is shared.
type sharedFlags struct {
	url string
}

func (f *sharedFlags) flag() flag { return redisFlag(&f.url) }

func redisFlag(field *string) flag {
	return flag{name: "redis", field: field, metavar: "URL", help: "Share limits via Redis; password in $" + redisPassword}
}

// open connects, if that is asked for; nil where it is not. The role is what this process does.
func (f *sharedFlags) open(ctx context.Context, s *term.Streams, role string, verbose bool) (*shared, error) {
	if f.url == "" {
		return nil, nil
	}
	return openShared(ctx, s, f.url, "--redis", cluster.Config{Role: role, Logger: s.Logger(verbose)})
}

// openShared connects to the engine of a URL, which from says where it stands. What is in it and must not be printed is hidden.
func openShared(ctx context.Context, s *term.Streams, url, from string, cfg cluster.Config) (*shared, error) {
	cfg.URL, cfg.Version = url, version.Read().Version
	cfg.Password, cfg.SentinelPassword = os.Getenv(redisPassword), os.Getenv(sentinelPassword)
	for _, secret := range []string{cfg.Password, cfg.SentinelPassword, cluster.Password(url)} {
		s.Hide(secret)
	}
	c, err := cluster.Open(ctx, cfg)
	if err != nil {
		return nil, explainEngine(err, from)
	}
	return &shared{cluster: c, from: from}, nil
}

// explainEngine returns the error about an engine, of which from says where it is named.
func explainEngine(err error, from string) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}

// shared is what a process shares with others. Nil is nothing.
type shared struct {
	cluster  *cluster.Cluster
	from     string  // where its URL stands
	fallback float64 // the part of a limit that is used while the engine is gone; 0: none
}

// scheduler makes the Scheduler of an account, which shares its quota if anything is shared. The returned function closes it.
func (sh *shared) scheduler(c sluice.Config) (*sluice.Scheduler, func() error, error) {
	if sh == nil {
		s, err := sluice.New(c)
		return s, s.Close, err
	}
	ledger := sh.cluster.Ledger(c.Name, cluster.LedgerConfig{Fallback: sh.fallback})
	if err := sh.checkLedger(ledger); err != nil {
		return nil, nil, errors.Join(err, ledger.Close())
	}
	c.Ledger = ledger
	s, err := sluice.New(c)
	if err != nil {
		return nil, nil, errors.Join(err, ledger.Close())
	}
	leave := sh.cluster.Join(c.Name)
	return s, func() error {
		defer leave()
		return errors.Join(s.Close(), ledger.Close()) // what the one has to say goes by way of the other
	}, nil
}

// checkTimeout is for the question whether an account's keys on the engine are of a version that is known.
const checkTimeout = 2 * time.Second

// checkLedger refuses an account whose keys are of another version, or not what they should be.
func (sh *shared) checkLedger(l *cluster.Ledger) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	err := l.Check(ctx)
	switch {
	case fault.Is[*cluster.Error](err):
		return explainEngine(err, sh.from)
	case err == nil || errors.Unwrap(err) != nil: // the network's
		return err
	}
	return fault.New(fault.Job, err, "use the same version of Sluice for all programs at this Redis, or another database")
}

// Close ends it, after all Schedulers.
func (sh *shared) Close() error {
	if sh == nil {
		return nil
	}
	return sh.cluster.Close()
}

// shownArgs are arguments as they may be shown: without the password in the URL of an engine.
func shownArgs(args []string) []string {
	shown := make([]string, len(args))
	for i, arg := range args {
		switch {
		case i > 0 && args[i-1] == "--redis":
			shown[i] = cluster.Redact(arg)
		case strings.HasPrefix(arg, "--redis="):
			shown[i] = "--redis=" + cluster.Redact(strings.TrimPrefix(arg, "--redis="))
		default:
			shown[i] = arg
		}
	}
	return shown
}
