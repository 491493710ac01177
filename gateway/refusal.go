package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// refusal is what the gateway answers by itself, in the form that the client's API has for errors.
type refusal struct {
	status  int
	kind    string // queue_full, queue_timeout, quota_exhausted, invalid_request, ...
	message string
	after   time.Duration // when to come again; 0 is not said
}

// Statuses of Gemini's errors, by those of HTTP (https://cloud.google.com/apis/design/errors).
var geminiStatus = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusForbidden:             "PERMISSION_DENIED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusMethodNotAllowed:      "INVALID_ARGUMENT",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	http.StatusUnsupportedMediaType:  "INVALID_ARGUMENT",
	http.StatusRequestTimeout:        "DEADLINE_EXCEEDED",
	http.StatusTooManyRequests:       "RESOURCE_EXHAUSTED",
	http.StatusBadGateway:            "UNAVAILABLE",
	http.StatusServiceUnavailable:    "UNAVAILABLE",
	http.StatusGatewayTimeout:        "DEADLINE_EXCEEDED",
}

// Types of Anthropic's errors, by their status (https://docs.anthropic.com/en/api/errors).
var anthropicType = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusUnsupportedMediaType:  "invalid_request_error",
	http.StatusRequestTimeout:        "timeout_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusBadGateway:            "api_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

// refuse answers with a refusal. Its kind stands in the header x-sluice-error, and where the dialect has a place for it.
func refuse(w http.ResponseWriter, d provider.Dialect, r refusal) {
	if v, ok := w.(*visit); ok {
		v.refused = r.kind
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Sluice-Error", r.kind)
	if r.after > 0 {
		ms := r.after.Milliseconds()
		if r.after%time.Millisecond > 0 {
			ms++
		}
		h.Set("Retry-After", strconv.FormatInt((ms+999)/1000, 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(ms, 10))
	} else {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body(d))
}

// event is the refusal as an event of a stream whose head is sent already.
func (r refusal) event(e provider.Endpoint) []byte {
	data := bytes.TrimSuffix(r.body(e.Dialect()), []byte("\n"))
	name := ""
	switch {
	case e == provider.Responses: // https://platform.openai.com/docs/api-reference/responses-streaming/error
		name = "event: error\n"
		data = encoded(map[string]any{"type": "error", "code": r.kind, "message": r.message, "param": nil, "sequence_number": 0})
	case e.Dialect() == provider.Anthropic:
		name = "event: error\n"
	}
	return slices.Concat([]byte(name), []byte("data: "), data, []byte("\n\n"))
}

// body is the refusal as a document.
func (r refusal) body(d provider.Dialect) []byte {
	var doc any
	switch d {
	case provider.Anthropic:
		kind := anthropicType[r.status]
		if kind == "" {
			kind = "api_error"
		}
		doc = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": r.message, "code": r.kind}}
	case provider.Gemini:
		status := geminiStatus[r.status]
		if status == "" {
			status = "UNKNOWN"
		}
		doc = map[string]any{"error": map[string]any{"code": r.status, "message": r.message, "status": status,
			"details": []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": r.kind, "domain": "sluice"}}}}
	default:
		kind := "sluice_error"
		if r.status == http.StatusTooManyRequests {
			kind = "rate_limit_error"
		} else if r.status < 500 {
			kind = "invalid_request_error"
		}
		doc = map[string]any{"error": map[string]any{"message": r.message, "type": kind, "param": nil, "code": r.kind}}
	}
	return append(encoded(doc), '\n')
}

func encoded(doc any) []byte {
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return b
}
