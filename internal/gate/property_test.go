package gate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/gate"
	_ "github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
)

// play is a random schedule on a gate, with a plain model beside it.
type play struct {
	*rig
	rt *rapid.T

	waiting []*gate.Ticket
	held    []*gate.Ticket
	epochs  map[*gate.Ticket]int  // cooldowns of its lane when it was sent
	open    map[string]int        // calls in flight, per lane
	last    map[string]time.Time  // the last grant of each lane
	tests   map[*gate.Ticket]bool // granted in a pause, after a silence
	serial  int
}

func newPlay(rt *rapid.T, cfg gate.Config) *play {
	p := &play{rig: newRig(rt, cfg), rt: rt, epochs: make(map[*gate.Ticket]int), open: make(map[string]int), last: make(map[string]time.Time),
		tests: make(map[*gate.Ticket]bool)}
	p.rig.check = p.look
	return p
}

// look checks what has to hold after every method of the gate.
func (p *play) look() {
	p.rt.Helper()
	for _, t := range p.take() {
		i := slices.Index(p.waiting, t)
		if i < 0 {
			p.rt.Fatalf("at %v: call %q was granted and did not wait", p.since(), t.Call.ID)
		}
		if !t.Granted() {
			p.rt.Fatalf("at %v: call %q was granted and holds no permit", p.since(), t.Call.ID)
		}
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.held = append(p.held, t)
		p.epochs[t] = p.epoch(t.Call.Lane)
		p.open[t.Call.Lane]++
		l := p.laneNamed(t.Call.Lane)
		if p.open[t.Call.Lane] > l.Slots {
			p.rt.Fatalf("at %v: call %q is number %d on %d slots", p.since(), t.Call.ID, p.open[t.Call.Lane], l.Slots)
		}
		if l.Held {
			p.rt.Fatalf("at %v: call %q was granted while all is held", p.since(), t.Call.ID)
		}
		silent := p.now.Sub(p.last[t.Call.Lane]) >= 10*time.Second
		p.last[t.Call.Lane] = p.now
		if p.tests[t] = p.now.Before(l.Until); p.tests[t] && !silent {
			p.rt.Fatalf("at %v: call %q was granted in a pause that lasts until %v", p.since(), t.Call.ID, l.Until.Sub(epoch0))
		}
	}
	for _, l := range p.g.Snapshot(p.now) {
		if l.InFlight != p.open[l.Lane] {
			p.rt.Fatalf("at %v: lane %q counts %d in flight, %d are", p.since(), l.Lane, l.InFlight, p.open[l.Lane])
		}
		if p.ledger == nil && l.Waiting > 0 && p.g.Next().IsZero() {
			p.rt.Fatalf("at %v: %d calls wait on lane %q and the gate names no next instant", p.since(), l.Waiting, l.Lane)
		}
		for _, b := range l.Budgets {
			if b.Level > b.Cap+1e-6 {
				p.rt.Fatalf("at %v: %v holds %.3f of %.3f", p.since(), b.Dimension, b.Level, b.Cap)
			}
		}
	}
}

// epoch counts the pauses that began on a lane.
func (p *play) epoch(lane string) int {
	n := 0
	for _, e := range p.events {
		if e.Lane == lane && (e.Type == limits.EventCooldownStarted || e.Type == limits.EventBreaker && !e.Until.IsZero()) {
			n++
		}
	}
	return n
}

func draw[T any](rt *rapid.T, of []T, label string) T {
	return of[rapid.IntRange(0, len(of)-1).Draw(rt, label)]
}

func (p *play) ask() {
	p.serial++
	c := limits.Call{ID: fmt.Sprint(p.serial), Lane: draw(p.rt, []string{"a", "b"}, "lane"),
		Tenant: draw(p.rt, []string{"x", "y", "z"}, "tenant"), Priority: draw(p.rt, []limits.Priority{limits.Low, limits.Normal, limits.Normal, limits.High, limits.Critical}, "priority"),
		Cost: limits.Cost{Input: rapid.IntRange(0, 400).Draw(p.rt, "input"), MaxOutput: rapid.IntRange(0, 400).Draw(p.rt, "output")}}
	p.enter(&gate.Ticket{Call: c})
}

// enter queues a ticket, unless it is larger than the whole of a limit.
func (p *play) enter(t *gate.Ticket) {
	p.waiting = append(p.waiting, t)
	if !p.g.Acquire(p.now, t) {
		p.waiting = p.waiting[:len(p.waiting)-1]
	}
	p.drain()
}

func (p *play) cancelOne() {
	if len(p.waiting) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.waiting)-1).Draw(p.rt, "waiter")
	t := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.g.Cancel(p.now, t)
	p.drain()
	if t.Granted() {
		p.rt.Fatalf("a cancelled call holds a permit")
	}
}

