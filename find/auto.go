package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fifo"
)

// Auto searches for the number of calls that may be open at once so that none is refused. It always returns what is known
// so far, also beside an error: [ErrTokenBudget], [ErrMaxCost], [ErrDay], [ErrNoAnswer], [ErrUnreliable], a
// *FieldError before any call, a *provider.Error when the provider will not answer at all, or ctx's cause.
func Auto(ctx context.Context, cfg Config) (*Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return &Result{}, err
	}
	p, ctx := newProber(ctx, cfg)
	defer p.stop(nil)
	s := newSearch(cfg, p)
	if err = s.run(ctx); errors.Is(err, errRefused) {
		s.note("%v", err)
		s.none, err = true, nil
	}
	r := s.result()
	if err != nil { // nobody knows more than that
		r.Workers, r.Bound = r.Low, BoundStopped
	} else {
		r.Low, r.High = r.Workers, r.Workers
	}
	return r, err
}

// search is what an automatic search knows. One goroutine has it.
type search struct {
	cfg Config
	p   *prober

	real, tiny shape
	latency    sample // of real calls, seconds
	quick      sample // of tiny ones,
	tinyIn     sample // whose tokens in,
	tinyOut    sample // and out;
	least      time.Duration
	refusal    time.Duration // the longest that a refusal took
	in, out    sample        // tokens of real calls
	perChar    sample        // tokens in for a character, of fat ones,
	wordOut    sample        // and out

	slots   Finding // known cap or queue
	queue   bool
	flights [][]fifo.Flight // of bursts that were answered
	seen    int             // calls that were open at once and accepted
	limits  map[sluice.Dimension]Finding
	grants  map[sluice.Dimension]int // by which a limit was measured
	vouched map[proof]voucher
	by      map[sluice.Dimension]shape // the calls that measured it
	tedious map[sluice.Dimension]bool  // limits whose rate takes minutes to measure

	charge     sluice.Charge
	chargeFrom sluice.Source

	bucketOfOne bool
	forgiving   bool // refused calls were seen not to be charged
	soaked      Soak
	lowered     int // workers that a soak refused; 0: none
	notes       []string
	hint        string
	none        bool // nothing passed
}

func newSearch(cfg Config, p *prober) *search {
	s := &search{
		cfg: cfg, p: p,
		real:   shape{name: "real", real: true, prompt: cfg.Prompt, bound: cfg.MinOutputTokens},
		tiny:   shape{name: "tiny", prompt: word, bound: tinyOutput},
		limits: make(map[sluice.Dimension]Finding), grants: make(map[sluice.Dimension]int), vouched: make(map[proof]voucher),
		tedious: make(map[sluice.Dimension]bool), by: make(map[sluice.Dimension]shape),
		chargeFrom: SourceUnknown,
	}
	for d, limit := range cfg.Published.All() {
		s.state(d, *limit, sluice.SourceRegistry)
	}
	for d, limit := range cfg.Told.All() {
		s.state(d, *limit, sluice.SourceTold)
	}
	// What any server may do that speaks as OpenAI's does, nobody knows.
	if name := cfg.Provider.Name; name != "" && name != "openai-compatible" && name != "sim" {
		s.charge, s.chargeFrom = cfg.Provider.Charge, sluice.SourceRegistry
	}
	return s
}

// state takes a limit that somebody stated.
func (s *search) state(d sluice.Dimension, limit int, source sluice.Source) {
	f := Finding{Value: float64(limit), Source: source, At: time.Now()}
	switch {
	case limit <= 0:
	case d == sluice.Concurrency:
		s.slots = f
	default:
		s.limits[d] = f
	}
}

// run is the search, phase by phase.
func (s *search) run(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{s.shape, s.weigh, s.gallop, s.certify, s.pairs, s.soak, s.recheck} {
		if err := phase(ctx); err != nil {
			return err
		}
		s.absorb()
		if s.none {
			break
		}
	}
	return nil
}

// enter begins a phase, or another part of one.
func (s *search) enter(phase Phase, format string, args ...any) {
	doing := fmt.Sprintf(format, args...)
	low, high := s.interval()
	s.p.enter(phase, doing, low, high, true)
	s.log("%s: %s", phase, doing)
}

func (s *search) log(format string, args ...any) {
	if s.cfg.Log != nil {
		s.cfg.Log(fmt.Sprintf(format, args...))
	}
}

