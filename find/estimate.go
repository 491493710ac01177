package find

import "math"

// Forecast is what a search may spend, before it begins.
type Forecast struct {
	TokenBudget int             `json:"token_budget"` // 0: none
	Phases      []PhaseForecast `json:"phases"`
	// Usual is what a search takes that meets a limit of some hundred requests a minute, and is told little by headers:
	// with them it takes less. Most bounds it, whatever happens.
	Usual Amount `json:"usual"`
	Most  Amount `json:"most"`
}

// PhaseForecast is one phase's part.
type PhaseForecast struct {
	Phase Phase  `json:"phase"`
	Usual Amount `json:"usual"`
	Most  Amount `json:"most"`
}

// Amount is how much is spent. Calls are those that are answered: refused ones cost nothing.
type Amount struct {
	Calls  int      `json:"calls"`
	Tokens int      `json:"tokens"`
	Cost   *float64 `json:"cost_usd"` // nil: the prices are not known
}

// How many calls the phases make.
const (
	shapeMost    = 3
	chargeMost   = 2
	burstFirst   = 4
	burstRepeats = 3
	burstUsual   = 32 // at once: there most limits are met
	rateUsual    = 24 // grants
	rateMost     = 40
	rateOffered  = 1.5 // calls for each grant: those above it are refused, and cost nothing
	certifyUsual = 300
	certifyFewer = 3
	certifyFast  = 600 // calls a minute of one worker, when they take a tenth of a second
	soakUsual    = 33
	soakMost     = 60
	recheckMost  = 12
	declaredMost = 4_000 // tokens, by calls that test how they are counted
)

// Estimate says what [Auto] may spend with cfg. It makes no call. The error is a *FieldError.
func Estimate(cfg Config) (Forecast, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Forecast{}, err
	}
	whole := estimated{cfg: cfg, shape: shape{prompt: cfg.Prompt, bound: cfg.MinOutputTokens}, answer: cfg.MinOutputTokens}
	tiny := estimated{cfg: cfg, shape: shape{prompt: word, bound: tinyOutput}, answer: 2}
	declared := estimated{cfg: cfg, shape: shape{prompt: word, bound: declaredMost}, answer: 2}

	f := forecast{cfg: cfg, least: tiny.usual(1)}
	f.add(PhaseShape, whole.usual(shapeMost), whole.most(shapeMost))
	f.add(PhaseCharge, declared.usual(chargeMost), declared.most(chargeMost))
	if cfg.Told.Concurrent == 0 {
		f.add(PhaseGallop, tiny.usual(bursts(min(cfg.MaxWorkers, burstUsual))), tiny.most(burstRepeats*bursts(cfg.MaxWorkers)))
	}
	if cfg.Told.RPM == 0 {
		f.add(PhaseRate, tiny.usual(rateUsual*rateOffered), tiny.most(rateMost*rateOffered))
	}
	tokens := cfg.Told.TPM == 0 && cfg.Told.ITPM == 0 && cfg.Told.OTPM == 0
	if tokens { // calls as large as real ones
		f.add(PhaseRate, whole.usual(0), whole.most(rateMost*rateOffered))
	}
	if usual, most := min(certifyUsual, certifyFast*cfg.MaxWorkers), certifyFast*cfg.MaxWorkers; !cfg.Quick {
		f.add(PhaseCertify, tiny.usual(usual), tiny.most(most))
		if tokens { // as many tokens as the real calls of a minute use, by fewer calls with long prompts
			long := estimated{cfg: cfg, shape: filler(certifyFewer * (tokensOf(cfg.Prompt) + cfg.MinOutputTokens)), answer: 2}
			f.add(PhaseCertify, long.usual(usual/certifyFewer), long.most(most/certifyFewer))
		}
	}
	f.add(PhaseSoak, whole.usual(min(soakUsual, max(8, 3*cfg.MaxWorkers))), whole.most(soakMost))
	f.add(PhaseRecheck, tiny.usual(recheckMost), tiny.most(recheckMost))
	return f.done(), nil
}

