package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/version"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// pool holds the open accounts of a process. They outlive the settings that opened them, with the limits that they learned and the
// requests that wait. A pool is safe for concurrent use.
type pool struct {
	transport http.RoundTripper
	shared    *Shared // nil: limits are not shared

	// turn is held while Schedulers are opened, changed and closed. Observers may be called meanwhile.
	turn sync.Mutex
	open []*opened
}

// opened is an open account. The turn of its pool guards it.
type opened struct {
	scheduler *sluice.Scheduler
	end       func() error
	cfg       sluice.Config // with the limits that apply now
	users     int           // Accounts that took it and did not give it back
}

// take returns the open account with the name of c, or opens it. It is not one of those that the caller has. An open account keeps its
// limits until they are set. The caller holds the turn, and gives the account back later.
func (p *pool) take(c sluice.Config, has []member) (*opened, error) {
	for _, one := range p.open {
		mine := slices.ContainsFunc(has, func(m member) bool { return m.opened == one })
		if one.cfg.Name == c.Name && one.cfg.Charge == c.Charge && one.cfg.CountsCached == c.CountsCached && !mine {
			if err := one.fit(&c); err != nil {
				return nil, err
			}
			one.users++
			return one, nil
		}
	}
	scheduler, end, err := p.shared.scheduler(c)
	if err != nil {
		return nil, err
	}
	one := &opened{scheduler, end, c, 1}
	p.open = append(p.open, one)
	return one, nil
}

// give takes accounts back, and closes those without users.
func (p *pool) give(back []member) error {
	p.turn.Lock() // also while they close, because the next user must find the limits that they learned
	defer p.turn.Unlock()
	var errs []error
	for _, m := range back {
		if m.users--; m.users == 0 {
			errs = append(errs, m.end())
			p.open = slices.DeleteFunc(p.open, func(other *opened) bool { return other == m.opened })
		}
	}
	if t, ok := p.transport.(interface{ CloseIdleConnections() }); ok && len(p.open) == 0 {
		t.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

// fit checks new limits for an open account. The sizes of its buckets cannot change.
func (o *opened) fit(c *sluice.Config) error {
	c.Limits.Burst, c.Account.Burst, c.Start.Burst = o.cfg.Limits.Burst, o.cfg.Account.Burst, o.cfg.Start.Burst
	return errors.Join(c.Limits.Check(), c.Account.Check())
}

// set sets the limits of an open account.
func (o *opened) set(c *sluice.Config) (change, error) {
	made := change{before: o.cfg.Limits, after: c.Limits, begun: o.cfg.Start != c.Start}
	if c.Limits != o.cfg.Limits || c.Account != o.cfg.Account {
		if err := o.scheduler.SetLimits(c.Limits, c.Account); err != nil && !errors.Is(err, sluice.ErrClosed) {
			return change{}, err
		}
	}
	o.cfg.Limits, o.cfg.Account, o.cfg.Start = c.Limits, c.Account, c.Start
	return made, nil
}

// member is an open account as one of several Accounts sees it.
type member struct {
	*opened
	provider provider.Provider
	label    string          // of an account of upstreams; "" if there are none
	models   map[string]bool // of an account of upstreams, as far as they are known
}

// title returns the name of the account for people.
func (m *member) title() string { return cmp.Or(strings.TrimPrefix(m.label, "="), m.provider.Name) }

// Reread reads the settings again, and applies their limits as a new run would. It returns lines that say what changed. After an error,
// nothing has changed.
func (a *Accounts) Reread() (lines []string, err error) {
	next, lines, err := a.Settings.reread()
	if err != nil {
		return nil, err
	}
	changes, err := a.settle(next)
	if err != nil {
		return nil, err
	}
	switch len(changes) {
	case 0:
		changes = []change{{}}
	case 1:
		changes[0].account = ""
	}
	for _, c := range changes {
		lines = append(lines, c.lines()...)
	}
	return lines, nil
}

// Settle applies the limits of the settings to accounts that earlier settings opened. It returns lines that say what changed.
func (a *Accounts) Settle() (lines []string, err error) {
	changes, err := a.settle(a.Settings)
	for _, c := range changes {
		if c.before != c.after {
			lines = append(lines, c.lines()...)
		}
	}
	return lines, err
}

// settle applies limits of settings to all open accounts, or to none if one of the limits is wrong.
func (a *Accounts) settle(s *Settings) (changes []change, err error) {
	a.pool.turn.Lock()
	defer a.pool.turn.Unlock()
	before, members := a.current.Swap(s), a.members()
	next := make([]sluice.Config, len(members))
	for i, m := range members {
		if err := errors.Join(a.ApplyLimits(&next[i], m.provider, m.label), m.fit(&next[i])); err != nil {
			a.current.Store(before)
			return nil, err
		}
	}
	for i, m := range members {
		made, failed := m.set(&next[i])
		if err = errors.Join(err, failed); failed == nil {
			made.account = m.title()
			changes = append(changes, made)
		}
	}
	return changes, err
}

// change is a change of the configured limits of an account.
type change struct {
	account       string // "" if there is only one
	before, after sluice.Limits
	begun         bool // limits that are only used at the start differ, too
}

// lines writes the change for people.
func (c *change) lines() (lines []string) {
	begin := "limits re-read"
	if c.account != "" {
		begin += " (" + c.account + ")"
	}
	for d := range c.after.All() {
		if before, after := c.before.In(d), c.after.In(d); before != after {
			lines = append(lines, fmt.Sprintf("%s: %s %s -> %s", begin, d, ceiling(before, d), ceiling(after, d)))
		}
	}
	if len(lines) == 0 {
		lines = append(lines, begin+": nothing changed")
	}
	if c.begun {
		lines = append(lines, begin+": only configured limits are re-read; other limits apply from the next start")
	}
	return lines
}

// ceiling returns a limit as text; "none" without a limit.
func ceiling(limit limits.Window, d limits.Dimension) string {
	switch {
	case limit.N == 0:
		return "none"
	case limit.Period != d.Window():
		return limit.String()
	}
	return prose.Group(limit.N)
}

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
