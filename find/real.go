package find

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	shapeCalls   = 3
	longestFirst = 2 * time.Minute // for the first calls to pass
	largeBound   = 4000            // tokens declared by a call that tests how they are charged: more is more than some models allow
	shapePatient = 8               // refusals of one call
)

// shape makes real calls, one by one: how long one takes, and how many tokens it uses. A tiny one follows.
func (s *search) shape(ctx context.Context) error {
	s.enter(PhaseShape, "%d real calls, one by one", shapeCalls)
	for i := range shapeCalls {
		r, err := s.passing(ctx, &s.real)
		if err != nil {
			return err
		}
		if s.none {
			return nil
		}
		if i == 0 {
			s.others(&r)
		}
		if i == 0 && s.cfg.MinOutputTokens > 0 && r.outcome.HasUsage && r.outcome.Usage.Output < s.cfg.MinOutputTokens/2 {
			s.note("real calls have answers of some %d tokens, not %d, and the number is for calls like these: a --prompt-file that asks for more makes them longer",
				r.outcome.Usage.Output, s.cfg.MinOutputTokens)
		}
	}
	_, err := s.passing(ctx, &s.tiny)
	return err
}

// others says so when more is in use than the search's own first calls have used.
func (s *search) others(r *reply) {
	for i := range r.outcome.Readings {
		reading := &r.outcome.Readings[i]
		own, used := 1.0, inUse(reading)
		switch reading.Dimension {
		case sluice.Requests:
		case sluice.Tokens, sluice.InputTokens, sluice.OutputTokens:
			own = float64(max(r.outcome.Usage.Input, s.real.bound) + r.outcome.Usage.Output)
		default:
			continue
		}
		if e := s.heard(reading.Dimension); e.dimension() == reading.Dimension && used > 2*own+1 {
			s.note("%.0f of %s were in use when the search had used %.0f: others use the same limit, or did within the last minute",
				used, reading.Dimension, own)
		}
	}
}

// passing makes calls until one is answered, and waits in between for as long as refusals ask. If none is, nothing passes
// here at all.
func (s *search) passing(ctx context.Context, sh *shape) (reply, error) {
	began, pause := time.Now(), time.Second
	for tries := 0; ; tries++ {
		r, err := s.p.call(ctx, sh)
		if err != nil {
			return r, err
		}
		s.learn(sh, r)
		if r.accepted() {
			return r, nil
		}
		o := &r.outcome
		switch {
		case o.TooLarge || o.Kind == sluice.ContextLength:
			return r, fmt.Errorf("a real call is larger than a whole limit: %w", o.Err)
		case !r.refused():
			return r, fmt.Errorf("%w: %w", ErrNoAnswer, o.Err)
		}
		wait := max(o.Wait, pause)
		if tries >= shapePatient || time.Since(began)+wait > longestFirst {
			s.none = true
			s.note("even a single call is refused: %v", o.Err)
			return r, nil
		}
		s.log("refused, although nothing else is open: waits %v", wait)
		if err := sleep(ctx, wait); err != nil {
			return r, err
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// weigh learns from headers how tokens are counted: as declared, or as used. Two calls are enough.
func (s *search) weigh(ctx context.Context) error {
	s.absorb()
	k := s.limits[sluice.Tokens]
	if s.chargeFrom != SourceUnknown && s.chargeFrom != sluice.SourceRegistry || k.Source != sluice.SourceHeader {
		return nil
	}
	s.enter(PhaseCharge, "how tokens are counted")
	before := s.heard(sluice.Tokens) // with the answer to a tiny call
	declared := min(largeBound, int(k.Value)/2)
	if declared <= 4*tinyOutput {
		return nil
	}
	// The largest that it may be charged with while the bucket holds it: a small one refills quickly.
	large := shape{name: "declared", prompt: word, bound: declared}
	r, err := s.p.once(ctx, &large)
	if err != nil {
		return err
	}
	s.learn(&large, r)
	now := s.heard(sluice.Tokens)
	used := float64((now.Limit - now.Remaining) - (before.Limit - before.Remaining)) // since
	cameBack := k.Value / 60 * (now.at.Sub(before.at) + s.least).Seconds()
	switch {
	case r.outcome.TooLarge:
		s.charge, s.chargeFrom = sluice.ChargeDeclared, sluice.SourceRefusal
	case !r.accepted() || now.at != r.done:
	case used >= 0.5*float64(declared):
		s.charge, s.chargeFrom = sluice.ChargeDeclared, sluice.SourceHeader
	case used+cameBack < 0.9*float64(declared): // it would be more
		s.charge, s.chargeFrom = sluice.ChargeActual, sluice.SourceHeader
	}
	s.log("a call that declared %d tokens: %s, by %s", declared, s.charge, s.chargeFrom)
	return nil
}

// learnCharge learns from the words of a refusal how tokens are counted, where a call declares many more than it has.
func (s *search) learnCharge(sh *shape, r *reply) {
	o, declared := &r.outcome, int64(sh.bound)
	in, _ := sh.reserve()
	if o.Dimension != sluice.Tokens || o.Requested <= 0 || s.chargeFrom != SourceUnknown || declared < 3*int64(in) {
		return
	}
	s.charge, s.chargeFrom = sluice.ChargeActual, sluice.SourceRefusal
	if o.Requested >= declared*9/10 {
		s.charge = sluice.ChargeDeclared
	}
}

// heard is what answers said last of a budget.
func (s *search) heard(d sluice.Dimension) evidence {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.heard[d]
}
