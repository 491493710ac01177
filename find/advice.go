package find

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
)

// advice is what to know of the answer beside its figures.
func (s *search) advice(r *Result) (notes []string) {
	if s.latency.n == 0 || r.Workers == 0 {
		return nil
	}
	perSecond := float64(r.Workers) / s.latency.mean()
	for _, d := range []sluice.Dimension{sluice.RequestsPerDay, sluice.TokensPerDay} {
		if lasts := s.lasts(d, perSecond); lasts < 24*time.Hour {
			notes = append(notes, fmt.Sprintf("%s use up a day's %.0f %s in %s", workers(r.Workers), s.limits[d].Value, d, lasts.Round(time.Minute)))
		}
	}
	if d, ok := s.beyond(); ok && r.Workers == 1 {
		notes = append(notes, fmt.Sprintf("even one worker is refused now and then: it needs %.0f %s a minute, and %.0f are allowed; sluice run paces its calls",
			60*perSecond*s.cost(d), d, s.limits[d].Value))
	}
	_, tried := s.vouched[ofRequests]
	switch sure := 60 * s.vouched[ofRequests].atLeast(); {
	case s.limits[sluice.Requests].Known():
	case s.cfg.Quick:
		notes = append(notes, "limits per minute were not looked for (--quick): so many may be open at once, and perhaps not for long")
	case tried && sure < 0.9*60*perSecond:
		notes = append(notes, fmt.Sprintf("%s make up to %.0f requests a minute, of which %.0f are sure: a limit between the two shows only after minutes",
			workers(r.Workers), math.Ceil(60*perSecond), math.Floor(sure)))
	}
	return notes
}

// lasts is how long a day's limit lasts at so many real calls a second.
func (s *search) lasts(d sluice.Dimension, perSecond float64) time.Duration {
	f, cost := s.limits[d], 1.0
	if d == sluice.TokensPerDay {
		cost = s.charged()
	}
	if !f.Known() || cost <= 0 {
		return math.MaxInt64
	}
	return seconds(min(f.Value/(perSecond*cost), 1e9))
}

// beyond is the limit per minute that even one worker goes beyond, if there is one.
func (s *search) beyond() (sluice.Dimension, bool) {
	for _, d := range rates {
		if s.busy(d) < 1 {
			return d, true
		}
	}
	return 0, false
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return prose.Group(n) + " workers"
}
