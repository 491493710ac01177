package provider_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/sse"
	"github.com/sluice-llm/sluice/provider"
)

// contentChunks are the chunks of a stream of Gemini as its documents show them: a thought, text in pieces, a call.
var contentChunks = []string{
	`{"candidates":[{"content":{"parts":[{"text":"Let me ","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":7,"totalTokenCount":9,"thoughtsTokenCount":2},"modelVersion":"gemini-2.5-flash","responseId":"r1"}`,
	`{"candidates":[{"content":{"parts":[{"text":"see.","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":7,"thoughtsTokenCount":4},"modelVersion":"gemini-2.5-flash","responseId":"r1"}`,
	`{"candidates":[{"content":{"parts":[{"text":"The \"]} \\"}],"role":"model"},"index":0,"safetyRatings":[{"category":"A","probability":"LOW"}]}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":3,"thoughtsTokenCount":4},"modelVersion":"gemini-2.5-flash","responseId":"r1"}`,
	`{"candidates":[{"content":{"parts":[{"text":" sea <é>"},{"functionCall":{"name":"f","args":{"a":1.50}}}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":6,"thoughtsTokenCount":4},"modelVersion":"gemini-2.5-flash","responseId":"r1"}`,
	`{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"c2ln"}],"role":"model"},"finishReason":"STOP","index":0,"safetyRatings":[{"category":"A","probability":"NEGLIGIBLE"}]}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":9,"totalTokenCount":20,"thoughtsTokenCount":4},"modelVersion":"gemini-2.5-flash","responseId":"r1"}`,
}

const contentWhole = `{"candidates":[{"content":{"parts":[{"text":"Let me see.","thought":true},{"text":"The \"]} \\ sea <é>"},{"functionCall":{"name":"f","args":{"a":1.50}}},{"text":"","thoughtSignature":"c2ln"}],"role":"model"},"finishReason":"STOP","index":0,"safetyRatings":[{"category":"A","probability":"NEGLIGIBLE"}]}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":9,"totalTokenCount":20,"thoughtsTokenCount":4},"modelVersion":"gemini-2.5-flash","responseId":"r1"}`

var (
	contentStream = "data: " + strings.Join(contentChunks, "\r\n\r\ndata: ") + "\r\n\r\n"
	contentArray  = "[" + strings.Join(contentChunks, "\n,\r\n") + "\n]\n"
	contentUsage  = sluice.Usage{Input: 7, Output: 13}
)

