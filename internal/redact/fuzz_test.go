package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/redact"
)

// encodings write a key in the forms of which the package says that they hide none.
var encodings = []func(key string) string{
	func(key string) string { return key },
	func(key string) string { b, _ := json.Marshal(key); return string(b) },
	func(key string) string { b, _ := json.Marshal(html.EscapeString(key)); return string(b) },
	func(key string) string { return strings.ReplaceAll(key, "/", `\/`) },
	each(func(c byte) string { return fmt.Sprintf(`\u%04x`, c) }),
	each(func(c byte) string { return fmt.Sprintf(`\\\u%04X`, c) }),
	each(func(c byte) string { return fmt.Sprintf(`\x%02x`, c) }),
	each(func(c byte) string { return fmt.Sprintf("%%%02x", c) }),
	each(func(c byte) string { return fmt.Sprintf("%%%02X", c) }),
	each(func(c byte) string { return fmt.Sprintf("&#%d;", c) }),
	each(func(c byte) string { return fmt.Sprintf("&#x%04X;", c) }),
	each(func(c byte) string { return fmt.Sprintf("&#%d", c) }),
	func(key string) string {
		return strings.Join(regexp.MustCompile(".{1,7}").FindAllString(base64.StdEncoding.EncodeToString([]byte(key)), -1), "\r\n")
	},
	func(key string) string { b, _ := json.Marshal(key); c, _ := json.Marshal(string(b)); return string(c) },
	url.QueryEscape,
	url.PathEscape,
	html.EscapeString,
	func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) },
	func(key string) string { return base64.StdEncoding.EncodeToString([]byte("u" + key + "x")) },
	func(key string) string { return base64.URLEncoding.EncodeToString([]byte("us" + key)) },
	func(key string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(":" + key))) },
	func(key string) string { return hex.EncodeToString([]byte(key)) },
	func(key string) string { return strings.ToUpper(hex.EncodeToString([]byte("z" + key))) },
}

// separators are what may stand in the middle of a key.
var separators = []string{"", " ", "\r\n\t", `\n`, "%20", "&nbsp;", "\u200b", "\u034f\U000e0100", "\x1b[31m", "\u00a0", `\u2028`, strings.Repeat(" ", 10000)}

// FuzzRedactEncodings hides a key in a text, in any form and in any pieces.
func FuzzRedactEncodings(f *testing.F) {
	for e := range encodings {
		for s := range separators {
			f.Add("begin ", opaqueKey, " end", uint8(e), uint8(s), uint8(7+e), []byte{byte(e + s)})
		}
	}
	f.Add(`{"a":"\`, "nvapi-abcdefgh0123", `"}`, uint8(1), uint8(0), uint8(3), []byte{0})
	f.Add(`\u00`, `41\b"c%41&amp;def0123`, "%", uint8(7), uint8(0), uint8(3), []byte{3, 1})
	f.Add("sk-", "sk-sk-sk-sk-sk-sk-", "sk-sk-", uint8(0), uint8(1), uint8(5), []byte{2})
	f.Add("abc", "ab12", "12", uint8(0), uint8(0), uint8(0), []byte{1})
	f.Fuzz(func(t *testing.T, before, key, after string, encoding, separator, at uint8, sizes []byte) {
		key = printable(key)
		if n := len(visible(key)); n < redact.Shortest || n < 9 && strings.ContainsAny(before+key+after, `\%&`) {
			t.Skip("of a short key with half an escape before it or in it, nobody can say where it stands")
		}
		e := int(encoding) % len(encodings)
		hidden := encodings[e](key)
		middle := int(at) % (len(hidden) + 1)
		if strings.ContainsAny(hidden[max(0, middle-12):middle], `\%&`) && hidden != key {
			middle = 0 // an escape that is cut is none
		}
		between := separators[int(separator)%len(separators)]
		if strings.ContainsAny(between, `\%&`) && repeats(key, len(between)) {
			t.Skip(`read as plain text, the end of the separator continues the key: "%20" and three more zeros are "0000"`)
		}
		text := before + hidden[:middle] + between + hidden[middle:] + after
		r := redact.New(key, "another secret")
		check(t, key, text, "Text", r.Text(text))
		check(t, key, text, "Data", r.Data(text))
		check(t, key, text, "Known", string(r.Known([]byte(text))))
		streamed := inPieces(r, text, sizes)
		check(t, key, text, "Stream", streamed)
		if len(streamed) != len(text) {
			t.Errorf("%d bytes became %d", len(text), len(streamed))
		}
	})
}

// repeats reports whether a text repeats its beginning after at most n characters.
func repeats(text string, n int) bool {
	for p := 1; p <= min(n, len(text)-1); p++ {
		if strings.HasPrefix(text, text[p:]) {
			return true
		}
	}
	return false
}

// printable returns a text's printable characters of ASCII but "*".
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '*' {
			return -1
		}
		return c
	}, s))
}

