package provider

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/limits"
)

// budget is a form of headers and what else is known of it.
type budget struct {
	HeaderForm
	slack  int64         // how far its numbers are rounded
	common bool          // rate limiters of all kinds use it, most of them for windows
	period time.Duration // of its window; 0: see policy
}

// budgets are all shared forms. Of two that state the same dimension, the first wins.
//
// Left out are budgets of another pool (anthropic-priority-*, anthropic-fast-*), those that state only a limit
// (x-ratelimit-limit-tokens-cache-adjusted-prompt) or only a share (anthropic-ratelimit-unified-*; see Classify), and
// months (x-ratelimitbysize-*-month).
var budgets = [...]budget{
	// OpenAI, Azure, Groq, and most that are compatible: https://platform.openai.com/docs/guides/rate-limits. Azure's
	// resets are integer seconds (https://github.com/openai/openai-dotnet/issues/838). On OpenAI's small tiers they are
	// of a day; perDay tells.
	{HeaderForm: HeaderForm{limits.Requests, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}},
	{HeaderForm: HeaderForm{limits.Tokens, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}},

	// Anthropic: https://docs.anthropic.com/en/api/rate-limits ("remaining ... rounded to the nearest thousand").
	{HeaderForm: HeaderForm{limits.Requests, "Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"}},
	{HeaderForm: HeaderForm{limits.InputTokens, "Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"}, slack: 1000},
	{HeaderForm: HeaderForm{limits.OutputTokens, "Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"}, slack: 1000},
	{HeaderForm: HeaderForm{limits.Tokens, "Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"}, slack: 1000},

	// Fireworks: https://docs.fireworks.ai/serverless/rate-limits.
	{HeaderForm: HeaderForm{limits.InputTokens, "X-Ratelimit-Limit-Tokens-Prompt", "X-Ratelimit-Remaining-Tokens-Prompt", "X-Ratelimit-Reset-Tokens-Prompt"}},
	{HeaderForm: HeaderForm{limits.OutputTokens, "X-Ratelimit-Limit-Tokens-Generated", "X-Ratelimit-Remaining-Tokens-Generated", "X-Ratelimit-Reset-Tokens-Generated"}},

	// Mistral, as clients report it from the wire.
	{HeaderForm: HeaderForm{limits.Tokens, "Ratelimitbysize-Limit", "Ratelimitbysize-Remaining", "Ratelimitbysize-Reset"}},
	{HeaderForm: HeaderForm{limits.Tokens, "X-Ratelimitbysize-Limit-Minute", "X-Ratelimitbysize-Remaining-Minute", ""}},

	// Together: the dynamic limit is the one in force (https://docs.together.ai/docs/serverless/rate-limits).
	{HeaderForm: HeaderForm{limits.Tokens, "X-Tokenlimit-Limit-Dynamic", "X-Tokenlimit-Remaining-Dynamic", "X-Tokenlimit-Reset"}},
	{HeaderForm: HeaderForm{limits.Tokens, "X-Tokenlimit-Limit", "X-Tokenlimit-Remaining", "X-Tokenlimit-Reset"}},

	// The IETF drafts 3 to 6, rate-limit libraries, OpenRouter (reset in epoch milliseconds), Together, and gateways.
	{HeaderForm: HeaderForm{limits.Requests, "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}, common: true},
	{HeaderForm: HeaderForm{limits.Requests, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}, common: true},
	{HeaderForm: HeaderForm{limits.Requests, "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"}, common: true},

	// Kong: https://developer.konghq.com/plugins/rate-limiting/.
	{HeaderForm: HeaderForm{limits.Requests, "X-Ratelimit-Limit-Minute", "X-Ratelimit-Remaining-Minute", ""}, common: true, period: time.Minute},
	{HeaderForm: HeaderForm{limits.Requests, "X-Ratelimit-Limit-Hour", "X-Ratelimit-Remaining-Hour", ""}, common: true, period: time.Hour},
	{HeaderForm: HeaderForm{limits.Requests, "X-Ratelimit-Limit-Second", "X-Ratelimit-Remaining-Second", ""}, common: true, period: time.Second},
	{HeaderForm: HeaderForm{limits.RequestsPerDay, "X-Ratelimit-Limit-Day", "X-Ratelimit-Remaining-Day", ""}, common: true, period: 24 * time.Hour},
}

// Readings returns the rate limits in response headers, at most one per dimension. The provider's own headers have precedence over headers
// that all providers share. Readings ignores limits without a positive value and a remaining amount, such as Azure's -1 for an unknown
// number. If the headers contain no limit, Readings returns nil without allocating.
//
// A Sluice gateway delays its clients' requests itself, and sends the header x-sluice-wait-ms. For a gateway's responses, Readings returns
// limits of [Endless], because limits in other headers apply to all clients of the gateway together.
func (p Provider) Readings(h http.Header, now time.Time) []limits.Reading {
	if _, held := h["X-Sluice-Wait-Ms"]; held {
		return endless()
	}
	var (
		found [limits.NumDimensions]limits.Reading
		seen  [limits.NumDimensions]bool
		n     int
	)
	add := func(r limits.Reading, ok bool) {
		if r.Period >= 24*time.Hour || r.Window && r.Period == 0 && r.Reset >= 12*time.Hour {
			r.Dimension, r.Period, r.Window = r.Dimension.Per(24*time.Hour), 0, false
		}
		if ok && !seen[r.Dimension] {
			if seen[r.Dimension] = true; r.Window {
				r.At = now
			}
			found[n] = r
			n++
		}
	}
	for b, own := range p.forms {
		add(b.read(h, now, own))
	}
	for _, r := range combined(h) {
		add(r, true)
	}
	if n == 0 {
		return nil
	}
	return append(make([]limits.Reading, 0, n), found[:n]...)
}

// Endless is the limit that Readings returns for responses of a Sluice gateway, which enforces the real limits itself.
const Endless = 1 << 30

func endless() []limits.Reading {
	all := make([]limits.Reading, 0, 4)
	for d := range limits.NumDimensions {
		if d.Window() == time.Minute {
			all = append(all, limits.Reading{Dimension: d, Limit: Endless, Remaining: Endless})
		}
	}
	return all
}

// forms yields the forms that the provider's answers may have: its own, then those shared ones whose headers its own do
// not read.
func (p *Provider) forms(yield func(b budget, own bool) bool) {
	for i := range p.Headers {
		if !yield(budget{HeaderForm: p.Headers[i]}, true) {
			return
		}
	}
	for i := range budgets {
		if !overrides(p.Headers, &budgets[i].HeaderForm) && !yield(budgets[i], false) {
			return
		}
	}
}

// overrides reports whether one of a provider's own forms reads the headers of a shared one.
func overrides(own []HeaderForm, shared *HeaderForm) bool {
	for i := range own {
		if own[i].Remaining == shared.Remaining || own[i].Limit == shared.Limit {
			return true
		}
	}
	return false
}

// read reads a form, if it is there. The dimension of a provider's own is as stated; which window a shared one is of, its
// numbers tell.
func (b *budget) read(h http.Header, now time.Time, own bool) (r limits.Reading, ok bool) {
	r, form, ok := b.HeaderForm.read(h, now)
	r.Slack = b.slack
	switch {
	case !ok || own:
	case b.common:
		if r.Period = b.period; r.Period == 0 {
			r.Period = period(h, b.Limit, r.Limit)
		}
		r.Window = r.Period > 0 || form != bucketReset && form != noReset
		if form == numberReset && r.Reset > 24*time.Hour { // of milliseconds
			r.Reset /= 1000
		}
	case form == numberReset && r.Reset > longReset: // of milliseconds, or not to be understood
		if r.Reset /= 1000; !within(refill(r), time.Minute) {
			r.Reset = 0
		}
	case perDay(r, form == bucketReset):
		r.Dimension = r.Dimension.Per(24 * time.Hour)
	}
	return r, ok
}

// refill returns how long the whole limit takes to refill, if the part that is used does so by the reset; 0 when nothing follows.
func refill(r limits.Reading) time.Duration {
	used := r.Limit - r.Remaining
	if used <= 0 || r.Reset < sureReset {
		return 0
	}
	return time.Duration(min(float64(r.Reset)*float64(r.Limit)/float64(used), math.MaxInt64/2))
}

// within reports whether d is a window, but for rounding and delays.
func within(d, window time.Duration) bool { return d > window/2 && d < 2*window }

// Stated returns the result of Readings, followed by the limits without a remaining amount. Limits without a remaining amount have a
// Remaining of -1, and are for display only.
func (p Provider) Stated(h http.Header, now time.Time) []limits.Reading {
	all := p.Readings(h, now)
	for b, own := range p.forms {
		limit, ok := count(h[b.Limit])
		if !ok || limit == 0 || len(h[b.Remaining]) > 0 {
			continue
		}
		r := limits.Reading{Dimension: b.Dimension, Limit: limit, Remaining: -1}
		if v := h[b.Reset]; len(v) > 0 {
			r.Reset, _ = resetIn(v[0], h, now)
		}
		if !own && !b.common && r.Reset > longReset {
			r.Dimension = r.Dimension.Per(24 * time.Hour)
		}
		if !slices.ContainsFunc(all, func(o limits.Reading) bool { return o.Dimension == r.Dimension }) {
			all = append(all, r)
		}
	}
	return all
}

// read reads the headers of a form, if they are there.
func (f *HeaderForm) read(h http.Header, now time.Time) (r limits.Reading, form resetForm, ok bool) {
	remaining, ok := count(h[f.Remaining])
	if !ok {
		return r, 0, false
	}
	limit, ok := count(h[f.Limit])
	if !ok || limit == 0 {
		return r, 0, false
	}
	r = limits.Reading{Dimension: f.Dimension, Limit: limit, Remaining: min(remaining, limit)}
	if v := h[f.Reset]; len(v) > 0 {
		r.Reset, form = resetIn(v[0], h, now)
	}
	if form == secondReset || form == numberReset {
		r.ResetSlack = time.Second
	}
	return r, form, true
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
func perDay(r limits.Reading, bucket bool) bool {
	return r.Reset > longReset || bucket && within(refill(r), 24*time.Hour)
}

// RetryAfter returns the wait that a response asks for, or 0 if the response contains no valid wait. The order of precedence is the body,
// the header retry-after-ms, and the header retry-after.
func RetryAfter(h http.Header, body []byte, now time.Time) time.Duration {
	if len(body) > 0 {
		if d, _ := errtext.Read(body, nil).Wait(now); d > 0 {
			return d
		}
	}
	return headerWait(h, now)
}

// headerWait reads retry-after-ms, then Traefik's x-retry-in, which has decimals, then retry-after: seconds with or without decimals, or a date,
// or an epoch, RFC 3339 or a duration with units, as gateways write against the standard.
func headerWait(h http.Header, now time.Time) time.Duration {
	if v := h["Retry-After-Ms"]; len(v) > 0 {
		d, _ := resetIn(v[0], h, now)
		if f, err := strconv.ParseFloat(strings.TrimSpace(v[0]), 64); err == nil && f < 1e12 {
			d = seconds(v[0], time.Millisecond)
		}
		if d > 0 {
			return d
		}
	}
	for _, name := range [...]string{"X-Retry-In", "Retry-After"} {
		if v := h[name]; len(v) > 0 {
			if d, _ := resetIn(v[0], h, now); d > 0 {
				return d
			}
		}
	}
	return 0
}

// exhausted returns the dimension of the only budget of which the headers say that nothing is left.
func (p *Provider) exhausted(h http.Header, now time.Time) limits.Dimension {
	var found limits.Dimension
	for b, own := range p.forms {
		d, ok := b.spent(h, now, own)
		if !ok || d == found {
			continue
		}
		if found != limits.AnyDimension {
			return limits.AnyDimension
		}
		found = d
	}
	if all := combined(h); found == limits.AnyDimension && len(all) > 0 && all[0].Remaining == 0 {
		return all[0].Dimension
	}
	return found
}

// spent reports whether nothing is left of a budget, and of which dimension it is. Unlike read it needs no limit.
func (b *budget) spent(h http.Header, now time.Time, own bool) (limits.Dimension, bool) {
	if n, ok := count(h[b.Remaining]); !ok || n > 0 {
		return 0, false
	}
	if limit, ok := count(h[b.Limit]); len(h[b.Limit]) > 0 && (!ok || limit == 0) {
		return 0, false // -1 of -1, or 0 of 0, is not known rather than spent
	}
	if r, ok := b.read(h, now, own); ok {
		return r.Dimension, true
	}
	return b.Dimension, true
}

// serverTime returns the present time of the server that states instants: its own Date if its clock and ours disagree by more than servers
// that reuse a Date are late. Uvicorn renews it every second, or later under load.
func serverTime(h http.Header, now time.Time) time.Time {
	const late = 5 * time.Second
	v := h["Date"]
	if len(v) == 0 {
		return now
	}
	at, err := http.ParseTime(v[0])
	if skew := at.Sub(now); err == nil && (skew > late || skew < -late) {
		return at
	}
	return now
}