func (p *play) sendOne() {
	if len(p.held) == 0 {
		return
	}
	t := draw(p.rt, p.held, "held")
	p.g.Sent(p.now, t)
	p.epochs[t] = p.epoch(t.Call.Lane)
	p.drain()
}

func (p *play) readings() (out []limits.Reading) {
	for range rapid.IntRange(0, 2).Draw(p.rt, "readings") {
		d := limits.Dimension(rapid.IntRange(0, int(limits.NumDimensions)+1).Draw(p.rt, "dimension"))
		limit := draw(p.rt, []int64{-5, 0, 60, 600, 6000, 1_000_000}, "limit")
		reset := draw(p.rt, []time.Duration{-time.Hour, 0, time.Millisecond, time.Second, time.Minute, time.Hour}, "reset")
		if d >= limits.RequestsPerDay || reset == time.Hour {
			limit *= 10_000 // a day's: else the schedule takes years
		}
		out = append(out, limits.Reading{Dimension: d, Limit: limit, Reset: reset,
			Remaining: draw(p.rt, []int64{-1, 0, 1, limit / 2, limit, 2 * limit}, "remaining"), Slack: draw(p.rt, []int64{0, 0, 1000}, "slack")})
	}
	return out
}

// outcome draws any outcome that a careless client could come up with.
func (p *play) outcome() limits.Outcome {
	o := limits.Outcome{
		Kind: limits.Kind(rapid.IntRange(0, int(limits.Internal)).Draw(p.rt, "kind")), Readings: p.readings(),
		Wait: draw(p.rt, []time.Duration{0, 0, 0, -time.Second, time.Millisecond, time.Second, 20 * time.Second}, "wait"),
	}
	if rapid.IntRange(0, 3).Draw(p.rt, "often") > 0 {
		o.Kind = draw(p.rt, []limits.Kind{limits.OK, limits.OK, limits.RateLimit, limits.Overloaded}, "usual")
	}
	if o.Kind.Throttle() {
		o.Dimension = limits.Dimension(rapid.IntRange(0, int(limits.NumDimensions)-1).Draw(p.rt, "exceeded"))
		o.Limit = draw(p.rt, []int64{0, 0, 60, 600, 6000}, "stated")
		if o.Dimension >= limits.RequestsPerDay || o.Dimension == limits.AnyDimension { // it may be taken for one of a day
			o.Limit *= 10_000
		}
		o.Used = draw(p.rt, []int64{0, o.Limit, o.Limit / 2}, "used")
		o.Requested = draw(p.rt, []int64{0, 1, 40}, "requested")
	}
	if o.HasUsage = rapid.Bool().Draw(p.rt, "usage"); o.HasUsage {
		o.Usage = limits.Usage{Input: rapid.IntRange(0, 500).Draw(p.rt, "in"), Output: rapid.IntRange(0, 500).Draw(p.rt, "out")}
		o.Usage.CachedInput = o.Usage.Input / rapid.IntRange(1, 4).Draw(p.rt, "cached")
	}
	o.Unsent = rapid.IntRange(0, 9).Draw(p.rt, "unsent") == 0
	return o
}

func (p *play) releaseOne(outcome func() limits.Outcome) {
	if len(p.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.held)-1).Draw(p.rt, "held")
	t := p.held[i]
	o := outcome()
	before, sentIn := p.epoch(t.Call.Lane), p.epochs[t]
	p.held = slices.Delete(p.held, i, i+1)
	p.open[t.Call.Lane]--
	untilBefore := p.laneNamed(t.Call.Lane).Until
	d := p.g.Release(p.now, t, &o)
	p.drain()
	if !t.Released() || t.Granted() {
		p.rt.Fatalf("a released call holds its permit")
	}
	began := p.epoch(t.Call.Lane) - before
	if began > 1 || began == 1 && sentIn < before {
		p.rt.Fatalf("at %v: %v of a call sent in epoch %d begins another in epoch %d", p.since(), o.Kind, sentIn, before)
	}
	if after := p.laneNamed(t.Call.Lane).Until; after.Before(untilBefore) && !(p.tests[t] && !o.Kind.Throttle()) {
		p.rt.Fatalf("a pause was shortened by %v", untilBefore.Sub(after))
	}
	if d.Action == gate.Again && o.Kind == limits.OK || d.Action == gate.Done && o.Kind != limits.OK || d.Wait < 0 {
		p.rt.Fatalf("%v is decided %+v", o.Kind, d)
	}
	if d.Action == gate.Again && rapid.Bool().Draw(p.rt, "again") {
		n := &gate.Ticket{Call: t.Call, Attempt: t.Attempt + 1, Throttles: t.Throttles, Queued: t.Queued, Front: true}
		if d.Throttle {
			n.Attempt, n.Throttles = t.Attempt, t.Throttles+1
		}
		p.enter(n)
	}
}

