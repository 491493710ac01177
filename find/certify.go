package find

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

const (
	certifyPace = 4.0 // times what the answer needs: a bucket of a minute is empty in a quarter of one
	pacedShare  = 0.8 // of a rate that is known, while another budget is tested
	largestFat  = 4000
	// largestWeight is how many real calls one may stand for.
	largestWeight = 8
	tellApart     = 12 // tiny calls at the same pace: refused as well, it is not the tokens
	mostDrains    = 8
	fewCalls      = 500
	fewTokens     = 100_000
	lastCalls     = 8    // of which half are refused when a budget is used up
	strayShare    = 0.02 // of calls may be refused for no reason
	sameLimit     = 0.15 // two rates that differ by less may be of one limit
)

// certify uses a minute's worth of what the answer needs: first as requests that declare as many tokens as real ones,
// then, where tokens may be counted as they are used, as input. What is refused is measured.
func (s *search) certify(ctx context.Context) error {
	if s.cfg.Quick {
		return nil
	}
	tried := make(map[proof]int)
	for range mostDrains {
		s.absorb()
		s.same()
		of, sh, ok := s.untested()
		if !ok {
			return nil
		}
		if err := s.drain(ctx, of, sh); err != nil {
			return err
		}
		// Twice refused, and twice nothing was refused when it was to be measured: the drain alone is too fast for a
		// budget, and other calls will tell which.
		if _, vouched := s.vouched[of]; !vouched {
			if tried[of]++; tried[of] == 2 {
				s.vouch(of, &s.tiny, voucher{perSecond: s.need()})
			}
		}
	}
	return nil
}

// toldTokens reports whether a limit of tokens is known, of whatever kind.
func (s *search) toldTokens() bool {
	return s.sure(sluice.Tokens) || s.sure(sluice.InputTokens) || s.sure(sluice.OutputTokens)
}

// sure reports whether a limit is known by more than hearsay.
func (s *search) sure(d sluice.Dimension) bool {
	f := s.limits[d]
	return f.Known() && f.Source != sluice.SourceRegistry && f.Source != sluice.SourceAtLeast
}

// same drops a rate of requests that was measured, where it is a limit of tokens that tiny calls met: they have some, too.
func (s *search) same() {
	requests := s.limits[sluice.Requests]
	if requests.Source != sluice.SourceMeasured || s.tinyIn.n == 0 {
		return
	}
	in, out := s.tinyIn.mean(), s.tinyOut.mean()
	for _, d := range rates[1:] {
		for _, tokens := range [...]float64{in, in + out, max(in, tinyOutput), in + tinyOutput} {
			if s.sure(d) && math.Abs(requests.Value*tokens/s.limits[d].Value-1) < sameLimit {
				s.log("%.0f tiny calls a minute are the %.0f of %s", requests.Value, s.limits[d].Value, d)
				delete(s.limits, sluice.Requests)
				delete(s.grants, sluice.Requests)
				s.vouch(ofRequests, &s.tiny, voucher{perSecond: min(s.need(), requests.Value/60)})
				return
			}
		}
	}
}

// proof is what a drain showed to be enough.
type proof int

const (
	ofRequests proof = iota
	ofDeclared       // tokens, as they are declared
	ofUsed           // tokens, as they are used
)

// untested is what nobody vouches for yet, and the calls that test it. Headers that state any budget state all.
func (s *search) untested() (proof, shape, bool) {
	missing := func(p proof) bool { _, ok := s.vouched[p]; return !ok }
	stated := s.toldTokens() || s.limits[sluice.Requests].Source == sluice.SourceHeader
	switch {
	case missing(ofRequests) && !s.sure(sluice.Requests) && stated:
		return ofRequests, s.tiny, true
	case missing(ofRequests) && !s.sure(sluice.Requests):
		return ofRequests, s.declaring(), true // which tests both, unless some are refused
	case stated:
	case missing(ofDeclared):
		return ofDeclared, s.declaring(), true
	case missing(ofUsed):
		return ofUsed, s.fat(), true
	}
	return 0, shape{}, false
}

