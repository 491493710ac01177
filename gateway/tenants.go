package gateway

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/spend"
	"github.com/sluice-llm/sluice/limits"
)

// TenantsConfig shapes Tenants.
type TenantsConfig struct {
	// Keys are the tenants and their keys. It is read again when it changes. What tenants spent is kept beside it, in a file
	// whose name goes on with .spent. Required.
	Keys KeyFile

	Logger *slog.Logger // nil discards
}

// Tenants are those that may call a Gateway, by their keys. As long as there never was a key, whoever reaches the gateway may.
// It is safe for concurrent use.
type Tenants struct {
	cfg    TenantsConfig
	log    *slog.Logger
	purses *purses
	models spend.Models // by name, of all tenants
	anyone *tenant      // who needs no key
	roster atomic.Pointer[roster]
	looked atomic.Int64 // when the file was looked at last

	mu         sync.Mutex
	schedulers []*sluice.Scheduler // to be told of weights
	closed     bool
}

// roster is what one version of the file says. It is not changed.
type roster struct {
	keyed  bool // there is a key, or was: nobody may call without
	byHash map[[sha256.Size]byte]*tenant
	byName map[string]*tenant
	seen   fs.FileInfo // of the version; nil: there was no file
}

// tenant is one of them at work. It lives as long as its name is in the file.
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

// OpenTenants reads the file, and goes on to keep account of what tenants spend until Close. It fails where the file is
// damaged.
func OpenTenants(cfg TenantsConfig) (*Tenants, error) {
	if cfg.Keys == "" {
		return nil, errors.New("gateway: TenantsConfig.Keys is empty")
	}
	t := newTenants(cfg)
	seen, err := t.look()
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if t.purses, err = openPurses(string(cfg.Keys)+".spent", t.log); err != nil {
		return nil, err
	}
	if err := t.load(seen); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// newTenants returns Tenants without a file: anyone may call.
func newTenants(cfg TenantsConfig) *Tenants {
	t := &Tenants{cfg: cfg, log: cfg.Logger, anyone: &tenant{}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.anyone.terms.Store(&terms{})
	t.roster.Store(&roster{})
	return t
}

// Keyed reports whether who calls needs a key.
func (t *Tenants) Keyed() bool { return t.roster.Load().keyed }

// TenantState is how a tenant stands. A Traffic has what its calls used.
type TenantState struct {
	Tenant
	Waiting  int     // calls that were not sent yet,
	Open     int     // and all of them
	DayUSD   float64 // spent in this day and month of UTC, with what open calls may cost
	MonthUSD float64
}

// States are those of all tenants, by name. Where no key is needed, it is one without a name.
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

// Close writes what was spent. It is safe to call twice, and on nil.
func (t *Tenants) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed || t.purses == nil {
		return nil
	}
	return t.purses.close()
}

// identify finds out who makes a request that shows those keys; false if none is a tenant's.
//
// The key is looked up by its hash, so that how long that takes says nothing of how much of a guess was right.
func (t *Tenants) identify(keys []string) (*tenant, bool) {
	t.refresh()
	known := t.roster.Load()
	if !known.keyed {
		return t.anyone, true
	}
	for _, key := range keys {
		sum := sha256.Sum256([]byte(key))
		one := known.byHash[sum]
		if one == nil {
			continue
		}
		if own := one.terms.Load(); subtle.ConstantTimeCompare(own.sum[:], sum[:]) == 1 {
			return one, true
		}
	}
	return nil, false
}

// look is which version of the file is there; nil is none.
func (t *Tenants) look() (fs.FileInfo, error) {
	info, err := os.Stat(string(t.cfg.Keys))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

// lookAgain is how soon the file is looked at again.
const lookAgain = time.Millisecond

// refresh reads the file if it is another one than before. What cannot be read leaves things as they are.
func (t *Tenants) refresh() {
	now, last := time.Now().UnixNano(), t.looked.Load()
	if t.cfg.Keys == "" || now >= last && now-last < int64(lookAgain) || !t.looked.CompareAndSwap(last, now) {
		return
	}
	seen, err := t.look()
	if err != nil || sameVersion(seen, t.roster.Load().seen) {
		return
	}
	if err := t.load(seen); err != nil {
		t.log.Error("the new keys are refused, and those before go on to hold", "error", err)
	}
}

func sameVersion(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// load reads the file, which was looked at before, so that what comes later is seen as another version. A file that was taken
// away ends all keys.
func (t *Tenants) load(seen fs.FileInfo) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.roster.Load()
	if before.seen != nil && sameVersion(seen, before.seen) {
		return nil // somebody else was faster
	}
	doc, err := t.cfg.Keys.read()
	if err != nil {
		same := *before
		same.seen = seen // it is not read again and again
		t.roster.Store(&same)
		return err
	}
	next := &roster{
		keyed:  before.keyed || len(doc.Keys) > 0,
		byHash: make(map[[sha256.Size]byte]*tenant), byName: make(map[string]*tenant), seen: seen,
	}
	for _, k := range doc.Keys {
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

// update makes what the file says hold for calls from now on.
func (t *tenant) update(k KeyedTenant) error {
	next := &terms{Tenant: k.Tenant}
	if _, err := hex.Decode(next.sum[:], []byte(strings.ToLower(k.SHA256))); err != nil {
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
			t.log.Error("the tenants' weights are refused", "error", err)
		}
		return closed
	})
}
