package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	fewOutputs = 5   // outputs that are known before the rule of charging is judged
	minSpan    = 0.5 // minimum time in seconds between two readings that are compared
	minApart   = 1.5 // minimum difference of the rules in a comparison, as a multiple of the requests in flight, which arrive in any order
)

// rules are amounts of tokens by each rule of charging.
type rules [limits.ChargeActual + 1]float64

// replace counts the amounts of a request in place of earlier ones.
func (v *rules) replace(before, part rules) {
	for i := range part {
		v[i] += part[i] - before[i]
	}
}

// tally is the evidence for the rule by which a provider charges tokens.
type tally struct {
	total rules // of all requests: without their output while they are in flight
	since tallied
}

// tallied is a reading of a level, with the total and the requests in flight at the departure of its request.
type tallied struct {
	at    time.Time
	left  float64
	total rules
	open  int
}

// compare compares the amount that went from a bucket between two readings with the totals by each rule, and returns the rule that is closer by
// half. A bucket that was full in between shows nothing. Of the output in flight, nothing or all may be charged.
func (e *tally) compare(next tallied, full time.Time, rate, cost, output float64) (rule limits.Charge, ok bool) {
	before, span := e.since, next.at.Sub(e.since.at).Seconds()
	if span <= 0 {
		return 0, false
	}
	if !full.Before(before.at) {
		e.since = next
		return 0, false
	}
	declared := next.total[limits.ChargeDeclared] - before.total[limits.ChargeDeclared]
	actual := next.total[limits.ChargeActual] - before.total[limits.ChargeActual]
	produced := float64(next.open-before.open) * output // at most
	least, most := min(actual, actual+produced), max(actual, actual+produced)
	if beyond(declared, least, most) < minApart*float64(max(before.open, next.open))*cost || span < minSpan {
		return 0, false
	}
	e.since = next
	charged := before.left - next.left + rate*span
	switch byUse, byDeclared := beyond(charged, least, most), math.Abs(charged-declared); {
	case byUse < byDeclared/2:
		return limits.ChargeActual, true
	case byDeclared < byUse/2:
		return limits.ChargeDeclared, true
	}
	return 0, false
}

// beyond returns the distance of a value from a range.
func beyond(value, least, most float64) float64 { return max(0, least-value, value-most) }

// count counts the amounts of a request by each rule.
func (b *buckets) count(t *Ticket, part rules) {
	b.tally.total.replace(t.part, part)
	t.part = part
}

// sent returns what a request is charged at once by each rule.
func (r *reserves) sent(c limits.Cost) (v rules) {
	v[limits.ChargeDeclared], v[limits.ChargeActual], _ = r.raw(limits.ChargeDeclared, c)
	return v
}

// ended returns what a request was charged in the end by each rule.
func (r *reserves) ended(c limits.Cost, u limits.Usage) (v rules) {
	v[limits.ChargeDeclared], v[limits.ChargeActual] = max(sane(u.Input), float64(c.MaxOutput)), r.actual(u)[limits.Tokens]
	return v
}

// usual returns the mean of recent outputs.
func (r *reserves) usual() float64 {
	if r.n >= enoughSamples {
		return r.mean
	}
	mean, _ := moments(r.outputs[:r.n])
	return mean
}

// findCharge finds how the provider charges tokens by the level that the response to t shows. A provider that is known to charge the use does.
func (b *buckets) findCharge(now time.Time, t *Ticket, left float64) {
	g, r := b.lane.gate, &b.reserves
	if g.cfg.Charge != limits.ChargeDeclared || r.n < fewOutputs || b.remote() || g.joints[limits.Tokens] != nil {
		return
	}
	next := tallied{t.sent, left, t.tallied, t.inFlight}
	if t.refused {
		next.total.replace(t.part, rules{})
	}
	full := b.book.budgets[limits.Tokens].full
	if rule, ok := b.tally.compare(next, full, b.each[limits.Tokens].rate(), b.mean[limits.Tokens], r.usual()); ok && rule != r.charge {
		r.charge = rule
		b.recharge(now, t)
	}
}

// recharge charges the requests in flight by the new rule, so that their ends give back the right amounts. The level that the response to t
// shows counts those that were sent before, without the output that they have not produced.
func (b *buckets) recharge(now time.Time, t *Ticket) {
	h, more := &b.each[limits.Tokens].header, 0.0
	h.weight, h.newest, h.since = weight{}, reference{}, reference{}
	for u := b.lane.flight.head; u != nil; u = u.next {
		in, out := u.cost[limits.InputTokens], u.cost[limits.OutputTokens]
		tokens, unproduced := in+out, out
		if b.reserves.charge == limits.ChargeDeclared {
			tokens, unproduced = max(in, out), -out
		}
		added := tokens - u.cost[limits.Tokens]
		back := limits.Vector{limits.Tokens: -added, limits.TokensPerDay: -added}
		if !u.sent.After(t.sent) {
			back[limits.Tokens] = -unproduced
		}
		more += added
		u.mark[limits.Tokens] += more
		u.cost[limits.Tokens], u.cost[limits.TokensPerDay] = tokens, tokens
		b.lane.gate.settle(now, b.lane, u, &back)
	}
	b.book.budgets[limits.Tokens].spent += more
}
