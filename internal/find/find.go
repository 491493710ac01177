// Package find searches for the limits that a provider really enforces.
//
// [Auto] returns the number of calls that may be open at once so that none is refused, and the limits that bound it. It
// believes headers and the words of rejections, and measures the limits that nothing states: each probe has a shape that tests
// one dimension. [Sweep] tries worker counts one after the other, as people do by hand; it measures only bursts.
//
// Probes go past every scheduler, so that they disturb other requests of the account.
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
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// Config configures a search. Provider and Target.Model are required.
type Config struct {
	Provider provider.Provider
	Target   provider.Target   // of the requests. Default of its Endpoint: that of a bare prompt
	Base     http.RoundTripper // makes the exchanges. Default: provider.NewBase(MaxWorkers)

	MaxWorkers int // maximum that is tried and recommended. Default 100

	Prompt          string        // of a real call. Default: one whose response has more than 500 tokens
	PromptFile      string        // the file that Prompt came from. It is only recorded
	MinOutputTokens int           // maximum output of a real call, which is so long if the prompt asks for enough. Default 500
	Timeout         time.Duration // of one request. Default 2 minutes

	Budget Budget

	Told sluice.Limits // configured limits: they are not measured

	Seed uint64 // of the nonces that start every prompt; 0: any

	Progress func(Progress)    // hears how far the search is, a few times a second at most. It must be quick
	Log      func(line string) // hears every step of the search in words, one line each
}

// Budget bounds the amounts that a search uses.
type Budget struct {
	// Tokens is the maximum that may be billed. Default 1,000,000, and none for a server on this machine or network, which bills
	// nobody; negative: no maximum.
	Tokens   int
	MaxCost  *float64 // US dollars; nil: no maximum. It needs both prices
	PriceIn  *float64 // US dollars per million tokens; nil: unknown
	PriceOut *float64
}

// Defaults of a Config.
const (
	DefaultWorkers     = 100
	DefaultOutput      = 500
	DefaultTimeout     = 2 * time.Minute
	DefaultTokenBudget = 1_000_000
)

const (
	maxWorkers = 10_000     // far beyond what any account allows and one machine keeps open
	maxDollars = 1e9        // more than anybody pays for a search, or for a million tokens
	maxOutput  = 10_000_000 // far beyond what any model writes, and so small that sums of it do not overflow
)

// withDefaults returns c with its defaults filled in, or an error that names the first wrong field.
func (c Config) withDefaults() (_ Config, err error) {
	c.MaxWorkers = cmp.Or(c.MaxWorkers, DefaultWorkers)
	c.MinOutputTokens = cmp.Or(c.MinOutputTokens, DefaultOutput)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Prompt = cmp.Or(c.Prompt, essay)
	if c.Target.Endpoint == provider.NoEndpoint {
		c.Target.Endpoint = c.Provider.PromptEndpoint(c.Target.Model)
	}
	refuse := func(field string, wrong bool, format string, args ...any) {
		if wrong && err == nil {
			err = &fault.FieldError{Field: field, Err: fmt.Errorf(format, args...)}
		}
	}
	b := &c.Budget
	refuse("Target.Model", c.Target.Model == "", "no model")
	refuse("MaxWorkers", c.MaxWorkers < 0, "%d is below 1", c.MaxWorkers)
	refuse("MaxWorkers", c.MaxWorkers > maxWorkers, "%d is above %d", c.MaxWorkers, maxWorkers)
	refuse("MinOutputTokens", c.MinOutputTokens < 0, "%d is below 1", c.MinOutputTokens)
	refuse("MinOutputTokens", c.MinOutputTokens > maxOutput, "%d is above %d", c.MinOutputTokens, maxOutput)
	refuse("Timeout", c.Timeout < 0, "%v is below zero", c.Timeout)
	for _, sum := range []struct {
		field  string
		value  *float64
		format string
	}{{"MaxCost", b.MaxCost, "%v is not an amount of money"}, {"PriceIn", b.PriceIn, "%v is not a price"}, {"PriceOut", b.PriceOut, "%v is not a price"}} {
		if sum.value != nil {
			refuse(sum.field, !(*sum.value >= 0 && *sum.value <= maxDollars), sum.format, *sum.value)
		}
	}
	refuse("MaxCost", b.MaxCost != nil && !b.priced(), "the prices are unknown")
	switch {
	case b.Tokens < 0, b.Tokens == 0 && c.free():
		b.Tokens = math.MaxInt
	case b.Tokens == 0:
		b.Tokens = DefaultTokenBudget
	}
	if err == nil {
		wrong := c.Provider.Check(c.Target)
		refuse("Target", wrong != nil, "%w", wrong)
	}
	if c.Base == nil {
		c.Base = provider.NewBase(c.MaxWorkers)
	}
	return c, err
}