func (s *search) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.log("%s", text)
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// absorb takes over what answers have said of limits since.
func (s *search) absorb() {
	s.p.mu.Lock()
	heard := maps.Clone(s.p.heard)
	s.p.mu.Unlock()
	for _, of := range slices.Sorted(maps.Keys(heard)) { // two may be of one budget: the same has the last word each time
		e := heard[of]
		d := e.dimension()
		was := s.limits[d]
		if d == sluice.Concurrency {
			was = s.slots
		}
		weaker := !was.Known() || was.Source == sluice.SourceRegistry || was.Source == sluice.SourceAtLeast ||
			was.Source == e.source || e.source == sluice.SourceHeader && was.Source != sluice.SourceTold
		if e.Limit <= 0 || !weaker {
			continue
		}
		f := Finding{Value: float64(e.Limit), Source: e.source, At: e.at}
		if was.Known() && was.Value != f.Value {
			s.log("%s: %d, by %s", d, e.Limit, e.source)
		}
		if d == sluice.Concurrency {
			s.slots = f
		} else {
			s.limits[d] = f
		}
	}
}

// sample is a mean and a spread.
type sample struct {
	n            int
	sum, squares float64
}

func (m *sample) add(x float64) { m.n, m.sum, m.squares = m.n+1, m.sum+x, m.squares+x*x }

func (m *sample) mean() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}

// cv is the standard deviation over the mean. One or two say nothing of a spread: it is taken for large.
func (m *sample) cv() float64 {
	if m.n < 3 {
		return 0.3
	}
	mean, n := m.mean(), float64(m.n)
	if mean == 0 {
		return 0
	}
	return math.Sqrt(max(0, (m.squares-n*mean*mean)/(n-1))) / mean
}

// result is what is known now.
func (s *search) result() *Result {
	s.absorb()
	w, bound := s.answer()
	r := &Result{
		Workers: w, Bound: bound, BucketOfOne: s.bucketOfOne, Queue: s.queue, Slots: s.slots, Limits: maps.Clone(s.limits),
		Charge: s.charge, ChargeFrom: s.chargeFrom,
		Latency: Latency{seconds(s.latency.mean()), s.latency.cv(), s.latency.n},
		Input:   s.in.mean(), Output: s.out.mean(), Charged: s.charged(), Soak: s.soaked,
		Took: time.Since(s.p.began), Notes: s.notes, Hint: s.hint,
	}
	if !r.Slots.Known() && s.seen > 0 {
		r.Slots = Finding{Value: float64(s.seen), Source: sluice.SourceAtLeast, At: time.Now()}
	}
	s.certified(r.Limits)
	r.Binding = s.binding(r)
	r.Low, r.High = s.interval()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	r.Spent, r.Probes = s.p.spent, s.p.probes
	r.Notes = append(slices.Clone(r.Notes), s.advice(r)...)
	return r
}

// certified adds what passed without a refusal, where no limit is known.
func (s *search) certified(limits map[sluice.Dimension]Finding) {
	atLeast := func(d sluice.Dimension, perMinute float64) {
		if f := limits[d]; !f.Known() && perMinute >= 1 {
			limits[d] = Finding{Value: math.Floor(perMinute), Source: sluice.SourceAtLeast, At: time.Now()}
		}
	}
	if v, ok := s.vouched[ofRequests]; ok {
		atLeast(sluice.Requests, 60*v.atLeast())
	}
	declared, ok := s.vouched[ofDeclared]
	if used, both := s.vouched[ofUsed]; ok && both {
		atLeast(sluice.Tokens, 60*min(declared.atLeast()*max(s.in.mean(), float64(s.real.bound)), used.atLeast()*(s.in.mean()+s.out.mean())))
	}
}

func seconds(s float64) time.Duration {
	if ns := s * float64(time.Second); ns < float64(never) {
		return time.Duration(ns)
	}
	return never
}

// sleep waits, unless the search is over.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// longestRefusal is how long to wait for a refusal until a call counts as accepted.
func (s *search) longestRefusal() time.Duration {
	return max(50*time.Millisecond, 2*s.refusal)
}

// learn takes the times of answers into account.
func (s *search) learn(sh *shape, replies ...reply) {
	for i := range replies {
		r := &replies[i]
		took := r.took()
		switch {
		case r.refused():
			s.refusal = max(s.refusal, took)
			s.learnCharge(sh, r)
		case !r.accepted():
		case sh.real:
			s.latency.add(took.Seconds())
			in, out := r.outcome.Usage.Input, r.outcome.Usage.Output
			if in+out == 0 { // it does not say: nothing may count as less than it is
				in, out = sh.reserve()
				s.note("answers do not say how many tokens they used: it is taken for as many as a call may use, %d in and %d out", in, out)
			}
			s.in.add(float64(in))
			s.out.add(float64(out))
		case sh.name == s.tiny.name:
			s.quick.add(took.Seconds())
			if r.outcome.HasUsage {
				s.tinyIn.add(float64(r.outcome.Usage.Input))
				s.tinyOut.add(float64(r.outcome.Usage.Output))
			}
			s.least = min(cmp.Or(s.least, took), took)
		case sh.name == "fat" && r.outcome.HasUsage:
			s.perChar.add(float64(r.outcome.Usage.Input) / float64(len(sh.prompt)+nonceChars))
			s.wordOut.add(float64(r.outcome.Usage.Output))
		}
	}
}
