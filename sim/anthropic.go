package sim

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// anthropic is the dialect of the Messages API.
type anthropic struct{ plain }

func (anthropic) idHeader() string { return "Request-Id" }

// anthropicError is the body of an error.
// https://docs.anthropic.com/en/api/errors
type anthropicError struct {
	Type      string           `json:"type"`
	Error     anthropicProblem `json:"error"`
	RequestID string           `json:"request_id,omitempty"`
}

type anthropicProblem struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// refusal says every error in words that were seen on the wire.
func (a anthropic) refusal(c *call, r *refusal) (status int, body []byte) {
	status, p := a.problem(c, r)
	return status, marshal(anthropicError{Type: "error", Error: p, RequestID: "req_" + c.id})
}

func (a anthropic) problem(c *call, r *refusal) (status int, p anthropicProblem) {
	if r.throttle() {
		return a.throttle(r)
	}
	status, p.Type = http.StatusBadRequest, "invalid_request_error"
	switch r.reason {
	case reasonServerError:
		// https://github.com/anthropics/claude-code/issues/69242
		return http.StatusInternalServerError, anthropicProblem{"api_error", "Internal server error"}
	case reasonOverloaded:
		return a.overloaded()
	case reasonBadKey, reasonNoKey:
		// https://docs.anthropic.com/en/api/errors
		return http.StatusUnauthorized, anthropicProblem{"authentication_error", "invalid x-api-key"}
	case reasonNotJSON:
		// https://docs.anthropic.com/en/api/errors
		p.Message = "The request body is not valid JSON"
	case reasonWrongType:
		// https://docs.anthropic.com/en/api/errors
		p.Message = r.param + ": Input should have another type"
	case reasonNoVersion:
		// https://github.com/PipedreamHQ/pipedream/issues/9697
		p.Message = "anthropic-version: header is required"
	case reasonNoModel:
		// As for max_tokens.
		p.Message = "model: Field required"
	case reasonNoPrompts:
		// https://github.com/devoxx/DevoxxGenieIDEAPlugin/issues/567
		p.Message = "messages: at least one message is required"
	case reasonNoMaxTokens:
		// https://github.com/tickernelz/opencode-mem/issues/50
		p.Message = "max_tokens: Field required"
	case reasonUnknownModel:
		// https://github.com/continuedev/continue/issues/10287
		return http.StatusNotFound, anthropicProblem{"not_found_error", "model: " + c.model}
	case reasonTooLong:
		// https://docs.anthropic.com/en/api/errors
		return http.StatusRequestEntityTooLarge, anthropicProblem{"request_too_large", "Request exceeds the maximum size"}
	case reasonUnknownPath:
		// https://docs.anthropic.com/en/api/errors
		return http.StatusNotFound, anthropicProblem{"not_found_error", "Not Found"}
	default: // reasonBadRequest
		// https://github.com/anthropics/claude-code/issues/4778
		p.Message = "messages.3.content.8.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"
	}
	return status, p
}

// overloaded is https://github.com/cline/cline/issues/52
func (anthropic) overloaded() (int, anthropicProblem) {
	return statusOverloaded, anthropicProblem{"overloaded_error", "Overloaded"}
}