// EstimateSweep says what [Sweep] may spend with cfg. It makes no call. The error is a *FieldError.
func EstimateSweep(cfg Config) (Forecast, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Forecast{}, err
	}
	most, err := sweepAtMost(cfg)
	if err != nil {
		return Forecast{}, err
	}
	whole := estimated{cfg: cfg, shape: shape{prompt: cfg.Prompt, bound: cfg.MinOutputTokens}, answer: cfg.MinOutputTokens}
	n := min(firstWorkers, cfg.MaxWorkers)
	calls := prompts(n) // when nothing is refused
	for n < cfg.MaxWorkers {
		n = nextWorkers(n, cfg.MaxWorkers)
		calls += prompts(n)
	}
	f := forecast{cfg: cfg, least: cfg.amount(1, tokensOf(cfg.Prompt), 1)}
	f.add(PhaseSweep, whole.usual(calls), Amount{most.Calls, most.Tokens(), most.Cost})
	return f.done(), nil
}

// bursts is how many calls the bursts up to so many at once have.
func bursts(most int) (calls int) {
	for n := burstFirst; n < most; n *= 2 {
		calls += n
	}
	return calls + most
}

// estimated is a call of one shape, and how long its answer usually is.
type estimated struct {
	cfg    Config
	shape  shape
	answer int
}

// most is what so many such calls may spend.
func (e estimated) most(calls int) Amount {
	in, out := e.shape.reserve()
	return e.cfg.amount(calls, in, out)
}

// usual is what so many such calls usually spend.
func (e estimated) usual(calls int) Amount {
	return e.cfg.amount(calls, tokensOf(e.shape.prompt), e.answer)
}

// tokensOf is how many tokens a prompt usually has, with its nonce and what an API adds.
func tokensOf(prompt string) int { return (len(prompt)+nonceChars)/4 + 8 }

func (c *Config) amount(calls, in, out int) Amount {
	a := Amount{Calls: calls, Tokens: calls * (in + out)}
	if c.PriceIn != nil && c.PriceOut != nil {
		cost := float64(calls) * (float64(in)**c.PriceIn + float64(out)**c.PriceOut) / 1e6
		a.Cost = &cost
	}
	return a
}

// forecast adds phases up.
type forecast struct {
	Forecast
	cfg   Config
	least Amount // one call of the smallest
}

// add adds a phase, or a part of the last one.
func (f *forecast) add(p Phase, usual, most Amount) {
	if n := len(f.Phases); n > 0 && f.Phases[n-1].Phase == p {
		last := &f.Phases[n-1]
		last.Usual, last.Most = last.Usual.plus(usual), last.Most.plus(most)
	} else {
		f.Phases = append(f.Phases, PhaseForecast{p, usual, most})
	}
	f.Usual, f.Most = f.Usual.plus(usual), f.Most.plus(most)
}

func (a Amount) plus(b Amount) Amount {
	a.Calls, a.Tokens = a.Calls+b.Calls, a.Tokens+b.Tokens
	switch {
	case b.Cost == nil:
	case a.Cost == nil:
		a.Cost = b.Cost
	default:
		sum := *a.Cost + *b.Cost
		a.Cost = &sum
	}
	return a
}

// done holds the sums to what the search may cost.
func (f *forecast) done() Forecast {
	if f.cfg.TokenBudget < math.MaxInt {
		f.TokenBudget = f.cfg.TokenBudget
	}
	f.bound(&f.Usual)
	f.bound(&f.Most)
	for i := range f.Phases {
		p := &f.Phases[i]
		f.bound(&p.Usual)
		f.bound(&p.Most)
	}
	return f.Forecast
}

// bound cuts an amount at the budgets: each of its figures at the most that it may come to, all calls being the smallest, or
// all tokens the cheapest or the dearest.
func (f *forecast) bound(a *Amount) {
	c := &f.cfg
	a.Calls = min(a.Calls, c.TokenBudget/f.least.Tokens)
	a.Tokens = min(a.Tokens, c.TokenBudget)
	if a.Cost == nil {
		return
	}
	cheap, dear := min(*c.PriceIn, *c.PriceOut)/1e6, max(*c.PriceIn, *c.PriceOut)/1e6
	cost := min(*a.Cost, dear*float64(c.TokenBudget))
	if m := c.MaxCost; m != nil {
		cost = min(cost, *m)
		a.Calls = atMost(a.Calls, *m / *f.least.Cost)
		a.Tokens = atMost(a.Tokens, *m/cheap)
	}
	a.Cost = &cost
}

// atMost is n, or what is less.
func atMost(n int, most float64) int {
	if most < float64(n) {
		return int(most)
	}
	return n // also where nothing costs anything
}
