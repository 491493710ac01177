package gate

const (
	outputSamples  = 64   // recent outputs that the reserve is taken from
	enoughSamples  = 20   // below so many, max_tokens is reserved
	unstatedOutput = 1024 // reserved for a call that states no max_tokens, before there are samples
	shortCall      = 100  // tokens; below, a call's overhead is more than its text
	mostScale      = 4    // more is a misunderstanding
	outputMargin   = 1.1  // × the 95th percentile of recent outputs
)

// reserves estimates what calls of a lane will be charged.
type reserves struct {
	charge  Charge
	cached  bool                   // input read from a prompt cache counts too
	scale   [NumDimensions]float64 // the provider counts so many times what we do; 0 is not known
	extra   [NumDimensions]float64 // and so much more for every call
	input   float64                // measured over estimated input; 0 is not known
	outputs [outputSamples]int32
	n       int
	p95     float64
}

// Reserve is what a call is charged when it is admitted to a lane of which nothing was learned yet.
func Reserve(charge Charge, c Cost) Vector {
	r := reserves{charge: charge}
	return r.cost(c)
}

// Settled is what it is charged in the end, when its usage is known. Cached input counts where countsCached says so.
func Settled(charge Charge, countsCached bool, c Cost, u Usage) Vector {
	r := reserves{charge: charge, cached: countsCached}
	if charge != ChargeActual {
		return r.cost(c)
	}
	v := r.actual(u)
	v[Requests], v[RequestsPerDay] = 1, 1
	return v
}

// cost is what a call is expected to be charged, per dimension.
func (r *reserves) cost(c Cost) Vector {
	v := r.raw(c)
	for d := Tokens; d <= OutputTokens; d++ {
		if r.scale[d] > 0 {
			v[d] *= r.scale[d]
		}
		v[d] += r.extra[d]
	}
	v[TokensPerDay] = v[Tokens]
	return v
}

// raw is the cost by our own count, before the provider's scale.
func (r *reserves) raw(c Cost) Vector {
	in, out := float64(max(0, c.Input)), float64(max(0, c.MaxOutput))
	if r.input > 0 {
		in *= r.input
	}
	var v Vector
	v[Requests], v[RequestsPerDay] = 1, 1
	if r.charge == ChargeActual {
		out = r.output(max(0, c.MaxOutput))
		v[Tokens] = in + out
	} else {
		v[Tokens] = max(in, out)
	}
	v[InputTokens], v[OutputTokens] = in, out
	return v
}

// output is the most tokens that a call will probably produce.
func (r *reserves) output(declared int) float64 {
	if r.n < enoughSamples {
		if declared == 0 {
			return unstatedOutput
		}
		return float64(declared)
	}
	usual := outputMargin * r.p95
	if declared > 0 {
		usual = min(usual, float64(declared))
	}
	return usual
}

// learn takes in what a call really used.
func (r *reserves) learn(c Cost, u Usage) {
	r.outputs[r.n%outputSamples] = int32(min(u.Output, 1<<30))
	r.n++
	if r.n == enoughSamples || r.n > enoughSamples && r.n%8 == 0 {
		r.p95 = float64(percentile95(r.outputs[:min(r.n, outputSamples)]))
	}
	if c.Input > 0 && u.Input > 0 {
		ratio := min(max(float64(u.Input)/float64(c.Input), 0.25), 4)
		if r.input == 0 {
			r.input = 1
		}
		r.input += 0.05 * (ratio - r.input)
	}
}

// percentile95 is the 95th percentile of at most outputSamples samples: the smallest of the few largest.
func percentile95(samples []int32) int32 {
	var largest [outputSamples - outputSamples*95/100]int32 // descending
	n := len(samples) - len(samples)*95/100
	for _, x := range samples {
		for i := range largest[:n] {
			if x > largest[i] {
				x, largest[i] = largest[i], x
			}
		}
	}
	return largest[n-1]
}

// actual is what a provider that charges what is used took for a call.
func (r *reserves) actual(u Usage) Vector {
	in, out := sane(u.Input), sane(u.Output)
	if !r.cached {
		in = max(0, in-sane(u.CachedInput))
	}
	v := Vector{InputTokens: in, OutputTokens: out, Tokens: in + out, TokensPerDay: in + out}
	return v
}

// sane is a number of tokens within what a call can use: answers are not trusted.
func sane(tokens int) float64 { return float64(min(max(0, tokens), 1e8)) }

// requested learns from a refusal that states what the call would have been charged. A formula of ours that is too low
// would else run into the same wall with every call.
func (r *reserves) requested(d Dimension, stated int64, c Cost) {
	if d < Tokens || d > OutputTokens {
		return
	}
	raw := r.raw(c)[d]
	switch excess := float64(stated) - raw; {
	case excess <= 0:
	case raw < shortCall: // what every message costs beside its text
		r.extra[d] = max(r.extra[d], min(excess, shortCall))
	default:
		r.scale[d] = max(r.scale[d], min(float64(stated)/raw, mostScale))
	}
}
