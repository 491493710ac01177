package sim

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// openai is the dialect of OpenAI and of the many who imitate it.
type openai struct{ plain }

func (openai) idHeader() string { return "X-Request-Id" }

// openaiError is the body of an error.
// https://platform.openai.com/docs/guides/error-codes
type openaiError struct {
	Error openaiProblem `json:"error"`
}

type openaiProblem struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// refusal says every error in words that were seen on the wire.
func (o openai) refusal(c *call, r *refusal) (status int, body []byte) {
	if r.throttle() {
		status, p := o.throttle(c, r)
		return status, marshal(openaiError{p})
	}
	status = http.StatusBadRequest
	p := openaiProblem{Type: "invalid_request_error"}
	switch r.reason {
	case reasonServerError:
		// https://platform.openai.com/docs/guides/error-codes
		status = http.StatusInternalServerError
		p.Type = "server_error"
		p.Message = "The server had an error while processing your request. Sorry about that!"
	case reasonOverloaded:
		status, p = o.overloaded()
	case reasonBadKey, reasonNoKey:
		// https://github.com/continuedev/continue/issues/9643
		status = http.StatusUnauthorized
		p.Message = "Incorrect API key provided: sk-***. You can find your API key at https://platform.openai.com/account/api-keys."
		p.Code = new("invalid_api_key")
	case reasonNotJSON:
		// https://github.com/chatboxai/chatbox/issues/812
		p.Message = "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you have trouble figuring out how to fix this, please contact us through our help center at help.openai.com.)"
	case reasonWrongType:
		// https://platform.openai.com/docs/guides/error-codes
		p.Message = "Invalid type for '" + r.param + "'."
		p.Param, p.Code = &r.param, new("invalid_type")
	case reasonNoModel:
		// https://github.com/transitive-bullshit/agentic/issues/530
		p.Message = "you must provide a model parameter"
	case reasonNoPrompts:
		// https://github.com/SilasMarvin/lsp-ai/issues/108
		param := "input"
		if c.endpoint == chat {
			param = "messages"
		}
		p.Message = "Missing required parameter: '" + param + "'."
		p.Param, p.Code = &param, new("missing_required_parameter")
	case reasonUnknownModel:
		// https://github.com/ATH-MaaS/ComfyUI-Copilot/issues/116
		status = http.StatusNotFound
		p.Message = "The model `" + c.model + "` does not exist or you do not have access to it."
		p.Code = new("model_not_found")
	case reasonTooLong:
		status = http.StatusRequestEntityTooLarge
		p.Message = "Request body is too large."
	case reasonUnknownPath:
		// https://platform.openai.com/docs/guides/error-codes
		status = http.StatusNotFound
		p.Message = "Invalid URL (" + r.param + ")"
	default: // reasonBadRequest
		// https://github.com/gabrii/Cursor-Azure-GPT-5/issues/33
		p.Message = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
		p.Param, p.Code = new("temperature"), new("unsupported_value")
	}
	return status, marshal(openaiError{p})
}

// overloaded is https://github.com/Wei-Shaw/sub2api/issues/6631
func (openai) overloaded() (int, openaiProblem) {
	return http.StatusServiceUnavailable, openaiProblem{
		Message: "Our servers are currently overloaded. Please try again later.",
		Type:    "service_unavailable_error",
		Code:    new("server_is_overloaded"),
	}
}

// throttle says that the account may not now.
func (o openai) throttle(c *call, r *refusal) (int, openaiProblem) {
	// Bare, as https://github.com/TonyStef/Grov/issues/56
	p := openaiProblem{Message: "Rate limit reached", Type: "rate_limit_error", Code: new("rate_limit_exceeded")}
	switch {
	case r.reason == reasonSpent:
		// https://github.com/Center-for-AI-Innovation/ai-ta-backend/issues/67
		p.Message = "You exceeded your current quota, please check your plan and billing details."
		p.Type, p.Code = "insufficient_quota", new("insufficient_quota")
	case r.reason == reasonStorm && r.status != http.StatusTooManyRequests:
		return o.overloaded()
	case r.vague || r.reason == reasonStorm:
	case r.reason == reasonConcurrent:
		// https://github.com/QwenLM/qwen-code/issues/3409
		p.Message = "Too many concurrent requests for this model"
	case r.reason == reasonShortage:
		p.Message, p.Type = shortageText(c, &r.shortage)
	}
	return http.StatusTooManyRequests, p
}

// shortageText explains a shortage.
// https://github.com/BuilderIO/micro-agent/issues/86
// https://github.com/DrShushen/climb/issues/13 (too large)
// https://github.com/openai/openai-agents-js/issues/1022 (per day)
func shortageText(c *call, s *shortage) (message, kind string) {
	what, kind := s.dimension.Counted(" per min", " per day")+" ("+s.dimension.Field()+")", "tokens"
	if s.dimension.Per(time.Minute) == limits.Requests {
		kind = "requests"
	}
	if s.tooLarge {
		return fmt.Sprintf("Request too large for %s in organization org-sim on %s: Limit %d, Requested %d. "+
			"The input or output tokens must be reduced in order to run successfully. "+
			"Visit https://platform.openai.com/account/rate-limits to learn more.",
			c.model, what, s.limit, s.requested), kind
	}
	return fmt.Sprintf("Rate limit reached for %s in organization org-sim on %s: Limit %d, Used %d, Requested %d. "+
		"Please try again in %s. Visit https://platform.openai.com/account/rate-limits to learn more.",
		c.model, what, s.limit, s.used, s.requested, waitText(s.wait)), kind
}

