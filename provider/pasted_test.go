package provider_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestHeadReadsAPastedAnswer(t *testing.T) {
	const limit = "X-Ratelimit-Limit-Tokens"
	for name, test := range map[string]struct {
		text   string
		status int
		limit  string
		ok     bool
	}{
		"of HTTP/1.1":          {"HTTP/1.1 429 Too Many Requests\r\nx-ratelimit-limit-tokens: 30000\r\n\r\n{}", 429, "30000", true},
		"of HTTP/2":            {"\nHTTP/2 200\nX-RateLimit-Limit-Tokens: 5\n", 200, "5", true},
		"as curl -v prints it": {"> POST /v1/messages HTTP/2\n>\n< HTTP/2 529\n< x-ratelimit-limit-tokens: 7\n<\n{}", 529, "7", true},
		"words":                {"429 Too Many Requests\nx-ratelimit-limit-tokens: 30000", 0, "", false},
		"nothing":              {"", 0, "", false},
	} {
		status, h, ok := provider.Head(test.text)
		if status != test.status || h.Get(limit) != test.limit || ok != test.ok {
			t.Errorf("%s: %d, %v, %t", name, status, h, ok)
		}
	}
}

func TestWhatNothingSpeaksOfIsNotRecognised(t *testing.T) {
	var anybody provider.Provider
	for text, want := range map[string]bool{
		"No space left in the drawer": false,
		"":                            false,
		"panic: runtime error: index out of range": false,
		"Error: 529 Overloaded":                    true,
		`{"choices":[{"message":{"role":"assistant","content":"429"},"finish_reason":"stop"}]}`: true,
		"HTTP/1.1 200 OK\n\n{\"choices\":[{\"message\":{},\"finish_reason\":\"stop\"}]}":        true,
	} {
		if v := provider.ClassifyText(anybody, 0, text, noon); v.Recognised() != want {
			t.Errorf("%s: %+v", text, v)
		}
	}
	if v := provider.Classify(anybody, 200, nil, []byte("whatever"), noon); !v.Recognised() {
		t.Errorf("a good status: %+v", v)
	}
}

func TestStatedAddsBudgetsWithoutARemainder(t *testing.T) {
	h := http.Header{}
	for name, value := range map[string]string{
		"x-ratelimit-limit-tokens": "30000", "x-ratelimit-reset-tokens": "6m0s",
		"x-ratelimit-limit-requests": "200", "x-ratelimit-remaining-requests": "199",
		"anthropic-ratelimit-output-tokens-limit": "-1",
	} {
		h.Set(name, value)
	}
	var anybody provider.Provider
	got := anybody.Stated(h, noon)
	want := []limits.Reading{
		{Dimension: limits.Requests, Limit: 200, Remaining: 199},
		{Dimension: limits.Tokens, Limit: 30000, Remaining: -1, Reset: 6 * time.Minute},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	h.Set("x-ratelimit-reset-tokens", "7h12m")
	if got := anybody.Stated(h, noon); len(got) != 2 || got[1].Dimension != limits.TokensPerDay {
		t.Errorf("a day's: %+v", got)
	}
	if got := anybody.Readings(h, noon); len(got) != 1 {
		t.Errorf("what has no remainder is no reading: %+v", got)
	}
}
