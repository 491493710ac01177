package provider_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// opaqueKey has no form that anybody would know, and characters that are escaped.
const opaqueKey = "ZQ7vKEY0123/aa+bb=x_<&9"

// spellings are ways to write a key down that say the same.
var spellings = map[string]func(key string) string{
	"as it is":             func(key string) string { return key },
	"an address":           url.QueryEscape,
	"an address in lower":  func(key string) string { return lowerHex(url.QueryEscape(key)) },
	"a path":               url.PathEscape,
	"HTML":                 html.EscapeString,
	"HTML of a template":   func(key string) string { return strings.ReplaceAll(html.EscapeString(key), "+", "&#43;") },
	"HTML in hexadecimal":  each(func(c byte) string { return fmt.Sprintf("&#x%X;", c) }),
	"JSON":                 func(key string) string { b, _ := json.Marshal(key); return strings.Trim(string(b), `"`) },
	"JSON of PHP":          func(key string) string { return strings.ReplaceAll(key, "/", `\/`) },
	"JSON's numbers":       each(func(c byte) string { return fmt.Sprintf(`\u%04x`, c) }),
	"JSON's large numbers": each(func(c byte) string { return fmt.Sprintf(`\u%04X`, c) }),
	"JSON in JSON":         func(key string) string { return strings.ReplaceAll(key, "/", `\\\/`) },
	"all percent":          each(func(c byte) string { return fmt.Sprintf("%%%02x", c) }),
	"what a log escapes":   each(func(c byte) string { return fmt.Sprintf(`\x%02x`, c) }),
	"the first alone":      func(key string) string { return fmt.Sprintf(`\u%04x`, key[0]) + key[1:] },
	"base64":               func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) },
	"base64 with a line":   func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key + "\n")) },
	"base64 of addresses":  func(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) },
	"base64 in an address": func(key string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(key))) },
	"colours":              func(key string) string { return key[:3] + "\x1b[31m" + key[3:] },
	"colours in JSON":      func(key string) string { return key[:3] + `\u001b[0;1m` + key[3:] },
	"nothing wide":         func(key string) string { return key[:3] + "\u200b\ufeff" + key[3:] },
	"nothing wide in JSON": func(key string) string { return key[:3] + `\u200B` + key[3:] },
}

func each(spell func(c byte) string) func(key string) string {
	return func(key string) string {
		var b strings.Builder
		for i := range len(key) {
			b.WriteString(spell(key[i]))
		}
		return b.String()
	}
}

// lowerHex writes the digits of %2F in small letters.
func lowerHex(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i:], strings.ToLower(s[i:i+3]))
		}
	}
	return string(b)
}

func TestGivenKeyIsStruckOutHoweverItIsSpelled(t *testing.T) {
	for name, spell := range spellings {
		text := "begin " + spell(opaqueKey) + " end"
		if got := provider.Redact(text, opaqueKey); got != "begin *** end" {
			t.Errorf("%s: %q gives %q", name, text, got)
		}
	}
}

func TestAnyKeyInAnySpellingIsStruckOutOfAnyText(t *testing.T) {
	character := rapid.SampledFrom([]rune("ABab01-_./+=~!$&%<>'*"))
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringOfN(character, 9, 40, -1).Draw(t, "key")
		if strings.Contains(key, "***") || strings.Contains(key, "%") && strings.Contains(key, "&") {
			t.Skip("what it looks like depends on where one begins to read")
		}
		name := rapid.SampledFrom([]string{"as it is", "an address", "an address in lower", "a path", "HTML", "JSON", "JSON of PHP", "JSON's numbers",
			"all percent", "base64", "base64 of addresses"}).Draw(t, "spelling")
		hidden := spellings[name](key)
		before := rapid.StringMatching(`[ a-z\\%&+"]{0,12} `).Draw(t, "before")
		after := rapid.StringMatching(` [ a-z\\%&+"]{0,12}`).Draw(t, "after")
		if got := provider.Redact(before+hidden+after, key); strings.Contains(got, hidden) || strings.Contains(got, key) {
			t.Fatalf("%q holds %q as %s", got, key, name)
		}
	})
}