// answer is the object of the endpoint that was called.
func (o openai) answer(c *call) string {
	switch c.endpoint {
	case responses:
		return o.response(c, true)
	case embeddings:
		return o.embeddings(c)
	default:
		return o.completion(c)
	}
}

// completion is https://platform.openai.com/docs/api-reference/chat/object
func (o openai) completion(c *call) string {
	return o.head(c, "chat.completion") + `,"choices":[` + list(c.choices, func(i int) string {
		return `{"index":` + strconv.Itoa(i) + `,"message":` + o.message(c) + `,"logprobs":null,"finish_reason":"` + o.finish(c) + `"}`
	}) + `],"usage":` + o.usage(c) + `,"service_tier":"default","system_fingerprint":null}`
}

// list is n elements.
func list(n int, element func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element(i)
	}
	return strings.Join(all, ",")
}

// head begins a completion or a chunk of one.
func (openai) head(c *call, object string) string {
	return `{"id":"chatcmpl-` + c.id + `","object":"` + object + `","created":` + strconv.FormatInt(c.admitted.Unix(), 10) + `,"model":` + quote(c.model)
}

func (openai) finish(c *call) string {
	switch {
	case c.cut:
		return "length"
	case c.tool != "":
		return "tool_calls"
	default:
		return "stop"
	}
}

func (openai) usage(c *call) string {
	return `{"prompt_tokens":` + strconv.Itoa(c.input) + `,"completion_tokens":` + strconv.Itoa(c.plan.output) +
		`,"total_tokens":` + strconv.Itoa(c.input+c.plan.output) + `,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`
}

// embeddingSize is small; real vectors have hundreds of dimensions.
const embeddingSize = 8

// embeddings is https://platform.openai.com/docs/api-reference/embeddings/object
func (openai) embeddings(c *call) string {
	input := strconv.Itoa(c.input)
	return `{"object":"list","data":[` + list(c.prompts, func(i int) string {
		return `{"object":"embedding","index":` + strconv.Itoa(i) + `,"embedding":` + vector(c, i) + `}`
	}) + `],"model":` + quote(c.model) + `,"usage":{"prompt_tokens":` + input + `,"total_tokens":` + input + `}}`
}

// vector is numbers that depend on the request only.
func vector(c *call, prompt int) string {
	l := newLuck(0, c.hash, uint32(prompt))
	var raw []byte
	numbers := list(embeddingSize, func(i int) string {
		// A thousandth of a whole number prints the same in both forms.
		x := math.Round(l.uniform(uint64(i))*2000-1000) / 1000
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(x)))
		return fmt.Sprintf("%g", x)
	})
	if c.base64 {
		return quote(base64.StdEncoding.EncodeToString(raw))
	}
	return `[` + numbers + `]`
}

// count is not used: the path belongs to others.
func (openai) count(*call) string { return "" }

// models is https://platform.openai.com/docs/api-reference/models/list
func (openai) models(names []string, now time.Time) string {
	return `{"object":"list","data":[` + list(len(names), func(i int) string {
		return `{"id":` + quote(names[i]) + `,"object":"model","created":` + strconv.FormatInt(now.Unix(), 10) + `,"owned_by":"sim"}`
	}) + `]}`
}

// open begins a stream with the role of each choice. https://platform.openai.com/docs/api-reference/chat-streaming
func (o openai) open(c *call) (out string) {
	if c.endpoint == responses {
		return o.openResponse(c)
	}
	for i := range c.choices {
		if c.tool == "" {
			out += o.chunk(c, i, `{"role":"assistant","content":"","refusal":null}`, `null`)
			continue
		}
		out += o.chunk(c, i, `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_`+c.id+
			`","type":"function","function":{"name":`+quote(c.tool)+`,"arguments":""}}],"refusal":null}`, `null`) + o.toolChunk(c, i, argumentsBegin)
	}
	return out
}

func (o openai) delta(c *call, choice int, text string) string {
	switch {
	case c.endpoint == responses && c.tool != "":
		return toolEvent(c, "delta", "delta", `"`+text+`"`)
	case c.endpoint == responses:
		return responseEvent(c, "response.output_text.delta", inItem(c)+`,"delta":"`+text+`"`)
	case c.tool != "":
		return o.toolChunk(c, choice, text)
	}
	return o.chunk(c, choice, `{"content":"`+text+`"}`, `null`)
}

func (o openai) close(c *call) (out string) {
	if c.endpoint == responses {
		return o.closeResponse(c)
	}
	for i := range c.choices {
		if c.tool != "" {
			out += o.toolChunk(c, i, argumentsEnd)
		}
		out += o.chunk(c, i, `{}`, `"`+o.finish(c)+`"`)
	}
	if c.includeUsage {
		out += "data: " + o.head(c, "chat.completion.chunk") + `,"service_tier":"default","system_fingerprint":null,"choices":[],"usage":` + o.usage(c) + endOfEvent
	}
	return out + "data: [DONE]\n\n"
}

func (o openai) chunk(c *call, choice int, delta, finish string) string {
	usage := ""
	if c.includeUsage {
		usage = `,"usage":null`
	}
	return "data: " + o.head(c, "chat.completion.chunk") + `,"service_tier":"default","system_fingerprint":null,"choices":[{"index":` + strconv.Itoa(choice) +
		`,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `}]` + usage + endOfEvent
}

func (o openai) toolChunk(c *call, choice int, text string) string {
	return o.chunk(c, choice, `{"tool_calls":[{"index":0,"function":{"arguments":"`+text+`"}}]}`, `null`)
}
