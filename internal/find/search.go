package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

const (
	shapeCalls    = 3
	longestFirst  = 2 * time.Minute // for the first requests to be accepted
	largeBound    = 4000            // tokens that a request declares at most: some models allow no more
	shapePatient  = 8               // rejections of one request
	mostDrains    = 8
	tellApart     = 12   // tiny requests at the pace of a drain: rejected as well, it is not the tokens
	strayShare    = 0.02 // of requests may be rejected for no reason
	mostSoaks     = 4
	longestRest   = time.Minute
	recheckGrants = 12
	pairTries     = 2
)

// Auto searches for the number of calls that may be open at once so that none is refused. It always returns a result, also
// beside an error: [ErrTokenBudget], [ErrMaxCost], [ErrDay], [ErrNoAnswer], [ErrUnreliable], a *fault.FieldError before any request, a
// *provider.Error if the provider responds to none, or ctx's cause.
func Auto(ctx context.Context, cfg Config) (*Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return &Result{}, err
	}
	m := &measurements{}
	h := newHypotheses(&cfg, m)
	p, ctx := newProber(ctx, cfg, m)
	defer p.stop(nil)
	s := &search{cfg: cfg, p: p, m: m, h: h, c: &certifier{m: m, h: h}}
	if err = s.run(ctx); errors.Is(err, errRefused) {
		s.note("%v", err)
		m.none, err = true, nil
	}
	return s.result(err), err
}

// search is the order of the experiments: the prober makes them, the measurements keep what they show, the hypotheses explain
// it and the certifier proves it. One goroutine has it.
type search struct {
	cfg Config
	p   *prober
	m   *measurements
	h   *hypotheses
	c   *certifier

	forgiving bool // rejected requests were seen not to be charged
	notes     []string
	hint      string
}

// run is the search, phase by phase.
func (s *search) run(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{s.shape, s.weigh, s.gallop, s.certify, s.pairs, s.soak, s.recheck} {
		if err := phase(ctx); err != nil {
			return err
		}
		s.absorb()
		if s.m.none {
			break
		}
	}
	return nil
}

// enter starts a phase, or another part of one.
func (s *search) enter(phase Phase, format string, args ...any) {
	doing := fmt.Sprintf(format, args...)
	low, high := s.c.interval()
	s.p.enter(phase, doing, low, high, true)
	s.p.log("%s: %s", phase, doing)
}

func (s *search) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.p.log("%s", text)
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// absorb takes over the limits that responses have stated.
func (s *search) absorb() {
	for _, d := range s.h.absorb() {
		s.p.log("%s: %.0f, by %s", d, s.h.limits[d].Value, s.h.limits[d].Source)
	}
}

// learn takes in requests that are over.
func (s *search) learn(sh *shape, replies ...reply) {
	for i := range replies {
		s.h.stated(sh, &replies[i])
		if s.m.add(sh, &replies[i]) {
			in, out := sh.reserve()
			s.note("responses contain no token usage: each request counts with its maximum of %d input and %d output tokens", in, out)
		}
	}
}

// loop returns a loop of requests of a shape.
func (s *search) loop(sh *shape) *loop {
	now, most := s.h.room()
	return &loop{p: s.p, sh: sh, room: now, most: most}
}

// burst sends n requests of a shape at once.
func (s *search) burst(ctx context.Context, sh *shape, n int) *loop {
	l := s.loop(sh)
	l.room = n
	for range n {
		l.send(ctx)
	}
	return l
}

// end waits for the requests of a loop, and learns from all.
func (s *search) end(l *loop) error {
	replies, err := l.wait()
	s.learn(l.sh, replies...)
	if err == nil {
		_, err = l.check()
	}
	return cmp.Or(err, failing(replies))
}

// shape sends real requests, one by one: how long one takes, and how many tokens it uses. A tiny one follows.
func (s *search) shape(ctx context.Context) error {
	s.enter(PhaseShape, "sending %d real requests one by one", shapeCalls)
	for i := range shapeCalls {
		r, err := s.passing(ctx, &s.h.real)
		if err != nil || s.m.none {
			return err
		}
		if i > 0 {
			continue
		}
		s.others(&r)
		if out := r.outcome.Usage.Output; r.outcome.HasUsage && out < s.cfg.MinOutputTokens/2 {
			s.note("responses have about %d tokens instead of %d, and the result applies only to this length: use a --prompt-file that asks for longer responses",
				out, s.cfg.MinOutputTokens)
		}
	}
	_, err := s.passing(ctx, &tiny)
	return err
}

