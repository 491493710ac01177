package sim

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"time"
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
	what, kind := "tokens per min (TPM)", "tokens"
	switch s.dimension {
	case requests:
		what, kind = "requests per min (RPM)", "requests"
	case requestsPerDay:
		what, kind = "requests per day (RPD)", "requests"
	case inputTokens:
		what = "input tokens per min (ITPM)"
	case outputTokens:
		what = "output tokens per min (OTPM)"
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

// answer appends the object of the endpoint that was called.
func (o openai) answer(b []byte, c *call) []byte {
	switch c.endpoint {
	case responses:
		return o.response(b, c, true)
	case embeddings:
		return o.embeddings(b, c)
	default:
		return o.completion(b, c)
	}
}

// completion is https://platform.openai.com/docs/api-reference/chat/object
func (o openai) completion(b []byte, c *call) []byte {
	b = o.head(b, c, "chat.completion")
	b = append(b, `,"choices":[`...)
	for i := range c.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = appendInt(b, i)
		b = append(b, `,"message":`...)
		b = o.message(b, c)
		b = append(b, `,"logprobs":null,"finish_reason":"`...)
		b = append(b, o.finish(c)...)
		b = append(b, `"}`...)
	}
	b = append(b, `],"usage":`...)
	b = o.usage(b, c)
	return append(b, `,"service_tier":"default","system_fingerprint":null}`...)
}

// head appends the beginning of a completion or of a chunk of one.
func (openai) head(b []byte, c *call, object string) []byte {
	b = append(b, `{"id":"chatcmpl-`...)
	b = append(b, c.id...)
	b = append(b, `","object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = appendInt(b, int(c.admitted.Unix()))
	b = append(b, `,"model":`...)
	return appendString(b, c.model)
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

func (openai) usage(b []byte, c *call) []byte {
	b = append(b, `{"prompt_tokens":`...)
	b = appendInt(b, c.input)
	b = append(b, `,"completion_tokens":`...)
	b = appendInt(b, c.plan.output)
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, c.input+c.plan.output)
	return append(b, `,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

// embeddingSize is small; real vectors have hundreds of dimensions.
const embeddingSize = 8

// embeddings is https://platform.openai.com/docs/api-reference/embeddings/object
func (openai) embeddings(b []byte, c *call) []byte {
	b = append(b, `{"object":"list","data":[`...)
	for i := range c.prompts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"object":"embedding","index":`...)
		b = appendInt(b, i)
		b = append(b, `,"embedding":`...)
		b = appendVector(b, c, i)
		b = append(b, '}')
	}
	b = append(b, `],"model":`...)
	b = appendString(b, c.model)
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = appendInt(b, c.input)
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, c.input)
	return append(b, `}}`...)
}

// appendVector appends numbers that depend on the request alone.
func appendVector(b []byte, c *call, prompt int) []byte {
	l := newLuck(0, c.hash, uint32(prompt))
	var raw [4 * embeddingSize]byte
	open, end := `[`, `]`
	if c.base64 {
		open, end = `"`, `"`
	}
	b = append(b, open...)
	for i := range embeddingSize {
		// A thousandth of a whole number prints the same in both forms.
		x := math.Round(l.uniform(uint64(i))*2000-1000) / 1000
		if c.base64 {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(x)))
			continue
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%g", x)
	}
	if c.base64 {
		b = base64.StdEncoding.AppendEncode(b, raw[:])
	}
	return append(b, end...)
}

// count is never asked for: the path belongs to others.
func (openai) count(*call) []byte { return nil }

// models is https://platform.openai.com/docs/api-reference/models/list
func (openai) models(names []string, now time.Time) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = appendString(b, name)
		b = append(b, `,"object":"model","created":`...)
		b = appendInt(b, int(now.Unix()))
		b = append(b, `,"owned_by":"sim"}`...)
	}
	return append(b, `]}`...)
}
