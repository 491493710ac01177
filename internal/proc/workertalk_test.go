package proc_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/proc"
)

func TestWhatAWorkerMaySay(t *testing.T) {
	const most = 200
	for _, c := range []struct {
		name, said string
		answers    int
		broken     string // "" is not
		half       string
	}{
		{"answer", `{"id":"1","ok":true}` + "\n", 1, "", ""},
		{"in any order, with more", `{"x":{"id":"9"},"ok":true, "result":[1],"id":"\u0031"}` + "\n", 1, "", ""},
		{"carriage return and blank lines", "\r\n \n" + `{"id":"1","ok":true}` + "\r\n\n", 1, "", ""},
		{"signs of life", `{"ready":true}` + "\n" + `{"heartbeat":true,"id":"7"}` + "\n" + `{"id":"1","ok":false}` + "\n" + `{"heartbeat":true}` + "\n", 1, "", ""},
		{"absent is null", `{"id":"1","ok":false,"error":null,"usage":null,"result":null}` + "\n", 1, "", ""},
		{"details that are null", `{"id":"1","ok":false,"error":{"message":null,"kind":null,"retry_after_s":null,"reset_at":null},"usage":{"cost_usd":null}}` + "\n", 1, "", ""},
		{"no line break at the end", `{"id":"1","ok":true}`, 1, "", ""},
		{"half", `{"id":"1","ok":true`, 0, "", `{"id":"1","ok":true`},
		{"half a second", `{"id":"1","ok":true}` + "\n{", 1, "", "{"},
		{"only space at the end", "  ", 0, "", ""},

		{"text", "hello\n", 0, "not a JSON object", ""},
		{"other JSON", "[1]\n", 0, "not a JSON object", ""},
		{"two objects", `{"id":"1","ok":true}{}` + "\n", 0, "not a JSON object", ""},
		{"an object over two lines", "{\n}\n", 0, "not a JSON object", ""},
		{"not UTF-8", "{\"id\":\"1\",\"ok\":true,\"result\":\"\xff\"}\n", 0, "not UTF-8", ""},
		{"zero bytes", "\x00\x00\n", 0, "not a JSON object", ""},
		{"neither", `{"id":"1"}` + "\n", 0, `without "ok"`, ""},
		{"no heartbeat", `{"heartbeat":false}` + "\n", 0, `without "ok"`, ""},
		{"no id", `{"ok":true}` + "\n", 0, `without "id"`, ""},
		{"a number for an id", `{"id":1,"ok":true}` + "\n", 0, `"id" is not a string`, ""},
		{"text for ok", `{"id":"1","ok":"yes"}` + "\n", 0, `"ok" is not true or false`, ""},
		{"text for an error", `{"id":"1","ok":false,"error":"no"}` + "\n", 0, `"error" is not an object`, ""},
		{"an error that is ok", `{"id":"1","ok":true,"error":{}}` + "\n", 0, `both "ok": true and "error"`, ""},
		{"unknown kind", `{"id":"1","ok":false,"error":{"kind":"ratelimit"}}` + "\n", 0, `"kind" is unknown`, ""},
		{"ok for a kind", `{"id":"1","ok":false,"error":{"kind":"ok"}}` + "\n", 0, `"kind" is unknown`, ""},
		{"bad reset", `{"id":"1","ok":false,"error":{"reset_at":"4pm"}}` + "\n", 0, `"reset_at" is not a time`, ""},
		{"a wait below 0", `{"id":"1","ok":false,"error":{"retry_after_s":-1}}` + "\n", 0, `"retry_after_s" is not a number`, ""},
		{"text for tokens", `{"id":"1","ok":true,"usage":{"input_tokens":"5"}}` + "\n", 0, `"input_tokens" is not a number`, ""},
		{"beyond all numbers", `{"id":"1","ok":true,"usage":{"cost_usd":1e999}}` + "\n", 0, `"cost_usd" is not a number`, ""},
		{"another item's", `{"id":"2","ok":true}` + "\n", 0, `item other than its current item "1"`, ""},
		{"a second", `{"id":"1","ok":true}` + "\n" + `{"id":"1","ok":true}` + "\n", 1, "a second result", ""},
		{"when idle", `{"id":"1","ok":true}` + "\n" + `{"id":"2","ok":true}` + "\n", 1, "although the worker had no item", ""},
		{"a line of the limit", `{"id":"1","ok":true,"x":"` + strings.Repeat("x", most-27) + `"}` + "\n", 1, "", ""},
		{"a line above it", `{"id":"1","ok":true,"x":"` + strings.Repeat("x", most-26) + `"}` + "\n", 0, "more than 200 bytes", ""},
		{"no line at all", strings.Repeat("x", most+1), 0, "more than 200 bytes", ""},
		{"nothing after a breach counts", "hello\n" + `{"id":"1","ok":true}` + "\n", 0, "not a JSON object", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers, half, err := proc.Said([][]byte{[]byte(c.said)}, most, "1")
			if len(answers) != c.answers || half != c.half {
				t.Errorf("%d answers, half %q, want %d and %q", len(answers), half, c.answers, c.half)
			}
			if (err != nil) != (c.broken != "") || err != nil && !strings.Contains(err.What, c.broken) {
				t.Errorf("error %v, want %q", err, c.broken)
			}
		})
	}
}

