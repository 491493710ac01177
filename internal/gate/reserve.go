package gate

import (
	"math"

	"github.com/sluice-llm/sluice/limits"
)

const (
	outputSamples  = 64   // recent outputs that the reserve is taken from
	enoughSamples  = 20   // below so many, max_tokens is reserved
	unstatedOutput = 1024 // reserved for a call that states no max_tokens, before there are samples
	shortCall      = 100  // tokens; below, a call's overhead is more than its text
	mostScale      = 4    // more is a misunderstanding
	outputMargin   = 3.3  // standard deviations of recent outputs, per √(4 × requests in flight)
)

// reserves estimates what calls of a lane will be charged.
type reserves struct {
	charge  limits.Charge
	cached  bool                          // input read from a prompt cache counts too
	scale   [limits.NumDimensions]float64 // factor of the provider's count; 0: unknown
	extra   [limits.NumDimensions]float64 // tokens that the provider adds per request
	input   float64                       // measured over estimated input; 0 is not known
	outputs [outputSamples]int32
	n       int     // outputs that were seen
	mean    float64 // of the recent ones
	sigma   float64 // their standard deviation
	open    int     // requests in flight
}

// Reserve is what a call is charged when it is admitted to a lane of which nothing was learned yet.
func Reserve(charge limits.Charge, c limits.Cost) limits.Vector {
	r := reserves{charge: charge}
	return r.cost(c)
}

// Settled is what it is charged in the end, when its usage is known. Cached input counts where countsCached says so.
func Settled(charge limits.Charge, countsCached bool, c limits.Cost, u limits.Usage) limits.Vector {
	r := reserves{charge: charge, cached: countsCached}
	if charge != limits.ChargeActual {
		return r.cost(c)
	}
	v := r.actual(u)
	v[limits.Requests], v[limits.RequestsPerDay] = 1, 1
	return v
}

// cost is what a call is expected to be charged, per dimension.
func (r *reserves) cost(c limits.Cost) limits.Vector { return r.costBy(r.charge, c) }

// costBy is the expected charge by a rule.
func (r *reserves) costBy(charge limits.Charge, c limits.Cost) (v limits.Vector) {
	v[limits.Requests], v[limits.RequestsPerDay] = 1, 1
	v[limits.Tokens], v[limits.InputTokens], v[limits.OutputTokens] = r.raw(charge, c)
	for _, d := range [...]limits.Dimension{limits.Tokens, limits.InputTokens, limits.OutputTokens} {
		if r.scale[d] > 0 {
			v[d] *= r.scale[d]
		}
		v[d] += r.extra[d]
	}
	v[limits.TokensPerDay] = v[limits.Tokens]
	return v
}

// raw returns the tokens of a request by our own count, before the provider's scale: those charged together, input and output.
func (r *reserves) raw(charge limits.Charge, c limits.Cost) (both, in, out float64) {
	in, out = float64(max(0, c.Input)), float64(max(0, c.MaxOutput))
	if r.input > 0 {
		in *= r.input
	}
	if charge == limits.ChargeActual {
		out = r.output(max(0, c.MaxOutput))
		return in + out, in, out
	}
	return max(in, out), in, out
}

// output is the number of tokens to reserve for the output of one more request. Differences of outputs cancel out over the requests in
// flight, so that the margin of each request falls with their number. The mean of few outputs is uncertain for all of them.
func (r *reserves) output(declared int) float64 {
	if r.n < enoughSamples {
		if declared == 0 {
			return unstatedOutput
		}
		return float64(declared)
	}
	usual := r.mean + r.sigma*(outputMargin/2/math.Sqrt(float64(r.open+1))+1/math.Sqrt(float64(min(r.n, outputSamples))))
	if declared > 0 {
		usual = min(usual, float64(declared))
	}
	return usual
}

// learn takes in what a call really used.
func (r *reserves) learn(c limits.Cost, u limits.Usage) {
	r.outputs[r.n%outputSamples] = int32(min(u.Output, 1<<30))
	r.n++
	if r.n == enoughSamples || r.n > enoughSamples && r.n%8 == 0 {
		r.mean, r.sigma = moments(r.outputs[:min(r.n, outputSamples)])
	}
	if c.Input > 0 && u.Input > 0 {
		ratio := min(max(float64(u.Input)/float64(c.Input), 0.25), 4)
		if r.input == 0 {
			r.input = 1
		}
		r.input += 0.05 * (ratio - r.input)
	}
}

