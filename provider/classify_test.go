package provider_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

func lookup(t testing.TB, name string) provider.Provider {
	t.Helper()
	p, ok := provider.Lookup(name)
	if !ok {
		t.Fatalf("no provider %q", name)
	}
	return p
}

type classifyCase struct {
	name   string
	status int
	header []string
	body   string
	want   sluice.Kind
	wait   time.Duration
}

func classifyCases() []classifyCase {
	return []classifyCase{
		// OpenAI
		{"tokens of a minute", 429, nil, `{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 21818, Requested 11159. Please try again in 5.954s. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, sluice.RateLimit, 5954 * time.Millisecond},
		{"requests of a day refill evenly", 429, nil, `{"error":{"message":"Rate limit reached for gpt-4o-mini on requests per day (RPD): Limit 1000, Used 1000, Requested 1. Please try again in 1m26.4s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, sluice.RateLimit, 86400 * time.Millisecond},
		{"a wait computed from the figures", 429, nil, `{"error":{"message":"Rate limit reached on tokens per min (TPM): Limit 30000, Used 18928, Requested 11159.","type":"tokens","code":"rate_limit_exceeded"}}`, sluice.RateLimit, 174 * time.Millisecond},
		{"the body's wait wins over the header's", 429, []string{"retry-after", "3"}, `{"error":{"message":"Rate limit reached. Please try again in 174ms.","type":"tokens","code":"rate_limit_exceeded"}}`, sluice.RateLimit, 174 * time.Millisecond},
		{"milliseconds win over seconds", 429, []string{"retry-after", "3", "retry-after-ms", "2100"}, `{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}`, sluice.RateLimit, 2100 * time.Millisecond},
		{"a request larger than the limit", 429, nil, `{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, sluice.ContextLength, 0},
		{"quota", 429, []string{"retry-after", "20"}, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, sluice.QuotaExhausted, 0},
		{"credit balance code", 429, nil, `{"error":{"message":"No credits left.","type":"invalid_request_error","code":"credit_balance_exhausted"}}`, sluice.QuotaExhausted, 0},
		{"project spend limit", 429, nil, `{"error":{"message":"This project has reached its limit.","type":"rate_limit_error","code":"project_spend_limit_exceeded"}}`, sluice.QuotaExhausted, 0},
		{"billing not active", 429, nil, `{"error":{"message":"Your account is not active, please check your billing details on our website.","type":"billing_not_active","param":null,"code":"billing_not_active"}}`, sluice.QuotaExhausted, 0},
		{"slow down", 429, nil, `{"error":{"message":"Slow down","type":"rate_limit_error","code":"slow_down"}}`, sluice.RateLimit, 0},
		{"slow down as a 503", 503, []string{"retry-after", "5"}, `{"error":{"message":"Slow down","type":"service_unavailable_error","code":"slow_down"}}`, sluice.RateLimit, 5 * time.Second},
		{"server overloaded", 503, nil, `{"error":{"message":"Our servers are currently overloaded. Please try again later.","type":"service_unavailable_error","code":"server_is_overloaded"}}`, sluice.Overloaded, 0},
		{"engine overloaded as a 429", 429, nil, `{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded","param":null,"code":null}}`, sluice.Overloaded, 0},
		{"context length", 400, nil, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, sluice.ContextLength, 0},
		{"context window of a response", 400, nil, `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, sluice.ContextLength, 0},
		{"no such model", 404, nil, `{"error":{"message":"The model 'gpt-9' does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, sluice.BadRequest, 0},
		{"project without the model", 403, nil, `{"error":{"message":"Project proj_x does not have access to model gpt-5","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, sluice.BadRequest, 0},
		{"wrong key", 401, nil, `{"error":{"message":"Incorrect API key provided: sk-abc***xyz.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, sluice.Auth, 0},
		{"country", 403, nil, `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}`, sluice.Auth, 0},
		{"usage policy", 400, nil, `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`, sluice.ContentFilter, 0},
		{"a bare 500", 500, nil, ``, sluice.ServerError, 0},
		{"a wait on a 500 is not one of a limit", 500, []string{"retry-after", "7"}, `{"error":{"message":"The server had an error","type":"server_error"}}`, sluice.ServerError, 0},
		{"a page of a proxy", 502, nil, "<html><head><title>502 Bad Gateway</title></head></html>", sluice.ServerError, 0},
		{"a page of a proxy as a 503", 503, nil, "<html><head><title>503 Service Temporarily Unavailable</title></head></html>", sluice.Overloaded, 0},
		{"a page of a proxy as a 503 that states a wait", 503, []string{"retry-after", "20"}, "<html><head><title>503 Service Temporarily Unavailable</title></head></html>", sluice.Overloaded, 20 * time.Second},
		{"a bare 503", 503, nil, "", sluice.Overloaded, 0},
		{"envoy's circuit breaker", 503, []string{"x-envoy-overloaded", "true"}, "upstream connect error or disconnect/reset before headers. reset reason: overflow", sluice.RateLimit, 0},
		{"envoy", 503, nil, "upstream connect error or disconnect/reset before headers. reset reason: connection termination", sluice.Network, 0},
		{"a tenant's spending cap", 429, []string{"retry-after", "7200", "x-sluice-error", "quota_exhausted"}, `{"error":{"code":"quota_exhausted","message":"tenant bob has reached its spending cap until 2026-03-01T14:00:00Z","param":null,"type":"rate_limit_error"}}`, sluice.UsageWindow, 2 * time.Hour},
		{"a bare 429", 429, nil, "", sluice.RateLimit, 0},
		{"cloudflare's 429", 429, nil, "<html>error code: 1015</html>", sluice.RateLimit, 0},
		{"cloudflare's own statuses", 524, nil, "error code: 524", sluice.Timeout, 0},
		{"request timeout", 408, nil, `{"error":{"message":"Request timed out.","type":"invalid_request_error"}}`, sluice.Timeout, 0},
		{"gateway timeout", 504, nil, "<html>504 Gateway Time-out</html>", sluice.Timeout, 0},
		{"too many concurrent requests", 429, nil, `{"error":{"message":"Too many concurrent requests, limit is 8","type":"rate_limit_error","code":"concurrency_limit"}}`, sluice.RateLimit, 0},
		{"not a limit though it says so", 400, nil, `{"error":{"message":"Invalid value for 'rate_limit_policy' in tool schema.","type":"invalid_request_error","param":"tools[0]","code":"invalid_value"}}`, sluice.BadRequest, 0},
		{"parameter too large", 400, nil, `{"error":{"message":"max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.","type":"invalid_request_error","param":"max_tokens","code":null}}`, sluice.BadRequest, 0},

		// Anthropic
		{"anthropic tokens", 429, []string{"retry-after", "12"}, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 30,000 input tokens per minute (org: x, model: claude-sonnet-4-5)."},"request_id":"req_1"}`, sluice.RateLimit, 12 * time.Second},
		{"anthropic concurrency", 429, nil, `{"type":"error","error":{"type":"rate_limit_error","message":"Number of concurrent connections has exceeded your rate limit. Please try again later or contact sales."}}`, sluice.RateLimit, 0},
		{"anthropic overloaded", 529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, sluice.Overloaded, 0},
		{"anthropic overloaded behind a 500", 500, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, sluice.Overloaded, 0},
		{"credit too low", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}`, sluice.QuotaExhausted, 0},
		{"billing error", 402, nil, `{"type":"error","error":{"type":"billing_error","message":"There's an issue with your billing."}}`, sluice.QuotaExhausted, 0},
		{"spend cap", 429, nil, `{"type":"error","error":{"type":"rate_limit_error","message":"Limit reached","details":{"error_code":"enforced_spend_limit_reached"}}}`, sluice.QuotaExhausted, 0},
		{"workspace usage limit", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified workspace API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}`, sluice.UsageWindow, 30*24*time.Hour + 12*time.Hour},
		{"prompt too long", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`, sluice.ContextLength, 0},
		{"input and max_tokens", 400, nil, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length or `max_tokens` and try again\"}}", sluice.ContextLength, 0},
		{"request too large", 413, nil, `{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, sluice.BadRequest, 0},
		{"authentication", 401, nil, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, sluice.Auth, 0},
		{"permission", 403, nil, `{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}`, sluice.Auth, 0},
		{"anthropic 500", 500, nil, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, sluice.ServerError, 0},
		{"anthropic 504", 504, nil, `{"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}`, sluice.ServerError, 0},
		{"output blocked", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`, sluice.ContentFilter, 0},
		{"a subscription's window", 429, []string{"anthropic-ratelimit-unified-5h-status", "rejected", "anthropic-ratelimit-unified-5h-reset", "1772370000"}, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit. Please try again later."}}`, sluice.UsageWindow, time.Hour},
		{"roles must alternate", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"user\" roles in a row"}}`, sluice.BadRequest, 0},
		{"no such anthropic model", 404, nil, `{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}`, sluice.BadRequest, 0},

		// Azure
		{"azure tokens", 429, []string{"retry-after", "60"}, `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-02-01 have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 26 seconds."}}`, sluice.RateLimit, 26 * time.Second},
		{"azure new code", 429, []string{"retry-after", "9"}, `{"error":{"code":"RateLimitReached","message":"Your requests to gpt-4o for gpt-4o in East US have exceeded the token rate limit for your current AIServices S0 pricing tier."}}`, sluice.RateLimit, 9 * time.Second},
		{"azure high demand", 429, nil, `{"error":{"code":"429","message":"The system is currently experiencing high demand and cannot process your request."}}`, sluice.Overloaded, 0},
		{"azure filter", 400, nil, `{"error":{"message":"The response was filtered","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true}}}}}`, sluice.ContentFilter, 0},
		{"azure gateway quota", 403, nil, `{ "statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 01:02:03." }`, sluice.UsageWindow, time.Hour + 2*time.Minute + 3*time.Second},
		{"azure gateway rate", 429, nil, `{ "statusCode": 429, "message": "Rate limit is exceeded. Try again in 30 seconds." }`, sluice.RateLimit, 30 * time.Second},
		{"azure key", 401, nil, `{"error":{"code":"401","message":"Access denied due to invalid subscription key or wrong API endpoint."}}`, sluice.Auth, 0},
		{"azure deployment", 404, nil, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, sluice.BadRequest, 0},

		// wrapped, nested, inside a good answer
		{"a 400 around a 429", 400, nil, `{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"model is temporarily rate-limited upstream"}}}`, sluice.RateLimit, 0},
		{"a quoted error in the message", 400, nil, `{"error":{"message":"litellm.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached. Please try again in 2s', 'type': 'tokens', 'param': None, 'code': 'rate_limit_exceeded'}}","type":"None","code":"400"}}`, sluice.RateLimit, 2 * time.Second},
		{"json in json", 500, nil, `{"error":{"message":"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}"}}`, sluice.Overloaded, 0},
		{"a retryable 402", 402, []string{"retry-after", "4"}, `{"error":{"code":402,"message":"Budget held by requests in flight","metadata":{"reason":"in_flight_budget_exhausted","limit_source":"openrouter_in_flight_budget"}}}`, sluice.RateLimit, 4 * time.Second},
		{"a final 402", 402, nil, `{"error":{"code":402,"message":"This request requires more credits, or fewer max_tokens."}}`, sluice.QuotaExhausted, 0},
		{"an error in a 200", 200, nil, `{"error":{"message":"Rate limit exceeded","code":429}}`, sluice.RateLimit, 0},
		{"an overload in a 200", 200, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, sluice.Overloaded, 0},
		{"an event of a stream in a 200", 200, nil, "event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}", sluice.Overloaded, 0},
		{"a chunk that ends in an error", 200, nil, `data: {"object":"chat.completion.chunk","error":{"code":429,"message":"Rate limit exceeded"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}`, sluice.RateLimit, 0},
		{"JSON by hand in a 200", 200, nil, "{\"error\":{\"message\":\"request exceeds\n the available context size\",\"type\":\"exceed_context_size_error\"}}", sluice.ContextLength, 0},
		{"a prompt that Google blocked", 200, nil, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{}}`, sluice.ContentFilter, 0},
		{"a stream of words", 200, nil, `data: {"choices":[{"delta":{"content":"You've hit your limit · resets 4pm"}}]}`, sluice.OK, 0},
		{"a list of embeddings", 200, nil, `{"object":"list","data":[{"embedding":[0.1]}]}`, sluice.OK, 0},
		{"nothing in a 200", 200, nil, "", sluice.OK, 0},
		{"a failed response in a 200", 200, nil, `{"id":"resp_1","object":"response","status":"failed","error":{"code":"server_error","message":"The model failed"},"output":[]}`, sluice.ServerError, 0},
		{"a response without error", 200, nil, `{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"429 rate_limit_error insufficient_quota"}]}]}`, sluice.OK, 0},
		{"an answer about rate limits", 200, nil, `{"choices":[{"message":{"role":"assistant","content":"{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Rate limit reached. Please try again in 20s\"}}"},"finish_reason":"stop"}]}`, sluice.OK, 0},
		{"an answer by anthropic about rate limits", 200, nil, `{"type":"message","role":"assistant","content":[{"type":"text","text":"You've hit your limit · resets 4pm"}],"stop_reason":"end_turn"}`, sluice.OK, 0},
		{"a 400 around a 429, by its code alone", 400, nil, `{"error":{"message":"Provider returned error","code":429}}`, sluice.RateLimit, 0},
		{"a 200 around a 503, by its code alone", 200, nil, `{"error":{"message":"Provider returned error","code":503}}`, sluice.Overloaded, 0},
		{"a 500 around a 401", 500, nil, `{"error":{"message":"upstream said no","code":"401"}}`, sluice.Auth, 0},
		{"an echo of the request's members is not read", 400, nil, `{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":{"message":"rate limit exceeded","code":"insufficient_quota"}}]}`, sluice.BadRequest, 0},
		{"an echo of the request is not read", 422, nil, `{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required","input":{"messages":"rate limit exceeded, insufficient_quota"}}]}`, sluice.BadRequest, 0},
		{"a redirect", 308, nil, "", sluice.BadRequest, 0},

		// others that are compatible
		{"vllm", 400, nil, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}`, sluice.ContextLength, 0},
		{"groq", 413, nil, "{\"error\":{\"message\":\"Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 9503, please reduce your message size and try again.\",\"type\":\"tokens\",\"code\":\"rate_limit_exceeded\"}}", sluice.ContextLength, 0},
		{"deepseek", 402, nil, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, sluice.QuotaExhausted, 0},
		{"gemini a minute", 429, nil, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.\nPlease retry in 34.07s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}`, sluice.RateLimit, 34070 * time.Millisecond},
		{"bedrock", 429, []string{"x-amzn-errortype", "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/"}, `{"message":"Too many tokens, please wait before trying again."}`, sluice.RateLimit, 0},
	}
}

func TestErrorsAreClassifiedByStructure(t *testing.T) {
	for _, c := range classifyCases() {
		t.Run(c.name, func(t *testing.T) {
			v := provider.Classify(provider.Provider{}, c.status, header(c.header...), []byte(c.body), noon)
			if v.Kind != c.want {
				t.Errorf("kind %v, want %v (%v)", v.Kind, c.want, v.Why)
			}
			if v.Wait != c.wait {
				t.Errorf("wait %v, want %v", v.Wait, c.wait)
			}
			if v.Kind != sluice.OK && v.Why.Rule == "" {
				t.Error("no reason is given")
			}
			limit := v.Kind.Throttle() || v.TooLarge || v.Kind == sluice.QuotaExhausted
			if !limit && (v.Dimension != limits.AnyDimension || v.Limit != 0 || !v.Until.IsZero()) {
				t.Errorf("what is no limit has one: %+v", v)
			}
		})
	}
}

func TestRefusalsStateTheirFigures(t *testing.T) {
	cases := []struct {
		name, message          string
		dimension              limits.Dimension
		limit, used, requested int64
	}{
		{"tokens", "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 21818, Requested 11159. Please try again in 5.954s.", limits.Tokens, 30000, 21818, 11159},
		{"tokens, and advice about others", "Rate limit reached on tokens per min (TPM): Limit 30000, Used 30000, Requested 601. The input or output tokens must be reduced in order to run successfully.", limits.Tokens, 30000, 30000, 601},
		{"requests of a day", "Rate limit reached on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s.", limits.RequestsPerDay, 200, 200, 1},
		{"the old form", "Rate limit reached for default-gpt-3.5-turbo on requests per min. Limit: 3 / min. Please try again in 20s.", limits.Requests, 3, 0, 0},
		{"the old form with its use", "Rate limit reached on tokens per min. Limit: 10,000 / min. Current: 10,020 / min.", limits.Tokens, 10000, 10020, 0},
		{"input tokens of anthropic", "This request would exceed the rate limit for your organization (x) of 1,000,000 input tokens per minute.", limits.InputTokens, 1000000, 0, 0},
		{"output tokens of anthropic", "This request would exceed your organization's rate limit of 8,000 output tokens per minute.", limits.OutputTokens, 8000, 0, 0},
		{"requests of anthropic", "This request would exceed your organization's rate limit of 50 requests per minute.", limits.Requests, 50, 0, 0},
		{"concurrency", "Too many concurrent requests: limit is 8", limits.Concurrency, 8, 0, 0},
		{"moonshot's concurrency", "Your account reached max organization concurrency: 3, please try again after 1 seconds", limits.Concurrency, 3, 0, 0},
		{"anthropic's connections", "Number of concurrent connections has exceeded your rate limit.", limits.Concurrency, 0, 0, 0},
		{"calls of azure", "Requests have exceeded call rate limit of your current OpenAI S0 pricing tier. Please retry after 7 seconds.", limits.Requests, 0, 0, 0},
		{"xai", "Your team's rate limit is — Tokens per Minute (actual/limit): 65605/16000.", limits.Tokens, 16000, 65605, 0},
		{"litellm's key", "Rate limit exceeded for api_key: 1abc. Limit type: tokens. Current limit: 50000, Remaining: 0. Limit resets at: 2026-11-23 02:25:00 UTC", limits.Tokens, 50000, 0, 0},
		{"litellm's calls at once", "Rate limit exceeded for team: t. Limit type: max_parallel_requests. Current limit: 5, Remaining: 0", limits.Concurrency, 5, 0, 0},
		{"litellm's counters", "LiteLLM Rate Limit Handler for rate limit type = team. Crossed TPM / RPM / Max Parallel Request Limit. current rpm: 1, rpm limit: 15, current tpm: 12260, tpm limit: 5000, current max_parallel_requests: 0, max_parallel_requests: 9223372036854775807", limits.Tokens, 5000, 12260, 0},
		{"litellm's counter of calls", "Crossed TPM / RPM / Max Parallel Request Limit for api_key: x. current rpm: 1, rpm limit: 15, current max_parallel_requests: 4, max_parallel_requests: 4", limits.Concurrency, 4, 4, 0},
		{"litellm's older counters", "Max parallel request limit reached Hit limit for api_key: x. tpm_limit: 100, current_tpm 22, rpm_limit: 2, current_rpm 2", limits.Requests, 2, 2, 0},
		{"counters of which none is reached", "Max parallel request limit reached Hit limit for api_key: x. tpm_limit: 100, current_tpm 22, rpm_limit: 9, current_rpm 2", limits.AnyDimension, 0, 0, 0},
		{"together", "You have been rate limited. Your rate limit is 60 queries per minute.", limits.Requests, 60, 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": c.message}})
			v := provider.Classify(provider.Provider{}, 429, nil, body, noon)
			if v.Kind != sluice.RateLimit {
				t.Errorf("kind %v", v.Kind)
			}
			if v.Dimension != c.dimension || v.Limit != c.limit || v.Used != c.used || v.Requested != c.requested {
				t.Errorf("got %q limit %d used %d requested %d, want %q %d %d %d", v.Dimension, v.Limit, v.Used, v.Requested,
					c.dimension, c.limit, c.used, c.requested)
			}
		})
	}
}

// The bodies of libraries that limit by windows: SlowAPI (https://github.com/laurentS/slowapi/blob/master/slowapi/extension.py),
// Flask-Limiter in the page of Werkzeug (https://github.com/alisaifee/flask-limiter), AspNetCoreRateLimit
// (https://github.com/stefanprodan/AspNetCoreRateLimit/blob/master/src/AspNetCoreRateLimit/Middleware/RateLimitMiddleware.cs).
func TestRejectionsStateAWindow(t *testing.T) {
	requests := func(n int, period time.Duration) sluice.Outcome {
		return sluice.Outcome{Dimension: limits.Requests, Limit: int64(n) * int64(time.Minute/time.Second) / int64(period/time.Second),
			Window: limits.Window{N: n, Period: period}}
	}
	for _, c := range []struct {
		name, body string
		want       sluice.Outcome
	}{
		{"SlowAPI", `{"error":"Rate limit exceeded: 100 per 10 second"}`, requests(100, 10*time.Second)},
		{"SlowAPI of a minute", `{"error":"Rate limit exceeded: 100 per 1 minute"}`, requests(100, time.Minute)},
		{"SlowAPI of an hour", `{"error":"Rate limit exceeded: 5 per 1 hour"}`, requests(5, time.Hour)},
		{"SlowAPI of a day", `{"error":"Rate limit exceeded: 5 per 1 day"}`, sluice.Outcome{Dimension: limits.RequestsPerDay, Limit: 5}},
		{"Flask-Limiter", "<!doctype html>\n<html lang=en>\n<title>429 Too Many Requests</title>\n<h1>Too Many Requests</h1>\n<p>100 per 10 second</p>\n",
			requests(100, 10*time.Second)},
		{"AspNetCoreRateLimit", "API calls quota exceeded! maximum admitted 150 per 15m.", requests(150, 15*time.Minute)},
		{"tokens", `{"error":{"message":"Rate limit exceeded: 50000 tokens per 30 seconds"}}`,
			sluice.Outcome{Dimension: limits.Tokens, Limit: 100000, Window: limits.Window{N: 50000, Period: 30 * time.Second}}},
		{"a period that is none", `{"error":"Rate limit exceeded: 100 per 0 second"}`, sluice.Outcome{Limit: 100}},
		{"no period", `{"error":{"message":"This request would exceed your organization's rate limit of 50 requests per minute."}}`,
			sluice.Outcome{Dimension: limits.Requests, Limit: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := provider.Classify(provider.Provider{}, 429, nil, []byte(c.body), noon).Outcome(provider.Provider{}, 429, "")
			if o.Kind != sluice.RateLimit || o.Dimension != c.want.Dimension || o.Limit != c.want.Limit || o.Window != c.want.Window {
				t.Errorf("%v, %v %d, window %v; want %v %d, window %v", o.Kind, o.Dimension, o.Limit, o.Window, c.want.Dimension, c.want.Limit, c.want.Window)
			}
		})
	}
}

func TestASpentBudgetIsTheOneThatItsReadingIs(t *testing.T) {
	noRequests := header("x-ratelimit-limit-requests", "14400", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "6s")
	day := noRequests.Clone()
	day.Set("x-ratelimit-reset-requests", "5h52m48s")
	for _, c := range []struct {
		name string
		p    provider.Provider
		h    http.Header
		want limits.Dimension
	}{
		{"a minute's requests", anybody, noRequests, limits.Requests},
		{"a day's by its provider's own form", groq, noRequests, limits.RequestsPerDay},
		{"a day's by its reset", anybody, day, limits.RequestsPerDay},
		{"a header that no other provider has", provider.Provider{Headers: []provider.HeaderForm{
			{Dimension: limits.InputTokens, Limit: "X-In", Remaining: "X-In-Left"}}},
			header("x-in", "10", "x-in-left", "0"), limits.InputTokens},
		{"without a limit", groq, header("x-ratelimit-remaining-requests", "0"), limits.RequestsPerDay},
		{"one of two", anybody, header("x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", "0",
			"x-ratelimit-limit-tokens", "30000", "x-ratelimit-remaining-tokens", "12"), limits.Requests},
		{"both of two", anybody, header("x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", "0",
			"x-ratelimit-limit-tokens", "30000", "x-ratelimit-remaining-tokens", "0"), limits.AnyDimension},
	} {
		if v := provider.Classify(c.p, 429, c.h, nil, noon); v.Dimension != c.want {
			t.Errorf("%s: %q, want %q", c.name, v.Dimension, c.want)
		}
	}
}

func TestLargeRequestIsToldFromLargeUse(t *testing.T) {
	const small = `{"error":{"message":"Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 30000. Please try again in 58s."}}`
	const large = `{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 30601.","code":"rate_limit_exceeded"}}`
	if v := provider.Classify(provider.Provider{}, 429, nil, []byte(small), noon); v.TooLarge || v.Kind != sluice.RateLimit {
		t.Errorf("%+v", v)
	}
	v := provider.Classify(provider.Provider{}, 429, nil, []byte(large), noon)
	if !v.TooLarge || v.Kind != sluice.ContextLength || v.Limit != 30000 || v.Requested != 30601 || v.Wait != 0 {
		t.Errorf("%+v", v)
	}
}

func TestWindowsStateTheirEnd(t *testing.T) {
	cases := []struct {
		name   string
		status int
		header http.Header
		body   string
		want   time.Time
	}{
		{"anthropic's words", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}`,
			time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)},
		{"the spend cap ends with the month", 429, nil, `{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`,
			time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)},
		{"headers of codex that the body quotes", 429, nil, `{"error":{"type":"usage_limit_reached","message":"x","headers":{"X-Codex-Primary-Used-Percent":"100","X-Codex-Primary-Reset-At":"1772370000","X-Codex-Secondary-Used-Percent":"12","X-Codex-Secondary-Reset-At":"1772400000"}}}`,
			time.Unix(1772370000, 0)},
		{"headers of codex", 429, header("x-codex-secondary-used-percent", "100", "x-codex-secondary-reset-after-seconds", "3600"),
			`{"error":{"type":"usage_limit_reached","message":"x"}}`, noon.Add(time.Hour)},
		{"a member", 429, nil, `{"error":{"type":"usage_limit_reached","resets_at":1788879437,"resets_in_seconds":9568}}`, time.Unix(1788879437, 0)},
		{"headers of a subscription", 429, header("anthropic-ratelimit-unified-7d-status", "rejected", "anthropic-ratelimit-unified-7d-reset", "1772370000"),
			`{"error":{"type":"rate_limit_error","message":"x"}}`, time.Unix(1772370000, 0)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := provider.Classify(provider.Provider{}, c.status, c.header, []byte(c.body), noon)
			if !v.Until.Equal(c.want) {
				t.Errorf("until %v, want %v (%v)", v.Until, c.want, v.Kind)
			}
		})
	}
}

func TestErrorEventsAreClassifiedWithoutAStatus(t *testing.T) {
	cases := map[string]sluice.Kind{
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`:                                         sluice.Overloaded,
		`{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`:                                     sluice.ServerError,
		`{"error":{"code":429,"message":"Rate limit exceeded"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}`: sluice.RateLimit,
		`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"x"}}}`:      sluice.RateLimit,
		`{"type":"error","code":"server_error","message":"The server had an error","param":null}`:                             sluice.ServerError,
		`{"error":{"message":"The server had an error while processing your request","type":"server_error","code":null}}`:     sluice.ServerError,
		`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 300000 tokens > 200000"}}`:    sluice.ContextLength,
		`{"error":{"message":"something that nobody has seen","type":"brand_new_error"}}`:                                     sluice.ServerError,
		`{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"exceeds the window"}}}`:   sluice.ContextLength,
		`{"type":"response.failed","response":{"error":{"code":"insufficient_quota","message":"check your plan"}}}`:           sluice.QuotaExhausted,
		`{"type":"error","error":{"type":"invalid_request_error","code":"invalid_value","message":"bad","param":"tools[0]"}}`: sluice.BadRequest,
	}
	for data, want := range cases {
		if v := provider.ClassifyEvent(provider.Provider{}, []byte(data), noon); v.Kind != want {
			t.Errorf("kind %v, want %v (%v): %s", v.Kind, want, v.Why, data)
		}
	}
}

func TestVerdictHoldsNoKey(t *testing.T) {
	body := `{"error":{"message":"Incorrect API key provided: sk-proj-abcdefghijklmnop. See https://x/?key=AIzaSyA1234567890abcdefgh","code":"invalid_api_key","type":"Bearer sk-proj-abcdefghijklmnop"}}`
	p := lookup(t, "openai")
	v := provider.Classify(p, 401, nil, []byte(body), noon)
	text := v.Message + v.Why.String() + v.Outcome(p, 401, "req").Err.Error()
	for _, secret := range []string{"abcdefghijklmnop", "AIzaSyA"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q in %q", secret, text)
		}
	}
}

func BenchmarkClassify(b *testing.B) {
	body := []byte(`{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 21818, Requested 11159. Please try again in 5.954s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`)
	b.ReportAllocs()
	for b.Loop() {
		provider.Classify(provider.Provider{}, 429, nil, body, noon)
	}
}

// An answer of a kilobyte, as most are. json.Valid beside it reads the same bytes once and keeps nothing.
func goodAnswer() []byte {
	return []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1772366400,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("Rate limits are a fact of life. ", 24) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`)
}

func BenchmarkClassifyGoodAnswer(b *testing.B) {
	body := goodAnswer()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		provider.Classify(provider.Provider{}, 200, nil, body, noon)
	}
}

func BenchmarkClassifyGoodAnswerJSONValid(b *testing.B) {
	body := goodAnswer()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		json.Valid(body)
	}
}

func BenchmarkClassifyText(b *testing.B) {
	const text = "Traceback (most recent call last):\n  File \"/app/main.py\", line 42, in <module>\n    main()\nopenai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached. Please try again in 2s.', 'code': 'rate_limit_exceeded'}}"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		provider.ClassifyText(provider.Provider{}, 0, text, noon)
	}
}

func TestAGoodAnswerIsClassifiedWithTwoAllocationsAtMost(t *testing.T) {
	body := goodAnswer()
	if n := testing.AllocsPerRun(100, func() { provider.Classify(provider.Provider{}, 200, nil, body, noon) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
