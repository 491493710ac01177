package sim

import (
	"fmt"
	"time"
)

// Limiter is a provider in virtual time: it judges and times calls by
// arithmetic alone, as a [Server] of the same Config does. Instants are counted
// from the first request and must not go backwards. It is not safe for
// concurrent use. Most callers want Admit, Quotas and Leave.
type Limiter struct {
	config  Config
	budgets *budgets
	places  places
	open    int
	paid    int
	spent   Spent
	strays  map[hash]uint32 // refused for no reason
}

// NewLimiter returns a limiter that nothing was asked yet, or an error that names the
// field of c that makes no sense, or that arithmetic cannot follow.
func NewLimiter(c Config) (*Limiter, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Contention > 0 {
		return nil, fmt.Errorf("sim: Config.Contention is %d, but a Limiter says when a call ends before others come", c.Contention)
	}
	return &Limiter{config: c, budgets: newBudgets(c), places: places{n: c.Queue}, strays: map[hash]uint32{}}, nil
}

// Config is the limiter's, with its defaults filled in.
func (l *Limiter) Config() Config { return l.config }

// Spent is what was ever charged, refusals that are charged left out.
type Spent struct{ Requests, Tokens, Input, Output float64 }

// Spent is what was charged so far.
func (l *Limiter) Spent() Spent { return l.spent }

// Course is how an admitted call goes.
type Course struct {
	Fault  Fault
	Head   time.Duration // the instant of the first byte
	End    time.Duration // and of the last
	Output int           // tokens that are made between the two
}

// Reasons of a refusal that no bucket explains.
const (
	WhyStorm      = "storm"
	WhyStray      = "stray" // [Faults].Throttled
	WhySpent      = "spent"
	WhyConcurrent = "concurrent"
	WhyBadRequest = "bad_request"
)

// Refusal is why a call was not admitted.
type Refusal struct {
	// Why is the name under which [Stats] counts it: one of the constants, or
	// of a bucket "rpm", "rpd", "tpm", "itpm" or "otpm".
	Why        string
	Overloaded bool // a storm that is said to be an overload
	Vague      bool // the body says nothing of what follows

	// Of a bucket.
	Limit, Used, Requested int
	TooLarge               bool // it can never pass

	Wait time.Duration // until the call may pass
	Hint bool          // Retry-After tells the wait
}

// Admit judges item i of a workload, which was admitted attempt times before,
// and says how it will go; or it says no, and why. A call that hangs does so
// until patience is over. It settles what r leaves open: the length of the
// answer, and the luck of a request without a body, which is that of i.
func (l *Limiter) Admit(now, patience time.Duration, i int, r *Request, attempt int) (Course, Refusal, bool) {
	l.config.settle(i, r)
	if l.config.Faults.badRequest(newLuck(l.config.Seed, r.hash, 0)) {
		return Course{}, Refusal{Why: WhyBadRequest}, false
	}
	if l.config.throttled(r.hash, uint32(attempt)+l.strays[r.hash]) {
		l.strays[r.hash]++
		return Course{}, Refusal{Why: WhyStray, Vague: true}, false
	}
	price := costOf(l.config.Charge, max(r.Input, 1), r.MaxTokens)
	if no, refused := l.budgets.judge(&l.config, now, &price, l.open, l.paid); refused {
		s := &no.shortage
		return Course{}, Refusal{
			Why: no.name(), Overloaded: no.reason == reasonStorm && no.status != 429, Vague: l.config.VagueBodies,
			Limit: s.limit, Used: s.used, Requested: s.requested, TooLarge: s.tooLarge, Wait: no.wait, Hint: no.hint,
		}, false
	}
	l.open++
	l.spent.Requests++
	l.spent.Tokens += price.charge[tokens]
	l.spent.Input += price.charge[inputTokens]
	l.spent.Output += price.charge[outputTokens]
	return l.course(now, patience, r, attempt), Refusal{}, true
}

// course draws how a call goes that was admitted now.
func (l *Limiter) course(now, patience time.Duration, r *Request, attempt int) Course {
	p := l.config.plan(r.hash, uint32(attempt), r.Output)
	c := Course{Fault: p.fault}
	head, whole := p.latency, p.latency
	switch p.fault {
	case NoFault, FaultCut:
		whole, c.Output = p.whole(), r.Output
	case FaultOverloaded:
		head, whole = l.config.RefusalLatency, l.config.RefusalLatency
	case FaultHang:
		head, whole = patience, patience
	}
	c.End = l.places.pass(now, whole)
	c.Head = c.End - whole + head
	return c
}

// Produced charges output that was made by now. Who charges what is declared
// does so at admission, and nothing here.
func (l *Limiter) Produced(now time.Duration, output int) {
	if l.config.Charge != ChargeActual || output <= 0 {
		return
	}
	l.budgets.produced(now, output)
	l.spent.Tokens += float64(output)
	l.spent.Output += float64(output)
}

// Leave ends an admitted call.
func (l *Limiter) Leave(answered bool) {
	l.open--
	if answered {
		l.paid++
	}
}

// Quota is one budget as the headers of an answer describe it.
type Quota struct {
	Name      string // "rpm", "rpd", "tpm", "itpm" or "otpm"
	Limit     int
	Remaining int           // whole units that are left
	Reset     time.Duration // until the bucket is full
}

// MaxQuotas is the most that Quotas appends.
const MaxQuotas = int(dimensions)

// Quotas appends what the headers of an answer tell, in the order of the
// names above; nothing, with NoHeaders. Headers are computed when a call was
// admitted or refused; with LateHeaders, when its answer is sent.
func (l *Limiter) Quotas(dst []Quota, now time.Duration) []Quota {
	if l.config.NoHeaders {
		return dst
	}
	all := l.budgets.quotas(now)
	if l.config.DailyHeaders {
		all[requests] = quota{}
	}
	for d := range all {
		if q := &all[d]; q.limit > 0 {
			dst = append(dst, Quota{dimension(d).name(), q.limit, q.remaining, q.reset})
		}
	}
	return dst
}

// places are the calls that a silent queue serves at once, as a heap of the
// instants at which they end.
type places struct {
	n    int // 0: there is no queue
	ends []time.Duration
}

// pass is when a call that comes now and takes so long is over.
func (p *places) pass(now, took time.Duration) time.Duration {
	if p.n == 0 {
		return now + took
	}
	if len(p.ends) < p.n {
		p.ends = append(p.ends, now+took)
		p.up(len(p.ends) - 1)
		return now + took
	}
	end := max(now, p.ends[0]) + took
	p.ends[0] = end
	p.down(0)
	return end
}

func (p *places) up(i int) {
	for i > 0 && p.ends[i] < p.ends[(i-1)/2] {
		p.ends[i], p.ends[(i-1)/2] = p.ends[(i-1)/2], p.ends[i]
		i = (i - 1) / 2
	}
}

func (p *places) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(p.ends); child++ {
			if p.ends[child] < p.ends[least] {
				least = child
			}
		}
		if least == i {
			return
		}
		p.ends[i], p.ends[least] = p.ends[least], p.ends[i]
		i = least
	}
}
