package find

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

const (
	certifyPace   = 4.0 // times the need of the answer: a bucket of a minute is empty in a quarter of one
	pacedShare    = 0.8 // of a known rate, while another limit is tested
	largestFat    = 4000
	largestWeight = 8 // real requests that one may stand for
	fewCalls      = 500
	fewTokens     = 100_000
)

// certifier proves how much of the answer is certain: that a minute's worth of it was accepted, or that its workers ran.
type certifier struct {
	m       *measurements
	h       *hypotheses
	vouched [proofs]voucher
	tried   [proofs]int // drains that proved nothing
	lowered int         // workers of which a soak was rejected, and fewer; 0: none
}

// proof is a kind of limit that enough requests prove to suffice.
type proof int

const (
	ofRequests proof = iota
	ofDeclared       // tokens, as they are declared
	ofUsed           // tokens, as they are used
	proofs
)

func (p proof) String() string {
	return [...]string{"requests", "tokens as declared", "tokens as used"}[p]
}

// voucher is the rate that was accepted, in real requests per second.
type voucher struct {
	given     bool
	perSecond float64 // a minute's worth of it was accepted,
	proven    float64 // and this part of it is the refill for certain; 0: all of it
	short     bool    // more is needed, and was not tried
}

// certain returns the rate that is allowed for certain.
func (v voucher) certain() float64 { return min(v.perSecond, cmp.Or(v.proven, v.perSecond)) }

// vouch takes an accepted rate as certified. Requests that declare as many tokens as real ones prove both.
func (c *certifier) vouch(of proof, s *shape, v voucher) {
	v.given = true
	c.vouched[of] = v
	if of == ofRequests && s.kind == declaredCall {
		c.vouched[ofDeclared] = v
	}
}

// futile takes in a drain that proved nothing. Twice rejected, and twice nothing was rejected when it was to be measured:
// then the drain alone is too fast for a limit, and other requests show which.
func (c *certifier) futile(of proof) {
	if !c.vouched[of].given {
		if c.tried[of]++; c.tried[of] == 2 {
			c.vouch(of, &tiny, voucher{perSecond: c.h.need()})
		}
	}
}

// next returns the proof that is missing, and the requests that give it. Headers that state any limit state all.
func (c *certifier) next() (of proof, s shape, ok bool) {
	missing := func(p proof) bool { return !c.vouched[p].given }
	stated := c.h.sureOfTokens() || c.h.header(limits.Requests)
	switch {
	case missing(ofRequests) && !c.h.sure(limits.Requests) && stated:
		return ofRequests, tiny, true
	case missing(ofRequests) && !c.h.sure(limits.Requests): // tests both, unless some are rejected
		return ofRequests, c.declaring(), true
	case stated:
	case missing(ofDeclared):
		return ofDeclared, c.declaring(), true
	case missing(ofUsed):
		return ofUsed, filler(int(c.size(c.h.used(), largestFat))), true
	}
	return 0, s, false
}

// size returns how much larger than a real request one may be that tests tokens. If the rate of requests is known, fewer and
// larger ones prove as much and do not reach it. If very few may be open, only larger ones use up a limit.
func (c *certifier) size(real, largest float64) float64 {
	room, _ := c.h.room()
	weight := certifyPace / float64(room)
	if c.h.sure(limits.Requests) {
		weight = largestWeight
	}
	return max(real, min(weight*real, largest))
}

// declaring returns a request that declares as many tokens as a real one, or more, and uses few.
func (c *certifier) declaring() shape {
	return shape{kind: declaredCall, prompt: word, bound: int(c.size(c.h.declared(), largeBound))}
}

// weight returns the number of real requests that one of a shape is worth in tokens.
func (c *certifier) weight(s *shape) float64 {
	switch s.kind {
	case declaredCall:
		return float64(s.bound) / max(1, c.h.declared())
	case fatCall:
		return float64(len(s.prompt)+nonceChars) / 4 / max(1, c.h.used())
	}
	return 1
}

// shrink makes a request smaller that the model does not take, but not smaller than a real one.
func (c *certifier) shrink(s *shape, r *reply) bool {
	if kind := r.outcome.Kind; kind != sluice.BadRequest && kind != sluice.ContextLength || c.weight(s) < 1.5 {
		return false
	}
	if s.kind == declaredCall {
		s.bound = max(s.bound/2, c.h.real.bound)
	} else {
		*s = filler(max(len(s.prompt)/8, int(c.h.used())))
	}
	return true
}

// drain is requests that use up a minute's worth of the answer's need.
type drain struct {
	of     proof
	sh     shape
	calls  int
	pace   float64 // requests per second
	weight float64 // real requests that one stands for
}

