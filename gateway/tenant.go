package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// Tenant is a client of the gateway with its own key, weight and limits. A zero field selects the default, or means no limit.
type Tenant struct {
	Name      string `yaml:"name"`       // unique name of 1 to 64 letters, digits, dots, underscores or hyphens that starts with a letter or digit
	KeySHA256 string `yaml:"key_sha256"` // SHA-256 of the tenant's key in hexadecimal, as returned by NewKey

	Weight   float64 `yaml:"weight,omitempty"`   // share of a contended limit, relative to other tenants (default 1)
	Priority string  `yaml:"priority,omitempty"` // low, normal, high or critical (default normal)

	// Limits for all models together. Requests above these limits wait before they enter the queue that tenants share.
	RPM         int `yaml:"rpm,omitempty"`         // requests per minute (default: unlimited)
	TPM         int `yaml:"tpm,omitempty"`         // tokens per minute (default: unlimited)
	Concurrency int `yaml:"concurrency,omitempty"` // requests in flight (default: unlimited)

	// Spending caps in US dollars.
	MaxCostDay   float64 `yaml:"max_cost_day,omitempty"`   // cap per day in UTC (default: none)
	MaxCostMonth float64 `yaml:"max_cost_month,omitempty"` // cap per month in UTC (default: none)

	// Models lists the allowed models by name or alias (default: all). A * at the end of a name matches any suffix. If Models or a
	// spending cap is set, requests may only contain fields that provider.Endpoint.HasField accepts.
	Models []string `yaml:"models,omitempty"`

	MaxQueue int           `yaml:"max_queue,omitempty"` // maximum number of waiting requests (default 10,000)
	MaxWait  time.Duration `yaml:"max_wait,omitempty"`  // maximum time that a request waits in queues (default and upper bound: Deadlines.Queue)
}

const usualMaxQueue = 10_000

var priorities = map[string]limits.Priority{"": limits.Normal, "low": limits.Low, "normal": limits.Normal, "high": limits.High, "critical": limits.Critical}

var tenantName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckTenants returns an error if a tenant is invalid, and the path of the invalid field, such as [0].rpm.
func CheckTenants(tenants []Tenant) (field string, err error) {
	names, sums := make(map[string]bool), make(map[string]bool)
	for i := range tenants {
		t := &tenants[i]
		field, err := t.check()
		sum := strings.ToLower(t.KeySHA256)
		switch {
		case err != nil:
		case names[t.Name]:
			field, err = "name", fmt.Errorf("another tenant is named %s", t.Name)
		case sums[sum]:
			field, err = "key_sha256", errors.New("another tenant has this key")
		}
		if err != nil {
			return fmt.Sprintf("[%d].%s", i, field), err
		}
		names[t.Name], sums[sum] = true, true
	}
	return "", nil
}

// check refuses what no tenant is. The error is about the returned field.
func (t *Tenant) check() (field string, err error) {
	_, known := priorities[t.Priority]
	sum, bad := hex.DecodeString(t.KeySHA256)
	switch {
	case !tenantName.MatchString(t.Name):
		return "name", errors.New("want 1 to 64 letters, digits and . _ -, with a letter or digit first")
	case bad != nil || len(sum) != sha256.Size:
		return "key_sha256", errors.New("want 64 hexadecimal digits, as `sluice serve key` prints them")
	case !(t.Weight >= 0) || t.Weight > 1e6:
		return "weight", errors.New("want a number above 0, at most a million")
	case !known:
		return "priority", errors.New("want low, normal, high or critical")
	case !amount(t.MaxCostDay):
		return "max_cost_day", errNotUSD
	case !amount(t.MaxCostMonth):
		return "max_cost_month", errNotUSD
	case t.Models != nil && len(t.Models) == 0:
		return "models", errors.New("the list is empty: omit the field to allow all models")
	case t.MaxWait < 0:
		return "max_wait", errNegative
	}
	for _, count := range [...]struct {
		field string
		n     int
	}{{"rpm", t.RPM}, {"tpm", t.TPM}, {"concurrency", t.Concurrency}, {"max_queue", t.MaxQueue}} {
		if count.n < 0 {
			return count.field, errNegative
		}
	}
	for i, model := range t.Models {
		if at := strings.IndexByte(model, '*'); model == "" || at == 0 || at >= 0 && at < len(model)-1 {
			return fmt.Sprintf("models[%d]", i), errors.New("want a model name, or a prefix with a * at the end, such as gpt-4o*")
		}
	}
	return "", nil
}

var (
	errNegative = errors.New("is below zero")
	errNotUSD   = errors.New("want an amount of US dollars above zero")
)

func amount(usd float64) bool { return usd >= 0 && !math.IsInf(usd, 0) }

const keyPrefix = "slk-" // of every key

// NewKey returns a new key with 256 random bits, and its SHA-256 in hexadecimal for Tenant.KeySHA256.
func NewKey() (key, sha string) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(key))
	return key, hex.EncodeToString(sum[:])
}

// tenantBurst spreads the calls of a tenant over the minute, since a pause until the minute is over may exceed its MaxWait.
const tenantBurst = time.Second

// limits are those of its own; false if it has none.
func (t *Tenant) limits() (sluice.Limits, bool) {
	if t.RPM == 0 && t.TPM == 0 && t.Concurrency == 0 {
		return sluice.Limits{}, false
	}
	const unbounded = 1 << 30 // else the Scheduler would look for a limit that is not there
	return sluice.Limits{RPM: t.RPM, TPM: t.TPM, Concurrency: cmp.Or(t.Concurrency, unbounded), Burst: tenantBurst}, true
}

func (t *Tenant) capped() bool { return t.MaxCostDay > 0 || t.MaxCostMonth > 0 }

// bound reports whether requests are to name one model, and to say what they cost.
func (t *Tenant) bound() bool { return len(t.Models) > 0 || t.capped() }

// leastCap is the smaller of the two; 0 if there is none.
func (t *Tenant) leastCap() float64 {
	if t.MaxCostDay > 0 && t.MaxCostMonth > 0 {
		return min(t.MaxCostDay, t.MaxCostMonth)
	}
	return max(t.MaxCostDay, t.MaxCostMonth)
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
