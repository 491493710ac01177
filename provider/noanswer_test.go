package provider_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestAGoodStatusWithoutAnAnswerIsAFailure(t *testing.T) {
	const chat, messages, content = provider.ChatCompletions, provider.Messages, provider.GenerateContent
	for _, test := range []struct {
		e    provider.Endpoint
		body string
		good bool
	}{
		{chat, `{}`, false},
		{chat, `{"id":"x","usage":{"prompt_tokens":1,"completion_tokens":1}}`, false},
		{chat, `{"choices":null}`, false},
		{chat, `{"choices":[null]}`, false},
		{chat, `{"choices":[{"index":0,"finish_reason":"stop","logprobs":null}]}`, false},
		{chat, `{"choices":[{"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[],"annotations":[]},"finish_reason":"stop"}]}`, false},
		{chat, `{"choices":[{"message":{"role":"assistant","content":"half"},"finish_reason":"error","error":{"code":502,"message":"x"}}]}`, false},
		{chat, `{"object":"list","data":[{"embedding":[1]}]}`, false},
		{chat, chatAnswer, true},
		{chat, `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, true}, // a text, if an empty one: --reject empty is about these
		{chat, `{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]}`, true},
		{chat, `{"choices":[{"message":{"content":null,"reasoning_content":"hm"},"finish_reason":"stop"}]}`, true},
		{chat, `{"choices":[{"message":{"content":null},"finish_reason":"length"}]}`, true},
		{chat, `{"choices":[{"index":0,"finish_reason":"content_filter"}]}`, true},
		{provider.Completions, `{"choices":[{"index":0,"finish_reason":"stop"}]}`, false},
		{provider.Completions, `{"choices":[{"text":"","finish_reason":"stop"}]}`, true},
		{provider.Responses, `{"status":"completed"}`, false},
		{provider.Responses, `{"status":"completed","output":[]}`, false},
		{provider.Responses, `{"status":"completed","output":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","id":"m","role":"assistant","content":[]}]}`, false},
		{provider.Responses, `{"status":"failed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"half"}]}]}`, false},
		{provider.Responses, `{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}`, true},
		{provider.Responses, `{"status":"incomplete","output":[],"incomplete_details":{"reason":"max_output_tokens"}}`, true},
		{provider.Responses, `{"status":"queued","output":[]}`, true},
		{provider.Responses, `{"status":"incomplete","output":[]}`, false},
		{provider.Responses, `{"status":"incomplete","output":[{"type":"message","content":[{"type":"output_text","text":"half"}]}]}`, true},
		{messages, `{"type":"message"}`, false},
		{messages, `{"content":null,"stop_reason":"end_turn"}`, false},
		{messages, `{"content":[],"stop_reason":"end_turn"}`, false},
		{messages, `{"content":[{"type":"text","text":"hi"}]}`, true},
		{messages, `{"content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}`, true},
		{messages, `{"content":[],"stop_reason":"refusal"}`, true},
		{content, `{"modelVersion":"m"}`, false},
		{content, `{"candidates":[]}`, false},
		{content, `{"promptFeedback":{"safetyRatings":[{"category":"A"}]}}`, false},
		{content, `{"candidates":[{"content":{"role":"model"},"finishReason":"STOP","index":0}]}`, false},
		{content, `{"candidates":[{"content":{"parts":[{}]},"finishReason":"STOP"}]}`, false},
		{content, `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}`, false},
		{content, `{"candidates":[{"content":{"parts":[{"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}`, false},
		{content, `{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]},"finishReason":"STOP"}]}`, false},
		{content, `{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]},"finishReason":"MAX_TOKENS"}]}`, true},
		{content, `{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"","thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}`, true},
		{content, `{"candidates":[{"content":{"parts":[{"text":"hi","thought":false}]},"finishReason":"STOP"}]}`, true},
		{content, `{"candidates":[{"content":{"role":"model"},"finishReason":"MAX_TOKENS"}]}`, true},
		{content, `{"promptFeedback":{"blockReason":"SAFETY"}}`, true},
		{provider.CohereChat, `{"finish_reason":"COMPLETE","message":{"role":"assistant","content":[]}}`, false},
		{provider.CohereChat, `{"finish_reason":"COMPLETE","message":{"role":"assistant","content":[{"type":"text","text":"hi"}]}}`, true},
		{provider.Embeddings, `{"object":"list"}`, false},
		{provider.Embeddings, `{"data":[]}`, false},
		{provider.Embeddings, `{"data":[{"object":"embedding","index":0,"embedding":[]}]}`, false},
		{provider.Embeddings, `{"data":[{"embedding":[1]}]}`, true},
		{provider.Embeddings, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[]}]}`, false},
		{provider.Embeddings, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":"AAAA"}]}`, true},
		{provider.EmbedContent, `{}`, false},
		{provider.EmbedContent, `{"embedding":{}}`, false},
		{provider.EmbedContent, `{"embedding":{"values":[1]}}`, true},
		{provider.BatchEmbedContents, `{"embeddings":[{"values":[]}]}`, false},
		{provider.BatchEmbedContents, `{"embeddings":[{"values":[1]}]}`, true},
	} {
		_, o := exchange(t, t.Context(), replies(200, test.body, "content-type", "application/json"), provider.ExchangeConfig{Endpoint: test.e})
		if (o.Kind == sluice.OK) != test.good || !test.good && (o.Kind != sluice.ServerError || !strings.Contains(o.Err.Error(), "contains no answer: {") && !strings.Contains(test.body, `"error":{`)) {
			t.Errorf("%s %s is %s: %v", test.e, test.body, o.Kind, o.Err)
		}
	}
}

