package errtext_test

import (
	"strconv"
	"testing"

	"github.com/sluice-llm/sluice/internal/errtext"
)

func TestEveryRowDecidesItsExample(t *testing.T) {
	for name, example := range errtext.Rows() {
		status := 0
		if n, err := strconv.Atoi(example[:min(3, len(example))]); err == nil {
			status, example = n, example[4:]
		}
		if d, ok := errtext.Read([]byte(example), nil).Decide(status); !ok || d.Name != name {
			t.Errorf("%s: %d %s is of row %+v", name, status, example, d.Pattern)
		}
	}
}

func TestAnErrorSaysWhichFieldARequestMayNotHave(t *testing.T) {
	for _, c := range []struct{ text, field string }{
		{`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}`, "max_tokens"},
		{`{"error":{"message":"Bad request","param":"max_tokens","code":"unsupported_parameter"}}`, "max_tokens"},
		{`{"error":{"message":"this model is not supported MaxTokens, please use max_completion_tokens rather than max_tokens"}}`, "max_tokens"},
		{`{"error":{"message":"Error code: 400 - {'error': {'message': \"Unrecognized request argument supplied: max_tokens\", 'param': None}}"}}`, "max_tokens"},
		{`{"message":"unknown field: max_tokens"}`, "max_tokens"},
		{`{"detail":[{"type":"extra_forbidden","loc":["body","max_tokens"],"msg":"Extra inputs are not permitted"}]}`, "max_tokens"},
		{`{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]"}`, "stream_options"},
		{`{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"stream_options\": Cannot find field.","status":"INVALID_ARGUMENT"}}`, "stream_options"},
		{`property 'stream_options.include_usage' is unsupported`, "stream_options"},
		// The value is wrong, or another field.
		{`{"error":{"message":"max_tokens is too large: 500000. This model supports at most 16384 completion tokens, whereas you provided 500000.","param":"max_tokens"}}`, ""},
		{`{"message":"'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 tokens"}`, ""},
		{`{"error":{"message":"max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"}}`, ""},
		{`{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"}}`, ""},
		{`{"error":{"message":"Unsupported value: 'max_tokens' does not support 9 with this model.","param":"max_tokens","code":"unsupported_value"}}`, ""},
		{`{"error":{"message":"Unsupported parameter: 'temperature' is not supported with max_tokens.","param":"temperature","code":"unsupported_parameter"}}`, ""},
		{`{"error":{"message":"max_tokens_to_sample is not supported"}}`, ""},
		{`{"error":{"message":"The model is not supported","type":"invalid_request_error"}}`, ""},
	} {
		if field := errtext.Read([]byte(c.text), nil).Unsupported([]string{"max_tokens", "stream_options"}); field != c.field {
			t.Errorf("%s is about %q, want %q", c.text, field, c.field)
		}
	}
}
