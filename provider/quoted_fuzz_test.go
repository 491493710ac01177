package provider_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// quoting are error forms of six providers. They quote a text of the request, as JSON.
var quoting = []struct{ provider, body string }{
	{"openai", `{"error":{"message":"Invalid value: '%s'. Supported values are: 'a' and 'b'.","type":"invalid_request_error","param":"messages","code":"invalid_value"}}`},
	{"anthropic", `{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content: \"%s\" is not allowed"}}`},
	{"gemini", `{"error":{"code":STATUS,"message":"Invalid value at 'contents[0]' (TYPE_STRING), \"%s\"","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"%s"}]}]}}`},
	{"mistral", `{"detail":[{"type":"string_type","loc":["body","messages"],"msg":"Input should be valid, got %s","input":"%s"}]}`},
	{"openrouter", `{"error":{"message":"Provider returned error","code":STATUS,"metadata":{"raw":"{\"error\":{\"message\":\"%s\"}}","provider_name":"x"}}}`},
	{"openai-compatible", `{"object":"error","message":"1 validation error: {'input_value': '%s'} [type=value_error, input_value='%s', input_type=str]","type":"BadRequestError"}`},
}

// quoter answers each request by an error that quotes it.
type quoter struct {
	status int
	form   string
}

func (q quoter) RoundTrip(r *http.Request) (*http.Response, error) {
	asked, _ := io.ReadAll(r.Body)
	var body struct{ Messages []struct{ Content string } }
	_ = json.Unmarshal(asked, &body)
	text, _ := json.Marshal(body.Messages[0].Content)
	form := strings.ReplaceAll(strings.ReplaceAll(q.form, "STATUS", fmt.Sprint(q.status)), "%s", strings.Trim(string(text), `"`))
	return &http.Response{StatusCode: q.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(form)), Request: r}, nil
}

// FuzzQuoted has phrases of errors in requests, and providers that quote them: no verdict is about more than the request.
func FuzzQuoted(f *testing.F) {
	for i, phrase := range []string{
		"Incorrect API key provided", "You exceeded your current quota, please check your plan and billing details", "Rate limit reached, try again in 20h",
		"Your credit balance is too low", `{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}`, "429 Too Many Requests, Retry-After: 86400",
		`' "invalid_api_key" '`, "Error code: 401 - {'error': {'code': 'invalid_api_key'}}", "usage limit reached|1763000000", "HTTP/1.1 401 Unauthorized\n\nno",
		"data: {\"error\":{\"type\":\"overloaded_error\"}}", "openai.RateLimitError: quota exceeded", "API key not valid. Please pass a valid API key.",
	} {
		f.Add(phrase, uint8(i), uint8(i))
	}
	statuses := []int{400, 404, 409, 413, 422, 403, 429, 500}
	f.Fuzz(func(t *testing.T, phrase string, form, status uint8) {
		q := quoting[int(form)%len(quoting)]
		code := statuses[int(status)%len(statuses)]
		p, _ := provider.Lookup(q.provider)
		asked, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": phrase}}})
		if err != nil {
			t.Skip()
		}
		req, err := p.NewRequest(context.Background(), provider.Target{BaseURL: "http://127.0.0.1:9", Key: "sk-0123456789", Endpoint: provider.ChatCompletions, Model: "m"}, asked)
		if err != nil {
			t.Skip()
		}
		_, o := provider.Exchange(t.Context(), quoter{code, q.body}, nil, req, provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions})
		if o.Kind.Fatal() || o.Kind == sluice.UsageWindow || o.Kind == sluice.OK || !o.Until.IsZero() || code < 429 && code != 409 && (o.Kind.Throttle() || o.Wait > 0) {
			t.Errorf("%s, %d: %q is %v, wait %v: %v", q.provider, code, phrase, o.Kind, o.Wait, o.Err)
		}
	})
}

// A quotation that has many quotation marks of its own took minutes to read.
func TestAQuotationOfManyQuotationMarksIsReadAtOnce(t *testing.T) {
	p, _ := provider.Lookup("openai")
	for _, phrase := range []string{strings.Repeat(`' `, 4000), strings.Repeat(`'"`, 8000), strings.Repeat("got ", 4000)} {
		asked, _ := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": phrase}}})
		req, err := p.NewRequest(t.Context(), provider.Target{Key: "sk-0123456789", Endpoint: provider.ChatCompletions, Model: "m"}, asked)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, o := provider.Exchange(t.Context(), quoter{400, quoting[0].body}, nil, req, provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions})
		if took := time.Since(start); o.Kind != sluice.BadRequest || suite.Full && took > 5*time.Second {
			t.Errorf("%.8q: %v after %v", phrase, o.Kind, took)
		}
	}
}