func TestHugeNumbersAreCut(t *testing.T) {
	answers, _, err := proc.Said([][]byte{[]byte(
		`{"id":"1","ok":false,"error":{"retry_after_s":1e300},"usage":{"input_tokens":1e300,"output_tokens":2.9}}` + "\n")}, 1000, "1")
	if err != nil || len(answers) != 1 || answers[0].Wait.Hours() != 366*24 || answers[0].Usage.Input <= 0 || answers[0].Usage.Output != 2 {
		t.Errorf("%+v, %v", answers, err)
	}
}

// FuzzWorkerOutput: what a worker says comes to the same in whatever pieces it arrives, and what counts of it is sound.
func FuzzWorkerOutput(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","ok":true,"result":{"x":1},"usage":{"input_tokens":1,"cost_usd":0.5}}` + "\n",
		`{"heartbeat":true}` + "\n" + `{"id":"a","ok":false,"error":{"kind":"timeout","reset_at":"2030-01-01T00:00:00Z"}}` + "\n{",
		"junk\n", "\xff\n", `{"id":"b","ok":true}`, "{\"id\":\"a\",\"ok\":true}\n{\"id\":\"a\",\"ok\":true}\n", strings.Repeat("x", 300),
	} {
		f.Add([]byte(seed), uint8(3), "a")
	}
	f.Fuzz(func(t *testing.T, output []byte, size uint8, id string) {
		const most = 250
		answers, half, broken := proc.Said([][]byte{output}, most, id)
		var pieces [][]byte
		for rest := bytes.Clone(output); len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		again, againHalf, againBroken := proc.Said(pieces, most, id)
		if !reflect.DeepEqual(answers, again) || half != againHalf || (broken == nil) != (againBroken == nil) {
			t.Errorf("whole: %+v %q %v, in pieces: %+v %q %v", answers, half, broken, again, againHalf, againBroken)
		}
		if len(answers) > 1 {
			t.Errorf("%d answers for one item", len(answers))
		}
		for _, a := range answers {
			if a.Result != nil && (!json.Valid(a.Result) || !utf8.Valid(a.Result)) || a.Wait < 0 || a.Usage.Input < 0 || a.Cost < 0 || a.OK && a.Kind != 0 {
				t.Errorf("%+v", a)
			}
		}
		if broken != nil && (len(broken.Said) > 200 || !utf8.ValidString(broken.Error())) {
			t.Errorf("quoted %q", broken.Said)
		}
	})
}
