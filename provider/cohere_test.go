package provider_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

const cohereWhole = `{"id":"c1","message":{"role":"assistant","tool_plan":"I will look.","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Hello"}],
"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}],"citations":[{"start":0,"end":5,"text":"Hello"}]},
"finish_reason":"TOOL_CALL","usage":{"billed_units":{"input_tokens":21,"output_tokens":9},"tokens":{"input_tokens":186,"output_tokens":9}}}`

// cohereEvents are that message as a stream (https://docs.cohere.com/v2/docs/streaming).
var cohereEvents = []string{
	`{"id":"c1","type":"message-start","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[],"citations":[]}}}`,
	`{"type":"tool-plan-delta","delta":{"message":{"tool_plan":"I will"}}}`,
	`{"type":"tool-plan-delta","delta":{"message":{"tool_plan":" look."}}}`,
	`{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"thinking","thinking":""}}}}`,
	`{"type":"content-delta","index":0,"delta":{"message":{"content":{"thinking":"Hm."}}}}`,
	`{"type":"content-end","index":0}`,
	`{"type":"content-start","index":1,"delta":{"message":{"content":{"type":"text","text":""}}}}`,
	`{"type":"content-delta","index":1,"delta":{"message":{"content":{"text":"Hel"}}}}`,
	`{"type":"content-delta","index":1,"delta":{"message":{"content":{"text":"lo"}}}}`,
	`{"type":"citation-start","index":0,"delta":{"message":{"citations":{"start":0,"end":5,"text":"Hello"}}}}`,
	`{"type":"citation-end","index":0}`,
	`{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"t1","type":"function","function":{"name":"f","arguments":""}}}}}`,
	`{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"a\":"}}}}}`,
	`{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"1}"}}}}}`,
	`{"type":"tool-call-end","index":0}`,
	`{"type":"message-end","delta":{"finish_reason":"TOOL_CALL","usage":{"billed_units":{"input_tokens":21,"output_tokens":9},"tokens":{"input_tokens":186,"output_tokens":9}}}}`,
}

func cohereStream(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

func TestAMessageOfCohereIsReadWholeAndStreamed(t *testing.T) {
	want := sluice.Usage{Input: 21, Output: 9}
	for body, kind := range map[string]string{cohereWhole: "application/json", cohereStream(cohereEvents...): "text/event-stream"} {
		a, o := exchange(t, t.Context(), replies(200, body, "content-type", kind), provider.ExchangeConfig{Endpoint: provider.CohereChat})
		if o.Kind != sluice.OK || o.Usage != want || a.FinishReason != "TOOL_CALL" {
			t.Errorf("%s: %v %+v %q", kind, o.Err, o.Usage, a.FinishReason)
		}
		sameJSON(t, []byte(cohereWhole), a.Body)
		all := provider.Replies(a.Body)
		if len(all) != 1 || all[0].Text != "Hello" || !cmp.Equal(all[0].Calls, []string{`{"a":1}`}) || all[0].Finish != "TOOL_CALL" {
			t.Errorf("%s: %+v", kind, all)
		}
	}
	cut := strings.Replace(cohereWhole, "TOOL_CALL", "MAX_TOKENS", 1)
	if all := provider.Replies([]byte(cut)); len(all) != 1 || !all[0].Cut() {
		t.Errorf("cut off: %+v", all)
	}
	for i := range cohereEvents {
		_, err := provider.Collect(provider.CohereChat, strings.NewReader(cohereStream(cohereEvents[:i]...)), 1<<20)
		if err != provider.ErrCut {
			t.Errorf("after %d events: %v", i, err)
		}
	}
	u, _, complete, failed := provider.Metered(provider.CohereChat, cohereEvents[:9], true)
	if u.Output != 5 || !u.Estimated || complete || failed { // 20 bytes of text
		t.Errorf("a stream that broke off: %+v", u)
	}
}

func TestErrorsOfCohere(t *testing.T) {
	p := lookup(t, "cohere-v2")
	for _, c := range []struct {
		status int
		body   string
		kind   sluice.Kind
	}{
		// https://docs.cohere.com/v2/reference/errors
		{400, `{"id":"e","message":"invalid request: message must be at least 1 token long or tool results must be specified."}`, sluice.BadRequest},
		{401, `{"message":"invalid api token"}`, sluice.Auth},
		{404, `{"message":"model 'xyz' not found, make sure the correct model ID was used and that you have access to the model."}`, sluice.BadRequest},
		{429, `{"message":"You are past the per minute request limit, please wait and try again later."}`, sluice.RateLimit},
		{500, `{"message":"internal server error"}`, sluice.ServerError},
		{200, `{"message":"internal server error"}`, sluice.ServerError},
		{200, strings.Replace(cohereWhole, "TOOL_CALL", "ERROR", 1), sluice.ServerError},
	} {
		_, o := exchange(t, t.Context(), replies(c.status, c.body, "content-type", "application/json"), provider.ExchangeConfig{Provider: p, Endpoint: provider.CohereChat})
		if o.Kind != c.kind {
			t.Errorf("%d %s: %v %v", c.status, c.body, o.Kind, o.Err)
		}
	}
	broken := cohereStream(cohereEvents[0], `{"type":"message-end","delta":{"finish_reason":"ERROR","error":"the model failed"}}`)
	_, o := exchange(t, t.Context(), replies(200, broken, "content-type", "text/event-stream"), provider.ExchangeConfig{Provider: p, Endpoint: provider.CohereChat})
	if o.Kind != sluice.ServerError {
		t.Errorf("a stream that breaks off: %v %v", o.Kind, o.Err)
	}
	h := http.Header{"X-Trial-Endpoint-Call-Limit": {"20"}, "X-Trial-Endpoint-Call-Remaining": {"19"}}
	if r := p.Readings(h, noon); len(r) != 1 || r[0].Dimension != limits.Requests || r[0].Limit != 20 || r[0].Remaining != 19 {
		t.Errorf("%+v", r)
	}
}

func TestRequestsToCohere(t *testing.T) {
	p := lookup(t, "cohere-v2")
	for base, want := range map[string]string{
		"": "https://api.cohere.com/v2/chat", "https://x/v2": "https://x/v2/chat", "https://x/cohere": "https://x/cohere/v2/chat",
	} {
		if got, err := p.URL(base, provider.CohereChat, "command-a-03-2025"); got != want || err != nil {
			t.Errorf("%q: %s %v", base, got, err)
		}
	}
	if got, err := lookup(t, "openai-compatible").URL("http://localhost:4000/v1", provider.CohereChat, "m"); got != "http://localhost:4000/v2/chat" || err != nil {
		t.Errorf("%s %v", got, err)
	}
	body := string(provider.AppendPrompt(nil, p.PromptEndpoint("command-a"), "m", []byte(`"hi"`), []byte(`"be kind"`))) + `,"documents":["12345678"],"max_tokens":7}`
	if want := `{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}],"documents":["12345678"],"max_tokens":7}`; body != want {
		t.Error(body)
	}
	if r, err := provider.Estimate(provider.CohereChat, []byte(body)); err != nil || r.Cost != (sluice.Cost{Input: 5, MaxOutput: 7}) {
		t.Errorf("%+v %v", r, err)
	}
	if e, _, err := provider.ParseEndpoint("/v2/chat"); e != provider.CohereChat || err != nil || p.MessagesEndpoint() != e || !p.Has(e) || p.Has(provider.ChatCompletions) {
		t.Errorf("%v %v", e, err)
	}
}
