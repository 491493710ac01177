package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/redact"
	"github.com/sluice-llm/sluice/internal/suite"
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
		if got := redact.New(opaqueKey).Text(text); got != "begin *** end" {
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
		if got := redact.New(key).Text(before + hidden + after); strings.Contains(got, hidden) || strings.Contains(got, key) {
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
		if got := redact.New().Text(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestLookingForKeysTakesLittleMemory(t *testing.T) {
	text := strings.Repeat(`A line of an answer, \"quoted\", 100 % of it & more.\n`, 50)
	r := redact.New(opaqueKey)
	if n := testing.AllocsPerRun(100, func() { r.Text(text) }); n > 2 { // a copy, and one without escapes
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { r.Known([]byte(text)) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// hostile are texts that took time by the square of their length once, or could.
var hostile = []string{`\`, "%", "&#", "&a", "&gt;", `\u`, "sk-", "eyJ-", "cookie: a ", "://a:", "token:", "key=", "key:", "key=.", `key="`, "password=a ", "\x1b[",
	"\u200b", " ", "ZQ7v", `ZQ7v\`, "ZQ7vKEY0", opaqueKey[:20], opaqueKey, "a1", "Bearer a", `{"key":[1,`,
	"{\"password\":12345678}\n"}

func TestHostileTextsAreSearchedInLinearTime(t *testing.T) {
	const limit = time.Minute // a search whose time grows as the square of the text takes longer
	for _, part := range hostile {
		text := strings.Repeat(part, suite.Size(1<<18, 1<<24)/len(part))
		r := redact.New(opaqueKey, strings.Repeat(`\`, 20)+"b")
		for name, search := range map[string]func(){
			"Text": func() { r.Text(text) }, "Data": func() { r.Data(text) },
			"Stream": func() { s := r.Stream(); s.Next([]byte(text)); s.End() },
		} {
			start := time.Now()
			if search(); suite.Full && time.Since(start) > limit {
				t.Errorf("%s of %q takes too long", name, part)
			}
		}
	}
}

func TestAValueOfALongArrayIsRedactedByItself(t *testing.T) {
	text := `{"` + strings.Repeat("n", 1<<16) + `":[` + strings.Repeat(`1,`, 1<<16) + `12345678]}`
	if got := redact.New("12345678").Text(text); got != strings.Replace(text, "12345678", `"***"`, 1) {
		t.Error(got[len(got)-20:])
	}
}

func TestAKeyInAStreamIsMaskedWhole(t *testing.T) {
	for _, key := range []string{opaqueKey, "ab12", `\u005a\u005111\/33&#52;%2d66`} {
		for size := range 40 {
			r := redact.New("ZQ11/334-66", key)
			text := "begin {" + key + "} end" + key
			want := "begin {" + strings.Repeat("*", len(key)) + "} end" + strings.Repeat("*", len(key))
			if got := inPieces(r, text, []byte{byte(size)}); got != want {
				t.Errorf("in pieces of %d bytes: %s, want %s", size+1, got, want)
			}
		}
	}
}

func TestAStreamIsNotHeldBackBehindWhatIsInNoKey(t *testing.T) {
	s := redact.New(opaqueKey).Stream()
	for _, event := range []string{"data: {\"a\":\"ZQ7v\"}\n\n", "data: [DONE]\n\n", "\"\\n\"}\r\n"} {
		if got := string(s.Next([]byte(event))); got != event {
			t.Errorf("%q becomes %q", event, got)
		}
	}
	pass := 0
	for range 3 {
		pass += len(s.Next([]byte("ZQ7v" + strings.Repeat(" ", 3<<10))))
	}
	if pass < 3<<10 {
		t.Errorf("%d bytes pass", pass)
	}
}

// BenchmarkWorst searches 16 MiB of hostile text.
func BenchmarkWorst(b *testing.B) {
	r := redact.New(opaqueKey)
	for _, part := range hostile {
		text := strings.Repeat(part, 1<<24/len(part))
		b.Run("Text/"+fmt.Sprintf("%.12q", part), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Text(text)
			}
		})
		b.Run("Stream/"+fmt.Sprintf("%.12q", part), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			piece := make([]byte, 32<<10)
			for b.Loop() {
				s := r.Stream()
				for i := 0; i < len(text); {
					n := copy(piece, text[i:])
					s.Next(piece[:n])
					i += n
				}
				s.End()
			}
		})
	}
}

func BenchmarkText(b *testing.B) {
	text := strings.Repeat(`A line of an answer, \"quoted\", 100 % of it & more.\n`, 20)
	r := redact.New(opaqueKey)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r.Text(text)
	}
}
