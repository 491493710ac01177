package provider

import (
	"net/http"
	"time"

	"github.com/sluice-llm/sluice"
)

// budget is one way in which providers state a budget in headers. Names are canonical.
type budget struct {
	dimension               sluice.Dimension
	limit, remaining, reset string
	slack                   int64
}

// budgets are all known forms. Of two that state the same dimension, the first wins.
//
// Left out are budgets of another pool (anthropic-priority-*, anthropic-fast-*), those that state only a limit
// (x-ratelimit-limit-tokens-cache-adjusted-prompt) or only a share (anthropic-ratelimit-unified-*; see Classify), and
// months (x-ratelimitbysize-*-month).
var budgets = [...]budget{
	// OpenAI, Azure, Groq, and most that are compatible: https://platform.openai.com/docs/guides/rate-limits. Azure's
	// resets are integer seconds (https://github.com/openai/openai-dotnet/issues/838). Groq's requests are per day
	// (https://console.groq.com/docs/rate-limits), as are OpenAI's on small tiers; window tells.
	{sluice.Requests, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", 0},
	{sluice.Tokens, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", 0},

	// Anthropic: https://docs.anthropic.com/en/api/rate-limits ("remaining ... rounded to the nearest thousand").
	{sluice.Requests, "Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", 0},
	{sluice.InputTokens, "Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", 1000},
	{sluice.OutputTokens, "Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", 1000},
	{sluice.Tokens, "Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", 1000},

	// Fireworks: https://docs.fireworks.ai/serverless/rate-limits.
	{sluice.InputTokens, "X-Ratelimit-Limit-Tokens-Prompt", "X-Ratelimit-Remaining-Tokens-Prompt", "X-Ratelimit-Reset-Tokens-Prompt", 0},
	{sluice.OutputTokens, "X-Ratelimit-Limit-Tokens-Generated", "X-Ratelimit-Remaining-Tokens-Generated", "X-Ratelimit-Reset-Tokens-Generated", 0},

	// Mistral, as clients report it from the wire.
	{sluice.Tokens, "Ratelimitbysize-Limit", "Ratelimitbysize-Remaining", "Ratelimitbysize-Reset", 0},
	{sluice.Tokens, "X-Ratelimitbysize-Limit-Minute", "X-Ratelimitbysize-Remaining-Minute", "", 0},

	// Together: the dynamic limit is the one in force (https://docs.together.ai/docs/serverless/rate-limits).
	{sluice.Tokens, "X-Tokenlimit-Limit-Dynamic", "X-Tokenlimit-Remaining-Dynamic", "X-Tokenlimit-Reset", 0},
	{sluice.Tokens, "X-Tokenlimit-Limit", "X-Tokenlimit-Remaining", "X-Tokenlimit-Reset", 0},

	// OpenRouter (reset in epoch milliseconds), Together, and gateways; then the IETF draft.
	{sluice.Requests, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", 0},
	{sluice.Requests, "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", 0},
}

// Readings returns every budget that the headers of an answer state, at most one per dimension. A budget without a
// positive limit and a remainder is not one: Azure states -1 for what it does not know. It returns nil, and allocates
// nothing, when there is none.
func Readings(h http.Header, now time.Time) []sluice.Reading {
	var (
		found [sluice.NumDimensions]sluice.Reading
		seen  [sluice.NumDimensions]bool
		n     int
	)
	for i := range budgets {
		r, ok := budgets[i].read(h, now)
		if ok && !seen[r.Dimension] {
			seen[r.Dimension] = true
			found[n] = r
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return append(make([]sluice.Reading, 0, n), found[:n]...)
}

// read reads one form, if it is there.
func (b *budget) read(h http.Header, now time.Time) (r sluice.Reading, ok bool) {
	remaining, ok := count(h[b.remaining])
	if !ok {
		return r, false
	}
	limit, ok := count(h[b.limit])
	if !ok || limit == 0 {
		return r, false
	}
	r = sluice.Reading{Dimension: b.dimension, Limit: limit, Remaining: min(remaining, limit), Slack: b.slack}
	var form resetForm
	if v := h[b.reset]; len(v) > 0 {
		r.Reset, form = resetIn(v[0], h, now)
	}
	if form == secondReset {
		r.ResetSlack = time.Second
	}
	if perDay(r, form == bucketReset) {
		switch r.Dimension {
		case sluice.Requests:
			r.Dimension = sluice.RequestsPerDay
		case sluice.Tokens:
			r.Dimension = sluice.TokensPerDay
		}
	}
	return r, true
}

const (
	// longReset is a reset that no bucket of a minute can have.
	longReset = 10 * time.Minute

	// sureReset is the shortest reset from which a window is inferred: below, the rounding of the header to a
	// millisecond is too large a part of it.
	sureReset = 20 * time.Millisecond
)

// perDay reports whether a reading that is called one of a minute is one of a day. bucket says that its reset is the
// time until the bucket is full, as a duration, so that what is used refills in that time and the whole limit in the
// window: (limit / used) × reset. OpenAI and Groq leave the window to be found out like that.
func perDay(r sluice.Reading, bucket bool) bool {
	if r.Reset > longReset {
		return true
	}
	used := r.Limit - r.Remaining
	if !bucket || used <= 0 || r.Reset < sureReset {
		return false
	}
	window := float64(r.Reset) * float64(r.Limit) / float64(used)
	return window > float64(12*time.Hour) && window < float64(48*time.Hour)
}

// RetryAfter returns how long an answer asks to wait; 0 when it does not say, or says nonsense. The body's own words
// win over retry-after-ms, and that over retry-after: each is more exact than the next.
func RetryAfter(h http.Header, body []byte, now time.Time) time.Duration {
	if len(body) > 0 {
		f := decode(body)
		if d := f.wait(now); d > 0 {
			return d
		}
	}
	return headerWait(h, now)
}

// headerWait reads retry-after-ms, then retry-after: seconds with or without decimals, or a date.
func headerWait(h http.Header, now time.Time) time.Duration {
	if v := h["Retry-After-Ms"]; len(v) > 0 {
		if d := seconds(v[0], time.Millisecond); d > 0 {
			return d
		}
	}
	v := h["Retry-After"]
	if len(v) == 0 {
		return 0
	}
	if d := seconds(v[0], time.Second); d > 0 {
		return d
	}
	if at, err := http.ParseTime(v[0]); err == nil {
		return positive(at.Sub(serverTime(h, now)))
	}
	return 0
}

// exhausted returns the dimension of the only budget of which the headers say that nothing is left. Unlike Readings it
// needs no limit.
func exhausted(h http.Header) sluice.Dimension {
	var found sluice.Dimension
	for i := range budgets {
		b := &budgets[i]
		if n, ok := count(h[b.remaining]); !ok || n > 0 || b.dimension == found {
			continue
		}
		if limit, ok := count(h[b.limit]); len(h[b.limit]) > 0 && (!ok || limit == 0) {
			continue // -1 of -1, or 0 of 0, is not known rather than spent
		}
		if found != sluice.AnyDimension {
			return sluice.AnyDimension
		}
		found = b.dimension
	}
	return found
}

// serverTime returns what time it is for the server that states instants: its own Date if its clock and ours disagree
// by more than that header's rounding.
func serverTime(h http.Header, now time.Time) time.Time {
	const rounding = 2 * time.Second
	v := h["Date"]
	if len(v) == 0 {
		return now
	}
	at, err := http.ParseTime(v[0])
	if skew := at.Sub(now); err == nil && (skew > rounding || skew < -rounding) {
		return at
	}
	return now
}
