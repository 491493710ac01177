package cli

import (
	"errors"
	"slices"
	"sync"

	"github.com/sluice-llm/sluice"
)

// schedulerPool holds the Schedulers of accounts that are in several settings one after the other, so that what they learned
// and what waits there outlives each. It is safe for concurrent use.
type schedulerPool struct {
	mu  sync.Mutex
	all []*pooledScheduler
}

// pooledScheduler is one that is open.
type pooledScheduler struct {
	scheduler *sluice.Scheduler
	end       func() error
	cfg       sluice.Config
	users     int // accounts that took it, and did not give it back
}

// take returns the Scheduler of the account that c names, or a new one. Of one that is there, c gets the size of its buckets,
// and its limits stay until somebody sets them. It is to be given back. A new one shares its quota by sh.
func (p *schedulerPool) take(c *sluice.Config, sh *shared) (*pooledScheduler, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(one *pooledScheduler) bool {
		return one.cfg.Name == c.Name && one.cfg.Charge == c.Charge && one.cfg.CountsCached == c.CountsCached
	})
	if i < 0 {
		made, end, err := sh.scheduler(*c)
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, &pooledScheduler{made, end, *c, 1})
		return p.all[len(p.all)-1], nil
	}
	one := p.all[i]
	c.Limits.Burst, c.Account.Burst, c.Start.Burst = one.cfg.Limits.Burst, one.cfg.Account.Burst, one.cfg.Start.Burst
	if err := errors.Join(c.Limits.Check(), c.Account.Check()); err != nil {
		return nil, err
	}
	one.users++
	return one, nil
}

// give takes Schedulers back, and closes those that nobody has any more.
func (p *schedulerPool) give(back []*pooledScheduler) error {
	p.mu.Lock() // also while they close: whoever takes the account meanwhile is to find what it learned
	defer p.mu.Unlock()
	var errs []error
	for _, one := range back {
		if one.users--; one.users == 0 {
			errs = append(errs, one.end())
			p.all = slices.DeleteFunc(p.all, func(other *pooledScheduler) bool { return other == one })
		}
	}
	return errors.Join(errs...)
}