// throttle says that the account may not now.
func (a anthropic) throttle(r *refusal) (int, anthropicProblem) {
	p := anthropicProblem{Type: "rate_limit_error"}
	switch {
	case r.reason == reasonSpent:
		// https://github.com/anthropics/claude-quickstarts/issues/229
		return http.StatusBadRequest, anthropicProblem{"invalid_request_error",
			"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}
	case r.reason == reasonStorm && r.status != http.StatusTooManyRequests:
		return a.overloaded()
	case r.vague || r.reason == reasonStorm:
		// https://github.com/anthropics/claude-code/issues/26247
		p.Message = "This request would exceed your account's rate limit. Please try again later."
	case r.reason == reasonConcurrent:
		// https://github.com/cline/cline/issues/4351
		p.Message = "Number of concurrent connections has exceeded your rate limit. Please try again later or contact sales at " +
			"https://www.anthropic.com/contact-sales to discuss your options for a rate limit increase."
	default:
		// https://github.com/continuedev/continue/issues/9623
		// https://github.com/stackblitz/bolt.new/issues/8588
		p.Message = "This request would exceed the rate limit for your organization (org-sim) of " + prose.Group(r.shortage.limit) + " " +
			r.shortage.dimension.Counted(" per minute", " per day") +
			". For details, refer to: https://docs.claude.com/en/api/rate-limits. You can see the response headers for current usage. " +
			"Please reduce the prompt length or the maximum tokens requested, or try again later. You may also contact sales at " +
			"https://www.anthropic.com/contact-sales to discuss your options for a rate limit increase."
	}
	return http.StatusTooManyRequests, p
}

// answer is https://docs.anthropic.com/en/api/messages
func (a anthropic) answer(c *call) string {
	return a.head(c) + `"content":[` + a.block(c, true) + `],"stop_reason":"` + a.stopReason(c) + `","stop_sequence":null,"usage":` + a.usage(c, c.plan.output) + `}`
}

func (anthropic) head(c *call) string {
	return `{"id":"msg_` + c.id + `","type":"message","role":"assistant","model":` + quote(c.model) + `,`
}

func (anthropic) stopReason(c *call) string {
	switch {
	case c.cut:
		return "max_tokens"
	case c.tool != "":
		return "tool_use"
	default:
		return "end_turn"
	}
}

func (anthropic) usage(c *call, output int) string {
	return `{"input_tokens":` + strconv.Itoa(c.input) + `,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":` +
		strconv.Itoa(output) + `,"service_tier":"standard"}`
}

// anthropicEvent is a typed event with these members. https://docs.anthropic.com/en/docs/build-with-claude/streaming
func anthropicEvent(kind, members string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + `"` + members + endOfEvent
}

func (a anthropic) open(c *call) string {
	out := anthropicEvent("message_start", `,"message":`+a.head(c)+`"content":[],"stop_reason":null,"stop_sequence":null,"usage":`+a.usage(c, 1)+`}`) +
		anthropicEvent("content_block_start", `,"index":0,"content_block":`+a.block(c, false)) + anthropicEvent("ping", "")
	if c.tool != "" {
		out += a.delta(c, 0, argumentsBegin)
	}
	return out
}

func (anthropic) delta(c *call, _ int, text string) string {
	part := `{"type":"text_delta","text":"`
	if c.tool != "" {
		part = `{"type":"input_json_delta","partial_json":"`
	}
	return anthropicEvent("content_block_delta", `,"index":0,"delta":`+part+text+`"}`)
}

func (a anthropic) close(c *call) (out string) {
	if c.tool != "" {
		out = a.delta(c, 0, argumentsEnd)
	}
	return out + anthropicEvent("content_block_stop", `,"index":0`) + anthropicEvent("message_delta", `,"delta":{"stop_reason":"`+a.stopReason(c)+
		`","stop_sequence":null},"usage":`+a.usage(c, c.plan.output)) + anthropicEvent("message_stop", "")
}

// count is https://docs.anthropic.com/en/api/messages-count-tokens
func (anthropic) count(c *call) string { return `{"input_tokens":` + strconv.Itoa(c.input) + `}` }

// models is https://docs.anthropic.com/en/api/models-list
func (anthropic) models(names []string, now time.Time) string {
	first, last := "null", "null"
	if len(names) > 0 {
		first, last = quote(names[0]), quote(names[len(names)-1])
	}
	return `{"data":[` + list(len(names), func(i int) string {
		name := quote(names[i])
		return `{"type":"model","id":` + name + `,"display_name":` + name + `,"created_at":"` + now.UTC().Format(time.RFC3339) + `"}`
	}) + `],"has_more":false,"first_id":` + first + `,"last_id":` + last + `}`
}