// others notes that more of a limit is in use than the first requests of the search have used.
func (s *search) others(r *reply) {
	heard := s.m.last()
	for i := range r.outcome.Readings {
		reading := &r.outcome.Readings[i]
		own, used := 1.0, inUse(reading)
		if reading.Dimension != limits.Requests {
			own = float64(max(r.outcome.Usage.Input, s.h.real.bound) + r.outcome.Usage.Output)
		}
		e := heard[reading.Dimension]
		if slices.Contains(rates[:], reading.Dimension) && e.dimension() == reading.Dimension && used > 2*own+1 {
			s.note("%.0f of %s were in use, but the search had used only %.0f: other processes use the same limit, or used it in the last minute",
				used, reading.Dimension, own)
		}
	}
}

// passing sends requests until one is accepted, and waits in between for as long as rejections ask. If none is, the search is
// over.
func (s *search) passing(ctx context.Context, sh *shape) (reply, error) {
	began, pause := time.Now(), time.Second
	for tries := 0; ; tries++ {
		r, err := s.p.call(ctx, sh)
		if err != nil {
			return r, err
		}
		s.learn(sh, r)
		o := &r.outcome
		switch {
		case r.accepted():
			return r, nil
		case o.TooLarge || o.Kind == sluice.ContextLength:
			return r, fmt.Errorf("a real request alone exceeds a limit: %w", o.Err)
		case !r.refused():
			return r, fmt.Errorf("%w: %w", ErrNoAnswer, o.Err)
		}
		wait := max(o.Wait, pause)
		if tries >= shapePatient || time.Since(began)+wait > longestFirst {
			s.m.none = true
			s.note("even a single request is rejected: %v", o.Err)
			return r, nil
		}
		s.p.log("rejected, although no other request is in flight: waiting %v", wait)
		if err := wake.In(ctx, wait, nil); err != nil {
			return r, err
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// weigh learns from headers how tokens are counted: as declared, or as used. One request is enough.
func (s *search) weigh(ctx context.Context) error {
	s.absorb()
	limit := s.h.limits[limits.Tokens].Value
	if s.h.chargeFrom != SourceUnknown && s.h.chargeFrom != limits.SourceRegistry || !s.h.header(limits.Tokens) {
		return nil
	}
	s.enter(PhaseCharge, "measuring how tokens are counted")
	before := s.m.last()[limits.Tokens] // with the response to a tiny request
	// The maximum that may be charged while the bucket holds it: a small bucket refills quickly.
	declared := min(largeBound, int(limit)/2)
	if declared <= 4*tinyOutput {
		return nil
	}
	large := shape{kind: declaredCall, prompt: word, bound: declared}
	r, err := s.p.once(ctx, &large)
	if err != nil {
		return err
	}
	s.learn(&large, r)
	now := s.m.last()[limits.Tokens]
	used := float64((now.Limit - now.Remaining) - (before.Limit - before.Remaining)) // since
	cameBack := limit / 60 * (now.at.Sub(before.at).Seconds() + s.m.of[tinyCall].took.least)
	switch {
	case r.outcome.TooLarge:
		s.h.charge, s.h.chargeFrom = limits.ChargeDeclared, limits.SourceRejection
	case !r.accepted() || now.at != r.done:
	case used >= 0.5*float64(declared):
		s.h.charge, s.h.chargeFrom = limits.ChargeDeclared, limits.SourceHeader
	case used+cameBack < 0.9*float64(declared): // it would be more
		s.h.charge, s.h.chargeFrom = limits.ChargeActual, limits.SourceHeader
	}
	s.p.log("the tokens charged for a request that declared %d tokens are %s (source: %s)", declared, s.h.charge, s.h.chargeFrom)
	return nil
}

// certify uses a minute's worth of the answer's need: first as requests that declare as many tokens as real ones, then, if
// tokens may be counted as they are used, as input. The limit that rejects some is measured.
func (s *search) certify(ctx context.Context) error {
	for range mostDrains {
		s.absorb()
		if d, dropped := s.h.same(); dropped.Known() {
			s.p.log("%.0f tiny requests per minute reach the limit of %.0f %s", dropped.Value, s.h.limits[d].Value, d)
			s.c.vouch(ofRequests, &tiny, voucher{perSecond: min(s.h.need(), dropped.Value/60)})
		}
		of, sh, ok := s.c.next()
		if !ok {
			return nil
		}
		if err := s.drain(ctx, of, sh); err != nil {
			return err
		}
		s.c.futile(of)
	}
	return nil
}

// drain sends a minute's worth of requests as fast as it may, and measures the limit that rejects some.
func (s *search) drain(ctx context.Context, of proof, sh shape) error {
	if err := s.fit(ctx, &sh); err != nil {
		return err
	}
	d := s.c.drain(of, sh)
	affordable := s.p.affords(&sh, s.c.soakCalls(), &s.h.real)
	s.enter(PhaseCertify, "sending %d requests that use the %s of one minute", min(d.calls, affordable), of)
	l, began := s.loop(&sh), time.Now()
	by, refused, err := s.fire(ctx, l, &d, min(d.calls, affordable))
	if ended := s.end(l); ended != nil {
		err = ended
	}
	switch {
	case err != nil:
		return err
	case l.stuck: // it proves nothing
		return s.recovery(ctx)
	case refused:
		return s.refusedBy(ctx, by, &sh, d.pace)
	}
	s.c.passed(&d, affordable, time.Since(began))
	if affordable < d.calls {
		s.uncertain(of, &sh, d.calls)
	}
	return nil
}

// fit sends one request of a shape that is not tiny, to see whether the model takes it, and how much of the declared output it
// uses: some models think before they say a word. One that is too large is made smaller.
func (s *search) fit(ctx context.Context, sh *shape) error {
	for sh.kind != tinyCall {
		r, err := s.passing(ctx, sh)
		switch {
		case err == nil:
			if r.accepted() && r.outcome.HasUsage {
				sh.output = min(sh.bound, max(tinyOutput, 3*r.outcome.Usage.Output/2))
			}
			return nil
		case !s.c.shrink(sh, &r):
			return err
		}
		s.p.log("the model rejects a request of this size: %v", r.outcome.Err)
	}
	return nil
}

// uncertain notes what could not be certified, and the flag that would.
func (s *search) uncertain(of proof, sh *shape, calls int) {
	in, out := sh.reserve()
	realIn, realOut := s.h.real.reserve()
	spent := s.p.spent()
	tokens := spent.Tokens() + calls*(in+out) + s.c.soakCalls()*(realIn+realOut)
	s.note("the budget is too small to verify the %s per minute that more workers need", of)
	s.hint = "--token-budget " + prose.Group(int(math.Ceil(float64(tokens)*1.1/1e5)*1e5)) + " verifies more workers"
	if s.cfg.Budget.MaxCost != nil {
		s.hint += ", with the same --max-cost"
	}
}

// fire sends n requests at the pace of a drain, and stops when one is rejected for a reason; then it finds out by which limit,
// while that is still used up.
func (s *search) fire(ctx context.Context, l *loop, d *drain, n int) (by proof, refused bool, err error) {
	began := time.Now()
	for len(l.calls) < n {
		if err := wake.In(ctx, time.Until(began.Add(seconds(float64(len(l.calls))/d.pace))), nil); err != nil {
			return d.of, false, err
		}
		if crowded, err := l.check(); crowded || err != nil {
			return d.of, false, err
		}
		if !l.send(ctx) { // as many are open as may be: the pace is theirs
			if err := wake.In(ctx, time.Millisecond, nil); err != nil {
				return d.of, false, err
			}
		}
		if l.refusing() {
			by, err = s.tellApart(ctx, l, d)
			return by, true, err
		}
	}
	l.wg.Wait()
	refused = float64(l.refused(0, len(l.calls))) > max(2, strayShare*float64(len(l.calls)))
	if by, ok := ofStated(l); ok && refused {
		return by, true, nil
	}
	return d.of, refused, nil
}

// ofStated returns the kind of limit that a rejection of a loop names.
func ofStated(l *loop) (by proof, ok bool) {
	switch l.stated() {
	case limits.AnyDimension:
		return 0, false
	case limits.Requests:
		return ofRequests, true
	}
	return ofDeclared, true
}

// tellApart finds out which limit rejects requests that declare many tokens: tiny ones at the same pace use only that of
// requests.
func (s *search) tellApart(ctx context.Context, l *loop, d *drain) (proof, error) {
	if d.of != ofRequests || d.sh.kind != declaredCall {
		return d.of, nil
	}
	if by, ok := ofStated(l); ok {
		return by, nil
	}
	s.enter(PhaseCertify, "testing whether requests or tokens are limited")
	words := s.loop(&tiny)
	for range tellApart {
		words.send(ctx)
		if wake.In(ctx, seconds(1/d.pace), nil) != nil {
			break
		}
	}
	if err := s.end(words); err != nil {
		return d.of, err
	}
	if words.refused(0, len(words.calls)) <= 1 {
		return ofDeclared, nil
	}
	return ofRequests, nil
}

// refusedBy measures the limit that rejected a drain. If tiny requests are accepted after all, however fast, it was the tokens.
func (s *search) refusedBy(ctx context.Context, of proof, sh *shape, pace float64) error {
	s.absorb()
	if of == ofRequests {
		if s.h.sure(limits.Requests) { // the rejections have stated it
			return nil
		}
		found, err := s.measure(ctx, limits.Requests, &tiny, question{pace: pace})
		if err != nil || found || sh.kind == tinyCall {
			return err
		}
		of = ofDeclared
	}
	if s.h.sureOfTokens() {
		return nil
	}
	d, charge := limits.Tokens, limits.ChargeDeclared
	real := shape{kind: declaredCall, prompt: word, bound: int(s.h.declared()), output: sh.output}
	if of == ofUsed {
		real, charge = filler(int(s.h.used())), limits.ChargeActual
		if s.cfg.Provider.Dialect == provider.Gemini { // which counts only the input
			d = limits.InputTokens
		}
	}
	if s.h.sure(limits.Requests) && s.h.busy(limits.Requests) < 2*float64(s.h.ceiling()) { // fewer and larger ones do not reach it
		real = *sh
	}
	was, from := s.h.charge, s.h.chargeFrom
	s.h.charge, s.h.chargeFrom = charge, limits.SourceMeasured
	if _, err := s.measure(ctx, d, &real, question{pace: pace}); err != nil || s.h.sure(d) {
		return err
	}
	s.h.charge, s.h.chargeFrom = was, from
	return nil
}

// pairs finds out whether a bucket holds more than one request: after a rest, two at once. One rejected twice: it does not.
func (s *search) pairs(ctx context.Context) error {
	r := &s.h.limits[limits.Requests]
	if r.Source != limits.SourceMeasured || s.m.seen > 2 {
		return nil
	}
	for range pairTries {
		s.enter(PhaseRate, "sending two simultaneous requests after a pause")
		if err := wake.In(ctx, min(longestRest, seconds(3*60/r.Value)), nil); err != nil {
			return err
		}
		two := s.burst(ctx, &tiny, 2)
		if _, err := two.wait(); err != nil || two.refused(0, 2) == 0 {
			return err
		}
	}
	s.h.single = true
	s.p.log("two simultaneous requests are always rejected")
	return nil
}

// soak runs the answer with real requests, and lowers it if they are rejected.
func (s *search) soak(ctx context.Context) error {
	again := false
	for tries := 1; tries <= mostSoaks; tries++ {
		w, _, _ := s.c.answer()
		replies, err := s.workers(ctx, w)
		if err := cmp.Or(err, failing(replies)); err != nil {
			return err
		}
		s.learn(&s.h.real, replies...)
		if err := crowding(replies); err != nil && tries == mostSoaks {
			return err
		} else if err != nil {
			if err := s.recovery(ctx); err != nil {
				return err
			}
			continue
		}
		refused := count(replies, (*reply).refused)
		s.m.soak = Soak{Workers: w, Requests: count(replies, (*reply).accepted) + refused, Rejected: refused}
		s.m.seen = max(s.m.seen, overlap(replies))
		switch {
		case refused == 0 || s.h.single, again && float64(refused) <= 1+strayShare*float64(len(replies)):
			return nil
		case !again && refused <= max(1, len(replies)/10): // a stray perhaps
			again = true
			continue
		case w == 1 && refused == len(replies): // perhaps none is safe
			return s.untilOnePasses(ctx)
		}
		if w == 1 {
			break
		}
		s.lower(w, replies)
		again = false
	}
	if soak := &s.m.soak; soak.Rejected > 0 {
		s.note("in the last check, %d of %d real requests were rejected: the provider allows less than it stated, or other processes use the same limit", soak.Rejected, soak.Requests)
	}
	return nil
}

// workers runs the real requests of a soak. They start at their later pace, after the buckets had time to fill for the first
// ones: a burst is not the subject.
func (s *search) workers(ctx context.Context, w int) (replies []reply, err error) {
	need := time.Duration(0)
	for _, d := range rates {
		if f := &s.h.limits[d]; f.Known() && f.Value > 0 {
			need = max(need, seconds(float64(w)*s.h.cost(d)*60/f.Value)+time.Second)
		}
	}
	if err := wake.In(ctx, min(longestRest, need), nil); err != nil {
		return nil, err
	}
	n := s.c.soakCalls()
	s.enter(PhaseSoak, "%s, %d real requests", prose.Count(w, "worker"), n)
	for r := range s.p.work(ctx, &s.h.real, crew{w, n, seconds(s.h.latency() / float64(w)), true}) {
		replies, err = append(replies, r.reply), cmp.Or(err, r.err)
	}
	return replies, err
}

// lower takes in rejections of a soak: the answer becomes the number of requests that were open when no more was accepted, or
// a share of the workers.
func (s *search) lower(w int, replies []reply) {
	most, accepted := overlap(replies), count(replies, (*reply).accepted)
	lowered := min(w-1, max(1, int(math.Floor(float64(w)*float64(accepted)/float64(len(replies))))))
	open := slices.ContainsFunc(replies, func(r reply) bool { return r.refused() && r.outcome.Dimension == limits.Concurrency })
	if most < w && !s.h.limits[limits.Concurrency].Known() && (open || accepted > len(replies)/2) {
		lowered = most
	}
	s.c.lowered = max(1, lowered)
	s.note("%d of %d real requests of %d workers were rejected, although the limits allow them: the number of workers is at most %d", count(replies, (*reply).refused), len(replies), w, s.c.lowered)
}

// recovery waits until a server that has no capacity, for whatever reason, responds again.
func (s *search) recovery(ctx context.Context) error {
	s.p.log("the server has no capacity: waiting until it has capacity")
	began := time.Now()
	for pause := firstPause; ; pause *= 2 {
		r, err := s.p.once(ctx, &tiny)
		switch {
		case err != nil:
			return err
		case r.accepted() || r.refused():
			return nil
		case time.Since(began)+pause > longestWait:
			return fmt.Errorf("%w: %w", ErrNoAnswer, r.outcome.Err)
		}
		if err := wake.In(ctx, pause, nil); err != nil {
			return err
		}
	}
}

// recheck measures the rate that bounds the answer once more: a limit that has changed is measured again.
func (s *search) recheck(ctx context.Context) error {
	for range 3 {
		changed, err := s.changed(ctx)
		if err != nil || !changed {
			return err
		}
		s.c.lowered = 0
		if err := s.soak(ctx); err != nil {
			return err
		}
	}
	s.note("the rate kept changing during the measurement: other processes may use the same limit")
	return nil
}

// changed reports whether the rate of a measured limit has changed.
func (s *search) changed(ctx context.Context) (bool, error) {
	for _, d := range rates {
		was := s.h.limits[d]
		if was.Source != limits.SourceMeasured || was.tedious || s.h.busy(d) > 1.5*float64(s.h.ceiling()) {
			continue
		}
		s.enter(PhaseRecheck, "measuring the refill rate of %s again", d)
		r, found, err := s.ask(ctx, &was.by, question{least: recheckGrants, patient: true})
		if err != nil {
			return false, err
		}
		now := r.perSecond * 60 * s.h.takes(d, &was.by)
		if !found || now == 0 || math.Abs(now-was.Value) <= 2*max(0.02, was.Margin+r.margin)*was.Value {
			continue
		}
		s.note("the measured %s per minute changed from %.0f to %.0f: the limit changed, or other processes use it", d, was.Value, now)
		_, err = s.measure(ctx, d, &was.by, question{})
		return true, err
	}
	return false, nil
}

// result returns what is known now. err: the search is stopped early.
func (s *search) result(err error) *Result {
	s.absorb()
	r := &Result{Subject: s.cfg.subject(ModeAuto), Notes: []string{}}
	r.Timestamp, r.Findings.Limits = time.Now().UTC(), make(map[limits.Dimension]Finding)
	real, soak := &s.m.of[realCall], s.m.soak
	soak.AtMost = min(1, 3/float64(soak.Requests))
	r.Soak, r.Spent, r.Took, r.BucketOfOne = soak, s.p.spent(), time.Since(s.p.began), s.h.single
	f := &r.Findings
	f.Queue, f.Charge, f.ChargeFrom = s.h.queue, s.h.charge, s.h.chargeFrom
	f.Latency = Latency{seconds(real.took.mean()), real.took.cv(), real.took.n}
	f.Input, f.Output, f.Charged = real.in.mean(), real.out.mean(), s.h.cost(limits.Tokens)
	for d := limits.Concurrency; d < limits.NumDimensions; d++ {
		if l := &s.h.limits[d]; l.Known() {
			f.Limits[d] = l.Finding
		}
	}
	if _, ok := f.Limits[limits.Concurrency]; !ok && s.m.seen > 0 {
		f.Limits[limits.Concurrency] = Finding{Value: float64(s.m.seen), Source: limits.SourceAtLeast, At: time.Now()}
	}
	certified := s.c.atLeast(f.Limits)
	r.Workers, r.Bound, r.Binding = s.c.answer()
	if r.Bound == BoundCertified {
		r.Binding = certified
	}
	r.Notes, r.Hint = append(append(r.Notes, s.notes...), s.advice(r)...), s.hint
	r.Low, r.High = r.Workers, r.Workers
	if err != nil {
		r.Low, r.High = s.c.interval()
		r.Workers, r.Bound, r.Error = 0, BoundStopped, err.Error()
		if soak.Requests > 0 && soak.Rejected == 0 {
			r.Workers = min(soak.Workers, r.High) // a limit may have been lowered since
		}
	}
	return r
}

// advice returns notes on the answer.
func (s *search) advice(r *Result) (notes []string) {
	if r.Findings.Latency.N == 0 || r.Workers == 0 {
		return nil
	}
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	workers, perSecond := prose.Count(r.Workers, "worker"), float64(r.Workers)/s.h.latency()
	for _, d := range []limits.Dimension{limits.RequestsPerDay, limits.TokensPerDay} {
		f, cost := r.Findings.Limits[d], s.h.cost(d)
		if lasts := seconds(min(f.Value/(perSecond*cost), 1e9)); f.Known() && cost > 0 && lasts < 24*time.Hour {
			note("%s use up the daily limit of %.0f %s in %s", workers, f.Value, d, lasts.Round(time.Minute))
		}
	}
	if i := slices.IndexFunc(rates[:], func(d limits.Dimension) bool { return s.h.busy(d) < 1 }); i >= 0 && r.Workers == 1 {
		note("even one worker is sometimes rejected: it needs %.0f %s per minute, but %.0f are allowed; sluice run paces its requests",
			60*perSecond*s.h.cost(rates[i]), rates[i], s.h.limits[rates[i]].Value)
	}
	v := s.c.vouched[ofRequests]
	switch sure := 60 * v.certain(); {
	case s.h.limits[limits.Requests].Known():
	case v.given && sure < 0.9*60*perSecond:
		note("%s send up to %.0f requests per minute, but only %.0f are verified: a limit between these rates shows only after minutes",
			workers, math.Ceil(60*perSecond), math.Floor(sure))
	}
	return notes
}

// seconds returns a duration, or the longest one.
func seconds(s float64) time.Duration {
	if ns := s * float64(time.Second); ns < float64(never) {
		return time.Duration(ns)
	}
	return never
}
