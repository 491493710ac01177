package provider

import (
	"net/http"
	"time"

	"github.com/sluice-llm/sluice"
)

func Redact(s string, keys ...string) string { return s }

func Classify(p Provider, status int, h http.Header, body []byte, now time.Time) Verdict {
	switch {
	case status < 300:
		return Verdict{}
	case status == 429:
		return Verdict{Kind: sluice.RateLimit}
	case status == 529 || status == 503:
		return Verdict{Kind: sluice.Overloaded}
	case status >= 500:
		return Verdict{Kind: sluice.ServerError}
	case status == 401 || status == 403:
		return Verdict{Kind: sluice.Auth}
	}
	return Verdict{Kind: sluice.BadRequest}
}

func Readings(h http.Header, now time.Time) []sluice.Reading { return nil }

func RetryAfter(h http.Header, body []byte, now time.Time) time.Duration { return 0 }

func ClassifyEvent(p Provider, h http.Header, data []byte, now time.Time) Verdict {
	return Verdict{Kind: sluice.ServerError}
}
