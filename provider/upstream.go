package provider

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
)

// Upstream is one provider endpoint with its keys, and the account whose limits apply to it.
type Upstream struct {
	Name     string // unique name of the upstream
	Provider Provider
	BaseURL  string // base URL as the official SDK expects it (default: the base URL of Provider)

	// Keys are API keys of one account, which are used in turn. If Keys is empty, requests have no key.
	Keys []Key

	// Account is the name of the upstream's account; "" means a separate account. Upstreams of one account must share one Scheduler.
	Account   string
	Scheduler *sluice.Scheduler

	// Models maps model names to model IDs at the upstream. If Models is nil, the upstream serves all models that the registry recognises
	// for the Provider, or any model if the Provider lists none.
	Models map[string]string

	// Price returns the price of a model ID at the upstream, or nil if the price is unknown. If Price is nil, all prices are unknown.
	Price func(model string) *Price
}

// Key is an API key of an upstream. Value is the key itself, which must not be shown. From is the environment variable of the key.
type Key struct{ From, Value string }

// value returns the value of a key by its index; "" if there is no key.
func (up *Upstream) value(key int) string {
	if len(up.Keys) == 0 {
		return ""
	}
	return up.Keys[key].Value
}

// Destination is the upstream, model and key of one attempt.
type Destination struct {
	Upstream *Upstream // upstream of the attempt; do not modify the Upstream
	Model    string    // model ID at the upstream
	Key      string    // API key of the upstream; "" sends no key

	Price *Price // price of the model; nil if unknown

	NoUsage bool // the request must not request usage, because streams always contain usage or the model rejects the option
}

// Price contains the prices of a model at a provider, in US dollars per million tokens, by service tier. FlatPrice creates a Price.
type Price = pricing.Price

// FlatPrice returns a Price with one rate for input and one rate for output, in all service tiers.
func FlatPrice(input, output float64) *Price { return pricing.Flat(input, output) }

// Preference determines how an upstream is chosen for a call.
type Preference uint8

// These are the preferences. The default is PreferSoonest.
const (
	PreferSoonest Preference = iota // upstream that can start the call soonest
	PreferCost                      // cheapest upstream that can start the call within 30 s
)

// String returns the name of the preference.
func (p Preference) String() string {
	if p == PreferCost {
		return "cost"
	}
	return "soonest"
}

// UnmarshalText reads the name of a preference: soonest or cost. An empty name means soonest.
func (p *Preference) UnmarshalText(b []byte) error {
	switch string(b) {
	case "", "soonest":
		*p = PreferSoonest
	case "cost":
		*p = PreferCost
	default:
		return fmt.Errorf("unknown preference %q: use soonest or cost", b)
	}
	return nil
}

// Exclusion reports that an upstream or a key is excluded until a probe request succeeds, or that a probe request has succeeded.
type Exclusion struct {
	Upstream string
	Key      string      // environment variable of the rejected key; "" if unknown, or if no key was rejected
	Whole    bool        // the whole upstream is excluded, because the upstream has no other key
	Kind     sluice.Kind // Auth (the key was rejected), QuotaExhausted (the account's quota is spent) or OK (a probe request succeeded)
	Err      error       // error returned with the rejection
}

// String describes the exclusion in one line, without the name of the upstream.
func (l Exclusion) String() string {
	what := "the account's quota is spent"
	switch l.Kind {
	case sluice.OK:
		return "requests are accepted again"
	case sluice.Auth:
		what = "the key was rejected"
		if l.Key != "" {
			what = "the key in " + l.Key + " was rejected"
		}
	}
	if l.Err == nil {
		return what
	}
	return what + ": " + l.Err.Error()
}

// NoUpstreamError reports that all upstreams of the requested model are excluded.
type NoUpstreamError struct {
	Model string      // requested model
	Left  []Exclusion // exclusions, in the order of the upstreams
}

// Error lists the excluded upstreams.
func (e *NoUpstreamError) Error() string {
	text := fmt.Sprintf("all upstreams of model %s are excluded", e.Model)
	for _, l := range e.Left {
		text += fmt.Sprintf("; %s: %s", l.Upstream, l)
	}
	return text
}

// Unwrap returns the error of the last exclusion.
func (e *NoUpstreamError) Unwrap() error {
	if len(e.Left) == 0 {
		return nil
	}
	return e.Left[len(e.Left)-1].Err
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *NoUpstreamError) FaultCode() string { return fault.Upstreams }

// UpstreamReport contains the counts and the state of an upstream.
type UpstreamReport struct {
	Name      string
	Sent      int        // number of attempts
	Throttles int        // number of rate-limited attempts
	Exclusion *Exclusion // current exclusion; nil if the upstream is not excluded
}

// check names what is wrong with an upstream.
func (up *Upstream) check() error {
	switch {
	case up.Name == "":
		return errors.New("its Name is empty")
	case up.Scheduler == nil:
		return errors.New("its Scheduler is nil")
	}
	for _, asked := range slices.Sorted(maps.Keys(up.Models)) {
		if asked == "" || up.Models[asked] == "" {
			return fmt.Errorf("model %q has an empty ID", asked)
		}
		if _, err := up.Provider.PromptEndpoint(up.Models[asked]).Path(up.Models[asked]); err != nil {
			return err
		}
	}
	return up.Provider.Check(Target{BaseURL: up.BaseURL})
}

// model returns the id that a model has there; false if it is not served.
func (up *Upstream) model(asked string, known *Registry) (id string, ok bool) {
	if up.Models != nil {
		id, ok = up.Models[asked]
		return id, ok
	}
	if len(up.Provider.Models) == 0 { // only its server knows which
		return asked, asked != ""
	}
	p, ok := known.Recognise(asked)
	return asked, ok && p.Name == up.Provider.Name
}
