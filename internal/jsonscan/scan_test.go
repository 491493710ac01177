package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

func Example() {
	var model string
	var bound int64
	s := jsonscan.New([]byte(`{"model": "m", "messages": [], "max_tokens": 16}`))
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "model":
			model = s.Text()
		case "max_tokens":
			bound, _ = s.Number()
		default:
			s.Skip()
		}
	}
	fmt.Println(model, bound, s.End())
	// Output: m 16 true
}

func TestErrorsSayWhereTheyAre(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `{"a":}`: 5, `{"a" 1}`: 5, `{"a":1,}`: 7, `[1,]`: 3, `{"a":01}`: 6, `{"a":tru}`: 5, `{} x`: 3, `"a`: 2, "\"a\x01\"": 2, `"\x"`: 1, `"\u12g4"`: 1,
		`1.`: 2, `-`: 1, `1e`: 2, `nul`: 0, strings.Repeat("[", 10001): 10000,
	} {
		s := jsonscan.New([]byte(text))
		s.Skip()
		if s.End() || s.Offset() != want {
			t.Errorf("%.20q: error at %d, want %d", text, s.Offset(), want)
		}
		if s.Span() != nil || s.Since(0) != nil || s.Next('}') || s.Text() != "" || s.Truth() || s.Offset() != want {
			t.Errorf("%.20q: something is read after the error", text)
		}
	}
}

func TestRepairedJSONIsUTF8(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"é\ud83d\ude00"}`:         `{"a":"é\ud83d\ude00"}`,
		"{\"a\xff\":\"caf\xc3\"}":       `{"a�":"caf�"}`,
		`["\ud83d","\uDE00","\\ud83d"]`: `["\ufffd","\ufffd","\\ud83d"]`,
		`"\ud83d\ud83d\ude00\ud83"`:     `"\ufffd\ud83d\ude00\ud83"`,
		`\ud`:                           `\ud`,
	} {
		was := text
		if got := string(jsonscan.Repair([]byte(text))); got != want || text != was {
			t.Errorf("%q is repaired to %q, want %q", text, got, want)
		}
	}
}

func TestNumbersAreWholeAndBounded(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-7": -7, "1e2": 100, "2.9": 2, "-2.1": -3, "1e400": 1 << 53, "-1e400": -1 << 53, "12345678901234567890": 1 << 53, "1e-400": 0,
	} {
		s := jsonscan.New([]byte(text))
		if n, ok := s.Number(); !ok || n != want || !s.End() {
			t.Errorf("%s: %d %v, want %d", text, n, ok, want)
		}
	}
	s := jsonscan.New([]byte(`"7"`))
	if _, ok := s.Number(); ok || !s.End() {
		t.Error("a text is a number")
	}
}

func TestNamesMayBeEscaped(t *testing.T) {
	s := jsonscan.New([]byte(`{"custom\u005fid":1}`))
	s.Enter('{')
	if !s.Next('}') || string(jsonscan.Name(s.Key())) != "custom_id" {
		t.Error("an escaped name is not known")
	}
}

func TestMembersAndElementsPassOverOtherValues(t *testing.T) {
	s := jsonscan.New([]byte(`{"a":[1,{"b\u0063":2},3],"d":"[","e":{"f":4},"g":5}`))
	var got []string
	for name := range s.Members {
		got = append(got, string(name))
		for range s.Elements {
			for name := range s.Members {
				got = append(got, string(name))
				s.Skip()
			}
		}
	}
	if want := "a bc d e g"; strings.Join(got, " ") != want || !s.End() {
		t.Errorf("%q, want %s", got, want)
	}
}

// FuzzScanner: what is accepted is what encoding/json accepts, and means the same.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e+3,null,true,false,{"b":"\ud83d\ude00\n\/"}]}`, "\"\xff\\u00e9\"", ` [ ] `, `"\ud800"`, `{"a":1}x`, `[1 2]`, "1e5", `{"\"":{}}`,
		`"0123456789abcdef\\"`, "\"\x7f\u0080\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := jsonscan.New(b)
		span := s.Span()
		ok := s.End()
		if ok != json.Valid(b) || jsonscan.Valid(b) != (ok && utf8.Valid(b)) {
			t.Fatalf("%q is accepted: %v", b, ok)
		}
		if s.Offset() < 0 || s.Offset() > len(b) {
			t.Fatalf("%q: offset %d", b, s.Offset())
		}
		if !ok {
			return
		}
		if want := strings.Trim(string(b), " \t\r\n"); string(span) != want {
			t.Fatalf("%q: span %q", b, span)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, b); err != nil || string(jsonscan.AppendCompact(nil, b)) != compact.String() {
			t.Fatalf("%q: compact %q, want %q", b, jsonscan.AppendCompact(nil, b), compact.String())
		}
		var want string
		if span[0] == '"' && json.Unmarshal(b, &want) == nil {
			s := jsonscan.New(b)
			raw, size := s.Str()
			if got := string(jsonscan.Unquote(span)); utf8.Valid(b) && (got != want || size != len(want) && !bytes.Contains(raw, []byte(`\u`))) {
				t.Fatalf("%q means %q (%d bytes), want %q", b, got, size, want)
			}
		}
	})
}

// FuzzString: what is written is JSON and reads back.
func FuzzString(f *testing.F) {
	for _, seed := range []string{"", "plain", "\"\\\n\r\t\x00\x1f\x7f", "é😀\u2028", "\xff\xfe", strings.Repeat("abcdefgh", 4) + `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		b := jsonscan.AppendString([]byte{}, s)
		if !jsonscan.Valid(b) || json.Unmarshal(b, &got) != nil {
			t.Fatalf("%q is written %q", s, b)
		}
		if want := string(bytes.ToValidUTF8([]byte(s), []byte("\ufffd"))); got != want {
			t.Fatalf("%q is written %q, which means %q", s, b, got)
		}
	})
}

// FuzzUnquote: a string means what encoding/json says, whatever its escapes.
func FuzzUnquote(f *testing.F) {
	for _, seed := range []string{``, `plain`, `a\n\t\r\b\f\/\\\"z`, `\u00e9\ud83d\ude00`, `\ud800`, "\xff\\n", `\\n\\`, `\`, `\x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, inner string) {
		quoted := []byte(`"` + inner + `"`)
		s := jsonscan.New(quoted)
		s.Skip()
		if !s.End() {
			return
		}
		var want string
		if err := json.Unmarshal(quoted, &want); err != nil {
			t.Fatal(err)
		}
		got := string(jsonscan.Unquote(quoted))
		if !strings.Contains(inner, `\`) { // then it is the text itself, bytes that are no UTF-8 and all
			want = inner
		}
		if got != want {
			t.Fatalf("%q means %q, want %q", quoted, got, want)
		}
	})
}
