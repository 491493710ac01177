package provider_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/provider"
)

// TestEventsAlikeAreCountedAsIfEachWereRead draws streams whose events differ in little.
func TestEventsAlikeAreCountedAsIfEachWereRead(t *testing.T) {
	texts := rapid.SampledFrom([]string{`"a"`, `"two words"`, `""`, `"a\"}]}"`, `"\ud83d\ude00 \n"`, `"x","role":"y"`, `null`, `7`, `"cut`, `["a","b"]`, `{"a":"b"}`,
		`"}"`, `"a"},"finish_reason":"stop","delta":{"content":"b"`})
	shapes := rapid.SampledFrom([]string{
		`{"choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"content":%s},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":1,"delta":{"content":%s},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a","reasoning":%s}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":%s}}],"usage":{"prompt_tokens":5,"completion_tokens":3}}`,
		`{"choices":[{"index":0,"delta":{"content":%s}}],"error":{"message":"x"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`,
		`{"type":"response.output_text.delta","delta":%s}`,
		`{"type":%s,"delta":"a"}`,
		`{"candidates":[{"content":{"parts":[{"text":%s}]}}]}`,
	})
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom([]provider.Endpoint{provider.ChatCompletions, provider.Messages, provider.Responses, provider.StreamGenerateContent}).Draw(t, "endpoint")
		few := rapid.SliceOfN(shapes, 1, 3).Draw(t, "shapes")
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf(rapid.SampledFrom(few).Draw(t, "shape"), texts.Draw(t, "text"))
		}), 1, 12).Draw(t, "events")
		type all struct {
			usage, finish    any
			complete, failed bool
		}
		var fast, slow all
		fast.usage, fast.finish, fast.complete, fast.failed = provider.Metered(e, events, false)
		slow.usage, slow.finish, slow.complete, slow.failed = provider.Metered(e, events, true)
		if fast != slow {
			t.Fatalf("%s: %+v, and each by itself %+v:\n%q", e, fast, slow, events)
		}
	})
}