// size is how much larger than a real one a call may be that tests tokens: where the rate of requests is known, fewer and
// larger ones are as good, and do not meet it. Where very few may be open, only larger ones use up a budget.
func (s *search) size(real, largest float64) float64 {
	weight := certifyPace / float64(s.room())
	if s.sure(sluice.Requests) {
		weight = largestWeight
	}
	return max(real, min(weight*real, largest))
}

// declaring is a call that declares as many tokens as a real one, or more, and uses few.
func (s *search) declaring() shape {
	return shape{name: "declared", prompt: word, bound: int(s.size(max(s.in.mean(), float64(s.real.bound)), largeBound))}
}

// fat is a call with as much input as a real one has tokens, or more.
func (s *search) fat() shape {
	return filler(int(s.size(s.in.mean()+s.out.mean(), largestFat)))
}

// weight is how many real calls' tokens a call of a shape is worth.
func (s *search) weight(sh *shape) float64 {
	switch sh.name {
	case "declared":
		return float64(sh.bound) / max(1, s.in.mean(), float64(s.real.bound))
	case "fat":
		return float64(len(sh.prompt)+nonceChars) / 4 / max(1, s.in.mean()+s.out.mean())
	}
	return 1
}

// drain makes a minute's worth of calls as fast as it may, and measures what refuses.
func (s *search) drain(ctx context.Context, of proof, sh shape) error {
	if err := s.fit(ctx, &sh); err != nil {
		return err
	}
	weight := 1.0
	if of != ofRequests {
		weight = s.weight(&sh)
	}
	need := s.need() / weight
	pace := s.drainPace(need)
	// Workers that are answered in no time need more than anybody allows: what is sure is said then.
	calls := min(60*need*s.refillShare(of, &sh, need, pace), 60*fastestPace)
	n, most := max(1, int(math.Ceil(calls))), s.affordable(&sh)
	s.enter(PhaseCertify, "%d calls worth a minute of %s", min(n, most), of)
	l, began := s.newLoop(&sh), time.Now()
	by, refused, err := s.fire(ctx, l, of, pace, min(n, most))
	if ended := l.end(); ended != nil {
		err = ended
	}
	switch {
	case err != nil:
		return err
	case l.stuck: // it proves nothing
		return s.recovery(ctx)
	case refused:
		return s.refusedBy(ctx, by, &sh, pace)
	case most < n:
		s.vouch(of, &sh, voucher{perSecond: float64(most) * weight / 60, short: true})
		s.uncertain(of, &sh, n)
	default:
		// A bucket of a minute that was full holds as much, and what flowed in meanwhile.
		proven := float64(n) * weight / (time.Minute + time.Since(began)).Seconds()
		s.vouch(of, &sh, voucher{perSecond: s.need(), proven: proven})
	}
	return nil
}

// refillShare is by how much more than a minute's worth is needed to empty a bucket of a minute, since it is refilled
// meanwhile. Where that costs much it is not made up for: what is verified is less then.
func (s *search) refillShare(of proof, sh *shape, need, pace float64) float64 {
	share := 2.0
	if pace > need {
		share = min(share, pace/(pace-need))
	}
	in, out := sh.reserve()
	calls := 60 * need * share
	cheap := calls <= fewCalls && calls*float64(in+out) <= fewTokens
	if !cheap && (of == ofUsed || pace <= need) {
		return 1
	}
	return share
}

// fit makes one call of a shape that is not tiny, to see whether the model takes it, and how much of what it declares is
// used: some models think before they say a word. One that is too large is made smaller.
func (s *search) fit(ctx context.Context, sh *shape) error {
	for sh.name != s.tiny.name {
		r, err := s.passing(ctx, sh)
		switch {
		case err == nil:
			if r.accepted() && r.outcome.HasUsage {
				sh.output = min(sh.bound, max(tinyOutput, 3*r.outcome.Usage.Output/2))
			}
			return nil
		case !s.shrink(sh, &r):
			return err
		}
	}
	return nil
}

