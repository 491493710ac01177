package find

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	leastMargin = 0.02 // that a rate leaves free
	sureMargin  = 1.3  // standard errors: nine in ten answers are not above
	sameLimit   = 0.15 // two rates that differ by less may be of one limit
)

// rates are the limits per minute.
var rates = [...]limits.Dimension{limits.Requests, limits.Tokens, limits.InputTokens, limits.OutputTokens}

// hypotheses are the limits that explain the measurements, and the workers that they allow.
type hypotheses struct {
	m       *measurements
	workers int // maximum
	real    shape

	limits     [limits.NumDimensions]hypothesis
	queue      bool // requests above the concurrency wait, and are not rejected
	single     bool // a bucket holds one request
	charge     limits.Charge
	chargeFrom limits.Source
}

// hypothesis is one limit.
type hypothesis struct {
	Finding
	grants  int   // that it was measured by; 0: it was not measured
	by      shape // that it was measured with
	tedious bool  // its rate takes minutes to measure
}

func newHypotheses(cfg *Config, m *measurements) *hypotheses {
	h := &hypotheses{m: m, workers: cfg.MaxWorkers, chargeFrom: SourceUnknown, real: newReal(cfg)}
	for d, told := range cfg.Told.All() {
		if *told > 0 {
			h.limits[d].Finding = Finding{Value: float64(*told), Source: limits.SourceConfigured, At: time.Now()}
		}
	}
	// The protocol of OpenAI tells nothing of its server.
	if name := cfg.Provider.Name; name != "" && name != "openai-compatible" && name != "sim" {
		h.charge, h.chargeFrom = cfg.Provider.Charge, limits.SourceRegistry
	}
	return h
}

// sure reports whether a limit is known, and not only a bound of it from below.
func (h *hypotheses) sure(d limits.Dimension) bool {
	f := &h.limits[d]
	return f.Known() && f.Source != limits.SourceAtLeast
}

// sureOfTokens reports whether a limit of tokens is known.
func (h *hypotheses) sureOfTokens() bool { return slices.ContainsFunc(rates[1:], h.sure) }

// header reports whether responses state a limit in their headers.
func (h *hypotheses) header(d limits.Dimension) bool {
	return h.limits[d].Source == limits.SourceHeader
}

// cap sets the concurrency.
func (h *hypotheses) cap(n float64, source limits.Source) {
	h.limits[limits.Concurrency].Finding = Finding{Value: n, Source: source, At: time.Now()}
}

// absorb takes over the limits that responses have stated since. It returns those that changed.
func (h *hypotheses) absorb() (changed []limits.Dimension) {
	heard := h.m.last()
	for _, of := range slices.Sorted(maps.Keys(heard)) { // two may be of one limit: the same has the last word each time
		e := heard[of]
		d := e.dimension()
		was := h.limits[d].Finding
		if e.Limit <= 0 || h.sure(d) && was.Source != e.source && (e.source != limits.SourceHeader || was.Source == limits.SourceConfigured) {
			continue
		}
		h.limits[d].Finding = Finding{Value: float64(e.Limit), Source: e.source, At: e.at}
		if was.Known() && was.Value != float64(e.Limit) {
			changed = append(changed, d)
		}
	}
	return changed
}

// believe takes a measured rate for a limit. Each grant took per of it.
func (h *hypotheses) believe(d limits.Dimension, r refilled, per float64, by *shape) {
	l := &h.limits[d]
	l.Finding = Finding{Value: r.perSecond * 60 * per, Source: limits.SourceMeasured, Margin: max(r.margin, 0.25/float64(r.grants)), At: time.Now()}
	l.grants, l.by = max(1, int(math.Round(1/(2*r.margin)))), *by
}

// same drops a measured rate of requests if it is a limit of tokens that tiny requests met, as they have some too. It
// returns that limit.
func (h *hypotheses) same() (of limits.Dimension, dropped Finding) {
	requests, words := h.limits[limits.Requests].Finding, &h.m.of[tinyCall]
	if requests.Source != limits.SourceMeasured || words.in.n == 0 {
		return 0, dropped
	}
	in, out := words.in.mean(), words.out.mean()
	for _, d := range rates[1:] {
		for _, tokens := range [...]float64{in, in + out, max(in, tinyOutput), in + tinyOutput} {
			if h.sure(d) && math.Abs(requests.Value*tokens/h.limits[d].Value-1) < sameLimit {
				h.limits[limits.Requests] = hypothesis{}
				return d, requests
			}
		}
	}
	return 0, dropped
}

// stated learns from a rejection how tokens are counted, if its request declares many more than it has.
func (h *hypotheses) stated(s *shape, r *reply) {
	o, declared := &r.outcome, int64(s.bound)
	in, _ := s.reserve()
	if !r.refused() || o.Dimension != limits.Tokens || o.Requested <= 0 || h.chargeFrom != SourceUnknown || declared < 3*int64(in) {
		return
	}
	h.charge, h.chargeFrom = limits.ChargeActual, limits.SourceRejection
	if o.Requested >= declared*9/10 {
		h.charge = limits.ChargeDeclared
	}
}

