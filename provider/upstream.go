package provider

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/pricing"
)

// Upstream is one way to models: an address with its keys, and the account whose limits its calls share.
type Upstream struct {
	Name     string // unique
	Provider Provider
	BaseURL  string // as the official SDK takes it; "" is the provider's own

	// Keys are keys of one account, which take turns. None sends none.
	Keys []Key

	// Account names whose limits these are. Upstreams of one account have one Scheduler, which gives calls up no earlier than
	// the Upstreams do. "" is an account of its own.
	Account   string
	Scheduler *sluice.Scheduler

	// Models maps the names of the served models to their ids at the upstream. Nil: all models that the Provider is
	// recognised for, under their own names, or every model if it is recognised for none.
	Models map[string]string

	// Price returns what a model of that id costs there; nil is unknown. A nil Price knows none.
	Price func(model string) *Price
}

// Key is a key, its Value, and From, the variable that it was found in. From may be shown to people; Value never.
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
	Upstream *Upstream // not to be changed
	Model    string    // the model's id there
	Key      string    // the upstream's, or the client's own; "" sends none

	Price *Price // nil is unknown

	NoUsage bool // a stream is not asked for its usage: it is stated anyway, or the model refused the question
}

// Price is what a model costs at a provider, in US dollars per million tokens, by service tier. FlatPrice makes one.
type Price = pricing.Price

// FlatPrice returns a Price by which all input costs the same, and all output, in every service tier.
func FlatPrice(input, output float64) *Price { return pricing.Flat(input, output) }

// Preference says which of several upstreams gets a call.
type Preference uint8

// Preferences.
const (
	PreferSoonest Preference = iota // where it can start soonest
	PreferCost                      // where it costs least, of those where it can start within 30 s
)

// UnmarshalText reads soonest or cost.
func (p *Preference) UnmarshalText(b []byte) error {
	switch string(b) {
	case "", "soonest":
		*p = PreferSoonest
	case "cost":
		*p = PreferCost
	default:
		return fmt.Errorf("unknown preference %q: it is soonest or cost", b)
	}
	return nil
}

// Exclusion reports that an upstream or a key is excluded until a probe succeeds, or is included again.
type Exclusion struct {
	Upstream string
	Key      string      // the variable of the key that was rejected; "" where that is not known, or no key was
	Whole    bool        // the upstream has no other key
	Kind     sluice.Kind // Auth: the key was rejected; QuotaExhausted: its account is spent; OK: a probe was accepted
	Err      error       // what the provider said
}

// String says it in a sentence without the upstream's name.
func (l Exclusion) String() string {
	what := "the account's quota is spent"
	switch l.Kind {
	case sluice.OK:
		return "it is accepted again"
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

// NoUpstreamError is why a call cannot be sent to any upstream: each that serves its model was left out. It unwraps to what
// the provider said last.
type NoUpstreamError struct {
	Model string
	Left  []Exclusion // in the order of the upstreams
}

// Error names the upstreams.
func (e *NoUpstreamError) Error() string {
	text := fmt.Sprintf("no upstream is left for model %s", e.Model)
	for _, l := range e.Left {
		text += fmt.Sprintf("; %s: %s", l.Upstream, l)
	}
	return text
}

// Unwrap returns what the provider said last.
func (e *NoUpstreamError) Unwrap() error {
	if len(e.Left) == 0 {
		return nil
	}
	return e.Left[len(e.Left)-1].Err
}

// UpstreamReport is what an upstream did.
type UpstreamReport struct {
	Name      string
	Sent      int        // attempts, throttled ones included
	Throttles int        // of those
	Exclusion *Exclusion // nil: it takes calls
}

// check names what is wrong with an upstream.
func (up *Upstream) check() error {
	switch {
	case up.Name == "":
		return errors.New("it has no name")
	case up.Scheduler == nil:
		return errors.New("it has no Scheduler")
	}
	for _, asked := range slices.Sorted(maps.Keys(up.Models)) {
		if asked == "" || up.Models[asked] == "" {
			return fmt.Errorf("model %q has no id", asked)
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