// free reports whether requests go to a server on this machine or network.
func (c *Config) free() bool {
	u, err := url.Parse(cmp.Or(c.Target.BaseURL, c.Provider.BaseURL))
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.IsPrivate()) || host == "localhost" || strings.HasSuffix(host, ".local") || c.Provider.Name == "sim"
}

func (b *Budget) priced() bool { return b.PriceIn != nil && b.PriceOut != nil }

// price returns the price of tokens in US dollars, which must be known.
func (b *Budget) price(in, out int) float64 {
	return (float64(in)**b.PriceIn + float64(out)**b.PriceOut) / 1e6
}

// amount returns the amount that tokens come to.
func (b *Budget) amount(in, out int) budget.Amount {
	a := budget.Amount{budget.Tokens: float64(in + out)}
	if b.priced() {
		a[budget.USD] = math.Round(b.price(in, out) * budget.Dollar)
	}
	return a
}

// Errors of a search that ended early. Another one is a *provider.Error if the provider responds to no request, such as for a
// spent quota or a rejected key, or the cause of the context.
var (
	ErrTokenBudget = errors.New("the token budget is too small for another request")
	ErrMaxCost     = errors.New("the allowed cost is too small for another request")
	ErrNoAnswer    = errors.New("no request got a response")
	ErrUnreliable  = errors.New("a limit cannot be measured, because too many requests fail")
	ErrDay         = errors.New("the search used half of the remaining requests of the day")
)

// Phase is a part of a search.
type Phase string

// Phases of a search, in their order. Those that have nothing to find out are left out.
const (
	PhaseShape   Phase = "shape"   // real requests, one by one
	PhaseCharge  Phase = "charge"  // how tokens are counted, by what headers say
	PhaseGallop  Phase = "gallop"  // bursts of more and more tiny requests
	PhaseQueue   Phase = "queue"   // whether requests wait without a word
	PhaseRate    Phase = "rate"    // the refill of a bucket that rejected some
	PhaseCertify Phase = "certify" // a minute's worth of the answer's need
	PhaseSoak    Phase = "soak"    // the workers with real requests
	PhaseRecheck Phase = "recheck" // whether the rate is still the same
	PhaseSweep   Phase = "sweep"
)

// Progress is how far a search is.
type Progress struct {
	Phase     Phase         `json:"phase"` // Phase of the search.
	Doing     string        `json:"doing"` // Current step, such as `32 at once`.
	Spent     Spent         `json:"spent"` // Requests, tokens and cost of the search.
	Elapsed   time.Duration `json:"-"`
	ElapsedMS int64         `json:"elapsed_ms"` // Time since the start.
	Low       int           `json:"low"`        // Lower bound of the answer.
	High      int           `json:"high"`       // Upper bound of the answer.
}

// Spent is the amount that a search used. Open requests count only in Requests.
type Spent struct {
	Requests int      `json:"requests"`      // All requests. The sum of the next three, and those in flight.
	Accepted int      `json:"accepted"`      // Successful requests.
	Rejected int      `json:"rejected"`      // Rate-limited requests.
	Failed   int      `json:"failed"`        // Failed requests.
	Input    int      `json:"input_tokens"`  // Input tokens.
	Output   int      `json:"output_tokens"` // Output tokens.
	Cost     *float64 `json:"cost_usd"`      // Cost, if known. Nil: the prices are unknown.

	Estimated int `json:"estimated_tokens,omitempty"` // Estimated tokens of requests without usage data.
}

// Tokens returns the sum of input and output.
func (s Spent) Tokens() int { return s.Input + s.Output }
