package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Tenant is one that may call, and what it may. A zero field is its default, or no bound.
type Tenant struct {
	Name string `json:"name"` // letters, digits, and . _ -

	Weight   float64 `json:"weight,omitempty"`   // its share of what is contended, relative to others'. Default 1
	Priority string  `json:"priority,omitempty"` // low, normal, high or critical. Default normal

	// Its own limits, over all models. Calls beyond them wait in front of the queue that tenants share.
	RPM        int `json:"rpm,omitempty"`
	TPM        int `json:"tpm,omitempty"`
	Concurrent int `json:"concurrent,omitempty"`

	// What its calls may cost, in US dollars, per day and month of UTC.
	BudgetDay   float64 `json:"budget_day_usd,omitempty"`
	BudgetMonth float64 `json:"budget_month_usd,omitempty"`

	// Models are those that it may ask for, by the names that clients use or by those that they stand for; a * at the end stands
	// for anything. None: all. A tenant with Models or a budget sends only fields that provider.Endpoint.HasField knows.
	Models []string `json:"models,omitempty"`

	MaxQueue int           `json:"max_queue,omitempty"`   // calls that wait. Default 10,000
	MaxWait  time.Duration `json:"max_wait_ns,omitempty"` // of a call for its turn. Default and most: Deadlines.Queue
}

const usualMaxQueue = 10_000

var priorities = map[string]limits.Priority{"": limits.Normal, "low": limits.Low, "normal": limits.Normal, "high": limits.High, "critical": limits.Critical}

var tenantName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check says what is wrong with a tenant.
func (t *Tenant) Check() error {
	if !tenantName.MatchString(t.Name) {
		return errors.New("a tenant's name has 1 to 64 letters, digits and . _ -, and begins with a letter or digit")
	}
	_, known := priorities[t.Priority]
	switch {
	case !(t.Weight >= 0) || t.Weight > 1e6:
		return fmt.Errorf("tenant %s: weight %v: want a number above 0, and at most a million", t.Name, t.Weight)
	case !known:
		return fmt.Errorf("tenant %s: priority %q: want low, normal, high or critical", t.Name, t.Priority)
	case t.RPM < 0 || t.TPM < 0 || t.Concurrent < 0:
		return fmt.Errorf("tenant %s: a limit is negative", t.Name)
	case !amount(t.BudgetDay) || !amount(t.BudgetMonth):
		return fmt.Errorf("tenant %s: a budget is no sum of US dollars", t.Name)
	case t.MaxQueue < 0 || t.MaxWait < 0:
		return fmt.Errorf("tenant %s: a bound of its queue is negative", t.Name)
	case slices.Contains(t.Models, "") || slices.Contains(t.Models, "*"):
		return fmt.Errorf("tenant %s: a model has no name: leave the models out to allow all", t.Name)
	}
	return nil
}

func amount(usd float64) bool { return usd >= 0 && !math.IsInf(usd, 0) }

// tenantBurst spreads the calls of a tenant over the minute, since a pause until the minute is over may exceed its MaxWait.
const tenantBurst = time.Second

// limits are those of its own; false if it has none.
func (t *Tenant) limits() (sluice.Limits, bool) {
	if t.RPM == 0 && t.TPM == 0 && t.Concurrent == 0 {
		return sluice.Limits{}, false
	}
	const unbounded = 1 << 30 // else the Scheduler would look for a limit that is not there
	return sluice.Limits{RPM: t.RPM, TPM: t.TPM, Concurrent: cmp.Or(t.Concurrent, unbounded), Burst: tenantBurst}, true
}

func (t *Tenant) budgeted() bool { return t.BudgetDay > 0 || t.BudgetMonth > 0 }

// bound reports whether requests are to name one model, and to say what they cost.
func (t *Tenant) bound() bool { return len(t.Models) > 0 || t.budgeted() }

// leastBudget is the smaller of the two; 0 if there is none.
func (t *Tenant) leastBudget() float64 {
	if t.BudgetDay > 0 && t.BudgetMonth > 0 {
		return min(t.BudgetDay, t.BudgetMonth)
	}
	return max(t.BudgetDay, t.BudgetMonth)
}

// allows reports whether the tenant may ask for a model by any of the names.
func (t *Tenant) allows(names ...string) bool {
	return len(t.Models) == 0 || slices.ContainsFunc(t.Models, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return slices.ContainsFunc(names, func(name string) bool {
			return name == pattern || open && strings.HasPrefix(name, prefix)
		})
	})
}