// shrink makes a call smaller that the model does not take, but not smaller than a real one.
func (s *search) shrink(sh *shape, r *reply) bool {
	if kind := r.outcome.Kind; kind != sluice.BadRequest && kind != sluice.ContextLength || s.weight(sh) < 1.5 {
		return false
	}
	s.log("the model does not take so large a call: %v", r.outcome.Err)
	if sh.name == "declared" {
		sh.bound = max(sh.bound/2, s.real.bound)
	} else {
		*sh = filler(max(len(sh.prompt)/8, int(s.in.mean()+s.out.mean())))
	}
	return true
}

func (p proof) String() string {
	return [...]string{"requests", "tokens as declared", "tokens as used"}[p]
}

// drainPace is as fast as slots and known rates allow, and not faster than tells more.
func (s *search) drainPace(need float64) float64 {
	pace := certifyPace * need
	if s.quick.n > 0 {
		pace = min(pace, 0.95*float64(s.room())/s.quick.mean())
	}
	if s.sure(sluice.Requests) {
		pace = min(pace, pacedShare*s.limits[sluice.Requests].Value/60)
	}
	return min(pace, fastestPace)
}

// affordable is how many calls of a shape the budget allows, less what the soak needs.
func (s *search) affordable(sh *shape) int {
	in, out := sh.reserve()
	realIn, realOut := s.real.reserve()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	soak := float64(s.soakCalls())
	left := float64(s.cfg.TokenBudget-s.p.spent.Tokens()) - soak*float64(realIn+realOut)
	n := left / float64(in+out)
	if most := s.cfg.MaxCost; most != nil {
		money := *most - *s.p.spent.Cost - soak*s.p.price(realIn, realOut)
		n = min(n, money/max(1e-12, s.p.price(in, out)))
	}
	return max(0, int(min(n, 1e9)))
}

// uncertain says what could not be certified, and which flag would.
func (s *search) uncertain(of proof, sh *shape, calls int) {
	in, out := sh.reserve()
	s.p.mu.Lock()
	spent := s.p.spent.Tokens()
	s.p.mu.Unlock()
	realIn, realOut := s.real.reserve()
	tokens := spent + calls*(in+out) + s.soakCalls()*(realIn+realOut)
	s.note("the budget does not suffice to certify the %s that more workers need in a minute", of)
	s.hint = "--token-budget " + prose.Group(int(math.Ceil(float64(tokens)*1.1/1e5)*1e5)) + " certifies more"
	if s.cfg.MaxCost != nil {
		s.hint += ", with a --max-cost of as much"
	}
}

// vouch takes what passed as certified.
func (s *search) vouch(of proof, sh *shape, v voucher) {
	s.vouched[of] = v
	if of == ofRequests && sh.name == "declared" {
		s.vouched[ofDeclared] = v
	}
}

// voucher is what passed, in real calls' worth a second.
type voucher struct {
	perSecond float64 // a minute's worth of it passed,
	proven    float64 // and so much flows in for certain; 0: as much
	short     bool    // more is needed, and was not tried
}

// atLeast is what is surely allowed.
func (v voucher) atLeast() float64 { return min(v.perSecond, cmp.Or(v.proven, v.perSecond)) }

// vouchedWorkers is how many workers what was certified suffices for, if that is fewer than could be.
func (s *search) vouchedWorkers() float64 {
	w := math.Inf(1)
	for _, v := range s.vouched {
		if v.short {
			w = min(w, v.perSecond*s.latency.mean())
		}
	}
	return w
}

