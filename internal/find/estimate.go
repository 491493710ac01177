package find

// Forecast is the amount that a search may spend, before it starts. Its JSON is the document of a dry run.
type Forecast struct {
	Subject
	TokenBudget int `json:"token_budget"` // Token cap; 0 is unlimited.
	// Typical is the amount of a search that reaches a limit of some hundred requests a minute, and learns little from headers:
	// with them it spends less.
	Typical Amount `json:"typical"` // Typical requests, tokens and cost.
	Max     Amount `json:"max"`     // Maximum requests, tokens and cost.
}

// Amount is an amount that is spent. Requests are accepted ones: rejected ones cost nothing.
type Amount struct {
	Requests int      `json:"requests"` // Accepted requests.
	Tokens   int      `json:"tokens"`   // Input and output tokens.
	Cost     *float64 `json:"cost_usd"` // Cost, if known. Nil: the prices are unknown.
}

// Numbers of requests in the phases.
const (
	chargeMost   = 2
	burstRepeats = 3
	burstUsual   = 32  // at once: most limits are reached there
	rateUsual    = 24  // grants
	rateOffered  = 1.5 // requests for each grant: those above it are rejected, and cost nothing
	certifyUsual = 300
	certifyFewer = 3
	certifyFast  = 600 // requests per minute of one worker, when they take a tenth of a second
	soakUsual    = 33
	soakMost     = 60
)

// expected is a request of one shape, and the usual number of tokens in its response.
type expected struct {
	shape
	answer int
}

// tokensOf returns the usual number of tokens in a prompt, with its nonce and the additions of an API.
func tokensOf(prompt string) int { return (len(prompt)+nonceChars)/4 + 8 }

// Estimate returns the amount that [Auto] may spend with cfg. It sends no request. The error is a *fault.FieldError.
func Estimate(cfg Config) (Forecast, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Forecast{}, err
	}
	real, words := expected{newReal(&cfg), cfg.MinOutputTokens}, expected{tiny, 2}
	f := forecast{Forecast: Forecast{Subject: cfg.subject(ModeAuto)}, b: &cfg.Budget, least: words}
	f.add(real, shapeCalls, shapeCalls)
	f.add(expected{shape{prompt: word, bound: largeBound}, 2}, chargeMost, chargeMost)
	if cfg.Told.Concurrency == 0 {
		f.add(words, bursts(min(cfg.MaxWorkers, burstUsual)), burstRepeats*bursts(cfg.MaxWorkers))
	}
	if cfg.Told.RPM == 0 {
		f.add(words, rateUsual*rateOffered, mostGrants*rateOffered)
	}
	tokens := cfg.Told.TPM == 0 && cfg.Told.ITPM == 0 && cfg.Told.OTPM == 0
	if tokens { // requests as large as real ones
		f.add(real, 0, mostGrants*rateOffered)
	}
	most := certifyFast * cfg.MaxWorkers
	usual := min(certifyUsual, most)
	f.add(words, usual, most)
	if tokens { // as many tokens as the real requests of a minute use, by fewer ones with long prompts
		long := expected{filler(certifyFewer * (tokensOf(cfg.Prompt) + cfg.MinOutputTokens)), 2}
		f.add(long, usual/certifyFewer, most/certifyFewer)
	}
	f.add(real, min(soakUsual, max(8, 3*cfg.MaxWorkers)), soakMost)
	f.add(words, recheckGrants, recheckGrants)
	return f.bounded(), nil
}

// EstimateSweep returns the amount that [Sweep] may spend with cfg. It sends no request. The error is a *fault.FieldError. Tries
// that fail come on top; they are rarely billed.
func EstimateSweep(cfg Config) (Forecast, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Forecast{}, err
	}
	up, most := 0, 0 // when nothing is rejected, and when the count is that is worst
	for passed, n := 0, nextWorkers(0, cfg.MaxWorkers); n > passed; passed, n = n, nextWorkers(n, cfg.MaxWorkers) {
		up += prompts(n)
		calls := up
		for back := n; back > 1 && fewerWorkers(back) > passed; {
			back = fewerWorkers(back)
			calls += prompts(back)
		}
		most = max(most, calls)
	}
	real := expected{newReal(&cfg), cfg.MinOutputTokens}
	f := forecast{Forecast: Forecast{Subject: cfg.subject(ModeSweep)}, b: &cfg.Budget, least: expected{real.shape, 1}}
	f.add(real, up, most)
	return f.bounded(), nil
}

// bursts returns the number of requests in the bursts up to so many at once.
func bursts(most int) (calls int) {
	for n := firstBurst; n < most; n *= 2 {
		calls += n
	}
	return calls + most
}

// forecast adds requests up.
type forecast struct {
	Forecast
	b     *Budget
	least expected // the smallest request
}

// amount returns the amount of so many requests with so many tokens each.
func (f *forecast) amount(calls, in, out int) Amount {
	a := Amount{Requests: calls, Tokens: calls * (in + out)}
	if f.b.priced() {
		a.Cost = new(f.b.price(calls*in, calls*out))
	}
	return a
}

// add adds requests of one shape.
func (f *forecast) add(e expected, usual, most int) {
	in, out := e.reserve()
	f.Typical, f.Max = f.Typical.plus(f.amount(usual, tokensOf(e.prompt), e.answer)), f.Max.plus(f.amount(most, in, out))
}

func (a Amount) plus(b Amount) Amount {
	sum := Amount{a.Requests + b.Requests, a.Tokens + b.Tokens, b.Cost}
	if a.Cost != nil {
		sum.Cost = new(*a.Cost + *b.Cost)
	}
	return sum
}

// bounded returns the forecast within the budget.
func (f *forecast) bounded() Forecast {
	f.TokenBudget = f.Settings.TokenBudget
	f.bound(&f.Typical)
	f.bound(&f.Max)
	return f.Forecast
}

// bound cuts an amount at the budget: each of its figures at the maximum that it may come to, if all requests are the
// smallest, or all tokens the cheapest or the dearest.
func (f *forecast) bound(a *Amount) {
	least := f.amount(1, tokensOf(f.least.prompt), f.least.answer)
	a.Requests = min(a.Requests, f.b.Tokens/least.Tokens)
	a.Tokens = min(a.Tokens, f.b.Tokens)
	if a.Cost == nil {
		return
	}
	cheap, dear := min(*f.b.PriceIn, *f.b.PriceOut)/1e6, max(*f.b.PriceIn, *f.b.PriceOut)/1e6
	cost := min(*a.Cost, dear*float64(f.b.Tokens))
	if m := f.b.MaxCost; m != nil {
		cost = min(cost, *m)
		a.Requests = atMost(a.Requests, *m / *least.Cost)
		a.Tokens = atMost(a.Tokens, *m/cheap)
	}
	a.Cost = &cost
}

// atMost returns n, or a smaller maximum. If nothing costs anything the maximum is no number.
func atMost(n int, most float64) int {
	if most < float64(n) {
		return int(most)
	}
	return n
}
