package sim

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// fault is what goes wrong with an admitted call, as [Faults] words it.
type fault int

const (
	noFault fault = iota
	faultServerError
	faultOverloaded
	faultReset
	faultHang
	faultCut
)

// kind is what the fault is for a client.
func (f fault) kind() limits.Kind {
	return [...]limits.Kind{limits.OK, limits.ServerError, limits.Overloaded, limits.Network, limits.Timeout, limits.Network}[f]
}

// draw tells the fault of the attempt l.
func (f Faults) draw(l luck) fault {
	if !f.attempt() {
		return noFault
	}
	u := l.uniform(drawFault)
	for i, p := range [...]float64{f.ServerError, f.Overloaded, f.Reset, f.Hang, f.Cut} {
		if u < p {
			return faultServerError + fault(i)
		}
		u -= p
	}
	return noFault
}

// badRequest reports whether the request of l is refused as a bad one.
func (f Faults) badRequest(l luck) bool {
	return f.BadRequest > 0 && l.uniform(drawBadRequest) < f.BadRequest
}

// throttled reports whether a request is refused for no reason, which is a
// matter of luck each time it comes: so often it was admitted or so refused
// before.
func (c *Config) throttled(hash hash, before uint32) bool {
	return c.Faults.Throttled > 0 && newLuck(c.Seed, hash, before).uniform(drawThrottled) < c.Faults.Throttled
}

// plan is how an admitted call will go.
type plan struct {
	fault    fault
	latency  time.Duration // to the first byte
	perToken time.Duration
	output   int // tokens of the whole answer
}

// whole is the time a whole answer takes.
func (p *plan) whole() time.Duration {
	return p.latency + time.Duration(p.output)*p.perToken
}

// plan draws how the given attempt will go. Config has its defaults.
func (c *Config) plan(hash hash, attempt uint32, output int) plan {
	l := newLuck(c.Seed, hash, attempt)
	p := plan{fault: c.Faults.draw(l), latency: c.Latency, perToken: c.PerToken, output: output}
	if c.Jitter > 0 {
		factor := math.Exp(c.Jitter * l.normal(drawLatency))
		p.latency = time.Duration(float64(p.latency) * factor)
		p.perToken = time.Duration(float64(p.perToken) * factor)
	}
	return p
}

// perAttempt reports whether attempts at one request differ.
func (c *Config) perAttempt() bool {
	return c.Jitter > 0 || c.Faults.attempt() || c.Faults.Throttled > 0
}

// answerTokens is the length of one answer to the request of that hash, and
// whether maxTokens (0: none) cut it.
func (c *Config) answerTokens(hash hash, maxTokens int) (n int, cut bool) {
	n = c.OutputTokens
	if c.OutputSigma > 0 {
		l := newLuck(c.Seed, hash, 0)
		n = max(1, int(math.Round(float64(n)*math.Exp(c.OutputSigma*l.normal(drawOutput)))))
	}
	if maxTokens > 0 && n > maxTokens {
		return maxTokens, true
	}
	return n, false
}