// inPieces passes a text through a Stream.
func inPieces(r *redact.Redactor, text string, sizes []byte) string {
	var out strings.Builder
	s := r.Stream()
	for i := 0; len(text) > 0; i++ {
		n := len(text)
		if len(sizes) > 0 {
			n = min(n, int(sizes[i%len(sizes)])+1)
		}
		out.Write(s.Next([]byte(text[:n])))
		text = text[n:]
	}
	out.Write(s.End())
	return out.String()
}

// check reads what was made of a text in all ways, and fails if 9 consecutive characters of the key are there, or a shorter key.
func check(t *testing.T, key, text, how, got string) {
	t.Helper()
	key = visible(key)
	n := min(len(key), 9)
	for name, read := range readings(got) {
		if len(key) < redact.ShortestEncoded && (strings.HasPrefix(name, "base64") || strings.HasPrefix(name, "hex")) {
			continue
		}
		for i := range len(key) - n + 1 {
			if strings.Contains(read, key[i:i+n]) {
				t.Fatalf("%s of %.300q leaves %q of %q as %s: %.300q", how, text, key[i:i+n], key, name, got)
			}
		}
	}
}

var (
	colors     = regexp.MustCompile("\x1b\\[[0-9;]*m")
	numbers    = regexp.MustCompile(`\\+(?:u00([0-7][0-9a-fA-F])|x([0-7][0-9a-fA-F]))`)
	blanks     = regexp.MustCompile(`\\+[nrtbfv]|\\+u(?:2028|200b|00a0)|[\x00-\x20\x7f\x{a0}\x{200b}]+`)
	percent    = regexp.MustCompile(`%[0-7][0-9a-fA-F]`)
	base64Runs = regexp.MustCompile(`[A-Za-z0-9+/_-]+`)
	hexRuns    = regexp.MustCompile(`[A-Fa-f0-9]+`)
)

// readings are the ways to read a text, by the standard library where it has them.
func readings(text string) map[string]string {
	backslashes := func(s string) string {
		s = numbers.ReplaceAllStringFunc(s, func(e string) string {
			v, _ := strconv.ParseUint(e[len(e)-2:], 16, 8)
			return string(rune(v))
		})
		return strings.ReplaceAll(blanks.ReplaceAllString(s, ""), `\`, "")
	}
	address := func(s string) string {
		return percent.ReplaceAllStringFunc(s, func(e string) string { c, _ := url.PathUnescape(e); return c })
	}
	text = colors.ReplaceAllString(text, "")
	all := map[string]string{
		"as it is": visible(blanks.ReplaceAllString(text, "")), "JSON": visible(backslashes(text)), "an address": visible(backslashes(address(text))),
		"a form": visible(address(strings.ReplaceAll(text, "+", " "))), "HTML": visible(backslashes(html.UnescapeString(text))),
		"HTML in JSON": visible(backslashes(html.UnescapeString(backslashes(text)))),
	}
	for _, name := range []string{"as it is", "an address"} {
		for _, run := range base64Runs.FindAllString(all[name], -1) {
			run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
			for at := range min(4, len(run)) {
				part := run[at:]
				if len(part)%4 == 1 {
					part = part[:len(part)-1]
				}
				b, _ := base64.RawStdEncoding.DecodeString(part)
				all["base64 of "+name+strconv.Itoa(at)] += visible(string(b)) + "\x00"
			}
		}
		for _, run := range hexRuns.FindAllString(all[name], -1) {
			for at := range min(2, len(run)) {
				part := run[at:]
				b, _ := hex.DecodeString(part[:len(part)/2*2])
				all["hexadecimal of "+name+strconv.Itoa(at)] += visible(string(b)) + "\x00"
			}
		}
	}
	return all
}
