package sim

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// spending is what a call costs in requests, tokens, input and output tokens.
type spending struct {
	needs, pays limits.Vector
}

func spendingOf(rule limits.Charge, input, declared int) spending {
	in, out := float64(input), float64(declared)
	if rule == limits.ChargeActual {
		return spending{
			needs: amounts(in, in, 1),
			pays:  amounts(in, in, 0),
		}
	}
	whole := amounts(max(in, out), in, out)
	return spending{needs: whole, pays: whole}
}

func amounts(both, in, out float64) limits.Vector {
	return limits.Vector{limits.Requests: 1, limits.RequestsPerDay: 1, limits.Tokens: both, limits.InputTokens: in, limits.OutputTokens: out}
}

// pacer is the oracle's own account of the limits. In place of the level of a
// bucket it keeps the instant at which the bucket will be full (in seconds
// since the first call), or what was spent in the present window.
type pacer struct {
	config  Config
	lines   [limits.NumDimensions]line
	changes []Change
}

// line is one limit.
type line struct {
	limit    float64 // per period, as configured; 0: none
	period   float64
	span     float64 // of the burst
	windowed bool

	unit     float64 // seconds of refill per token or request
	capacity float64
	full     float64
	window   float64 // number of the present one
	spent    float64 // in it
}

func newPacer(c Config) *pacer {
	p := &pacer{config: c, changes: c.Changes}
	for d, limit := range c.Limits() {
		l := line{limit: float64(*limit), period: 60, span: c.Burst.Seconds(), windowed: c.FixedWindow}
		if d == limits.RequestsPerDay {
			l.period, l.span, l.windowed = 86400, 86400, false
		}
		l.rescale(0, 1)
		p.lines[d] = l
	}
	return p
}

// rescale changes the limit at the instant t.
func (l *line) rescale(t, factor float64) {
	if l.limit == 0 {
		return
	}
	level := l.capacity
	if l.unit == 0 {
		level = 1e18 // full
	} else if l.full > t {
		level -= (l.full - t) / l.unit
	}
	l.unit = l.period / float64(int(l.limit*factor+0.5))
	l.capacity = max(1, l.span/l.unit)
	l.full = t + (l.capacity-min(level, l.capacity))*l.unit
}

// earliest is when a call of that cost may be sent, if nothing else is sent
// before; after a change of the limits it is to be asked again.
func (p *pacer) earliest(now time.Duration, s spending) time.Duration {
	p.pass(now)
	if storm, ok := p.config.stormAt(now); ok {
		return storm.To
	}
	at := now
	for d := range p.lines {
		if l := &p.lines[d]; l.limit > 0 {
			at = max(at, time.Duration(math.Ceil(l.earliest(now.Seconds(), s.needs[d])*1e9)))
		}
	}
	if len(p.changes) > 0 {
		at = min(at, p.changes[0].At)
	}
	return at
}

func (l *line) earliest(now, need float64) float64 {
	need = min(need, l.capacity)
	if !l.windowed {
		return l.full - (l.capacity-need)*l.unit
	}
	l.turn(now)
	if l.spent+need > l.capacity+slack {
		return (l.window + 1) * l.span
	}
	return now
}

// turn begins a new window if one has come.
func (l *line) turn(now float64) {
	if w := float64(int(now/l.span + 1e-9)); w > l.window {
		l.window, l.spent = w, 0
	}
}

// pass goes through the changes up to now.
func (p *pacer) pass(now time.Duration) {
	for len(p.changes) > 0 && p.changes[0].At <= now {
		for d := range p.lines {
			p.lines[d].rescale(p.changes[0].At.Seconds(), p.changes[0].Factor)
		}
		p.changes = p.changes[1:]
	}
}

func (p *pacer) spend(now time.Duration, s spending) {
	for d := range p.lines {
		p.lines[d].pay(now.Seconds(), s.pays[d])
	}
	p.pass(now)
}

func (l *line) pay(now, n float64) {
	if l.limit > 0 {
		l.full = max(l.full, now) + n*l.unit
		l.spent += n
	}
}

// refund takes back the cost of a call that was refused.
func (p *pacer) refund(now time.Duration, s spending) {
	for d := range p.lines {
		p.lines[d].pay(now.Seconds(), -s.pays[d])
	}
}

// produced pays for output that is charged when it was made.
func (p *pacer) produced(now time.Duration, n int) {
	if p.config.Charge != limits.ChargeActual {
		return
	}
	p.lines[limits.Tokens].pay(now.Seconds(), float64(n))
	p.lines[limits.OutputTokens].pay(now.Seconds(), float64(n))
}