// fire makes n calls at a pace, and stops when one is refused that is no stray; then it tells what refused, as long as
// that is still empty.
func (s *search) fire(ctx context.Context, l *loop, of proof, pace float64, n int) (by proof, refused bool, err error) {
	began := time.Now()
	for len(l.calls) < n {
		if err := sleep(ctx, time.Until(began.Add(seconds(float64(len(l.calls))/pace)))); err != nil {
			return of, false, err
		}
		if crowded, err := l.going(); crowded || err != nil {
			return of, false, err
		}
		if !l.send(ctx) {
			// As many are open as may be: the pace is theirs.
			if err := sleep(ctx, time.Millisecond); err != nil {
				return of, false, err
			}
		}
		if l.refusing() {
			by, err = s.tell(ctx, l, of, pace)
			return by, true, err
		}
	}
	l.wg.Wait()
	refused = float64(l.refusedAmong(0, len(l.calls))) > max(2, strayShare*float64(len(l.calls)))
	if by, ok := l.said(); ok && refused {
		return by, true, nil
	}
	return of, refused, nil
}

// refusing reports whether so many of the last calls were refused that they are no strays.
func (l *loop) refusing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, refused := 0, 0
	for i := len(l.calls) - 1; i >= 0 && seen < lastCalls; i-- {
		if c := l.calls[i]; c.over {
			seen++
			if c.refused() {
				refused++
			}
		}
	}
	return 2*refused >= lastCalls
}

// refusedBy measures what refused. Where tiny calls pass after all, however fast, it was the tokens.
func (s *search) refusedBy(ctx context.Context, of proof, sh *shape, pace float64) error {
	s.absorb()
	if of == ofRequests {
		if s.sure(sluice.Requests) { // the refusals have told
			return nil
		}
		found, err := s.measure(ctx, sluice.Requests, &s.tiny, question{pace: pace})
		if err != nil || found || sh.name == s.tiny.name {
			return err
		}
		of = ofDeclared
	}
	if s.toldTokens() {
		return nil
	}
	real := shape{name: "declared", prompt: word, bound: int(max(s.in.mean(), float64(s.real.bound))), output: sh.output}
	charge := sluice.ChargeDeclared
	if of == ofUsed {
		real, charge = filler(int(s.in.mean()+s.out.mean())), sluice.ChargeActual
	}
	if s.sure(sluice.Requests) && s.busy(sluice.Requests) < 2*float64(s.ceiling()) { // fewer and larger ones do not meet it
		real = *sh
	}
	d := sluice.Tokens
	if of == ofUsed && s.cfg.Provider.Dialect == provider.Gemini { // which counts the input alone
		d = sluice.InputTokens
	}
	was, from := s.charge, s.chargeFrom
	s.charge, s.chargeFrom = charge, sluice.SourceMeasured
	if _, err := s.measure(ctx, d, &real, question{pace: pace}); err != nil || s.sure(d) {
		return err
	}
	s.charge, s.chargeFrom = was, from
	return nil
}

// tell tells which budget refuses calls that declare many tokens: tiny ones at the same pace meet that of requests alone.
func (s *search) tell(ctx context.Context, l *loop, of proof, pace float64) (proof, error) {
	if of != ofRequests || l.sh.name != "declared" {
		return of, nil
	}
	if of, ok := l.said(); ok {
		return of, nil
	}
	s.enter(PhaseCertify, "requests or tokens?")
	tiny := s.newLoop(&s.tiny)
	for range tellApart {
		tiny.send(ctx)
		if sleep(ctx, seconds(1/pace)) != nil {
			break
		}
	}
	if err := tiny.end(); err != nil {
		return of, err
	}
	refused := 0
	for _, c := range tiny.calls {
		if c.refused() {
			refused++
		}
	}
	if refused <= 1 {
		return ofDeclared, nil
	}
	return ofRequests, nil
}

// said is what the loop's refusals say of themselves.
func (l *loop) said() (proof, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		switch d := c.outcome.Dimension; {
		case !c.over || !c.refused():
		case d == sluice.Requests:
			return ofRequests, true
		case d == sluice.Tokens || d == sluice.InputTokens || d == sluice.OutputTokens:
			return ofDeclared, true
		}
	}
	return 0, false
}
