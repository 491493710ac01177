package provider

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// anthropic is the dialect of the Messages API.
type anthropic struct{}

// anthropicVersion is the API version that a client names. The newer one, 2026-10-21, refuses temperature, top_p and top_k, which
// people's requests have (https://platform.claude.com/docs/en/api/versioning).
const anthropicVersion = "2023-06-01"

func (anthropic) facts() facts {
	return facts{name: "anthropic", auth: Auth{Header: "X-Api-Key"}, header: map[string]string{"Anthropic-Version": anthropicVersion}, inputApart: true, messages: Messages, endpoints: map[Endpoint]spec{
		Messages: {path: "/v1/messages", ending: "/v1/messages", // with /v1: OpenAI has /v1/threads/x/messages
			count: "/v1/messages/count_tokens", bound: "max_tokens", otherwise: 4096,
			turns: messageTurns(), prompt: messagesPrompt, fold: newMessageFold,
			// https://platform.claude.com/docs/en/api/beta/messages/create, as of anthropic-sdk-go v1.84.0. betas is of Bedrock and Vertex.
			fields: `anthropic_version betas cache_control compaction container context_management diagnostics fallback_credit_token fallbacks
				inference_geo max_tokens mcp_servers messages metadata model output_config output_format service_tier speed stop_sequences stream
				system temperature thinking tool_choice tools top_k top_p`},
	}, request: map[string]func(*estimate){
		"system": (*estimate).content,
	}, response: map[string]func(*summary, *jsonscan.Scanner){
		"content":      (*summary).readParts,
		"stop_reason":  func(sum *summary, s *jsonscan.Scanner) { sum.finish = cmp.Or(word(s), sum.finish) },
		"stop_details": func(sum *summary, s *jsonscan.Scanner) { sum.readReason(s, "", "explanation") },
	}, usage: map[string]figure{
		// input_tokens leaves the cached ones out (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching, "tracking cache
		// performance"). In a stream a later usage object states only what changed, so a figure that is absent keeps its value.
		"cache_creation_input_tokens": createdTokens, "ephemeral_1h_input_tokens": createdHourTokens, "cache_read_input_tokens": cachedTokens,
		"cache_creation": moreFigures, "server_tool_use": toolCalls,
	}, event: map[string]func(*meter){
		"delta": (*meter).readDelta, "message": (*meter).readResponse,
	}, last: map[string]bool{"message_stop": true}}
}

func (anthropic) isFrom(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/messages") || r.Header.Get("Anthropic-Version") != ""
}

func (anthropic) address(base, path string, _ Dialect) (before, after string) {
	if strings.HasSuffix(base, "/v1") {
		path = strings.TrimPrefix(path, "/v1")
	}
	return base, path
}

func (anthropic) promptEndpoint(string) Endpoint { return Messages }

// messagesPrompt has a place for system beside the messages.
func messagesPrompt(b []byte, model string, prompt, system []byte) []byte {
	b = namedModel(b, model)
	if system != nil {
		b = append(append(b, `,"system":`...), system...)
	}
	return append(appendTurn(append(b, `,"messages":[`...), "user", prompt), ']')
}

// errorTypes are the types of errors by their status (https://docs.anthropic.com/en/api/errors).
var errorTypes = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusUnsupportedMediaType:  "invalid_request_error",
	http.StatusRequestTimeout:        "timeout_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

func (anthropic) refusal(r Refusal, _ Endpoint) (event string, doc any) {
	kind := cmp.Or(errorTypes[r.Status], "api_error")
	return "error", map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": r.Message, "code": r.Kind}}
}

func (anthropic) model(name string) any {
	return map[string]any{"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
}

func (anthropic) models(entries []any, names []string) any {
	page := map[string]any{"data": entries, "has_more": false, "first_id": nil, "last_id": nil}
	if len(names) > 0 {
		page["first_id"], page["last_id"] = names[0], names[len(names)-1]
	}
	return page
}

// messageFold folds the events of an Anthropic message
// (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
type messageFold struct {
	msg    map[string]any
	blocks map[int]map[string]any
}

func newMessageFold() fold { return &messageFold{blocks: map[int]map[string]any{}} }

func (f *messageFold) event(ev map[string]any) {
	switch ev["type"] {
	case "message_start":
		if m, ok := ev["message"].(map[string]any); ok {
			f.msg = m
		}
	case "content_block_start":
		if b, ok := ev["content_block"].(map[string]any); ok {
			block := map[string]any{}
			merge(block, b)
			f.blocks[index(ev["index"])] = block
		}
	case "content_block_delta":
		block := f.blocks[index(ev["index"])]
		delta, ok := ev["delta"].(map[string]any)
		if block == nil || !ok {
			return
		}
		delete(delta, "type")
		if c, ok := delta["citation"]; ok {
			delete(delta, "citation")
			delta["citations"] = []any{c}
		}
		merge(block, delta)
	case "message_delta":
		if f.msg == nil {
			return
		}
		if d, ok := ev["delta"].(map[string]any); ok {
			maps.Copy(f.msg, d)
		}
		usage, _ := f.msg["usage"].(map[string]any)
		if u, ok := ev["usage"].(map[string]any); ok && usage != nil {
			maps.Copy(usage, u)
		} else if ok {
			f.msg["usage"] = u
		}
	}
}

func (f *messageFold) message() []byte {
	if f.msg == nil {
		return nil
	}
	list := []any{}
	for _, i := range slices.Sorted(maps.Keys(f.blocks)) {
		block := f.blocks[i]
		if part, ok := block["partial_json"].(*text); ok {
			delete(block, "partial_json")
			// A tool called without arguments streams none: its input stays {}.
			if input := part.bytes(); jsonscan.Valid(input) {
				block["input"] = json.RawMessage(input)
			}
		}
		list = append(list, block)
	}
	f.msg["content"] = list
	return encode(f.msg)
}
