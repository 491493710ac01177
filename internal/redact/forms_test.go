package redact_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/redact"
)

func TestKeysAreStruckOut(t *testing.T) {
	cases := map[string]string{
		"Incorrect API key provided: sk-proj-abcDEF123_456-789.":                      "Incorrect API key provided: ***.",
		"key sk-ant-api03-abcdefghijkl here":                                          "key *** here",
		"sk-or-v1-0123456789abcdef":                                                   "***",
		"Authorization: Bearer abcdef123456":                                          "Authorization: Bearer ***",
		`{"authorization":"Bearer abcdef123456"}`:                                     `{"authorization":"Bearer ***"}`,
		`Post "https://x/v1/models/m:generateContent?key=abcd1234&alt=sse": dial tcp`: `Post "https://x/v1/models/m:generateContent?key=***&alt=sse": dial tcp`,
		"https://x/?api_key=abcd1234":                                                 "https://x/?api_key=***",
		"x-api-key: abcdef123456":                                                     "x-api-key: ***",
		`"x-api-key": "abcdef123456"`:                                                 `"x-api-key": "***"`,
		"X-Api-Key:[abcdef123456]":                                                    "X-Api-Key:[***]",
		"api-key=abcdef123456":                                                        "api-key=***",
		"AIzaSyDdI0hCZtE6vySjMm-WEfRq3CPzqKqqsHI is not valid":                        "*** is not valid",
		"model slk-OZcr87Z1FC5EFMI647t6WflNDF-vQrMbzake-Qj-I3Q is not served":         "model *** is not served",
		"gsk_abcdefghij1234567890 and xai-abcdefghij123456":                           "*** and ***",
		"OPENAI_API_KEY=abcdef123456":                                                 "OPENAI_API_KEY=***",
		// What is no key stays.
		"invalid x-api-key": "invalid x-api-key",
		"Rate limit reached for gpt-4o in organization org-abc on tokens": "Rate limit reached for gpt-4o in organization org-abc on tokens",
		"max_tokens is too large: 8192":                                   "max_tokens is too large: 8192",
		"the key: a good prompt":                                          "the key: a good prompt",
		"a risk-averse task-runner":                                       "a risk-averse task-runner",
		"bearer of news":                                                  "bearer of news",
		"":                                                                "",
	}
	for in, want := range cases {
		if got := redact.New().Text(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestRunsOwnKeyIsStruckOutWhateverItsForm(t *testing.T) {
	got := redact.New("correct horse/battery").Text("key correct horse/battery, and correct+horse%2Fbattery")
	if got != "key ***, and ***" {
		t.Errorf("%q", got)
	}
	if got := redact.New("", "a", "  ").Text("a sentence about nothing"); got != "a sentence about nothing" {
		t.Errorf("%q", got)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("Incorrect API key provided: %s.", "sk-proj-abcdefghijklmnop")
	f.Add(`{"x-api-key": "%s"}`, "abcdef123456")
	f.Add("https://x/?key=%s&a=b", "AIzaSyDdI0hCZtE6vySjMm-WEfRq3CPzqKqqsHI")
	f.Add("Bearer %s", "eyJhbGciOi.JIUzI1NiIs")
	f.Add("Bearer Bearer %s", "x-api-key: key=1234")
	f.Add("%s", "0 \n0")
	f.Fuzz(func(t *testing.T, text, key string) {
		key = printable(key)
		got := redact.New(key).Text(strings.ReplaceAll(text, "%s", key))
		if len(visible(key)) >= redact.Shortest && !strings.Contains(key, "*") && strings.Contains(got, key) {
			t.Errorf("%q still holds %q", got, key)
		}
		if again := redact.New().Text(got); again != redact.New().Text(again) {
			t.Errorf("%q, then %q", again, redact.New().Text(again))
		}
	})
}

func TestAKeyThatBeginsAnotherLeavesNothingOfIt(t *testing.T) {
	if got := redact.New("abcd-1234", "abcd-1234-tail").Text("sent with abcd-1234-tail"); got != "sent with ***" {
		t.Error(got)
	}
}

// visible returns a text without white space, control characters and backslashes.
func visible(s string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c == 0x7f || c == '\\' {
			return -1
		}
		return c
	}, s)
}
