package provider

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// openAI is the dialect of OpenAI, and of everybody who is compatible with it.
type openAI struct{}

// messageTurns is a conversation as most APIs have it.
func messageTurns() *turns { return &turns{"messages", openList, appendTurn} }

func (openAI) facts() facts {
	return facts{name: "openai", auth: Auth{Header: "Authorization", Prefix: "Bearer "}, endpoints: map[Endpoint]spec{
		ChatCompletions: {path: "/v1/chat/completions", ending: "/chat/completions", bound: "max_tokens", turns: messageTurns(), fields: chatFields},
		Responses: {path: "/v1/responses", ending: "/responses", bound: "max_output_tokens", status: true, turns: &turns{"input", openInput, appendTurn},
			fold: func() fold { return &responseFold{} },
			// https://platform.openai.com/docs/api-reference/responses/create, as of openai-go v3.95.0. Codex sends client_metadata.
			fields: `access_programs background client_metadata context_management conversation include input instructions
				max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key
				prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text
				tool_choice tools top_logprobs top_p truncation user`},
		Embeddings: {path: "/v1/embeddings", ending: "/embeddings", embeds: true, prompt: embeddingPrompt,
			// https://platform.openai.com/docs/api-reference/embeddings/create, as of openai-go v3.95.0; https://docs.mistral.ai/api and
			// https://docs.cohere.com/reference/embed, by their interfaces that are compatible with OpenAI's.
			fields: `dimensions encoding_format input model user output_dimension output_dtype input_type truncate truncate_prompt_tokens`},
		Completions: {path: "/v1/completions", bound: "max_tokens", prompt: completionPrompt,
			// https://platform.openai.com/docs/api-reference/completions/create.
			fields: `best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed stop stream
				stream_options suffix temperature top_p user`},
	}, request: map[string]func(*estimate){
		"max_tokens": (*estimate).readBound, "max_completion_tokens": (*estimate).readBound, "max_output_tokens": (*estimate).readBound,
		"n": (*estimate).readAnswers, "messages": (*estimate).content, "input": (*estimate).content, "instructions": (*estimate).content,
		"prompt": (*estimate).content, "tools": (*estimate).words, "functions": (*estimate).words, "response_format": (*estimate).words,
		"text": (*estimate).words,
	}, response: map[string]func(*summary, *jsonscan.Scanner){
		"choices": (*summary).readChoices, "output": (*summary).readOutput, "data": (*summary).readEmbedding, "service_tier": (*summary).readService,
		"status":             func(sum *summary, s *jsonscan.Scanner) { sum.status = word(s) },
		"incomplete_details": func(sum *summary, s *jsonscan.Scanner) { sum.readReason(s, "reason", "") },
		"base_resp":          (*summary).readBase,
	}, usage: map[string]figure{
		"prompt_tokens": inputTokens, "input_tokens": inputTokens, "completion_tokens": outputTokens, "output_tokens": outputTokens,
		"cached_tokens": cachedTokens, "prompt_cache_hit_tokens": cachedTokens, "cache_write_tokens": createdTokens,
		"reasoning_tokens": reasoningTokens, "total_tokens": totalTokens, "server_side_tool_usage_details": toolCalls, "service_tier": serviceTier,
		"prompt_tokens_details": moreFigures, "input_tokens_details": moreFigures, "completion_tokens_details": moreFigures,
	}, event: map[string]func(*meter){
		"choices": (*meter).readChoices, "delta": (*meter).readDelta, "response": (*meter).readResponse,
	}, last: map[string]bool{"response.completed": true, "response.incomplete": true, "response.failed": false}}
}