func TestKeysOfKnownFormsAreStruckOutWhereTheyAreEscaped(t *testing.T) {
	for in, want := range map[string]string{
		`sent sk\u002dproj\u002dabcdefgh01 back`:                "sent *** back",
		"sent sk%2Dproj%2Dabcdefgh01 back":                      "sent *** back",
		"sent sk&#45;proj&#45;abcdefgh01 back":                  "sent *** back",
		"sent sk\u200b-proj-abcd\x1b[31mefgh01 back":            "sent *** back",
		`sent \u001b[31msk-abcdefgh01\u001b[0m back`:            "sent *** back",
		"password=hunter22 and more":                            "password=*** and more",
		`{"passwd": "hunter22"}`:                                `{"passwd": "***"}`,
		"secret=abcd1234":                                       "secret=***",
		"Cookie: session=abc; id=7\r\nAccept: x":                "Cookie: ***\r\nAccept: x",
		`{"set-cookie":"session=abc; HttpOnly","a":"b"}`:        `{"set-cookie":"***","a":"b"}`,
		"dial https://user:pa55w0rd@host/v1?x=1":                "dial https://***@host/v1?x=1",
		"token: 7f3a9c1e5b2d8f60":                               "token: ***",
		`{"token":"7f3a9c1e5b2d8f60"}`:                          `{"token":"***"}`,
		"token: claude-sonnet-4-5-20250929 is over":             "token: claude-sonnet-4-5-20250929 is over",
		"unexpected token: expected_a_closing_bracket":          "unexpected token: expected_a_closing_bracket",
		"https://host:8080/a@b is no user":                      "https://host:8080/a@b is no user",
		"the cookie: stale":                                     "the cookie: stale",
		"می\u200cخواهم and \U0001F469\u200d\U0001F4BB \x1b[1mX": "می\u200cخواهم and \U0001F469\u200d\U0001F4BB \x1b[1mX",
	} {
		if got := provider.Redact(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

// A server that quotes what it was sent may escape it, in a refusal as in an answer.
func TestAnswersHoldNoKeyHoweverTheServerEscapesIt(t *testing.T) {
	p := lookup(t, "openai")
	for name, spell := range spellings {
		said := spell(opaqueKey)
		if strings.HasPrefix(name, "colours") || strings.HasPrefix(name, "nothing wide") || name == "what a log escapes" {
			continue // no JSON, or none that a server makes by escaping
		}
		for status, form := range map[int]string{
			200: `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"%s"}}]}`,
			400: `{"error":{"message":"you sent %s","type":"invalid_request_error"}}`,
		} {
			body := strings.Replace(form, "%s", said, 1)
			base := tripper(func(*http.Request) (*http.Response, error) {
				return reply(status, strings.NewReader(body), "content-type", "application/json", "x-request-id", said)
			})
			req, _ := p.NewRequest(t.Context(), provider.Target{Key: opaqueKey, Endpoint: provider.ChatCompletions, Model: "m"}, []byte("{}"))
			a, o := provider.Exchange(t.Context(), base, nil, req,
				provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions, Key: opaqueKey})
			if (status == 200) != (o.Kind == sluice.OK) {
				t.Fatalf("%s: %d is %s", name, status, o.Kind)
			}
			if text := fmt.Sprint(string(a.Body), a.RequestID, o.Err); strings.Contains(text, said) || strings.Contains(text, opaqueKey) {
				t.Errorf("%s: %d leaves %s", name, status, text)
			}
		}
	}
}

func TestLookingForKeysTakesNoMemoryButACopy(t *testing.T) {
	text := strings.Repeat(`A line of an answer, \"quoted\", 100 % of it & more.\n`, 50)
	if n := testing.AllocsPerRun(100, func() { provider.Redact(text, opaqueKey) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRedact(b *testing.B) {
	text := strings.Repeat(`A line of an answer, \"quoted\", 100 % of it & more.\n`, 20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		provider.Redact(text, opaqueKey)
	}
}

// Each of these took time by the square of its length once, or could.
func TestHostileTextsAreSearchedInOneGo(t *testing.T) {
	for _, part := range []string{`\`, "%", "&#", `\u`, "sk-", "cookie: a ", "://a:", "token:", "\x1b[", "\u200b", "ZQ7v", `ZQ7v\`} {
		text := strings.Repeat(part, suite.Size(1<<18, 1<<20)/len(part))
		inLinearTime(t, part, time.Minute, func() { provider.Redact(text, opaqueKey, strings.Repeat(`\`, 20)+"b") })
	}
}
