package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
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

// Spent sums up the charges, without charged rejections.
type Spent struct{ Requests, Tokens, Input, Output float64 }

// Spent returns the sums so far.
func (l *Limiter) Spent() Spent { return l.spent }

// Course is how an admitted call goes.
type Course struct {
	Kind   limits.Kind   // OK, or how the call fails for its client
	Cut    bool          // a limits.Network that comes in the middle of the body
	Head   time.Duration // the instant of the first byte
	End    time.Duration // and of the last
	Output int           // tokens that are made between the two
}

// Refusal is why a call was not admitted.
type Refusal struct {
	// Why is the name under which [Stats] counts it: of a bucket that of its dimension, else "storm", "stray" ([Faults].Throttled),
	// "spent", "concurrency" or "bad_request".
	Why        string
	Overloaded bool // a storm that is said to be an overload
	Vague      bool // the body says nothing of what follows

	Dimension limits.Dimension // of a bucket, or of requests in flight

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
		return Course{}, Refusal{Why: "bad_request"}, false
	}
	if l.config.throttled(r.hash, uint32(attempt)+l.strays[r.hash]) {
		l.strays[r.hash]++
		return Course{}, Refusal{Why: "stray", Vague: true}, false
	}
	price := costOf(l.config.Charge, max(r.Input, 1), r.MaxTokens)
	if no, refused := l.budgets.judge(&l.config, now, &price, l.open, l.paid); refused {
		s := &no.shortage
		return Course{}, Refusal{
			Why: no.name(), Overloaded: no.reason == reasonStorm && no.status != 429, Vague: l.config.VagueBodies,
			Dimension: s.dimension, Limit: s.limit, Used: s.used, Requested: s.requested, TooLarge: s.tooLarge, Wait: no.wait, Hint: no.hint,
		}, false
	}
	l.open++
	l.spent.Requests++
	l.spent.Tokens += price.charge[limits.Tokens]
	l.spent.Input += price.charge[limits.InputTokens]
	l.spent.Output += price.charge[limits.OutputTokens]
	return l.course(now, patience, r, attempt), Refusal{}, true
}

// course draws how a call goes that was admitted now.
func (l *Limiter) course(now, patience time.Duration, r *Request, attempt int) Course {
	p := l.config.plan(r.hash, uint32(attempt), r.Output)
	c := Course{Kind: p.fault.kind(), Cut: p.fault == faultCut}
	head, whole := p.latency, p.latency
	switch p.fault {
	case noFault, faultCut:
		whole, c.Output = p.whole(), r.Output
	case faultOverloaded:
		head, whole = l.config.RefusalLatency, l.config.RefusalLatency
	case faultHang:
		head, whole = patience, patience
	}
	c.End = l.places.pass(now, whole)
	c.Head = c.End - whole + head
	return c
}

// Produced charges output that was made by now. Who charges what is declared
// does so at admission, and nothing here.
func (l *Limiter) Produced(now time.Duration, output int) {
	if l.config.Charge != limits.ChargeActual || output <= 0 {
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
	Dimension limits.Dimension
	Limit     int
	Remaining int           // whole units that are left
	Reset     time.Duration // until the bucket is full
}

// Quotas appends what the headers of an answer tell, in the order of
// [Config.Limits]; nothing, with NoHeaders. Headers are computed when a call was
// admitted or refused; with LateHeaders, when its answer is sent.
func (l *Limiter) Quotas(dst []Quota, now time.Duration) []Quota {
	if l.config.NoHeaders {
		return dst
	}
	all := l.budgets.quotas(now)
	if l.config.DailyHeaders {
		all[limits.Requests] = quota{}
	}
	for _, d := range checked {
		if q := &all[d]; q.limit > 0 {
			dst = append(dst, Quota{d, q.limit, q.remaining, q.reset})
		}
	}
	return dst
}

// places are the calls that a silent queue serves at once, as the instants at which they end, in order.
type places struct {
	n    int // 0: there is no queue
	ends []time.Duration
}

// pass is when a call that comes now and takes so long is over.
func (p *places) pass(now, took time.Duration) time.Duration {
	if p.n == 0 {
		return now + took
	}
	if len(p.ends) == p.n {
		now = max(now, p.ends[0])
		p.ends = slices.Delete(p.ends, 0, 1)
	}
	i, _ := slices.BinarySearch(p.ends, now+took)
	p.ends = slices.Insert(p.ends, i, now+took)
	return now + took
}