// chatFields are the fields of chat completions, of which most servers have some.
const chatFields =
// https://platform.openai.com/docs/api-reference/chat/create, as of openai-go v3.95.0.
`audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages
	metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
	prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream stream_options
	temperature tool_choice tools top_logprobs top_p user verbosity web_search_options ` +
	// https://docs.vllm.ai/en/latest/serving/openai_compatible_server/#extra-parameters, but priority, which is not the client's to set.
	`add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt chat_template_kwargs
	continue_final_message documents echo guided_choice guided_grammar guided_json guided_regex ignore_eos include_reasoning
	include_stop_str_in_output length_penalty min_p min_tokens prompt_logprobs repetition_penalty return_token_ids
	skip_special_tokens spaces_between_special_tokens stop_token_ids structured_outputs top_k truncate_prompt_tokens use_beam_search ` +
	// https://api-docs.deepseek.com/api/create-chat-completion, https://docs.mistral.ai/api, https://console.groq.com/docs/api-reference,
	// https://openrouter.ai/docs/api-reference/parameters, https://www.alibabacloud.com/help/en/model-studio/use-qwen-by-calling-api.
	`thinking prompt_mode random_seed safe_prompt reasoning_format reasoning top_a usage enable_thinking thinking_budget`

// isFrom is false: a client that is of no other dialect is taken for one of OpenAI's.
func (openAI) isFrom(*http.Request) bool { return false }

// address gives a base that is only a host the /v1 that such servers want.
func (openAI) address(base, path string, _ Dialect) (before, after string) {
	if _, host, _ := strings.Cut(base, "://"); strings.Contains(host, "/") || strings.HasSuffix(base, "/v1") {
		path = strings.TrimPrefix(path, "/v1")
	}
	return base, path
}

func (openAI) promptEndpoint(model string) Endpoint {
	switch {
	case strings.Contains(model, "embed"):
		return Embeddings
	case completes(model):
		return Completions
	}
	return ChatCompletions
}

// completes reports whether a model is one of OpenAI's from before chat (https://platform.openai.com/docs/deprecations).
func completes(model string) bool {
	model = strings.TrimPrefix(model, "text-")
	if strings.HasPrefix(model, "gpt-3.5-turbo-instruct") {
		return true
	}
	name, _, _ := strings.Cut(model, "-")
	return name == "davinci" || name == "curie" || name == "babbage" || name == "ada"
}

// chatPrompt is the prompt function of endpoints that take messages.
func chatPrompt(b []byte, model string, prompt, system []byte) []byte {
	b = append(namedModel(b, model), `,"messages":[`...)
	if system != nil {
		b = append(appendTurn(b, "system", system), ',')
	}
	return append(appendTurn(b, "user", prompt), ']')
}

func embeddingPrompt(b []byte, model string, prompt, _ []byte) []byte {
	return append(append(namedModel(b, model), `,"input":`...), prompt...)
}

// completionPrompt puts system before the prompt as text.
func completionPrompt(b []byte, model string, prompt, system []byte) []byte {
	b = append(namedModel(b, model), `,"prompt":`...)
	if system != nil {
		b = append(append(b, system[:len(system)-1]...), `\n\n`...)
		prompt = prompt[1:]
	}
	return append(b, prompt...)
}

func namedModel(b []byte, model string) []byte {
	return jsonscan.AppendString(append(b, `{"model":`...), model)
}

// appendTurn appends one turn, whose text is a JSON string.
func appendTurn(b []byte, role string, text []byte) []byte {
	b = append(b, `{"role":"`+role+`","content":`...)
	b = append(b, text...)
	return append(b, '}')
}

// openInput opens the input of a response, which may be a text.
func openInput(b, input []byte) []byte {
	if input[0] == '"' {
		return appendTurn(append(b, '['), "user", input)
	}
	return openList(b, input)
}

// readBase reads base_resp of MiniMax, which answers 200 to everything: a status other than 0 is an error.
func (sum *summary) readBase(s *jsonscan.Scanner) {
	for name := range s.Members {
		if string(name) != "status_code" {
			s.Skip()
		} else if n, ok := s.Number(); ok && n != 0 {
			sum.isError = true
		}
	}
}