func (p *play) pass(longest int64) {
	d := time.Duration(rapid.Int64Range(0, longest).Draw(p.rt, "milliseconds")) * time.Millisecond
	ticks := p.ticks
	p.sleep(d)
	if n := p.ticks - ticks; float64(n) > 400+2000*d.Seconds() {
		p.rt.Fatalf("at %v: %d ticks in %v", p.since(), n, d)
	}
}

// tune pauses, resumes or tells other limits.
func (p *play) tune() {
	switch rapid.IntRange(0, 2).Draw(p.rt, "tune") {
	case 0:
		p.g.Hold(p.now, true)
	case 1:
		p.g.Hold(p.now, false)
	case 2:
		account := limits.Limits{}
		if p.ledger == nil {
			account = anyLimits(p.rt, "account")
		}
		p.g.SetLimits(p.now, anyLimits(p.rt, "told"), account)
	}
	p.drain()
}

// wind answers everything well until nothing waits, and looks at what is left.
func (p *play) wind() {
	p.rt.Helper()
	p.g.Hold(p.now, false)
	p.drain()
	for round := 0; len(p.waiting) > 0 || len(p.held) > 0; round++ {
		if round > 500_000 {
			p.rt.Fatalf("at %v: %d calls still wait: %s", p.since(), len(p.waiting), dump(p.g.Snapshot(p.now)))
		}
		if len(p.held) > 0 {
			t := p.held[0]
			p.held = p.held[1:]
			p.open[t.Call.Lane]--
			p.g.Release(p.now, t, &limits.Outcome{})
			p.drain()
			continue
		}
		if !p.step(p.now.Add(10_000 * time.Hour)) {
			p.rt.Fatalf("at %v: %d calls wait and nothing is due: %s", p.since(), len(p.waiting), dump(p.g.Snapshot(p.now)))
		}
	}
	p.sleep(time.Second) // for what the ledger has under way
	for _, l := range p.g.Snapshot(p.now) {
		if l.InFlight != 0 || l.Waiting != 0 {
			p.rt.Fatalf("an idle lane counts %d in flight and %d waiting", l.InFlight, l.Waiting)
		}
		if !l.Oldest.IsZero() {
			p.rt.Fatalf("an idle lane has an open call of %v", l.Oldest)
		}
	}
	p.sleep(50 * time.Hour) // a debt is a day's at most, and both days refill at 97 % or more
	for _, l := range p.g.Snapshot(p.now) {
		for _, b := range l.Budgets {
			if b.Cap > float64(b.Limit)+1 { // rounded
				p.rt.Fatalf("%v holds %.3f, which is more than its limit of %d", b.Dimension, b.Cap, b.Limit)
			}
			if rate := float64(b.Limit) / 86400; p.ledger == nil && rate >= 1 && b.Level < b.Cap-1e-6 {
				p.rt.Fatalf("after two idle days %v holds %.3f of %.3f", b.Dimension, b.Level, b.Cap)
			}
		}
	}
}

func dump(v any) string { return cmp.Diff(nil, v) }

func anyLimits(rt *rapid.T, name string) limits.Limits {
	some := func(of ...int) int { return draw(rt, of, name) }
	return limits.Limits{RPM: some(0, 0, 30, 600, 60000), TPM: some(0, 0, 6000, 600000), ITPM: some(0, 0, 0, 20000), OTPM: some(0, 0, 0, 20000),
		RPD: some(0, 0, 0, 100000), TPD: some(0, 0, 0, 10_000_000), Concurrency: some(0, 0, 1, 4, 64),
		Burst: time.Duration(some(0, 0, 100, 1000, 60000)) * time.Millisecond}
}

func anyConfig(rt *rapid.T) gate.Config {
	cfg := gate.Config{Limits: anyLimits(rt, "told"), Charge: draw(rt, []limits.Charge{limits.ChargeDeclared, limits.ChargeActual}, "charge"),
		Weights: map[string]float64{"x": 1, "y": 3}}
	if rapid.Bool().Draw(rt, "started") {
		cfg.Start = anyLimits(rt, "start")
	}
	return cfg
}

func (p *play) run(steps int) {
	for range steps {
		switch rapid.IntRange(0, 10).Draw(p.rt, "step") {
		case 0, 1, 2, 3:
			p.ask()
		case 4:
			p.cancelOne()
		case 5:
			p.sendOne()
		case 6, 7:
			p.releaseOne(p.outcome)
		case 8:
			p.pass(300)
		case 9:
			p.pass(20_000)
		case 10:
			p.tune()
		}
	}
}

func TestAnyScheduleKeepsTheInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlay(rt, anyConfig(rt))
		p.run(rapid.IntRange(1, 150).Draw(rt, "steps"))
		p.wind()
	})
}

func TestAnyScheduleKeepsTheInvariantsOnALedgerThatAnswersLate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := anyConfig(rt)
		cfg.Remote = true
		p := newPlay(rt, cfg)
		p.ledger.refuse = func(n int) int {
			if rapid.IntRange(0, 3).Draw(rt, "cut") == 0 {
				return rapid.IntRange(0, n).Draw(rt, "prefix")
			}
			return n
		}
		p.ledger.lose = func() bool { return rapid.IntRange(0, 4).Draw(rt, "lost") == 0 }
		p.run(rapid.IntRange(1, 150).Draw(rt, "steps"))
		p.ledger.refuse, p.ledger.lose = nil, nil
		p.wind()
		for id, n := range p.ledger.charged {
			if n != 1 {
				rt.Fatalf("ask %d was charged %d times", id, n)
			}
		}
	})
}

// TestNoWindowHasMoreThanRateAndBurst sends as fast as the gate lets it, at random, and looks at every window there is.
func TestNoWindowHasMoreThanRateAndBurst(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote=%v", remote), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				burst := time.Duration(rapid.IntRange(50, 20_000).Draw(rt, "burst")) * time.Millisecond
				rpm := draw(rt, []int{6, 60, 900, 6000}, "rpm")
				tpm := draw(rt, []int{6000, 90_000}, "tpm")
				p := newPlay(rt, gate.Config{Limits: limits.Limits{RPM: rpm, TPM: tpm, Concurrency: 1000, Burst: burst}, Remote: remote})
				type grant struct {
					at     time.Duration
					tokens float64
				}
				grants := map[string][]grant{}
				seen := 0
				note := func() {
					for _, t := range p.granted[seen:] {
						c := t.Call.Cost
						grants[t.Call.Lane] = append(grants[t.Call.Lane], grant{p.since(), float64(max(c.Input, c.MaxOutput))})
					}
					seen = len(p.granted)
				}
				look := p.rig.check
				p.rig.check = func() { look(); note() }
				for range rapid.IntRange(1, 80).Draw(rt, "steps") {
					switch rapid.IntRange(0, 5).Draw(rt, "step") {
					case 0, 1, 2:
						p.ask()
					case 3:
						p.cancelOne()
					case 4:
						p.releaseOne(func() limits.Outcome { return limits.Outcome{} })
					case 5:
						p.pass(2000)
					}
				}
				p.wind()
				tokenCap := max(1, float64(tpm)/60*burst.Seconds())
				requestCap := max(1, float64(rpm)/60*burst.Seconds())
				for _, of := range grants {
					for i := range of {
						n, tokens, largest := 0.0, 0.0, tokenCap
						for _, g := range of[i:] {
							n, tokens = n+1, tokens+g.tokens
							span := (g.at - of[i].at).Seconds()
							if most := requestCap + span*float64(rpm)/60; n > most+1 {
								rt.Fatalf("%.0f calls in %.4f s at %d a minute with bursts of %v", n, span, rpm, burst)
							}
							// A call may be larger than what the bucket holds: it goes from a full one, and leaves a debt.
							largest = max(largest, g.tokens)
							if most := largest + span*float64(tpm)/60; tokens > most+1 {
								rt.Fatalf("%.0f tokens in %.4f s at %d a minute with bursts of %v", tokens, span, tpm, burst)
							}
						}
					}
				}
			})
		})
	}
}

func TestEveryTenantAndPriorityIsServedWithinABound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(rt, gate.Config{Limits: limits.Limits{Concurrency: 1}, Weights: map[string]float64{"heavy": 10}})
		// One tenant floods with what is most urgent, another asks for little of what is least.
		flood := func() { r.queue(limits.Call{Tenant: "heavy", Priority: limits.Critical, Cost: limits.Cost{Input: 10}}) }
		for range 50 {
			flood()
		}
		small := r.queue(limits.Call{Tenant: "small", Priority: limits.Low, Cost: limits.Cost{Input: 10}})
		own := r.queue(limits.Call{Tenant: "heavy", Priority: limits.Low, Cost: limits.Cost{Input: 10}})
		pace := time.Duration(rapid.IntRange(100, 900).Draw(rt, "latency")) * time.Millisecond
		for n := 0; !small.Granted() && !small.Released() || !own.Granted() && !own.Released(); n++ {
			held := r.granted[len(r.granted)-1]
			if held.Granted() {
				r.sleep(pace)
				r.release(held, limits.Outcome{})
			}
			flood()
			if r.since() > 4*30*time.Second+60*pace {
				rt.Fatalf("after %v of flood a low call still waits", r.since())
			}
		}
	})
}
