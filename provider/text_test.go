package provider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

type textCase struct {
	name, text string
	want       sluice.Kind
	wait       time.Duration
}

func textCases() []textCase {
	const (
		ok  = sluice.OK
		sec = time.Second
	)
	return []textCase{
		// what tests print, and clients of Connect
		{"a test in Python that failed", "FAILED tests/test_limit.py::test_429 - AssertionError: assert 'rate limit exceeded' in ''", ok, 0},
		{"a test in Go that failed", "limiter_test.go:31: got 429 Too Many Requests, want 200", ok, 0},
		{"a test in JavaScript that failed", "src/limit.spec.ts:12: Error: 429 Too Many Requests", ok, 0},
		{"a code of Connect", "S: [resource_exhausted] Error", sluice.RateLimit, 0},
		{"a code of Connect behind its exception", "ConnectError: [unauthenticated] Error", sluice.Auth, 0},
		{"Connect without a connection", "ConnectError: [unavailable] getaddrinfo ENOTFOUND api.example.com", sluice.Network, 0},

		// what SDKs throw
		{"openai's python", "openai.RateLimitError: Error code: 429 - {'error': {'message': 'You exceeded your current quota, please check your plan and billing details.', 'type': 'insufficient_quota', 'param': None, 'code': 'insufficient_quota'}}", sluice.QuotaExhausted, 0},
		{"openai's node", "RateLimitError: 429 Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.\n    at APIError.generate (/app/node_modules/openai/error.mjs:67:20)\n    at OpenAI.makeStatusError (/app/node_modules/openai/core.mjs:337:25)", sluice.RateLimit, 2 * sec},
		{"openai without an answer", "openai.APIConnectionError: Connection error.", sluice.Network, 0},
		{"openai's timeout", "openai.APITimeoutError: Request timed out.", sluice.Timeout, 0},
		{"anthropic's python", "anthropic.APIStatusError: Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}", sluice.Overloaded, 0},
		{"anthropic's node", `Error: 400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`, sluice.ContextLength, 0},
		{"litellm", `litellm.exceptions.RateLimitError: litellm.RateLimitError: AnthropicException - b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization\'s rate limit of 40,000 input tokens per minute."}}'`, sluice.RateLimit, 0},
		{"litellm's context", "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - This model's maximum context length is 8192 tokens.", sluice.ContextLength, 0},
		{"litellm's overload", "litellm.InternalServerError: AnthropicException - Overloaded", sluice.Overloaded, 0},
		{"langchain's log", "Retrying langchain.chat_models.openai.ChatOpenAI.completion_with_retry.<locals>._completion_with_retry in 4.0 seconds as it raised RateLimitError: Rate limit reached for default-gpt-3.5-turbo in organization org-x on requests per min. Limit: 3 / min. Please try again in 20s.", sluice.RateLimit, 20 * sec},
		{"a traceback without lines of code", "Traceback (most recent call last):\n  File \"<stdin>\", line 1, in <module>\nanthropic.APIStatusError: Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}", sluice.Overloaded, 0},
		{"a traceback", "Traceback (most recent call last):\n  File \"/app/main.py\", line 429, in <module>\n    raise RateLimitError(\"quota\")\n  File \"/x/openai/_base_client.py\", line 1020, in _request\n    raise self._make_status_error_from_response(err.response) from None\nopenai.AuthenticationError: Error code: 401 - {'error': {'message': 'Incorrect API key provided: sk-abc.', 'type': 'invalid_request_error', 'code': 'invalid_api_key'}}", sluice.Auth, 0},
		{"botocore", "botocore.exceptions.ClientError: An error occurred (ThrottlingException) when calling the InvokeModel operation (reached max retries: 4): Too many requests, please wait before trying again.", sluice.RateLimit, 0},
		{"botocore's day", "An error occurred (ThrottlingException) when calling the Converse operation: Too many tokens per day, please wait before trying again.", sluice.UsageWindow, 0},
		{"botocore's key", "An error occurred (UnrecognizedClientException) when calling the InvokeModel operation: The security token included in the request is invalid.", sluice.Auth, 0},
		{"google's core", "google.api_core.exceptions.ResourceExhausted: 429 Resource has been exhausted (e.g. check quota).", sluice.RateLimit, 0},
		{"google's genai", `google.genai.errors.ServerError: 503 UNAVAILABLE. {'error': {'code': 503, 'message': 'The model is overloaded. Please try again later.', 'status': 'UNAVAILABLE'}}`, sluice.Overloaded, 0},
		{"mistral", `mistralai.exceptions.MistralAPIStatusException: Status: 429. Message: {"message":"Requests rate limit exceeded"}`, sluice.RateLimit, 0},
		{"axios", "AxiosError: Request failed with status code 429", sluice.RateLimit, 0},
		{"axios' timeout", "AxiosError: timeout of 60000ms exceeded", sluice.Timeout, 0},
		{"requests", "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://api.x.ai/v1/chat/completions", sluice.Overloaded, 0},
		{"httpx", "httpx.HTTPStatusError: Client error '429 Too Many Requests' for url 'https://api.mistral.ai/v1/chat/completions'", sluice.RateLimit, 0},
		{"httpx's log", `INFO:httpx:HTTP Request: POST https://api.openai.com/v1/chat/completions "HTTP/1.1 429 Too Many Requests"`, sluice.RateLimit, 0},
		{"node's refusal", "Error: connect ECONNREFUSED 127.0.0.1:11434", sluice.Network, 0},
		{"node's names", "FetchError: request to https://api.openai.com/v1/chat/completions failed, reason: getaddrinfo ENOTFOUND api.openai.com", sluice.Network, 0},
		{"undici", "TypeError: fetch failed\n  [cause]: Error: read ECONNRESET", sluice.Network, 0},
		{"undici's timeout", "TypeError: fetch failed\n    at node:internal/deps/undici\n  [cause]: ConnectTimeoutError: Connect Timeout Error (attempted address: api.anthropic.com:443, timeout: 10000ms)", sluice.Timeout, 0},
		{"hang up", "Error: socket hang up", sluice.Network, 0},
		{"a certificate", "httpx.ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1006)", sluice.Network, 0},
		{"go's certificate", `Post "https://api.openai.com/v1/chat/completions": tls: failed to verify certificate: x509: certificate signed by unknown authority`, sluice.Network, 0},
		{"go's dial", `Post "https://api.anthropic.com/v1/messages": dial tcp: lookup api.anthropic.com: no such host`, sluice.Network, 0},
		{"go's deadline", `Post "https://api.openai.com/v1/responses": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`, sluice.Timeout, 0},
		{"urllib3", "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.openai.com', port=443): Max retries exceeded with url: /v1/chat/completions (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno 111] Connection refused'))", sluice.Network, 0},
		{"windows", "ConnectionResetError: [WinError 10054] An existing connection was forcibly closed by the remote host", sluice.Network, 0},

		// answers that were pasted
		{"a head", "HTTP/1.1 429 Too Many Requests\nRetry-After: 60\nContent-Type: application/json\n\n{\"error\":{\"message\":\"slow\"}}", sluice.RateLimit, 60 * sec},
		{"a good head", "HTTP/1.1 200 OK\nanthropic-ratelimit-requests-remaining: 0\nretry-after: 9", ok, 0},
		{"an event", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}", sluice.Overloaded, 0},
		{"cloudflare", "<!DOCTYPE html>\n<html><head><title>api.example.com | 524: A timeout occurred</title></head></html>", sluice.Timeout, 0},
		{"nginx", "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>", sluice.ServerError, 0},
		{"nginx behind words", "Error: 504 <html><head><title>504 Gateway Time-out</title></head></html>", sluice.Timeout, 0},

		// agents
		{"claude code's retry", "  ⎿  API Error (529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":null}) · Retrying in 4 seconds… (attempt 4/10)", sluice.Overloaded, 4 * sec},
		{"claude code's key", "Invalid API key · Please run /login", sluice.Auth, 0},
		{"claude code's result", `{"type":"result","subtype":"success","is_error":true,"result":"You've hit your limit · resets 3pm (UTC)"}`, sluice.UsageWindow, 3 * time.Hour},
		{"codex", "■ You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing) or try again in 5 days 22 hours 11\nminutes.", sluice.UsageWindow, 142*time.Hour + 11*time.Minute},
		{"codex's date", "You've hit your usage limit. Upgrade to Plus to continue using Codex (https://chatgpt.com/explore/plus), or try again at Mar 5th, 2026 8:19 PM.", sluice.UsageWindow, 104*time.Hour + 19*time.Minute},
		{"codex's stream", "stream error: stream disconnected before completion: error sending request for url (https://chatgpt.com/backend-api/codex/responses); retrying 1/5 in 189ms…", sluice.Network, 0},
		{"copilot", "✗ Sorry, you've hit a rate limit that restricts the number of Copilot model requests you can make within a specific time\n  period. Please try again in 1 minute. Please review our Terms of Service", sluice.RateLimit, 60 * sec},
		{"gemini", "Attempt 1 failed: You have exhausted your capacity on this model. Your quota will reset after 5s.. Retrying after 6173ms...", sluice.RateLimit, 5 * sec},
		{"gemini's hours", "✕ [API Error: You have exhausted your capacity on this model. Your quota will reset after 8h44m7s.]", sluice.UsageWindow, 8*time.Hour + 44*time.Minute + 7*sec},
		{"gemini's day", "✕ [API Error: You have exhausted your daily quota on this model.]", sluice.UsageWindow, 0},

		// limits in prose, and what is none
		{"a limit without a number", "You've reached the rate limit for sending messages with the current model!", sluice.RateLimit, 0},
		{"a number of MiniMax in words", "Error: 1002, trigger rate limit", sluice.RateLimit, 0},
		{"a limit of flask", "429 Too Many Requests: 50 per 1 minute", sluice.RateLimit, 0},
		{"copilot's month", "You've exhausted your premium model quota. For additional paid premium requests, please reach out to your organization's Copilot admin or wait for your allowance to renew.", sluice.UsageWindow, 0},
		{"cursor", "ActionRequiredError: Increase limits for faster responses You're out of usage. Switch to Auto, or ask your admin to increase your limit to continue.", sluice.UsageWindow, 0},
		{"a budget of a gateway", "Team=3A over budget. Spend=51, Budget=50", sluice.QuotaExhausted, 0},
		{"load in Chinese", "当前分组上游负载已饱和，请稍后再试", sluice.Overloaded, 0},
		{"the name of a host", "Error: getaddrinfo ENOTFOUND ratelimit-proxy.internal", sluice.Network, 0},
		{"tokens of a prompt", "Token limit exceeded, shorten your prompt", sluice.ContextLength, 0},
		{"an injection", `403 {"error":{"message":"prompt injection patterns detected"}}`, sluice.ContentFilter, 0},
		{"a report on a limit", "Two of the three subagents returned \"You've hit your session limit · resets 5:50pm America/Los_Angeles\" within seconds.", ok, 0},
		{"a rule of a protocol", "Endpoints MUST NOT exceed the limit set by their peer.", ok, 0},
		{"a note on a change", "- Limit the response body to 4 MiB to mitigate memory usage caused by a malicious server. Responses exceeding the limit are treated as non-retryable errors.", ok, 0},
		{"a manual", "Requests do not time out by default; use a context to configure a timeout for a request lifecycle.", ok, 0},
		{"in the middle of prose", "The first run on a context starts the browser and binds its life to the context that you pass to that call, so that every later call in it fails once the usage limit is reached.", ok, 0},
		{"a limit of a tool", "Error: container exceeded its memory limit and was killed", ok, 0},

		// broken by terminals
		{"in the middle of a word", "API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overload     ed_error\",\"mess     age\":\"Over     loaded\"}}", sluice.Overloaded, 0},
		{"in a box", "╭──────────────╮\n│ ✕ [API Error: You have exhausted your daily quo │\n│ ta on this model.]                              │\n╰──────────────╯", sluice.UsageWindow, 0},
		{"in colours", "\x1b[31mError:\x1b[0m \x1b[1m429\x1b[0m {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"x\"}}", sluice.QuotaExhausted, 0},

		// what only talks about errors
		{"a commit's title", "feat: implement daily rate limit", ok, 0},
		{"a commit about an error", "fix(api): retry on 429 RateLimitError: Rate limit reached", ok, 0},
		{"a commit that says no more", "chore: rate limit exceeded", ok, 0},
		{"what a tool printed", "⏺ Bash(curl -s api)\n  ⎿  Error: Exit code 1\n     429 Too Many Requests\n", ok, 0},
		{"what follows a tool", "⏺ Bash(ls)\n  ⎿  a.go\n\n  ⎿  API Error: 529 Overloaded", sluice.Overloaded, 0},
		{"a log that must not be joined", "$ git log --oneline\n1a2b3c4 RateLimitError: slow down", ok, 0},
		{"a log of commits", "a1b2c3d4 fix: handle 529 overloaded_error\n9f8e7d6c docs: rate limit exceeded errors", ok, 0},
		{"a manual", "Rate limits are measured in requests per minute. When you exceed the limit, the API returns a 429 Too Many Requests error. You should back off and retry.", ok, 0},
		{"usage", "Current session\n████ 25% used, Resets Jul 26, 5:59am (America/New_York)", ok, 0},
		{"a warning", "Approaching usage limit · resets at 7pm", ok, 0},
		{"tokens", "tokens used: 429142", ok, 0},
		{"a port", "Listening on http://localhost:4290", ok, 0},
		{"a place", "Error in src/limiter.ts:429:13 - unused variable", ok, 0},
		{"code", "if (err.status === 429) {\n  throw new RateLimitError('Rate limit exceeded');\n}", ok, 0},
		{"python", "except openai.RateLimitError as e:\n    print('rate limit exceeded', e)", ok, 0},
		{"a diff", "diff --git a/x.py b/x.py\n@@ -1,2 +1,3 @@\n-    raise RateLimitError('429 Too Many Requests')\n+    # rate limit exceeded: wait", ok, 0},
		{"an access log", `127.0.0.1 - - [01/Mar/2026:12:00:00 +0000] "POST /v1/chat/completions HTTP/1.1" 200 429`, ok, 0},
		{"a client's log", `2025-06-12 20:30:00,660 INFO HTTP Request: POST https://api.openai.com/v1/chat/completions "HTTP/1.1 200 OK"`, ok, 0},
		{"a tool's failure", "Error: ENOENT: no such file or directory, open '/tmp/rate_limit.txt'", ok, 0},
		{"recursion", "langgraph.errors.GraphRecursionError: Recursion limit of 25 reached without hitting a stop condition.", ok, 0},
		{"recursion of python", "RecursionError: maximum recursion depth exceeded", ok, 0},
		{"a good answer", `{"id":"x","choices":[{"message":{"role":"assistant","content":"Error code: 429 - rate limit reached"},"finish_reason":"stop"}]}`, ok, 0},
		{"a test's report", "429 tests passed, 0 failed", ok, 0},
		{"nothing", "", ok, 0},
	}
}

func TestTextsAreClassifiedByHowTheySpeak(t *testing.T) {
	for _, c := range textCases() {
		t.Run(c.name, func(t *testing.T) {
			v := provider.ClassifyText(provider.Provider{}, 0, c.text, noon)
			if v.Kind != c.want {
				t.Errorf("kind %v, want %v (%v)", v.Kind, c.want, v.Why)
			}
			if v.Wait != c.wait && !strings.Contains(c.name, "day") {
				t.Errorf("wait %v, want %v (%v)", v.Wait, c.wait, v.Why)
			}
		})
	}
}
