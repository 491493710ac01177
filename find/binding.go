package find

import "github.com/sluice-llm/sluice"

// Binding is the limit per minute that bounds an answer.
type Binding struct {
	Dimension sluice.Dimension // AnyDimension: none does
	Cost      float64          // what it counts of a real call: 1, or tokens
	Busy      float64          // how many real calls it keeps open, on average
	Margin    float64          // the share of them that the answer leaves out, for chance
}

// least is how many workers it allows.
func (b Binding) least() float64 { return b.Busy * (1 - b.Margin) }

// binding is the limit that bounds a result, if it is one per minute.
func (s *search) binding(r *Result) (least Binding) {
	switch r.Bound {
	case BoundRequests, BoundTokens, BoundCertified:
	default:
		return Binding{}
	}
	for _, d := range rates {
		f, cost := r.Limits[d], s.cost(d)
		certified := f.Source == sluice.SourceAtLeast
		if !f.Known() || cost <= 0 || certified != (r.Bound == BoundCertified) {
			continue
		}
		b := Binding{Dimension: d, Cost: cost, Busy: f.Value / 60 * s.latency.mean() / cost}
		if !certified { // of which not more is known, but so much is
			b.Margin = 1 - s.margin(d)
		}
		if least.Dimension == sluice.AnyDimension || b.least() < least.least() {
			least = b
		}
	}
	return least
}
