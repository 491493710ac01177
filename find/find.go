// Package find searches for the limits that a provider really enforces.
//
// [Auto] returns how many calls may be open at once so that none is refused, and the limits that say so. It believes
// headers and the words of refusals, and measures what they do not tell: each of its probes has a shape that tests one
// dimension alone. [Sweep] tries worker counts one after the other, as people do by hand; it measures bursts only.
//
// Probes go past every scheduler: who must not disturb other calls should not search at the same time.
package find

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// Config says what is searched, and what it may cost. Provider and Target.Model are required.
type Config struct {
	Provider provider.Provider
	// Target is where calls go. Its Endpoint is that of a bare prompt, where it says none.
	Target provider.Target
	// Base makes the exchanges. Default: provider.NewBase(MaxWorkers).
	Base http.RoundTripper

	MaxWorkers int // no more are tried or recommended. Default 100

	// Prompt is the real call's. Default: one whose answer has more than 500 tokens.
	Prompt string
	// PromptFile is the file that Prompt came from. It is only recorded.
	PromptFile string
	// MinOutputTokens bounds the answer of a real call, which is so long if the prompt asks for enough. Default 500.
	MinOutputTokens int

	Timeout time.Duration // of one call. Default 2 minutes

	// TokenBudget is how many tokens the search may be billed for. Default 1,000,000, and none for a server on this
	// machine or network, which bills nobody; negative: no such bound.
	TokenBudget int
	// MaxCost is how many US dollars it may cost; nil: no such bound. It needs both prices.
	MaxCost           *float64
	PriceIn, PriceOut *float64 // US dollars per million tokens; nil: not known

	// Quick leaves out the calls that only certify: what they would have shown is unknown then.
	Quick bool

	// Told are limits that somebody said to be true: they are not measured. Published are those of the account's tier:
	// answers correct them.
	Told, Published sluice.Limits

	Seed uint64 // of the nonces that begin every prompt; 0: any

	// Progress, if set, hears what is going on, a few times a second at most. It must be quick.
	Progress func(Progress)
	// Log, if set, hears every step of the search in words, one line each.
	Log func(line string)
}

// Defaults of a Config.
const (
	DefaultWorkers     = 100
	DefaultOutput      = 500
	DefaultTimeout     = 2 * time.Minute
	DefaultTokenBudget = 1_000_000
)

// withDefaults returns c with its defaults filled in, or an error that names the field which makes no sense.
func (c Config) withDefaults() (Config, error) {
	c.MaxWorkers = cmp.Or(c.MaxWorkers, DefaultWorkers)
	c.MinOutputTokens = cmp.Or(c.MinOutputTokens, DefaultOutput)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Prompt = cmp.Or(c.Prompt, essay)
	if c.Target.Endpoint == provider.NoEndpoint {
		c.Target.Endpoint = c.Provider.PromptEndpoint(c.Target.Model)
	}
	switch {
	case c.Target.Model == "":
		return c, &FieldError{"Target.Model", errors.New("no model")}
	case c.MaxWorkers < 0:
		return c, &FieldError{"MaxWorkers", fmt.Errorf("%d is below 1", c.MaxWorkers)}
	case c.MaxWorkers > mostWorkers:
		return c, &FieldError{"MaxWorkers", fmt.Errorf("%d is above %d", c.MaxWorkers, mostWorkers)}
	case c.MinOutputTokens < 0:
		return c, &FieldError{"MinOutputTokens", fmt.Errorf("%d is below 1", c.MinOutputTokens)}
	case c.MinOutputTokens > mostOutput:
		return c, &FieldError{"MinOutputTokens", fmt.Errorf("%d is above %d", c.MinOutputTokens, mostOutput)}
	case c.Timeout < 0:
		return c, &FieldError{"Timeout", fmt.Errorf("%v is below zero", c.Timeout)}
	case c.MaxCost != nil && !(*c.MaxCost >= 0 && *c.MaxCost <= mostDollars):
		return c, &FieldError{"MaxCost", fmt.Errorf("%v is no sum of money", *c.MaxCost)}
	case c.PriceIn != nil && !(*c.PriceIn >= 0 && *c.PriceIn <= mostDollars):
		return c, &FieldError{"PriceIn", fmt.Errorf("%v is no price", *c.PriceIn)}
	case c.PriceOut != nil && !(*c.PriceOut >= 0 && *c.PriceOut <= mostDollars):
		return c, &FieldError{"PriceOut", fmt.Errorf("%v is no price", *c.PriceOut)}
	case c.MaxCost != nil && (c.PriceIn == nil || c.PriceOut == nil):
		return c, &FieldError{"MaxCost", errors.New("prices are not known")}
	}
	switch {
	case c.TokenBudget < 0, c.TokenBudget == 0 && c.free():
		c.TokenBudget = math.MaxInt
	case c.TokenBudget == 0:
		c.TokenBudget = DefaultTokenBudget
	}
	if err := c.Provider.Check(c.Target); err != nil {
		return c, &FieldError{"Target", err}
	}
	if c.Base == nil {
		c.Base = provider.NewBase(c.MaxWorkers)
	}
	return c, nil
}

