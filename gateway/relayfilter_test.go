package gateway_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

// usageChunk is the event that OpenAI sends only to who asks for it.
const usageChunk = `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`

// filterModel is the plain way to leave the usage chunk out: over the whole stream, with a regular expression and encoding/json.
func filterModel(stream []byte) []byte {
	line := regexp.MustCompile(`[^\r\n]*(\r\n|\r|\n)`)
	var out, event, rest []byte
	for rest = stream; len(rest) > 0; {
		at := line.FindIndex(rest)
		if at == nil {
			break
		}
		text := rest[:at[1]]
		rest = rest[at[1]:]
		event = append(event, text...)
		if len(bytes.TrimRight(text, "\r\n")) > 0 {
			continue
		}
		if !modelOnlyUsage(event) {
			out = append(out, event...)
		}
		event = nil
	}
	if event = append(event, rest...); !modelOnlyUsage(event) {
		out = append(out, event...)
	}
	return out
}

func modelOnlyUsage(event []byte) bool {
	if len(event) > 64<<10 {
		return false // what is so long is not held back
	}
	var data []string
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(event))
	for l := range strings.SplitSeq(text, "\n") {
		if l == "data" {
			data = append(data, "")
		}
		if d, ok := strings.CutPrefix(l, "data:"); ok {
			data = append(data, strings.TrimPrefix(d, " "))
		}
	}
	var doc map[string]json.RawMessage
	if data == nil || json.Unmarshal([]byte(strings.Join(data, "\n")), &doc) != nil {
		return false
	}
	var choices []any
	var usage map[string]any
	if json.Unmarshal(doc["choices"], &choices) != nil || json.Unmarshal(doc["usage"], &usage) != nil {
		return false
	}
	failed, has := doc["error"]
	return choices != nil && len(choices) == 0 && usage != nil && (!has || string(failed) == "null")
}

func TestAnEventTooLongToHoldIsPassedOnInParts(t *testing.T) {
	long := "data: " + strings.Repeat("x", 200<<10) + "\n\n"
	got, between := gateway.Filtered(pieces([]byte(long), 32<<10), true)
	if string(got) != long || !between {
		t.Errorf("%d bytes of %d, between events: %v", len(got), len(long), between)
	}
	if _, between := gateway.Filtered(pieces([]byte(long[:150<<10]), 32<<10), true); between {
		t.Error("in the middle of an event it is said to be between two")
	}
}

func pieces(b []byte, size int) (all [][]byte) {
	for len(b) > size {
		all, b = append(all, b[:size]), b[size:]
	}
	return append(all, b)
}

func FuzzEventFilter(f *testing.F) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r", "\n\r", "\r\n\n", ""} {
		f.Add([]byte("data: {\"choices\":[{}]}"+end+usageChunk+end+"\ndata: [DONE]"+end), []byte{3, 1, 40})
		f.Add([]byte("\r"+usageChunk+end+usageChunk+end), []byte{1})
	}
	for _, event := range []string{
		`data: {"choices":[],"prompt_filter_results":[{}]}` + "\n\n", // Azure's first
		`data: {"choices":[],"usage":null}` + "\n\n",
		`data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":9}}` + "\n\n", // stated with the last part
		`data: {"choices":[],"usage":{"prompt_tokens":9},"error":{"message":"x"}}` + "\n\n",
		"event: x\nid: 1\n" + strings.ReplaceAll(usageChunk, ":[]", ": [ ]") + "\n\n", "data: {\"choices\":[],\ndata: \"usage\":{}}\n\n",
		"event: ping\ndata: {}\n\n", ": comment\n\n", "data: {\"choices\":[],\"usage\":{\n\n",
	} {
		for size := range byte(40) {
			f.Add([]byte(`data: {"choices":[{"index":0,"delta":{"content":"a \"usage\":{} b"}}],"usage":null}`+"\n\n"+event+"data: [DONE]\n\n"), []byte{size})
		}
	}
	f.Add(append([]byte("data: {\"choices\":[],\"usage\":{\"x\":\""), append(bytes.Repeat([]byte("a"), 70<<10), "\"}}\n\n"...)...), []byte{255})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		if bytes.HasPrefix(stream, []byte("\xef\xbb\xbf")) {
			return // a mark that only clients look at
		}
		var cut [][]byte
		rest := stream
		for i := 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(sizes) > 0 {
				n = min(n, int(sizes[i%len(sizes)])+1)
			}
			cut, rest = append(cut, rest[:n]), rest[n:]
		}
		if same, _ := gateway.Filtered(cut, false); !bytes.Equal(same, stream) {
			t.Fatalf("%q became %q", stream, same)
		}
		want := filterModel(stream)
		if got, _ := gateway.Filtered(cut, true); !bytes.Equal(got, want) {
			t.Fatalf("%q became %q, want %q", stream, got, want)
		}
	})
}

func TestUsageIsAskedForWhereTheClientDoesNot(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m"}`:                           `{"model":"m","stream_options":{"include_usage":true}}`,
		" {\"model\":\"m\"\n}\n":                  " {\"model\":\"m\"\n,\"stream_options\":{\"include_usage\":true}}\n",
		`{"model":"m","stream_options":null}`:     `{"model":"m","stream_options":{"include_usage":true}}`,
		`{"model":"m","stream_options":{},"n":1}`: `{"model":"m","stream_options":{"include_usage":true},"n":1}`,
		`{"stream_options": { "include_obfuscation" : false } ,"model":"m"}`: `{"stream_options": { "include_obfuscation" : false ,"include_usage":true} ,"model":"m"}`,
		`{"stream_options":{"include_usage": false},"model":"m"}`:            `{"stream_options":{"include_usage": true},"model":"m"}`,
		`{"stream_options":{"include_usage":null,"a":1},"model":"m"}`:        `{"stream_options":{"include_usage":true,"a":1},"model":"m"}`,
	} {
		if got, changed, err := gateway.Asking([]byte(body)); got != want || !changed || err != nil {
			t.Errorf("%s becomes %s (%v, %v), want %s", body, got, changed, err, want)
		}
	}
	for _, body := range []string{
		`{"model":"m","stream_options":{"include_usage":true}}`, `{"model":"m","stream_options":{"include_usage":true,"x":{}}}`,
		`{"model":"m","stream_options":"no"}`, `{"model":"m","stream_options":[]}`, `{"model":"m","stream_options":{"include_usage":"yes"}}`,
	} {
		if got, changed, err := gateway.Asking([]byte(body)); got != body || changed || err != nil {
			t.Errorf("%s becomes %s (%v, %v)", body, got, changed, err)
		}
	}
	for _, body := range []string{`{"model":"a","model":"b"}`, `{"model":"a","mod\u0065l":"b"}`, `{"Model":"b","model":"a"}`, `{"model":"m"`, `[]`, ``, `{"model":"m"} x`} {
		if got, _, err := gateway.Asking([]byte(body)); err == nil {
			t.Errorf("%s becomes %s", body, got)
		}
	}
}

func FuzzAsking(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream_options":{"include_usage":false}}`))
	f.Add([]byte(`{"model":"m","stream_options":{"a":{"b":[1]}},"stream_options":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, changed, err := gateway.Asking(body)
		var before, after map[string]any
		if err != nil || json.Unmarshal(body, &before) != nil || len(before) == 0 {
			return
		}
		if err := json.Unmarshal([]byte(got), &after); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		options, _ := after["stream_options"].(map[string]any)
		if changed && options["include_usage"] != true {
			t.Fatalf("%q became %q", body, got)
		}
		delete(before, "stream_options")
		delete(after, "stream_options")
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}
