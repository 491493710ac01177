package plan

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// parts are those of a streamed answer whose output is charged as it is made.
const parts = 8

// try is a call at hand and its present try. It is used again for other calls.
type try struct {
	ticket gate.Ticket
	call   Call
	index  int
	history
	exchange
}

// history is what came of a call so far.
type history struct {
	attempts, throttles, overloads int
	admitted                       int       // by the provider
	throttled                      time.Time // when it was first throttled
	queued                         time.Time // when it first asked,
	order                          uint64    // and before whom of those at the same instant
	waited                         time.Duration
	aside                          bool // between attempts it does not count as waiting
}

// exchange is one request and its response.
type exchange struct {
	sent    time.Duration
	request sim.Request
	course  sim.Course
	part    int // of the answer's parts, the next one to be charged
	quotas  [limits.NumDimensions]sim.Quota
	told    int // of them
	read    [limits.NumDimensions]limits.Reading
	outcome sluice.Outcome
}

// elsewhere is the present instant as the provider counts it, from the first call.
func (r *run) elsewhere() time.Duration { return r.now - max(0, r.first) }

// arrive is when a call reaches the provider.
func (r *run) arrive(t *try) {
	if r.first < 0 {
		r.first = r.now
	}
	now := r.elsewhere()
	r.present() // before anything is charged
	t.request = sim.Request{Input: t.call.Input, MaxTokens: t.call.MaxTokens, Output: t.call.Output}
	deadline := after(t.sent, r.s.Timeout)
	course, no, admitted := r.limiter.Admit(now, max(0, deadline-r.now), t.index, &t.request, t.admitted)
	if !r.cfg.LateHeaders && no.Why != "bad_request" {
		r.tell(t, now)
	}
	if !admitted {
		left := r.now + r.cfg.RefusalLatency
		t.outcome = r.wire.refusal(&no, left, left+r.s.RoundTrip/2)
		if t.outcome.Kind.Throttle() {
			r.f.Refused[no.Dimension]++
		}
		r.later(r.cfg.RefusalLatency, (*run).reply, t)
		return
	}
	t.admitted++
	t.course, t.part = course, 0
	r.begin(t, deadline)
}

// begin lets an admitted call go its course, to its end or to its client's patience's.
func (r *run) begin(t *try, deadline time.Duration) {
	c := &t.course
	c.Head += max(0, r.first)
	c.End += max(0, r.first)
	if t.outcome.Kind = c.Kind; c.Kind == sluice.Overloaded {
		r.f.Refused[limits.AnyDimension]++
	}
	if c.Cut && r.s.Stream { // in the middle
		c.End, c.Output = (c.Head+c.End)/2, c.Output/2
	}
	late := c.End > deadline
	if r.s.Stream { // every part is a sign of life
		late = c.Head > deadline
	}
	if late {
		t.outcome.Kind = sluice.Timeout
		made := 0
		if over := deadline - c.Head; over > 0 && c.End > c.Head {
			made = int(float64(c.Output) * float64(over) / float64(c.End-c.Head))
		}
		c.End, c.Output = max(r.now, deadline), made
	}
	whole := t.outcome.Kind == sluice.OK || t.outcome.Kind == sluice.Network && c.Cut
	if r.s.Stream && whole {
		r.later(c.Head-r.now, (*run).head, t)
		return
	}
	r.later(c.End-r.now, (*run).leave, t)
}

// head is when a streamed answer begins.
func (r *run) head(t *try) {
	if r.cfg.LateHeaders {
		r.tell(t, r.elsewhere())
	}
	if r.gate != nil {
		r.later(r.s.RoundTrip/2, (*run).answered, t)
	}
	r.piece(t)
}

// answered is when a streamed answer's head comes in.
func (r *run) answered(t *try) {
	r.gate.Answered(r.clock(), &t.ticket, r.readings(t))
}

// readings is what a client reads out of the headers that come in now.
func (r *run) readings(t *try) []limits.Reading {
	return r.wire.readings(t.read[:0], t.quotas[:t.told], r.now-r.s.RoundTrip/2, r.now)
}

// piece lets the next part of a stream come, after which its output is charged.
func (r *run) piece(t *try) {
	c := &t.course
	if t.part > 0 {
		r.produced(c.Output*t.part/parts - c.Output*(t.part-1)/parts)
	}
	if r.s.Provider.Charge != limits.ChargeActual {
		t.part = parts - 1
	}
	t.part++
	if t.part == parts {
		r.later(c.End-r.now, (*run).leave, t)
		return
	}
	r.later(c.Head+(c.End-c.Head)*time.Duration(t.part)/parts-r.now, (*run).piece, t)
}

func (r *run) produced(output int) {
	r.present()
	r.limiter.Produced(r.elsewhere(), output)
}

// leave is when an admitted call is over for the provider.
func (r *run) leave(t *try) {
	c := &t.course
	rest := c.Output
	if t.part > 0 { // a stream, of which all parts but the last were charged
		rest = c.Output - c.Output*(parts-1)/parts
	}
	r.produced(rest)
	r.limiter.Leave(t.outcome.Kind == sluice.OK)
	if t.outcome.Kind == sluice.Timeout { // it was the client who left
		r.returned(t)
		return
	}
	r.reply(t)
}

// reply is when the end of an answer is on its way.
func (r *run) reply(t *try) {
	if r.cfg.LateHeaders && !r.s.Stream {
		r.tell(t, r.elsewhere())
	}
	if r.s.RoundTrip > 0 {
		r.later(r.s.RoundTrip/2, (*run).returned, t)
		return
	}
	r.returned(t)
}