// moments returns the mean and the standard deviation.
func moments(samples []int32) (mean, sigma float64) {
	sum, squares := 0.0, 0.0
	for _, x := range samples {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	n := float64(len(samples))
	mean = sum / n
	return mean, math.Sqrt(max(0, squares/n-mean*mean))
}

// charged is what the provider takes for a call in the end.
func (r *reserves) charged(c limits.Cost, u limits.Usage) limits.Vector {
	v := r.actual(u)
	if r.charge == limits.ChargeActual {
		return v
	}
	exact := *r
	exact.input = 0
	c.Input = int(v[limits.InputTokens])
	return exact.cost(c)
}

// most returns the amounts that configured limits count for a request until its usage is known.
func (r *reserves) most(c limits.Cost, cost *limits.Vector) limits.Vector {
	most, output := *cost, max(cost[limits.OutputTokens], float64(c.MaxOutput))
	most[limits.Tokens], most[limits.OutputTokens] = max(cost[limits.Tokens], cost[limits.InputTokens]+output), output
	return most
}

// counted returns the amounts that configured limits count for a request with that outcome: the usage, and at least the cost by the configured
// rule if the provider charges declared tokens by that.
func (r *reserves) counted(t *Ticket, o *limits.Outcome, configured limits.Charge) (used limits.Vector) {
	cost := t.cost
	if configured != limits.ChargeActual { // it may have been charged by use
		for d, c := range r.costBy(configured, t.Call.Cost) {
			cost[d] = max(cost[d], c)
		}
	}
	switch {
	case o.Unsent:
		return used
	case !o.HasUsage && (o.Kind == limits.OK || r.n == 0): // no response states the usage
		used = cost
		used[limits.Requests] = 1 // without the weight of other clients
		return used
	case o.Kind == limits.Timeout || o.Abandoned: // it may have produced the maximum
		return t.guarded
	case !o.HasUsage:
		used = t.guarded
		used[limits.OutputTokens] = min(used[limits.OutputTokens], r.output(t.Call.Cost.MaxOutput))
		used[limits.Tokens] = max(cost[limits.Tokens], cost[limits.InputTokens]+used[limits.OutputTokens])
		return used
	}
	in, out := sane(o.Usage.Input), sane(o.Usage.Output)
	used = limits.Vector{limits.Requests: 1, limits.Tokens: in + out, limits.InputTokens: in, limits.OutputTokens: out}
	if configured != limits.ChargeActual {
		for d, c := range &cost {
			used[d] = max(used[d], c)
		}
		used[limits.Requests] = 1
	}
	return used
}

// actual is what a provider that charges what is used took for a call.
func (r *reserves) actual(u limits.Usage) limits.Vector {
	in, out := sane(u.Input), sane(u.Output)
	if !r.cached {
		in = max(0, in-sane(u.CachedInput))
	}
	return limits.Vector{limits.InputTokens: in, limits.OutputTokens: out, limits.Tokens: in + out, limits.TokensPerDay: in + out}
}

// sane is a number of tokens within what a call can use: answers are not trusted.
func sane(tokens int) float64 { return float64(min(max(0, tokens), 1e8)) }

// requested learns from a refusal that states what the call would have been charged. If the estimate is
// too low, each request would otherwise be rejected.
func (r *reserves) requested(d limits.Dimension, stated int64, c limits.Cost) {
	if d < limits.Tokens || d > limits.OutputTokens {
		return
	}
	both, in, out := r.raw(r.charge, c)
	raw := limits.Vector{limits.Tokens: both, limits.InputTokens: in, limits.OutputTokens: out}[d]
	switch excess := float64(stated) - raw; {
	case excess <= 0:
	case raw < shortCall: // what every message costs beside its text
		r.extra[d] = max(r.extra[d], min(excess, shortCall))
	default:
		r.scale[d] = max(r.scale[d], min(float64(stated)/raw, mostScale))
	}
}
