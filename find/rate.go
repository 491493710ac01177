package find

import (
	"context"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
)

// measure finds the refill of the bucket that refuses calls of a shape. found is false when so many calls pass in a row
// that it was no bucket.
func (s *search) measure(ctx context.Context, d sluice.Dimension, sh *shape, q question) (found bool, err error) {
	s.enter(PhaseRate, "how fast %s are refilled", d)
	q.least, q.patient = leastGrants, s.forgiving
	r, found, err := s.ask(ctx, sh, q)
	if err != nil || !found {
		return found, err
	}
	if r.perSecond == 0 && !s.forgiving { // nothing passes while one asks
		charges := false
		if r, charges, err = s.byGaps(ctx, sh); err != nil {
			return true, err
		}
		if charges {
			s.note("refused calls count against the limit, too: a client that asks again at once gets nothing")
		} else {
			q.patient, s.forgiving = true, true
			if r, found, err = s.ask(ctx, sh, q); err != nil || !found {
				return found, err
			}
		}
		s.tedious[d] = charges || r.clumped
	}
	if r.perSecond == 0 {
		s.note("calls are refused, and none passed in %s: their rate could not be measured", longestRate/2)
		return true, nil
	}
	s.believe(d, r, s.takes(d, sh))
	s.by[d] = *sh
	return true, nil
}

// believe takes a measured rate for a limit.
func (s *search) believe(d sluice.Dimension, r refilled, per float64) {
	s.limits[d] = Finding{Value: r.perSecond * 60 * per, Source: sluice.SourceMeasured, Margin: max(r.margin, 0.25/float64(r.grants)), At: time.Now()}
	s.grants[d] = max(1, int(math.Round(1/(2*r.margin))))
	s.log("%s: %.1f a minute, by %d grants", d, s.limits[d].Value, r.grants)
}

// takes is what a call of a shape takes of a budget.
func (s *search) takes(d sluice.Dimension, sh *shape) float64 {
	switch {
	case d == sluice.Requests:
		return 1
	case sh.name == "declared":
		return float64(sh.bound)
	}
	return s.perChar.mean()*float64(len(sh.prompt)+nonceChars) + s.wordOut.mean()
}