func TestAStreamWithoutAnAnswerIsAFailure(t *testing.T) {
	events := func(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }
	const start, stop = `{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":3}}}`, `{"type":"message_stop"}`
	for _, test := range []struct {
		e      provider.Endpoint
		stream string
		good   bool
	}{
		{provider.ChatCompletions, events("[DONE]"), false},
		{provider.ChatCompletions, events(`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}`, "[DONE]"), false},
		{provider.ChatCompletions, events(`{"choices":[{"delta":{"role":"assistant"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":0}}`, "[DONE]"), false},
		{provider.ChatCompletions, events(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":0}}`, "[DONE]"), true},
		{provider.Messages, events(start, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, stop), false},
		{provider.Messages, events(start, `{"type":"message_delta","delta":{"stop_reason":"refusal"}}`, stop), true},
		{provider.Responses, events(`{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":3}}}`), false},
		{provider.StreamGenerateContent, events(`{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3}}`), false},
		{provider.StreamGenerateContent, `[{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3}}]`, true},
		{provider.CohereChat, events(`{"type":"message-start","delta":{"message":{"role":"assistant","content":[]}}}`, `{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":3}}}}`), false},
	} {
		_, o := exchange(t, t.Context(), replies(200, test.stream, "content-type", "text/event-stream"), provider.ExchangeConfig{Endpoint: test.e, Stream: true})
		if (o.Kind == sluice.OK) != test.good || !test.good && o.Kind != sluice.ServerError {
			t.Errorf("%s %s is %s: %v", test.e, test.stream, o.Kind, o.Err)
		}
		if strings.Contains(test.stream, ":3") && o.Usage.Input != 3 {
			t.Errorf("%s %s: usage %+v", test.e, test.stream, o.Usage)
		}
	}
}

func TestEveryInputHasAVector(t *testing.T) {
	const one, two = `{"data":[{"index":0,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[2]}]}`
	for _, test := range []struct {
		e             provider.Endpoint
		request, body string
		good          bool
	}{
		{provider.Embeddings, `{"model":"m","input":["a","b"]}`, one, false},
		{provider.Embeddings, `{"model":"m","input":["a","b"]}`, two, true},
		{provider.Embeddings, `{"model":"m","input":["a"]}`, two, true},
		{provider.Embeddings, `{"model":"m","input":"a"}`, one, true},
		{provider.Embeddings, `{"model":"m","input":[7,8,9]}`, one, true},
		{provider.Embeddings, `{"model":"m","input":[[7,8],[9]]}`, one, false},
		{provider.Embeddings, `{"model":"m","input":["a",7,"b"]}`, one, true}, // tokens of one text
		{provider.BatchEmbedContents, `{"requests":[{"content":{}},{"content":{}}]}`, `{"embeddings":[{"values":[1]}]}`, false},
		{provider.BatchEmbedContents, `{"requests":[{"content":{}},{"content":{}}]}`, `{"embeddings":[{"values":[1]},{"values":[2]}]}`, true},
	} {
		p := lookup(t, "openai")
		req, err := p.NewRequest(t.Context(), provider.Target{BaseURL: "http://127.0.0.1:1/v1", Endpoint: test.e, Model: "m"}, []byte(test.request))
		if err != nil {
			t.Fatal(err)
		}
		_, o := provider.Exchange(t.Context(), replies(200, test.body), nil, req, provider.ExchangeConfig{Provider: p, Endpoint: test.e})
		if (o.Kind == sluice.OK) != test.good {
			t.Errorf("%s: %s is %s: %v", test.request, test.body, o.Kind, o.Err)
		}
	}
}
