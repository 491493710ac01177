package sim

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// headers fills an http.Header; the values share one backing array, which
// spares an allocation for each.
type headers struct {
	h      http.Header
	values []string
}

// maxHeaders is the most that an answer carries: Anthropic's twelve, and the
// content type, length, date, request id, Retry-After and retry-after-ms.
const maxHeaders = 20

func newHeaders(h http.Header) headers {
	return headers{h: h, values: make([]string, 0, maxHeaders)}
}

// set takes a canonical key.
func (h *headers) set(key, value string) {
	h.values = append(h.values, value)
	n := len(h.values)
	h.h[key] = h.values[n-1 : n : n]
}

// rateHeaders tells requests and tokens as OpenAI does: the limit, what is
// left of it, and the time until it is full again as a Go duration.
// https://platform.openai.com/docs/guides/rate-limits
func (openai) rateHeaders(h *headers, q *[limits.NumDimensions]quota, _ time.Time) {
	perMinute := &q[limits.Requests]
	if perMinute.limit == 0 {
		perMinute = &q[limits.RequestsPerDay]
	}
	if perMinute.limit > 0 {
		h.set("X-Ratelimit-Limit-Requests", strconv.Itoa(perMinute.limit))
		h.set("X-Ratelimit-Remaining-Requests", strconv.Itoa(perMinute.remaining))
		h.set("X-Ratelimit-Reset-Requests", waitText(perMinute.reset))
	}
	if t := &q[limits.Tokens]; t.limit > 0 {
		h.set("X-Ratelimit-Limit-Tokens", strconv.Itoa(t.limit))
		h.set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(t.remaining))
		h.set("X-Ratelimit-Reset-Tokens", waitText(t.reset))
	}
}

// rateHeaders tells every limit as Anthropic does: tokens left are rounded to
// the nearest thousand, and the time at which a limit is full again is an
// instant (here rounded up to the second). The "tokens" headers show the
// limit on tokens in and out together if there is one, and else the sum of
// the two; where only one of the two is limited there is no sum to show.
// https://docs.anthropic.com/en/api/rate-limits
func (anthropic) rateHeaders(h *headers, q *[limits.NumDimensions]quota, now time.Time) {
	perMinute := &q[limits.Requests]
	if perMinute.limit == 0 {
		perMinute = &q[limits.RequestsPerDay]
	}
	both := q[limits.Tokens]
	if both.limit == 0 && q[limits.InputTokens].limit > 0 && q[limits.OutputTokens].limit > 0 {
		both = quota{
			limit:     q[limits.InputTokens].limit + q[limits.OutputTokens].limit,
			remaining: q[limits.InputTokens].remaining + q[limits.OutputTokens].remaining,
			reset:     max(q[limits.InputTokens].reset, q[limits.OutputTokens].reset),
		}
	}
	for _, row := range [...]struct {
		limit, remaining, reset string
		quota                   *quota
		round                   int
	}{
		{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", perMinute, 1},
		{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", &both, 1000},
		{"Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", &q[limits.InputTokens], 1000},
		{"Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", &q[limits.OutputTokens], 1000},
	} {
		if row.quota.limit == 0 {
			continue
		}
		h.set(row.limit, strconv.Itoa(row.quota.limit))
		h.set(row.remaining, strconv.Itoa((row.quota.remaining+row.round/2)/row.round*row.round))
		h.set(row.reset, ceilTime(now.Add(row.quota.reset)).UTC().Format(time.RFC3339))
	}
}

// retryAfter adds the headers that say when to come back. The header has
// whole seconds or a date; retry-after-ms is read by the official SDKs before
// it. https://github.com/stano45/mocklimit
func retryAfter(h *headers, form RetryAfterForm, wait time.Duration, now time.Time) {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	switch form {
	case RetryAfterSeconds:
		h.set("Retry-After", seconds)
	case RetryAfterMillis:
		h.set("Retry-After", seconds)
		h.set("Retry-After-Ms", strconv.FormatInt(wholeMillis(wait).Milliseconds(), 10))
	case RetryAfterDate:
		h.set("Retry-After", ceilTime(now.Add(wait)).UTC().Format(http.TimeFormat))
	}
}

// ceilTime rounds t up to the second.
func ceilTime(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole
}
