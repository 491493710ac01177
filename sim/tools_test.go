package sim_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/sim"
)

const anthropicVersion = "2023-06-01"

// Requests that offer a tool, as their providers document it.
const (
	chatTools     = `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"weather"}}]}`
	responseTools = `{"model":"m","input":"hi","tools":[{"type":"web_search"},{"type":"function","name":"weather"}]}`
	messageTools  = `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"weather","input_schema":{}}]}`
	geminiTools   = `{"contents":[{"parts":[{"text":"hi"}]}],"tools":[{"functionDeclarations":[{"name":"weather"}]}]}`
)

func TestAToolIsCalled(t *testing.T) {
	for _, tt := range []struct{ path, body, want string }{
		{chatPath, chatTools, `"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_HASH","type":"function","function":{"name":"weather","arguments":"{\"text\":\"sim:HASH and\"}"}}],"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"tool_calls"`},
		{"/v1/responses", responseTools, `"output":[{"id":"fc_HASH","type":"function_call","status":"completed","call_id":"call_HASH","name":"weather","arguments":"{\"text\":\"sim:HASH and\"}"}]`},
		{"/v1/messages", messageTools, `"content":[{"type":"tool_use","id":"toolu_HASH","name":"weather","input":{"text":"sim:HASH and"}}],"stop_reason":"tool_use"`},
		{geminiPath, geminiTools, `"content":{"parts":[{"functionCall":{"name":"weather","args":{"text":"sim:HASH and"}}}],"role":"model"},"finishReason":"STOP"`},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{OutputTokens: 10})
			r := send(ctx, s, tt.path, tt.body, "Anthropic-Version", anthropicVersion)
			contains(t, "answer", r.body, strings.ReplaceAll(tt.want, "HASH", sim.RequestHash([]byte(tt.body))))
			if !json.Valid([]byte(r.body)) {
				t.Errorf("not JSON: %s", r.body)
			}
			equal(t, "output", s.Stats().OutputTokens, 10)
		})
	}
}

// What came of a call of a tool is answered with a text, and so is who wants no call.
func TestAToolIsCalledOnce(t *testing.T) {
	for _, tt := range []struct{ path, body, old, new string }{
		{chatPath, chatTools, `}],"tools"`, `},{"role":"tool","tool_call_id":"call_1","content":"rain"}],"tools"`},
		{chatPath, chatTools, `"tools"`, `"tool_choice":"none","tools"`},
		{"/v1/responses", responseTools, `"hi"`, `[{"type":"function_call_output","call_id":"call_1","output":"rain"}]`},
		{"/v1/messages", messageTools, `"content":"hi"`, `"content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"rain"}]`},
		{"/v1/messages", messageTools, `"tools"`, `"tool_choice":{"type":"none"},"tools"`},
		{geminiPath, geminiTools, `{"text":"hi"}`, `{"functionResponse":{"name":"weather","response":{"text":"rain"}}}`},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			body := strings.Replace(tt.body, tt.old, tt.new, 1)
			r := send(ctx, serve(t, sim.Config{}), tt.path, body, "Anthropic-Version", anthropicVersion)
			equal(t, "status", r.status, 200)
			contains(t, "answer", r.body, `t":"sim:`+sim.RequestHash([]byte(body)))
			for _, called := range []string{`"tool_calls"`, `"function_call"`, `"tool_use"`, `"functionCall"`} {
				if strings.Contains(r.body, called) {
					t.Errorf("a tool is called: %s", r.body)
				}
			}
		})
	}
}

// The parts of the arguments that a stream brings are together what the whole answer says.
func TestArgumentsOfAToolAreStreamed(t *testing.T) {
	for _, tt := range []struct{ path, body, part, end string }{
		{chatPath, chatTools, `"arguments":"`, `"finish_reason":"tool_calls"`},
		{"/v1/responses", responseTools, `"delta":"`, "event: response.function_call_arguments.done"},
		{"/v1/messages", messageTools, `"partial_json":"`, `"stop_reason":"tool_use"`},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			body := `{"stream":true,` + tt.body[1:]
			r := send(ctx, serve(t, sim.Config{OutputTokens: 10}), tt.path, body, "Anthropic-Version", anthropicVersion)
			parts := ""
			for line := range strings.SplitSeq(r.body, "\n") {
				_, part, ok := strings.Cut(line, tt.part)
				if strings.HasPrefix(line, "data: ") && ok && !strings.Contains(line, "output_item") && !strings.Contains(line, "response\":{") {
					n := 0
					for n < len(part) && (part[n] != '"' || n > 0 && part[n-1] == '\\') {
						n++
					}
					if !strings.Contains(line, "arguments.done") {
						parts += part[:n]
					}
				}
			}
			equal(t, "arguments", parts, `{\"text\":\"sim:`+sim.RequestHash([]byte(body))+` and\"}`)
			contains(t, "stream", r.body, tt.end)
		})
	}
}

func TestCountingTokensOfMessages(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{RPM: 1})
		for range 3 {
			r := send(ctx, s, "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hello, world"}]}`, "Anthropic-Version", anthropicVersion)
			equal(t, "answer", r.body, `{"input_tokens":3}`)
		}
		equal(t, "calls", s.Stats().Answered, 0)
	})
}
