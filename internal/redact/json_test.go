package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/redact"
)

// pieces are what texts are made of in which a key may be cut out wrongly.
var pieces = []string{"\n", "\t", "\x1b[0m", "\x1b[", "\\", `"`, "<", "&", "/", "password=", "password", "key=", "cookie: ", "Set-Cookie: ", "token:",
	"Bearer ", "://u:p@", "sk-proj-abcDEF123456", "nvapi-abcd1234efgh", "r8_abcd1234efgh5678", "fw_abcd1234efgh5678", "\u200b", "a=b", "abcdef",
	"hunter22", opaqueKey, "n" + opaqueKey, "u0041", "12345678", " "}

// document draws a JSON document with keys in it.
func document(t *rapid.T) string {
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 5), func(p []string) string { return strings.Join(p, "") })
	value := rapid.OneOf(rapid.Map(text, func(s string) any { return s }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Just[any](12345678), rapid.Just[any](true), rapid.Just[any](nil))
	members := rapid.MapOfN(text, rapid.OneOf(value, rapid.Map(rapid.SliceOfN(value, 0, 3), func(l []any) any { return l })), 0, 4)
	b, err := json.Marshal(members.Draw(t, "document"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestJSONStaysJSONWithoutKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := document(t)
		if rapid.Bool().Draw(t, "as a text in JSON") {
			b, _ := json.Marshal([]string{text})
			text = string(b)
		}
		key := rapid.SampledFrom([]string{opaqueKey, "12345678", "u0041", "null", "nabcdef", `","a`, `":"`, "hunter22"}).Draw(t, "key")
		for name, strike := range map[string]func(string) string{"Text": redact.New(key).Text, "Data": redact.New(key).Data} {
			got := strike(text)
			if !json.Valid([]byte(got)) {
				t.Fatalf("%s makes %s of %s", name, got, text)
			}
			if strings.Contains(got, key) && len(key) >= 4 {
				t.Fatalf("%s leaves %s in %s", name, key, got)
			}
		}
	})
}

func TestEscapesAreNotCutThrough(t *testing.T) {
	for in, want := range map[string]string{
		`{"password":"\u003credacted\u003e value"}`:            `{"password":"\u003credacted\u003e value"}`,
		`{"a":"password=\nabcdef.jsonl"}`:                      `{"a":"password=\nabcdef.jsonl"}`,
		`{"a":"line\nvapi-abcd1234efgh"}`:                      `{"a":"line***"}`,
		`{"password":12345678,"b":1}`:                          `{"password":"***","b":1}`,
		`{"a":"{\"password\":\"hunter22\"}"}`:                  `{"a":"{\"password\":\"***\"}"}`,
		"{\"password\":12345678}\n{\"password\":\"hunter22\"}": "{\"password\":\"***\"}\n{\"password\":\"***\"}",
	} {
		if got := redact.New().Text(in); got != want {
			t.Errorf("%s gives %s, want %s", in, got, want)
		}
	}
}

func FuzzRedactOfJSON(f *testing.F) {
	f.Add(`{"text":"Rate limit: :<Set-Cookie: \u001b[0mpassword@","status":429}`, "abcdefgh")
	f.Add(`{"a":[12345678,"\nabcd"]}`, "nabcd")
	f.Add(`"\\u200b sk-abcd1234efgh"`, "12345678")
	f.Fuzz(func(t *testing.T, text, key string) {
		if !json.Valid([]byte(text)) {
			t.Skip("not JSON")
		}
		if got := redact.New(key).Text(text); !json.Valid([]byte(got)) {
			t.Errorf("%q becomes %q", text, got)
		}
		if got := redact.New(key).Data(text); !json.Valid([]byte(got)) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

func TestNamesThatRemindOfKeysStay(t *testing.T) {
	for _, name := range []string{"sk-experiments/in.jsonl", "sk-experiments/key=run1234.jsonl", "hf_dataset_00001", "Bearer authentication required",
		"open sk-experiments/none.jsonl: no such file"} {
		if got := redact.New().Text(name); got != name {
			t.Errorf("Text makes %q of %q", got, name)
		}
	}
	for _, name := range []string{"slk-OZcr87Z1FC5EFMI647t6WflNDF-vQrMbzake-Qj-I3Q", "sk-finetune-v1", "password=abcdef.jsonl", "token=20260301.jsonl", "https://u:p@host/x", "cookie: a=b"} {
		if got := redact.New().Data(name); got != name {
			t.Errorf("Data makes %q of %q", got, name)
		}
	}
	for _, key := range []string{"sk-proj-abcdefgh0123456789xyz", `sk\u002dproj\u002dabcdefgh0123456789xyz`, "gsk_abcdefghij1234567890", "AKIAIOSFODNN7EXAMPLE"} {
		if got := redact.New().Data("see " + key + ", or not"); got != "see ***, or not" {
			t.Errorf("%s: %s", key, got)
		}
	}
}

func TestGivenKeyIsStruckOutOfBase64BehindAnything(t *testing.T) {
	for _, user := range []string{"", "u", "us", "user:", "apikey:", "Bearer "} {
		encoded := base64.StdEncoding.EncodeToString([]byte(user + opaqueKey + "\n"))
		got := redact.New(opaqueKey).Text("begin " + encoded + " end")
		core := encoded[(len(user)*8+5)/6 : (len(user)+len(opaqueKey))*8/6]
		if !strings.HasSuffix(got, "*** end") || strings.Contains(got, core) {
			t.Errorf("%s: %s leaves %s", user, encoded, got)
		}
	}
}
