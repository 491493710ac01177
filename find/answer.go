package find

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	leastMargin = 0.02 // what a rate keeps clear of at least
	sureMargin  = 1.3  // standard errors: nine in ten answers are not above
)

// rates are the dimensions that bound how many calls are made in a minute.
var rates = [...]sluice.Dimension{sluice.Requests, sluice.Tokens, sluice.InputTokens, sluice.OutputTokens}

// charged is what a real call counts against the tokens per minute. While nobody knows how tokens are counted, it is the
// more of the two.
func (s *search) charged() float64 {
	actual := s.in.mean() + s.out.mean()
	declared := max(s.in.mean(), float64(s.real.bound))
	switch {
	case s.chargeFrom == SourceUnknown:
		return max(actual, declared)
	case s.charge == sluice.ChargeDeclared:
		return declared
	}
	return actual
}

// cost is what a real call takes of a budget.
func (s *search) cost(d sluice.Dimension) float64 {
	switch d {
	case sluice.Tokens:
		return s.charged()
	case sluice.InputTokens:
		return s.in.mean()
	case sluice.OutputTokens:
		if s.chargeFrom == SourceUnknown || s.charge == sluice.ChargeDeclared {
			return float64(s.real.bound)
		}
		return s.out.mean()
	}
	return 1
}

// busy is how many calls a limit keeps open, on average.
func (s *search) busy(d sluice.Dimension) float64 {
	f := s.limits[d]
	cost := s.cost(d)
	if !f.Known() || cost <= 0 || s.latency.n == 0 {
		return math.Inf(1)
	}
	return f.Value / 60 * s.latency.mean() / cost
}

// margin is the share of a limit that the answer may use: what was measured may be too high.
func (s *search) margin(d sluice.Dimension) float64 {
	n := s.latency.n
	if s.soaked.Calls == 0 {
		n += 20 // the soak measures the latency, too: it is not to be more careful than the answer
	}
	e := s.latency.cv() * s.latency.cv() / float64(max(1, n))
	if n := s.grants[d]; n > 0 {
		e += 1 / float64(n*n) / 6
	}
	return 1 - max(leastMargin, sureMargin*math.Sqrt(e))
}

// answer is how many workers are safe as far as is known, and what bounds them.
func (s *search) answer() (int, Bound) {
	if s.none || s.latency.n == 0 {
		return 0, BoundNothing
	}
	w, bound := float64(s.cfg.MaxWorkers), BoundWorkers
	if s.slots.Known() && s.slots.Value <= w {
		w, bound = s.slots.Value, BoundConcurrency
		if s.queue {
			bound = BoundQueue
		}
	}
	for _, d := range rates {
		if x := s.busy(d) * s.margin(d); x < w {
			w, bound = x, BoundTokens
			if d == sluice.Requests {
				bound = BoundRequests
			}
		}
	}
	if x := s.vouchedWorkers(); x < w {
		w, bound = x, BoundCertified
	}
	if s.lowered > 0 && float64(s.lowered) < w {
		w, bound = float64(s.lowered), BoundSoak
	}
	return max(1, int(math.Floor(w+1e-9))), bound
}

// ceiling is the most that the answer can still become.
func (s *search) ceiling() int {
	w := float64(s.cfg.MaxWorkers)
	if s.slots.Known() {
		w = min(w, s.slots.Value)
	}
	for _, d := range rates {
		w = min(w, math.Ceil(s.busy(d)))
	}
	return max(1, int(w))
}

// interval is where the answer still lies.
func (s *search) interval() (low, high int) {
	if s.none {
		return 0, 0
	}
	high = s.ceiling()
	if s.soaked.Calls > 0 && s.soaked.Refused == 0 {
		low = min(s.soaked.Workers, high)
	} else if s.latency.n > 0 {
		low = 1
	}
	return low, high
}

// need is how many real calls a second the answer makes, at most.
func (s *search) need() float64 {
	return float64(s.ceiling()) / max(s.latency.mean(), time.Millisecond.Seconds())
}
