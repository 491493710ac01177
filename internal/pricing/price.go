// Package pricing says what requests cost: prices of models by provider, and price × usage.
package pricing

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/limits"
)

// Rate is the price of tokens in a service tier, in US dollars per million.
type Rate struct {
	Input  float64 `json:"input"`  // US dollars per million input tokens.
	Output float64 `json:"output"` // US dollars per million output tokens.
}

// maxRate is the largest price, so that sums can be compared.
const maxRate = 1e6

// ParseRate reads IN/OUT, such as 0.15/0.60: the prices of input and output tokens.
func ParseRate(text string) (Rate, error) {
	in, out, _ := strings.Cut(text, "/")
	input, wrong := strconv.ParseFloat(in, 64)
	output, alsoWrong := strconv.ParseFloat(out, 64)
	if wrong != nil || alsoWrong != nil || !(input >= 0 && input <= maxRate && output >= 0 && output <= maxRate) {
		return Rate{}, errors.New("want two prices in USD per million tokens, such as 0.15/0.60")
	}
	return Rate{Input: input, Output: output}, nil
}

// Price is what a model costs at a provider. It must not be changed once it is used.
type Price struct {
	Rates [limits.NumServices]Rate // a zero Rate is unknown, unless the standard one is zero

	// Input tokens that are read from a prompt cache, written to one, and written to one for an hour cost these multiples of the input
	// rate, in every service tier.
	Cached, CacheWrite, CacheWriteHour float64

	Search    float64 // US dollars per web search that the provider runs; 0 is unknown
	MaxOutput int     // the model's maximum output in tokens; 0 is unknown
	Doubtful  bool    // the price has no source
}

// Flat returns a Price of which only the standard rate is known: cached input costs as much as other input.
func Flat(input, output float64) *Price {
	return &Price{Rates: [limits.NumServices]Rate{{input, output}}, Cached: 1, CacheWrite: 1, CacheWriteHour: 1}
}

// Standard returns the rate of the standard service tier.
func (p *Price) Standard() Rate { return p.Rates[limits.ServiceStandard] }

// At returns the Price with another standard rate, and the rates of other service tiers in proportion.
func (p *Price) At(input, output float64) *Price {
	other, old := *p, p.Standard()
	scale := func(rate, old, to float64) float64 {
		if old == 0 {
			return 0
		}
		return rate / old * to
	}
	for i, r := range p.Rates {
		other.Rates[i] = Rate{scale(r.Input, old.Input, input), scale(r.Output, old.Output, output)}
	}
	other.Rates[limits.ServiceStandard] = Rate{input, output}
	other.Doubtful = false
	return &other
}

// WithBatch returns the Price with a batch rate: if it has none, that part of the standard rate. 0 is unknown.
func (p *Price) WithBatch(part float64) *Price {
	if p == nil || part == 0 || p.Rates[limits.ServiceBatch] != (Rate{}) {
		return p
	}
	other, r := *p, p.Standard()
	other.Rates[limits.ServiceBatch] = Rate{part * r.Input, part * r.Output}
	return &other
}

// Cost is what requests cost.
type Cost struct {
	USD       float64
	Estimated float64 // the part of USD that no response states the usage or the service tier of
	Unpriced  int     // tool calls that are not in USD, as their price is unknown
}

// Add returns the sum of two costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.USD + d.USD, c.Estimated + d.Estimated, c.Unpriced + d.Unpriced}
}

// Cost returns what a request cost that used so much. If the rate of its service tier is unknown, it is charged by the
// standard one, as an estimate.
func (p *Price) Cost(u limits.Usage) Cost {
	n := func(tokens int) float64 { return float64(max(0, tokens)) }
	rate, known := p.Standard(), true
	if u.Service < limits.NumServices && p.Rates[u.Service] != (Rate{}) {
		rate = p.Rates[u.Service]
	} else {
		known = u.Service == limits.ServiceStandard || rate == (Rate{})
	}
	cached, write, hour := n(u.CachedInput), n(u.CacheWrite), n(u.CacheWriteHour)
	input := max(0, n(u.Input)-cached-write-hour) + cached*p.Cached + write*p.CacheWrite + hour*p.CacheWriteHour
	c := Cost{USD: (input*rate.Input + n(u.Output)*rate.Output) / 1e6, Unpriced: max(0, u.OtherTools)}
	if !known || u.Estimated {
		c.Estimated = c.USD
	}
	if p.Search > 0 {
		c.USD += n(u.Searches) * p.Search
	} else {
		c.Unpriced += max(0, u.Searches)
	}
	return c
}

// Highest returns a Price that is as high as each of two.
func (p *Price) Highest(q *Price) *Price {
	high := *p
	for i := range high.Rates {
		high.Rates[i] = Rate{math.Max(p.Rates[i].Input, q.Rates[i].Input), math.Max(p.Rates[i].Output, q.Rates[i].Output)}
	}
	high.MaxOutput = max(p.MaxOutput, q.MaxOutput)
	return &high
}