// free reports whether calls go to a server of one's own.
func (c *Config) free() bool {
	u, err := url.Parse(cmp.Or(c.Target.BaseURL, c.Provider.BaseURL))
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.IsPrivate()) || host == "localhost" || strings.HasSuffix(host, ".local") || c.Provider.Name == "sim"
}

// mostWorkers is far beyond what any account allows, and what one machine keeps open.
const mostWorkers = 10_000

// mostDollars is more than anybody pays for a search, or for a million tokens.
const mostDollars = 1e9

// mostOutput is far beyond what any model writes, and small enough that sums of it do not overflow.
const mostOutput = 10_000_000

// FieldError says which field of a Config makes no sense.
type FieldError struct {
	Field string
	Err   error
}

// Error names the field.
func (e *FieldError) Error() string { return "find: Config." + e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// Why a search ended before it was done. A *provider.Error says that the provider will not answer at all, such as for a
// spent quota or a refused key, and a context's error is itself.
var (
	ErrTokenBudget = errors.New("the token budget does not suffice for another call")
	ErrMaxCost     = errors.New("the cost allowed does not suffice for another call")
	ErrNoAnswer    = errors.New("no call was answered")
	ErrUnreliable  = errors.New("too many calls fail to tell anything of limits")
	ErrDay         = errors.New("half of what was left of the day's requests is used up")
)

// Phase is a part of a search.
type Phase string

// Phases of a search, in the order in which they come. Those that have nothing to find out are left out.
const (
	PhaseShape   Phase = "shape"   // real calls, one by one
	PhaseCharge  Phase = "charge"  // how tokens are counted, by what headers say
	PhaseGallop  Phase = "gallop"  // bursts of more and more tiny calls
	PhaseQueue   Phase = "queue"   // whether calls wait without a word
	PhaseRate    Phase = "rate"    // the refill of a bucket that refused
	PhaseCertify Phase = "certify" // a minute's worth of what the answer needs
	PhaseSoak    Phase = "soak"    // so many workers with real calls
	PhaseRecheck Phase = "recheck" // whether the rate is still the same
	PhaseSweep   Phase = "sweep"
)

// Progress is how far a search is.
type Progress struct {
	Phase   Phase
	Doing   string // such as "32 at once"
	Spent   Spent
	Elapsed time.Duration
	Low     int // the interval in which the answer still lies
	High    int
}

// Spent is what a search cost so far. Calls that wait to be answered are counted as if they used all that they may.
type Spent struct {
	Calls    int      `json:"calls"` // all of them: the sum of the next three, and those under way
	Accepted int      `json:"accepted"`
	Refused  int      `json:"refused"` // throttled
	Failed   int      `json:"failed"`  // anything else
	Input    int      `json:"input_tokens"`
	Output   int      `json:"output_tokens"`
	Cost     *float64 `json:"cost_usd"` // nil: the prices are not known
}

// Tokens are those in and out.
func (s Spent) Tokens() int { return s.Input + s.Output }

// SourceUnknown is the source of a limit that nothing is known of.
const SourceUnknown sluice.Source = "unknown"

// Finding is one value and how well it is known. The zero value is not known.
type Finding struct {
	Value  float64
	Source sluice.Source // "": unknown
	Margin float64       // the value may be so much off, relatively: 0.03 is ± 3 %; 0 is exact or not stated
	At     time.Time     // when it became known
}

// Known reports whether there is a value at all.
func (f Finding) Known() bool { return f.Source != "" && f.Source != SourceUnknown }

// Bound is what keeps the answer from being higher.
type Bound string

// Bounds of an answer.
const (
	BoundConcurrency Bound = "concurrency"    // so many calls may be open
	BoundQueue       Bound = "queue"          // the server serves so many at once, and lets the rest wait
	BoundRequests    Bound = "requests"       // requests per minute
	BoundTokens      Bound = "tokens"         // tokens per minute, of whatever kind
	BoundWorkers     Bound = "max_workers"    // no more were asked for
	BoundCertified   Bound = "certified"      // no more could be certified
	BoundSoak        Bound = "soak"           // more were refused when they ran
	BoundStopped     Bound = "stopped"        // the search ended early: so many did pass
	BoundNothing     Bound = "nothing_passed" // no call is safe
)

// Latency is how long real calls take, when as many are open as the answer says.
type Latency struct {
	Mean time.Duration
	CV   float64 // standard deviation over mean
	N    int     // calls measured
}

// Margin is the standard error of the mean, relatively.
func (l Latency) Margin() float64 {
	if l.N == 0 {
		return 0
	}
	return l.CV / math.Sqrt(float64(l.N))
}

// Soak is the proof: the answer's workers, with real calls.
type Soak struct {
	Workers int
	Calls   int
	Refused int
}

// AtMost is the share of refusals that the soak leaves possible, with 95 % confidence: 3/n when there was none.
func (s Soak) AtMost() float64 {
	if s.Calls == 0 {
		return 1
	}
	return min(1, 3/float64(s.Calls))
}

// Result is what a search found, as far as it came.
type Result struct {
	// Workers is the answer: so many loops without a pace stay within every limit. 0: none do. Where the search was stopped
	// early, the Soak alone says how many are safe, if it ran.
	Workers int
	Bound   Bound
	Binding Binding // where Bound is BoundRequests, BoundTokens or BoundCertified
	// BucketOfOne says that two calls at once are refused however seldom they come: no count of workers without a pace
	// is safe, and only a client that paces them, such as sluice run, uses the limit.
	BucketOfOne bool

	// Slots is how many calls may be open at once: refused beyond, or left to wait if Queue says so.
	Slots Finding
	Queue bool
	// Limits per minute or day, but for Concurrency, which is Slots. Dimensions that are not known are not there.
	Limits map[sluice.Dimension]Finding
	// Charge says how tokens are counted; ChargeFrom whence that is known, SourceUnknown if it is not.
	Charge     sluice.Charge
	ChargeFrom sluice.Source

	Latency Latency
	Input   float64 // mean tokens of a real call in,
	Output  float64 // and out,
	Charged float64 // and as they count against the tokens per minute
	Soak    Soak

	Spent Spent
	Took  time.Duration
	Low   int // the answer lies between the two, where the search was stopped early
	High  int

	Notes []string // what a user should know: disagreements, what could not be certified and which flag would
	Hint  string   // what to do for a better answer; "" is nothing

	Probes []Probe // every call that was answered or refused
}

// Probe is one call of a search.
type Probe struct {
	Phase    Phase
	At       time.Duration // when it was sent, since the search began
	Latency  time.Duration
	InFlight int // open when it was sent, itself included
	Real     bool
	Refused  bool
}