// readOutput reads the items of a responses object, and counts the calls of OpenAI's own tools among them.
func (sum *summary) readOutput(s *jsonscan.Scanner) {
	if sum.content != nil || s.Peek() != '[' {
		sum.readParts(s)
		return
	}
	sum.hasPlace = true
	sum.counts.searches, sum.counts.otherTools = 0, 0
	for range s.Elements {
		for name := range s.Members {
			if string(name) != "type" {
				sum.hasBody = holdsMember(s, name, sum.hasBody)
				continue
			}
			switch word(s) {
			case "web_search_call":
				sum.counts.searches++
			case "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call":
				sum.counts.otherTools++
			}
		}
	}
	sum.usage.Searches, sum.usage.OtherTools = int(sum.counts.searches), int(sum.counts.otherTools)
}

func (openAI) refusal(r Refusal, in Endpoint) (event string, doc any) {
	if in == Responses { // https://platform.openai.com/docs/api-reference/responses-streaming/error
		return "error", map[string]any{"type": "error", "code": r.Kind, "message": r.Message, "param": nil, "sequence_number": 0}
	}
	kind := "sluice_error"
	if r.Status == http.StatusTooManyRequests {
		kind = "rate_limit_error"
	} else if r.Status < 500 {
		kind = "invalid_request_error"
	}
	var field any
	if r.Field != "" {
		field = r.Field
	}
	return "", map[string]any{"error": map[string]any{"message": r.Message, "type": kind, "param": field, "code": r.Kind}}
}

func (openAI) model(name string) any {
	return map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "sluice"}
}

func (openAI) models(entries []any, _ []string) any {
	return map[string]any{"object": "list", "data": entries}
}

// chatFold folds chat completion chunks.
type chatFold struct {
	top     map[string]any
	choices map[int]map[string]any
}

func newChatFold() fold { return &chatFold{top: map[string]any{}, choices: map[int]map[string]any{}} }

func (f *chatFold) event(chunk map[string]any) {
	list, _ := chunk["choices"].([]any)
	delete(chunk, "choices")
	for k, v := range chunk {
		if v != nil {
			f.top[k] = v
		}
	}
	for _, item := range list {
		choice, ok := item.(map[string]any)
		if !ok {
			continue
		}
		i := index(choice["index"])
		if f.choices[i] == nil {
			f.choices[i] = map[string]any{"message": map[string]any{"role": "assistant", "content": nil}, "finish_reason": nil}
		}
		if text, ok := choice["text"].(string); ok { // of old completions
			before, _ := f.choices[i]["text"].(string)
			choice["text"] = before + text // which stands for all so far below
		}
		if delta, ok := choice["delta"].(map[string]any); ok {
			merge(f.choices[i]["message"].(map[string]any), delta)
		}
		delete(choice, "delta")
		if _, ok := choice["message"].(map[string]any); !ok {
			delete(choice, "message") // a text in its place would replace the message
		}
		merge(f.choices[i], choice)
		f.choices[i]["index"] = i
	}
}

func (f *chatFold) message() []byte {
	list := []any{}
	for _, i := range slices.Sorted(maps.Keys(f.choices)) {
		choice := f.choices[i]
		if calls, ok := choice["message"].(map[string]any)["tool_calls"].([]any); ok {
			for _, call := range calls {
				if c, ok := call.(map[string]any); ok {
					delete(c, "index") // it only told the pieces apart
				}
			}
		}
		list = append(list, choice)
	}
	f.top["choices"] = list
	f.top["object"] = "chat.completion"
	return encode(f.top)
}

// responseFold takes the whole response from the event that ends the stream. Servers that leave its output empty have
// sent the items one by one.
type responseFold struct {
	response map[string]any
	items    []any
}

func (f *responseFold) event(ev map[string]any) {
	if r, ok := ev["response"].(map[string]any); ok {
		f.response = r
	}
	if ev["type"] == "response.output_item.done" && ev["item"] != nil {
		f.items = append(f.items, ev["item"])
	}
}

func (f *responseFold) message() []byte {
	if f.response == nil {
		return nil
	}
	if out, _ := f.response["output"].([]any); len(out) == 0 && len(f.items) > 0 {
		f.response["output"] = f.items
	}
	return encode(f.response)
}