// latency returns the mean latency of a real request in seconds.
func (h *hypotheses) latency() float64 { return h.m.of[realCall].took.mean() }

// used returns the mean number of tokens that a real request uses, and declared the number that it declares.
func (h *hypotheses) used() float64 { return h.m.of[realCall].in.mean() + h.m.of[realCall].out.mean() }
func (h *hypotheses) declared() float64 {
	return max(h.m.of[realCall].in.mean(), float64(h.real.bound))
}

// cost returns the part of a limit that a real request takes. While nothing states how tokens are counted, it is the larger
// one of the two ways.
func (h *hypotheses) cost(d limits.Dimension) float64 {
	real := &h.m.of[realCall]
	in, out, both := real.in.mean(), real.out.mean(), h.used()
	if unknown := h.chargeFrom == SourceUnknown; unknown || h.charge == limits.ChargeDeclared {
		out = float64(h.real.bound)
		both = h.declared()
		if unknown {
			both = max(both, h.used())
		}
	}
	switch d {
	case limits.Tokens, limits.TokensPerDay:
		return both
	case limits.InputTokens:
		return in
	case limits.OutputTokens:
		return out
	}
	return 1
}

// takes returns the part of a limit that a request of a shape takes.
func (h *hypotheses) takes(d limits.Dimension, s *shape) float64 {
	switch {
	case d == limits.Requests:
		return 1
	case s.kind == declaredCall:
		return float64(s.bound)
	}
	fat := &h.m.of[fatCall]
	return fat.perChar.mean()*float64(len(s.prompt)+nonceChars) + fat.out.mean()
}

// busy returns the mean number of real requests that a limit keeps open.
func (h *hypotheses) busy(d limits.Dimension) float64 {
	f, cost := &h.limits[d], h.cost(d)
	if !f.Known() || cost <= 0 || h.m.of[realCall].took.n == 0 {
		return math.Inf(1)
	}
	return f.Value / 60 * h.latency() / cost
}

// share returns the part of a limit that the answer may use: a measured value may be too high.
func (h *hypotheses) share(d limits.Dimension) float64 {
	took := &h.m.of[realCall].took
	n := took.n
	if h.m.soak.Requests == 0 {
		n += 20 // the soak measures the latency too
	}
	e := took.cv() * took.cv() / float64(max(1, n))
	if n := h.limits[d].grants; n > 0 {
		e += 1 / float64(n*n) / 6
	}
	return 1 - max(leastMargin, sureMargin*math.Sqrt(e))
}

// answer returns the number of workers that the hypotheses allow, not rounded, and the limit that bounds them.
func (h *hypotheses) answer() (w float64, bound Bound, b Binding) {
	w, bound = float64(h.workers), BoundWorkers
	if slots := &h.limits[limits.Concurrency]; slots.Known() && slots.Value <= w {
		w, bound = slots.Value, BoundConcurrency
		if h.queue {
			bound = BoundQueue
		}
	}
	for _, d := range rates {
		busy := h.busy(d)
		if x := busy * h.share(d); x < w {
			w, bound, b = x, BoundTokens, Binding{d, h.cost(d), busy, 1 - h.share(d)}
			if d == limits.Requests {
				bound = BoundRequests
			}
		}
	}
	return w, bound, b
}

// ceiling returns the maximum that the answer can still become.
func (h *hypotheses) ceiling() int {
	w := float64(h.workers)
	if slots := &h.limits[limits.Concurrency]; slots.Known() {
		w = min(w, slots.Value)
	}
	for _, d := range rates {
		w = min(w, math.Ceil(h.busy(d)))
	}
	return max(1, int(w))
}

// room returns the number of requests that may be open for certain, or may be tried, and the number that may be tried later.
func (h *hypotheses) room() (now, most int) {
	if slots := &h.limits[limits.Concurrency]; slots.Known() {
		now = max(1, min(int(slots.Value), h.workers))
		return now, now
	}
	return min(max(4, h.m.seen), h.workers), h.workers
}

// need returns the maximum of real requests per second that the answer makes.
func (h *hypotheses) need() float64 {
	return float64(h.ceiling()) / max(h.latency(), time.Millisecond.Seconds())
}

// settled reports whether a rate is known so well that more grants would not change the answer.
func (h *hypotheses) settled(r *refilled, least int, took time.Duration) bool {
	switch {
	case r.grants < least:
		return r.grants >= 4 && took > shortRate && !r.clumped
	case r.clumped:
		return r.margin < fineMargin
	case r.grants < mostGrants*min(r.failed, 3):
		return false // one that failed and was counted is to weigh little
	case r.grants >= 2*mostGrants:
		return true
	case r.margin > fineMargin:
		return false
	}
	low, high := r.perSecond*(1-r.margin), r.perSecond*(1+r.margin)
	return r.grants >= mostGrants || math.Floor(low*h.latency()) == math.Floor(high*h.latency())
}
