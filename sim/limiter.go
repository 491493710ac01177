package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Limiter simulates a provider in virtual time. A Limiter admits and times requests as a [Server] with the same Config does, without
// waiting. All instants are durations since the first request, and must not decrease. Call Admit to start a request and Leave to
// finish the request. A Limiter is not safe for concurrent use.
type Limiter struct {
	config  Config
	budgets *budgets
	places  places
	open    int
	paid    int
	spent   Spent
	strays  map[hash]uint32 // refused for no reason
}

// NewLimiter returns a Limiter. If a field of c is invalid, the error names the field. A Limiter does not support Config.Contention.
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

// Config returns the Config of the Limiter, with the defaults filled in.
func (l *Limiter) Config() Config { return l.config }

// Spent is the sum of charges in requests, tokens, input tokens and output tokens. Spent excludes charges for rejected requests.
type Spent struct{ Requests, Tokens, Input, Output float64 }

// Spent returns the sum of all charges so far.
func (l *Limiter) Spent() Spent { return l.spent }

// Course describes the future of an admitted request. Head and End are durations since the first request.
type Course struct {
	Kind   limits.Kind   // outcome for the client; limits.OK if the request succeeds
	Cut    bool          // the connection breaks in the middle of the body
	Head   time.Duration // instant of the first byte
	End    time.Duration // instant of the last byte
	Output int           // number of tokens produced from Head to End
}

// Refusal describes the rejection of a request.
type Refusal struct {
	// Why is the key in [Stats].Refused: the name of a dimension such as "rpm", or "storm", "stray" ([Faults].Throttled), "spent",
	// "concurrency" or "bad_request".
	Why        string
	Overloaded bool // the rejection reports an overload, not a rate limit
	Vague      bool // the rejection's body contains none of the following fields

	Dimension limits.Dimension // exceeded rate limit, or limits.Concurrency

	Limit, Used, Requested int  // limit, usage and requested amount, in whole requests or tokens; 0 unless a rate limit is exceeded
	TooLarge               bool // the request alone exceeds the limit and is never admitted

	Wait time.Duration // time until the request can be admitted
	Hint bool          // the header Retry-After contains Wait
}

// Admit admits or rejects item i of a workload, which has been admitted attempt times before. If Admit returns true, the request is
// in flight, and Course is its future. If Admit returns false, Refusal is the cause of the rejection. A request that hangs ends after
// the duration patience. Admit sets r.Output if it is 0. For a request without a body, i determines the random choices.
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

// Produced charges output tokens that have been produced by now. With limits.ChargeDeclared, Produced does nothing.
func (l *Limiter) Produced(now time.Duration, output int) {
	if l.config.Charge != limits.ChargeActual || output <= 0 {
		return
	}
	l.budgets.produced(now, output)
	l.spent.Tokens += float64(output)
	l.spent.Output += float64(output)
}

// Leave finishes an admitted request. answered reports whether the request succeeded and is paid.
func (l *Limiter) Leave(answered bool) {
	l.open--
	if answered {
		l.paid++
	}
}

// Quota is the state of one limit, as shown in response headers.
type Quota struct {
	Dimension limits.Dimension // dimension of the limit
	Limit     int              // limit per period
	Remaining int              // remaining requests or tokens, rounded down
	Reset     time.Duration    // time until the bucket is full
}

// Quotas appends the limits in response headers to dst, in the order of [Config.Limits]. With Config.NoHeaders, Quotas appends
// nothing. Call Quotas right after Admit, or with Config.LateHeaders when the response is sent.
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
