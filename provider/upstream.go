package provider

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sluice-llm/sluice"
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

	// Models says which models it serves, and what their ids are there. Nil: all that the Provider is recognised for, by the
	// ids as they are asked for; where it is recognised for none, whatever is asked for.
	Models map[string]string

	// Price returns what a model of that id costs there, in US dollars per million tokens, and false where that is not known.
	// Nil knows none.
	Price func(model string) (in, out float64, ok bool)
}

// Key is a key, its Value, and From, the variable that it was found in. From may be shown to people; Value never.
type Key struct{ From, Value string }

// Via is the way that one attempt takes.
type Via struct {
	Upstream *Upstream // not to be changed
	Model    string    // the model's id there
	Key      string    // the upstream's, or the client's own; "" sends none

	PriceIn, PriceOut float64 // US dollars per million tokens, if HasPrice
	HasPrice          bool
}

// Cost is what a call that went this way cost, in US dollars; 0 where no price is known.
func (v Via) Cost(used sluice.Usage) float64 {
	return (v.PriceIn*float64(max(0, used.Input)) + v.PriceOut*float64(max(0, used.Output))) / 1e6
}

// Preference says which of several upstreams gets a call.
type Preference uint8

// Preferences.
const (
	PreferSoonest Preference = iota // where it can start soonest
	PreferCost                      // where it costs least, of those where it can start within Patience
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

// LeftOut says that an upstream, or one of its keys, gets no calls any more.
type LeftOut struct {
	Upstream string
	Key      string      // the variable of the key that was refused; "" where that is not known, or no key was
	Whole    bool        // the upstream has no other key
	Kind     sluice.Kind // Auth: the key was refused; QuotaExhausted: its account is spent
	Err      error       // what the provider said
}

// String says it in a sentence without the upstream's name.
func (l LeftOut) String() string {
	what := "the account's quota is spent"
	if l.Kind == sluice.Auth {
		what = "the key was refused"
		if l.Key != "" {
			what = "the key in " + l.Key + " was refused"
		}
	}
	if l.Err == nil {
		return what
	}
	return what + ": " + l.Err.Error()
}

// NoneLeftError is why a call cannot be sent to any upstream: each that serves its model was left out. It unwraps to what
// the provider said last.
type NoneLeftError struct {
	Model string
	Left  []LeftOut // in the order of the upstreams
	last  error
}

// Error names the upstreams.
func (e *NoneLeftError) Error() string {
	text := fmt.Sprintf("no upstream is left for model %s", e.Model)
	for _, l := range e.Left {
		text += fmt.Sprintf("; %s: %s", l.Upstream, l)
	}
	return text
}

// Unwrap returns what the provider said last.
func (e *NoneLeftError) Unwrap() error { return e.last }

// UpstreamReport is what an upstream did.
type UpstreamReport struct {
	Name      string
	Sent      int      // attempts, throttled ones included
	Throttles int      // of those
	LeftOut   *LeftOut // nil: it takes calls
}

// upstream is one of an Upstreams.
type upstream struct {
	Upstream
	index int

	sent, throttles atomic.Int64

	// Guarded by Upstreams.mu:
	account *spender
	refused []bool   // by key
	turn    int      // which key comes next
	out     *LeftOut // nil: it takes calls
	waiting int      // calls that wait there
}

// spender is what upstreams of one account share.
type spender struct {
	scheduler *sluice.Scheduler
	members   []*upstream
}

// mostUpstreams bounds them: those that a call was tried at are bits of a word.
const mostUpstreams = 64

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
		e := ChatCompletions
		if up.Provider.Dialect == Gemini {
			e = GenerateContent
		}
		if _, err := e.Path(up.Models[asked]); err != nil {
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

// keyLocked returns the key whose turn it is; false if all were refused.
func (up *upstream) keyLocked() (string, bool) {
	if up.out != nil {
		return "", false
	}
	for range up.Keys {
		k := up.turn % len(up.Keys)
		up.turn = k + 1
		if !up.refused[k] {
			return up.Keys[k].Value, true
		}
	}
	return "", len(up.Keys) == 0
}

// refuseLocked leaves out what an outcome says is of no use any more. It returns what is to be told.
func (up *upstream) refuseLocked(key string, o *sluice.Outcome) []LeftOut {
	out := LeftOut{Upstream: up.Name, Kind: o.Kind, Err: o.Err, Whole: true}
	if o.Kind == sluice.QuotaExhausted {
		var told []LeftOut
		for _, other := range up.account.members {
			if other.out == nil {
				out.Upstream = other.Name
				other.out = new(out)
				told = append(told, out)
			}
		}
		return told
	}
	fresh := len(up.Keys) == 0
	for k := range up.Keys {
		if up.Keys[k].Value == key {
			fresh = fresh || !up.refused[k]
			up.refused[k], out.Key = true, up.Keys[k].From
		} else if !up.refused[k] {
			out.Whole = false
		}
	}
	if !fresh || up.out != nil {
		return nil
	}
	if out.Whole {
		up.out = new(out)
	}
	return []LeftOut{out}
}
