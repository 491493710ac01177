package provider_test

import (
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestUsageIsReadFromEveryDialect(t *testing.T) {
	cases := []struct {
		name     string
		endpoint provider.Endpoint
		body     string
		usage    sluice.Usage
		finish   string
		ok       bool
	}{
		{"chat", provider.ChatCompletions, `{"choices":[{"index":0,"message":{"content":"\"usage\":{\"prompt_tokens\":999}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":8,"audio_tokens":0}}}`,
			sluice.Usage{Input: 12, CachedInput: 8, Output: 5}, "stop", true},
		{"responses", provider.Responses, `{"status":"completed","output":[],"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":3},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2}}}`,
			sluice.Usage{Input: 12, CachedInput: 3, Output: 5}, "completed", true},
		{"a response that is incomplete", provider.Responses, `{"incomplete_details":{"reason":"max_output_tokens"},"status":"incomplete","usage":{"input_tokens":1,"output_tokens":2}}`,
			sluice.Usage{Input: 1, Output: 2}, "max_output_tokens", true},
		{"messages", provider.Messages, `{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":100},"output_tokens":7}}`,
			sluice.Usage{Input: 1110, CachedInput: 1000, CacheWrite: 100, Output: 7}, "end_turn", true},
		{"messages with a cache of an hour, searches and a tier", provider.Messages, `{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":150,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":50},"cache_read_input_tokens":0,"output_tokens":7,"server_tool_use":{"web_search_requests":3,"web_fetch_requests":2,"code_execution_requests":1},"service_tier":"batch"}}`,
			sluice.Usage{Input: 160, CacheWrite: 100, CacheWriteHour: 50, Output: 7, Searches: 3, OtherTools: 1, Service: limits.ServiceBatch}, "end_turn", true},
		{"chat in a tier", provider.ChatCompletions, `{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":5},"service_tier":"flex"}`,
			sluice.Usage{Input: 12, Output: 5, Service: limits.ServiceFlex}, "stop", true},
		{"responses with tools", provider.Responses, `{"status":"completed","service_tier":"priority","output":[{"type":"web_search_call","action":{"type":"search"}},{"type":"file_search_call"},{"type":"message","content":[{"type":"web_search_call"}]},{"type":"web_search_call"}],"usage":{"input_tokens":12,"output_tokens":5}}`,
			sluice.Usage{Input: 12, Output: 5, Searches: 2, OtherTools: 1, Service: limits.ServicePriority}, "completed", true},
		{"generated content in a tier", provider.GenerateContent, `{"usageMetadata":{"promptTokenCount":3,"trafficType":"ON_DEMAND_PRIORITY"}}`, sluice.Usage{Input: 3, Service: limits.ServicePriority}, "", true},
		{"embeddings", provider.Embeddings, `{"data":[{"embedding":[0.1,-2e-5]}],"usage":{"prompt_tokens":9,"total_tokens":9}}`, sluice.Usage{Input: 9}, "", true},
		{"generated content", provider.GenerateContent, `{"candidates":[{"content":{"parts":[{"text":"\"usageMetadata\":{\"promptTokenCount\":999}"}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}],"usageMetadata":{"promptTokenCount":12,"cachedContentTokenCount":8,"candidatesTokenCount":5,"toolUsePromptTokenCount":100,"thoughtsTokenCount":40,"totalTokenCount":157,"promptTokensDetails":[{"modality":"TEXT","tokenCount":12}]},"modelVersion":"gemini-2.5-flash"}`,
			sluice.Usage{Input: 112, CachedInput: 8, Output: 45, OtherTools: 1}, "MAX_TOKENS", true},
		{"an answer that was filtered", provider.GenerateContent, `{"candidates":[{"finishReason":"SAFETY","safetyRatings":[]}],"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3}}`, sluice.Usage{Input: 3}, "SAFETY", true},
		{"a prompt that was blocked", provider.GenerateContent, `{"promptFeedback":{"safetyRatings":[],"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":3}}`, sluice.Usage{Input: 3}, "PROHIBITED_CONTENT", true},
		{"embedded content", provider.EmbedContent, `{"embedding":{"values":[0.1,-2e-5]}}`, sluice.Usage{}, "", false},
		{"counts beyond counting", provider.GenerateContent, `{"usageMetadata":{"promptTokenCount":1e30,"toolUsePromptTokenCount":1e30,"candidatesTokenCount":1e30,"thoughtsTokenCount":9e99}}`, sluice.Usage{}, "", false},
		{"none", provider.ChatCompletions, `{"choices":[{"finish_reason":"length"}]}`, sluice.Usage{}, "length", false},
		{"null", provider.ChatCompletions, `{"choices":[],"usage":null}`, sluice.Usage{}, "", false},
		{"nonsense", provider.ChatCompletions, `{"usage":{"prompt_tokens":-5,"completion_tokens":1e400}}`, sluice.Usage{}, "", false},
		{"one figure of nonsense", provider.ChatCompletions, `{"usage":{"prompt_tokens":5,"completion_tokens":1e18}}`, sluice.Usage{Input: 5}, "", true},
		{"not JSON", provider.ChatCompletions, `<html>`, sluice.Usage{}, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			u, finish, ok := provider.ParseUsage(c.endpoint, []byte(c.body))
			if u != c.usage || finish != c.finish || ok != c.ok {
				t.Errorf("%+v %q %v, want %+v %q %v", u, finish, ok, c.usage, c.finish, c.ok)
			}
		})
	}
}
