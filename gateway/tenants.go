package gateway

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/limits"
)

// TenantsConfig configures Tenants.
type TenantsConfig struct {
	Tenants []Tenant // initial tenants; without any, the gateway requires no key

	// Spent is the path of the file that stores the cost of each tenant. Several processes can share the file. "" stores nothing.
	Spent string

	Logger *slog.Logger // logger for errors (nil: no log)
}

// Tenants is the set of tenants of a Gateway. Before the first tenant is added, the Gateway accepts requests without a key. Tenants
// is safe for concurrent use.
type Tenants struct {
	log    *slog.Logger
	purses *purses
	models budget.Models // by name, of all tenants
	anyone *tenant       // who needs no key
	roster atomic.Pointer[roster]

	mu         sync.Mutex
	schedulers []*sluice.Scheduler // to be told of weights
	closed     bool
}

// roster is one version of the tenants. It is not changed.
type roster struct {
	keyed  bool // there is a tenant, or was: nobody may call without a key
	byHash map[[sha256.Size]byte]*tenant
	byName map[string]*tenant
}

// tenant is one of them at work. It lives as long as its name is among the tenants.
type tenant struct {
	turns   turns
	purse   *purse // nil: nobody keeps account of it
	waiting atomic.Int64
	open    atomic.Int64 // calls, those that wait included
	bodies  int64        // bytes that they take; guarded by rooms.mu
	terms   atomic.Pointer[terms]
}

// terms are what holds for calls that come now.
type terms struct {
	Tenant
	sum    [sha256.Size]byte
	limits *sluice.Scheduler // its own; nil: none
}

// OpenTenants returns Tenants to close after use, or an error if a tenant is invalid or the cost file cannot be read.
func OpenTenants(cfg TenantsConfig) (*Tenants, error) {
	t := &Tenants{log: cfg.Logger, anyone: &tenant{}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.anyone.terms.Store(&terms{})
	t.roster.Store(&roster{})
	var err error
	if t.purses, err = openPurses(cfg.Spent, t.log); err != nil {
		return nil, err
	}
	if err := t.Set(cfg.Tenants); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Keyed reports whether requests need a tenant's key.
func (t *Tenants) Keyed() bool { return t.roster.Load().keyed }

// TenantState is the state of a tenant at one instant. Traffic counts the tenant's usage.
type TenantState struct {
	Tenant
	Waiting  int     // number of requests not yet sent to an upstream
	Open     int     // number of requests in progress, including waiting requests
	DayUSD   float64 // cost of the current day (UTC) in US dollars, including estimates for requests in progress
	MonthUSD float64 // cost of the current month (UTC) in US dollars, including estimates for requests in progress
}

// States returns the states of all tenants, sorted by name. If requests need no key, States returns one state without a name.
func (t *Tenants) States() []TenantState {
	r := t.roster.Load()
	all := make([]TenantState, 0, len(r.byName)+1)
	add := func(one *tenant) {
		s := TenantState{Tenant: one.terms.Load().Tenant, Waiting: int(one.waiting.Load()), Open: int(one.open.Load())}
		if one.purse != nil {
			s.DayUSD, s.MonthUSD = one.purse.sums(time.Now())
		}
		all = append(all, s)
	}
	if !r.keyed {
		add(t.anyone)
	}
	for _, one := range r.byName {
		add(one)
	}
	slices.SortFunc(all, func(a, b TenantState) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ahead is how many calls, of those that do not stand in the shared queue yet, would go before another one of a tenant: its own,
// and what others with calls there get by their weights meanwhile.
func (t *Tenants) ahead(of *tenant, model string) int {
	own, all, weights := of.turns.waiting(model), 0, 0.0
	for _, one := range t.roster.Load().byName {
		if n := one.turns.waiting(model); n > 0 {
			all += n
			weights += cmp.Or(one.terms.Load().Weight, 1)
		}
	}
	if all <= own {
		return own
	}
	return int(min(float64(all), float64(own)*weights/cmp.Or(of.terms.Load().Weight, 1)))
}

// Close writes the costs to the cost file. Call Close after all requests have finished. Close twice or on nil does nothing.
func (t *Tenants) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed {
		return nil
	}
	return t.purses.close()
}

// identify finds out who makes a request that shows the key, or none if it is ""; false if the key is not a tenant's.
//
// The key is looked up by its hash, so that how long that takes says nothing of how much of a guess was right.
func (t *Tenants) identify(key string) (*tenant, bool) {
	known := t.roster.Load()
	if !known.keyed {
		return t.anyone, true
	}
	sum := sha256.Sum256([]byte(key))
	one := known.byHash[sum]
	if key == "" || one == nil {
		return nil, false
	}
	own := one.terms.Load()
	return one, subtle.ConstantTimeCompare(own.sum[:], sum[:]) == 1
}

// Set replaces the tenants for new requests, and does not stop requests in progress. A tenant with an unchanged name keeps its queue
// and its costs. If a tenant is invalid, Set returns an error. After the last tenant is removed, every request is rejected.
func (t *Tenants) Set(tenants []Tenant) error {
	if field, err := CheckTenants(tenants); err != nil {
		return fmt.Errorf("gateway: Tenants%s: %w", field, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.roster.Load()
	next := &roster{
		keyed:  before.keyed || len(tenants) > 0,
		byHash: make(map[[sha256.Size]byte]*tenant), byName: make(map[string]*tenant),
	}
	for _, k := range tenants {
		one := before.byName[k.Name]
		if one == nil {
			one = &tenant{purse: t.purses.of(k.Name)}
		}
		if err := one.update(k); err != nil {
			return err
		}
		next.byName[k.Name] = one
		next.byHash[one.terms.Load().sum] = one
	}
	t.roster.Store(next)
	t.weighLocked()
	return nil
}

// update has calls from now on have those terms.
func (t *tenant) update(k Tenant) error {
	next := &terms{Tenant: k}
	if _, err := hex.Decode(next.sum[:], []byte(k.KeySHA256)); err != nil {
		return err
	}
	before := t.terms.Load()
	bounds, limited := k.limits()
	switch {
	case !limited:
	case before != nil && before.limits != nil:
		next.limits = before.limits // with what waits there
		if err := next.limits.SetLimits(bounds, sluice.Limits{}); err != nil {
			return err
		}
	default:
		s, err := sluice.New(sluice.Config{Name: "tenant " + k.Name, Limits: bounds, Charge: limits.ChargeActual, CountsCached: true})
		if err != nil {
			return err
		}
		next.limits = s
	}
	t.terms.Store(next)
	return nil
}

// weigh tells Schedulers the weights of tenants, now and whenever those change.
func (t *Tenants) weigh(schedulers []*sluice.Scheduler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range schedulers {
		if !slices.Contains(t.schedulers, s) {
			t.schedulers = append(t.schedulers, s)
		}
	}
	t.weighLocked()
}

func (t *Tenants) weighLocked() {
	weights := make(map[string]float64)
	for name, one := range t.roster.Load().byName {
		weights[name] = cmp.Or(one.terms.Load().Weight, 1)
	}
	t.schedulers = slices.DeleteFunc(t.schedulers, func(s *sluice.Scheduler) (closed bool) {
		err := s.SetWeights(weights)
		if closed = errors.Is(err, sluice.ErrClosed); err != nil && !closed {
			t.log.Error("the scheduler rejected the weights of the tenants", "error", err)
		}
		return closed
	})
}