// drain returns the requests that prove a kind of limit: as fast as concurrency and known rates allow, and not faster than
// tells more. Workers whose requests end at once need more than any provider allows: then what is certain is stated.
func (c *certifier) drain(of proof, s shape) drain {
	d := drain{of: of, sh: s, weight: 1}
	if of != ofRequests {
		d.weight = c.weight(&s)
	}
	need := c.h.need() / d.weight
	d.pace = min(certifyPace*need, fastestPace)
	if quick := &c.m.of[tinyCall].took; quick.n > 0 {
		room, _ := c.h.room()
		d.pace = min(d.pace, 0.95*float64(room)/quick.mean())
	}
	if c.h.sure(limits.Requests) {
		d.pace = min(d.pace, pacedShare*c.h.limits[limits.Requests].Value/60)
	}
	// A bucket of a minute refills meanwhile. If that costs much it is not made up for, and less is certain.
	share := 2.0
	if d.pace > need {
		share = min(share, d.pace/(d.pace-need))
	}
	in, out := s.reserve()
	calls := 60 * need * share
	if cheap := calls <= fewCalls && calls*float64(in+out) <= fewTokens; !cheap && (of == ofUsed || d.pace <= need) {
		calls = 60 * need
	}
	d.calls = max(1, int(math.Ceil(min(calls, 60*fastestPace))))
	return d
}

// passed takes in a drain that was accepted. Only affordable ones of its requests were sent.
func (c *certifier) passed(d *drain, affordable int, took time.Duration) {
	if affordable < d.calls {
		c.vouch(d.of, &d.sh, voucher{perSecond: float64(affordable) * d.weight / 60, short: true})
		return
	}
	// A full bucket of a minute holds as much, and the refill meanwhile.
	proven := float64(d.calls) * d.weight / (time.Minute + took).Seconds()
	c.vouch(d.of, &d.sh, voucher{perSecond: c.h.need(), proven: proven})
}

// answer returns the number of workers that is safe as far as is known, and the limit that bounds it.
func (c *certifier) answer() (int, Bound, Binding) {
	if c.m.none || c.m.of[realCall].took.n == 0 {
		return 0, BoundNothing, Binding{}
	}
	w, bound, binding := c.h.answer()
	for _, v := range c.vouched {
		if x := v.perSecond * c.h.latency(); v.short && x < w {
			w, bound, binding = x, BoundCertified, Binding{}
		}
	}
	if c.lowered > 0 && float64(c.lowered) < w {
		w, bound, binding = float64(c.lowered), BoundSoak, Binding{}
	}
	return max(1, int(math.Floor(w+1e-9))), bound, binding
}

// interval returns the bounds of the answer as far as they are known.
func (c *certifier) interval() (low, high int) {
	if c.m.none {
		return 0, 0
	}
	high = c.h.ceiling()
	if soak := &c.m.soak; soak.Requests > 0 && soak.Rejected == 0 {
		low = min(soak.Workers, high)
	} else if c.m.of[realCall].took.n > 0 {
		low = 1
	}
	return low, high
}

// soakCalls returns the number of real requests that prove an answer. The limits of headers need no proof but of the latency.
func (c *certifier) soakCalls() int {
	w, bound, _ := c.answer()
	least, most := 8, 60
	switch {
	case bound == BoundRequests && c.h.header(limits.Requests), bound == BoundTokens && slices.ContainsFunc(rates[1:], c.h.header):
		most = 12
	case bound == BoundRequests || bound == BoundTokens:
		least = 20
	}
	return max(w, min(max(3*w, least), most))
}

// atLeast adds the limits that were accepted without a rejection, where none is known. It returns the tightest of them.
func (c *certifier) atLeast(known map[limits.Dimension]Finding) (tightest Binding) {
	add := func(d limits.Dimension, perMinute float64) {
		if _, ok := known[d]; ok || perMinute < 1 {
			return
		}
		f := Finding{Value: math.Floor(perMinute), Source: limits.SourceAtLeast, At: time.Now()}
		known[d] = f
		cost := c.h.cost(d)
		b := Binding{Dimension: d, Cost: cost, Busy: f.Value / 60 * c.h.latency() / cost}
		if cost > 0 && (tightest.Dimension == limits.AnyDimension || b.Busy < tightest.Busy) {
			tightest = b
		}
	}
	declared, used := c.vouched[ofDeclared].certain(), c.vouched[ofUsed].certain()
	add(limits.Requests, 60*c.vouched[ofRequests].certain())
	add(limits.Tokens, 60*min(declared*c.h.declared(), used*c.h.used()))
	return tightest
}
