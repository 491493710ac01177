package sim

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// cohere is the dialect of version 2 of Cohere's Chat API.
type cohere struct{ plain }

func (cohere) idHeader() string { return "" }

// rateHeaders tells the requests of a trial key, as https://github.com/elastic/elasticsearch reads them (CohereResponseHandler.java).
func (cohere) rateHeaders(h *headers, q *[limits.NumDimensions]quota, _ time.Time) {
	if perMinute := &q[limits.Requests]; perMinute.limit > 0 {
		h.set("X-Trial-Endpoint-Call-Limit", strconv.Itoa(perMinute.limit))
		h.set("X-Trial-Endpoint-Call-Remaining", strconv.Itoa(perMinute.remaining))
	}
}

// refusal says every error in words of https://docs.cohere.com/v2/reference/errors.
func (o cohere) refusal(c *call, r *refusal) (status int, body []byte) {
	status, text := o.problem(c, r)
	return status, marshal(struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	}{c.id, text})
}

func (cohere) problem(c *call, r *refusal) (status int, text string) {
	switch {
	case r.reason == reasonSpent:
		return http.StatusPaymentRequired, "Please add or update your payment method at https://dashboard.cohere.com/billing?tab=payment to continue."
	case r.reason == reasonStorm && r.status != http.StatusTooManyRequests, r.reason == reasonOverloaded:
		return http.StatusServiceUnavailable, "service unavailable"
	case r.reason == reasonShortage && r.shortage.dimension == limits.Requests && !r.vague:
		return http.StatusTooManyRequests, "You are using a Trial key, which is limited to " + strconv.Itoa(r.shortage.limit) + " API calls / minute."
	case r.throttle():
		return http.StatusTooManyRequests, "You are past the per minute request limit, please wait and try again later."
	}
	switch r.reason {
	case reasonServerError:
		return http.StatusInternalServerError, "internal server error, this has been reported to our developers."
	case reasonNoKey:
		return http.StatusUnauthorized, "no api key supplied"
	case reasonBadKey:
		return http.StatusUnauthorized, "invalid api token"
	case reasonUnknownModel:
		return http.StatusNotFound, "model '" + c.model + "' not found, make sure the correct model ID was used and that you have access to the model."
	case reasonUnknownPath:
		return http.StatusNotFound, "404 page not found"
	case reasonNoModel:
		return http.StatusBadRequest, "invalid request: model is required"
	case reasonNoPrompts:
		return http.StatusBadRequest, "invalid request: messages must not be empty"
	case reasonTooLong:
		return http.StatusRequestEntityTooLarge, "invalid request: the body is too large"
	case reasonWrongType:
		return http.StatusBadRequest, "invalid request: " + r.param + " has another type"
	}
	return http.StatusBadRequest, "invalid request: the body is not valid"
}

// answer is https://docs.cohere.com/v2/reference/chat#response
func (o cohere) answer(c *call) string {
	return `{"id":"` + c.id + `","message":` + o.message(c) + `,` + o.end(c) + `}`
}

func (cohere) message(c *call) string {
	if c.tool != "" { // https://docs.cohere.com/v2/docs/tool-use-overview
		return `{"role":"assistant","tool_plan":"","tool_calls":[{"id":"call_` + c.id + `","type":"function","function":{"name":` + quote(c.tool) + `,"arguments":` + c.arguments() + `}}]}`
	}
	return `{"role":"assistant","content":[{"type":"text","text":"` + c.text(0, c.perChoice) + `"}]}`
}

// end is how the message ended, and its usage.
func (cohere) end(c *call) string {
	finish := "COMPLETE"
	switch {
	case c.cut:
		finish = "MAX_TOKENS"
	case c.tool != "":
		finish = "TOOL_CALL"
	}
	tokens := `{"input_tokens":` + strconv.Itoa(c.input) + `,"output_tokens":` + strconv.Itoa(c.plan.output) + `}`
	return `"finish_reason":"` + finish + `","usage":{"billed_units":` + tokens + `,"tokens":` + tokens + `}`
}

// cohereEvent is an event of a stream. https://docs.cohere.com/v2/docs/streaming
func cohereEvent(kind, members string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + `"` + members + endOfEvent
}

// coherePart is an event with a part of the message.
func coherePart(kind, part string) string {
	return cohereEvent(kind, `,"index":0,"delta":{"message":{`+part+`}}`)
}

func (o cohere) open(c *call) string {
	out := cohereEvent("message-start", `,"id":"`+c.id+`","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[],"citations":[]}}`)
	if c.tool != "" {
		return out + coherePart("tool-call-start", `"tool_calls":{"id":"call_`+c.id+`","type":"function","function":{"name":`+quote(c.tool)+`,"arguments":"`+argumentsBegin+`"}}`)
	}
	return out + coherePart("content-start", `"content":{"type":"text","text":""}`)
}

func (cohere) delta(c *call, _ int, text string) string {
	if c.tool != "" {
		return coherePart("tool-call-delta", `"tool_calls":{"function":{"arguments":"`+text+`"}}`)
	}
	return coherePart("content-delta", `"content":{"text":"`+text+`"}`)
}

func (o cohere) close(c *call) (out string) {
	kind := "content-end"
	if c.tool != "" {
		out, kind = o.delta(c, 0, argumentsEnd), "tool-call-end"
	}
	return out + cohereEvent(kind, `,"index":0`) + cohereEvent("message-end", `,"id":"`+c.id+`","delta":{`+o.end(c)+`}`)
}

// count is not used: the path belongs to others.
func (cohere) count(*call) string { return "" }

// models is not used: the path belongs to others.
func (cohere) models([]string, time.Time) string { return "" }