func TestStreamsOfGeminiBecomeOneAnswer(t *testing.T) {
	two := `data: {"candidates":[{"content":{"parts":[{"text":"b"}]},"index":1},{"content":{"parts":[{"text":"a"}]},"index":0}]}` + "\n\n" +
		`data: {"candidates":[{"content":{"parts":[{"text":"B"}]},"finishReason":"STOP","index":1}]}` + "\n\n" +
		`data: {"candidates":[{"content":{"parts":[{"text":"A"}]},"finishReason":"MAX_TOKENS","index":0}]}` + "\n\n"
	signed := `[{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":"s"}]}}]},{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}]`
	const blocked = `{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3}}`
	cases := []struct {
		name, stream, want, finish string
		usage                      sluice.Usage
	}{
		{"events", contentStream, contentWhole, "STOP", contentUsage},
		{"an array", contentArray, contentWhole, "STOP", contentUsage},
		{"an array on one line, after spaces", "\n " + strings.ReplaceAll(strings.ReplaceAll(contentArray, "\n", ""), "\r", ""), contentWhole, "STOP", contentUsage},
		{"a lone object", contentChunks[4], contentChunks[4], "STOP", contentUsage},
		{"two candidates", two, `{"candidates":[{"content":{"parts":[{"text":"aA"}]},"finishReason":"MAX_TOKENS","index":0},{"content":{"parts":[{"text":"bB"}]},"finishReason":"STOP","index":1}]}`, "MAX_TOKENS", sluice.Usage{}},
		{"a part that is signed stays as it is", signed, `{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":"s"},{"text":"b"}]},"finishReason":"STOP"}]}`, "STOP", sluice.Usage{}},
		{"a blocked prompt", "data: " + blocked + "\n\n", blocked, "PROHIBITED_CONTENT", sluice.Usage{Input: 3}},
		{"a filtered answer", `data: {"candidates":[{"finishReason":"SAFETY","index":0}]}` + "\n\n", `{"candidates":[{"finishReason":"SAFETY","index":0}]}`, "SAFETY", sluice.Usage{}},
		{"members of another kind", `[{"candidates":[7,{"content":{"parts":[{"text":7},3,{"text":"a","thought":{}}]}}]},{"candidates":[{"content":{"parts":[{"text":"b","thought":{}}]}}]}]`,
			`{"candidates":[{"content":{"parts":[{"text":7},{"text":"ab","thought":{}}]}}]}`, "", sluice.Usage{}},
		{"a lone object that does not say why it ended", `{"candidates":[{"index":0}]}`, `{"candidates":[{"index":0}]}`, "", sluice.Usage{}},
	}
	for _, c := range cases {
		for kind, r := range map[string]io.Reader{"": strings.NewReader(c.stream), ", byte by byte": iotest.OneByteReader(strings.NewReader(c.stream))} {
			t.Run(c.name+kind, func(t *testing.T) {
				m, err := provider.Collect(provider.StreamGenerateContent, r, 1<<20)
				if err != nil || m.Fault != nil {
					t.Fatal(err, string(m.Fault))
				}
				if d := cmp.Diff(decoded(t, c.want), decoded(t, string(m.Body))); d != "" {
					t.Error(d)
				}
				if m.Usage != c.usage || m.FinishReason != c.finish {
					t.Errorf("%+v %q, want %+v %q", m.Usage, m.FinishReason, c.usage, c.finish)
				}
				u, finish, _ := provider.ParseUsage(provider.GenerateContent, m.Body)
				if u != m.Usage || finish != m.FinishReason {
					t.Errorf("the answer says %+v %q, the stream %+v %q", u, finish, m.Usage, m.FinishReason)
				}
			})
		}
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestStreamsOfGeminiThatAreCutAreNoAnswers(t *testing.T) {
	said := strings.Index(contentStream, `"modelVersion":"gemini-2.5-flash","responseId":"r1"}`+"\r\n\r\n"+`data: {"candidates":[{"content":{"parts":[{"text":""`)
	for i := range len(contentStream) - len("}\r\n\r\n") {
		if _, err := provider.Collect(provider.StreamGenerateContent, strings.NewReader(contentStream[:i]), 1<<20); !errors.Is(err, provider.ErrCut) {
			t.Fatalf("events cut at %d: %v", i, err)
		}
	}
	last := strings.LastIndex(contentArray, "}")
	for i := range last {
		m, err := provider.Collect(provider.StreamGenerateContent, strings.NewReader(contentArray[:i]), 1<<20)
		if !errors.Is(err, provider.ErrCut) {
			t.Fatalf("array cut at %d: %v", i, err)
		}
		if i == said && m.Usage.Input != 7 {
			t.Errorf("of the beginning, %+v is known", m.Usage)
		}
	}
	open := `[{"candidates":[{"index":0},{"index":1,"finishReason":"STOP"}]}`
	if _, err := provider.Collect(provider.StreamGenerateContent, strings.NewReader(open), 1<<20); !errors.Is(err, provider.ErrCut) {
		t.Errorf("one candidate of two: %v", err)
	}
}

func TestElementsOfAnArrayAreNotHeldForEver(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`[{"a":"`), strings.NewReader(strings.Repeat("a", sse.MaxEvent)))
	if _, err := provider.Collect(provider.StreamGenerateContent, endless, sse.MaxEvent*2); !errors.Is(err, provider.ErrEventTooLong) {
		t.Error(err)
	}
}

// FuzzContent: however a stream is split, it amounts to the same; and an array of objects to what its elements are as
// events.
func FuzzContent(f *testing.F) {
	f.Add(contentArray, 3)
	f.Add(contentStream, 100)
	f.Add(`[{"a":"[{\"\\"},{}]`, 1)
	f.Add(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}]`, 5)
	f.Add(`[[1],"x",{"error":{}}]`, 2)
	f.Fuzz(func(t *testing.T, stream string, at int) {
		at = min(max(at, 0), len(stream))
		whole, err := provider.Collect(provider.StreamGenerateContent, strings.NewReader(stream), 1<<20)
		split, err2 := provider.Collect(provider.StreamGenerateContent, io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:])), 1<<20)
		if err != err2 || string(whole.Body) != string(split.Body) || string(whole.Fault) != string(split.Fault) || whole.Usage != split.Usage {
			t.Fatalf("%v %q, split at %d %v %q", err, whole.Body, at, err2, split.Body)
		}
		if whole.Body != nil && !json.Valid(whole.Body) {
			t.Fatalf("not JSON: %q", whole.Body)
		}
		var list []map[string]json.RawMessage
		if !strings.HasPrefix(stream, "[") || json.Unmarshal([]byte(stream), &list) != nil || strings.Contains(stream, "null") {
			return
		}
		var events strings.Builder
		for _, chunk := range list {
			b, _ := json.Marshal(chunk)
			events.WriteString("data: " + string(b) + "\n\n")
		}
		same, _ := provider.Collect(provider.StreamGenerateContent, strings.NewReader(events.String()), 1<<20)
		if err != nil || (whole.Fault == nil) != (same.Fault == nil) || len(list) > 0 && whole.FinishReason != same.FinishReason {
			t.Fatalf("array: %v %q %q\nevents: %q %q", err, whole.FinishReason, whole.Fault, same.FinishReason, same.Fault)
		}
	})
}
