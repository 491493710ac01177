package plan

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// wire reads the numbers of the simulator as a client would from headers and bodies of a dialect, without their text. The virtual instant 0 is a whole second.
type wire struct {
	dialect provider.Dialect
	form    sim.RetryAfterForm
	epoch   time.Time // of the virtual instant 0
}

// readings appends what the headers of an answer tell, which left the provider and came in at these instants.
func (w *wire) readings(dst []limits.Reading, quotas []sim.Quota, left, came time.Duration) []limits.Reading {
	var by [limits.NumDimensions]sim.Quota
	for _, q := range quotas {
		by[q.Dimension] = q
	}
	requests := limits.Requests
	if by[requests].Limit == 0 {
		requests = limits.RequestsPerDay // the client tells by the time until it is full
	}
	switch w.dialect {
	case provider.OpenAI:
		dst = w.exact(dst, requests, by[requests])
		dst = w.exact(dst, limits.Tokens, by[limits.Tokens])
	case provider.Anthropic:
		both, in, out := by[limits.Tokens], by[limits.InputTokens], by[limits.OutputTokens]
		if both.Limit == 0 && in.Limit > 0 && out.Limit > 0 { // then that header shows the sum
			both.Limit, both.Remaining, both.Reset = in.Limit+out.Limit, in.Remaining+out.Remaining, max(in.Reset, out.Reset)
		}
		dst = w.rounded(dst, requests, by[requests], 1, left, came)
		dst = w.rounded(dst, limits.InputTokens, in, 1000, left, came)
		dst = w.rounded(dst, limits.OutputTokens, out, 1000, left, came)
		dst = w.rounded(dst, limits.Tokens, both, 1000, left, came)
	}
	return dst
}

// exact is a budget as OpenAI's headers tell it.
func (w *wire) exact(dst []limits.Reading, d limits.Dimension, q sim.Quota) []limits.Reading {
	if q.Limit == 0 {
		return dst
	}
	return append(dst, limits.Reading{Dimension: d, Limit: int64(q.Limit), Remaining: int64(min(q.Remaining, q.Limit)),
		Reset: ceil(q.Reset, time.Millisecond)})
}

// rounded is a budget as Anthropic's headers tell it: it is full at an instant in whole seconds.
func (w *wire) rounded(dst []limits.Reading, d limits.Dimension, q sim.Quota, unit int, left, came time.Duration) []limits.Reading {
	if q.Limit == 0 {
		return dst
	}
	r := limits.Reading{Dimension: d, Limit: int64(q.Limit), ResetSlack: time.Second,
		Remaining: int64(min((q.Remaining+unit/2)/unit*unit, q.Limit)), Reset: max(0, ceil(left+q.Reset, time.Second)-came)}
	if unit > 1 {
		r.Slack = int64(unit)
	}
	return append(dst, r)
}

// refusal is the outcome of a call that was not admitted, of which the answer left and came in at these instants.
func (w *wire) refusal(no *sim.Refusal, left, came time.Duration) sluice.Outcome {
	if no.Why == "bad_request" {
		return sluice.Outcome{Kind: sluice.BadRequest}
	}
	if no.Why == "spent" {
		if w.dialect == provider.Anthropic { // which says so in words alone
			return sluice.Outcome{Kind: sluice.BadRequest, Scope: limits.ScopeUpstream}
		}
		return sluice.Outcome{Kind: sluice.QuotaExhausted}
	}
	o := sluice.Outcome{Kind: sluice.RateLimit}
	if no.Overloaded {
		o.Kind = sluice.Overloaded
	}
	if w.dialect == provider.Gemini {
		return w.gemini(o, no, came)
	}
	if no.Hint {
		o.Wait = w.retryAfter(no.Wait, left, came)
	}
	if no.Vague || no.Why == "storm" {
		return o
	}
	o.Dimension = no.Dimension
	if no.Limit == 0 {
		return o
	}
	o.Limit = int64(no.Limit)
	if w.dialect != provider.OpenAI {
		return o
	}
	o.Requested = int64(no.Requested)
	if no.TooLarge {
		o.Kind, o.TooLarge = sluice.ContextLength, true
		return o
	}
	o.Used, o.Wait = int64(no.Used), ceil(no.Wait, time.Millisecond)
	return o
}

// gemini is a refusal that Gemini words: by its body alone, whose words tell the wait to the millisecond. A day's
// quota ends at an instant.
func (w *wire) gemini(o sluice.Outcome, no *sim.Refusal, came time.Duration) sluice.Outcome {
	if no.Vague {
		return o
	}
	hint := no.Hint && w.form != sim.RetryAfterNone
	if no.Limit == 0 { // a storm has no words, and RetryInfo is cut down to the second
		if hint {
			o.Wait = no.Wait.Truncate(time.Second)
		}
		return o
	}
	if hint {
		o.Wait = ceil(no.Wait, time.Millisecond)
	}
	o.Limit = int64(no.Limit)
	switch o.Dimension = no.Dimension; o.Dimension {
	case limits.Tokens, limits.OutputTokens: // there are no such quotas, and so no names by which a client knows them
		o.Dimension = limits.AnyDimension
	case limits.RequestsPerDay:
		o.Kind = sluice.UsageWindow
		if hint {
			o.Until = w.epoch.Add(came + o.Wait)
		}
	}
	return o
}

// exhausted is the dimension of the only budget of which the headers of a refusal say that nothing is left.
func exhausted(readings []limits.Reading) limits.Dimension {
	found := limits.AnyDimension
	for i := range readings {
		if readings[i].Remaining > 0 {
			continue
		}
		if found != limits.AnyDimension {
			return limits.AnyDimension
		}
		found = readings[i].Dimension
	}
	return found
}

// retryAfter is the wait that a header tells.
func (w *wire) retryAfter(wait, left, came time.Duration) time.Duration {
	switch w.form {
	case sim.RetryAfterSeconds:
		return ceil(wait, time.Second)
	case sim.RetryAfterMillis:
		return ceil(wait, time.Millisecond)
	case sim.RetryAfterDate:
		return max(0, ceil(left+wait, time.Second)-came)
	}
	return 0
}

// ceil rounds d up to a whole unit.
func ceil(d, unit time.Duration) time.Duration {
	if rest := d % unit; rest > 0 {
		d += unit - rest
	}
	return d
}
