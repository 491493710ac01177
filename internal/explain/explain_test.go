package explain_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/explain"
)

func TestReadUsesAllFieldsOfAnError(t *testing.T) {
	const limited = `openai.RateLimitError: Error code: 429`
	cases := []struct {
		name, line string
		kind       sluice.Kind
		wait       float64
	}{
		{"headers as texts", `{"status":429,"headers":{"retry-after":"7"},"text":""}`, sluice.RateLimit, 7},
		{"headers as lists", `{"status":429,"headers":{"Retry-After":["7","8"]},"text":""}`, sluice.RateLimit, 7},
		{"headers as numbers", `{"status":429,"headers":{"retry-after-ms":1500},"text":""}`, sluice.RateLimit, 1.5},
		{"headers of words", `{"channel":"sdk","headers":{"retry-after":"7"},"text":"` + limited + `"}`, sluice.RateLimit, 7},
		{"a status as a text", `{"status":"529","text":""}`, sluice.Overloaded, 0},
		{"nothing but words", `{"text":"` + limited + `"}`, sluice.RateLimit, 0},
		{"nulls", `{"status":null,"headers":null,"provider":null,"channel":"http","text":"` + limited + `","now":null}`, sluice.RateLimit, 0},
		{"an unknown provider", `{"provider":"local","text":"` + limited + `"}`, sluice.RateLimit, 0},
		{"its own time", `{"now":"2026-03-01T13:00:00Z","text":"You've hit your limit · resets 2pm (UTC)"}`, sluice.UsageWindow, 3600},
		{"what is no error", `{"channel":"cli","text":"docs: rate limit exceeded"}`, sluice.OK, 0},
		{"a page", `{"status":403,"text":"<html><title>403 Forbidden</title></html>"}`, sluice.Blocked, 0},
		{"no permission", `{"status":403,"text":"{\"error\":{\"type\":\"permission_error\",\"message\":\"no\"}}"}`, sluice.Rejected, 0},
		{"words about a key", `{"status":400,"text":"{\"error\":{\"message\":\"Incorrect API key provided\"}}"}`, sluice.BadRequest, 0},
		{"a key", `{"status":401,"text":"{\"error\":{\"code\":\"invalid_api_key\"}}"}`, sluice.Auth, 0},
		{"words in a good status", `{"status":200,"channel":"http","text":"That model is currently overloaded with other requests."}`, sluice.Overloaded, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := explain.Query{Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
			if err := q.Read([]byte(c.line)); err != nil {
				t.Fatal(err)
			}
			wait := 0.0
			v := explain.Explain(q)
			if v.RetryAfter != nil {
				wait = *v.RetryAfter
			}
			if v.Kind != c.kind || wait != c.wait || v.Action == "" {
				t.Errorf("kind %s, wait %v, action %q; want %s, %v", v.Kind, wait, v.Action, c.kind, c.wait)
			}
		})
	}
}
