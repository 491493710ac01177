package simbatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// anthropicAPI is Anthropic's Batch API. It keeps no metadata.
// https://docs.anthropic.com/en/docs/build-with-claude/batch-processing
// https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/types/messages/message_batch.py
var anthropicAPI = &api{
	lists:     map[string]list{"batch": {path: "/v1/messages/batches", prefix: "msgbatch_", usual: 20, max: 1000}},
	separator: "/", endpoint: "/v1/messages",
	// https://docs.anthropic.com/en/docs/build-with-claude/batch-processing#batch-limitations
	requests: 100_000, bytes: 256 << 20,
	members: []string{"custom_id", "params"},
	// https://docs.anthropic.com/en/api/creating-message-batches#body-requests-custom-id
	ids:    regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`),
	states: [...]string{"in_progress", "in_progress", "in_progress", "canceling", "ended", "ended", "ended", "ended", "ended"},
	ends:   ends{partial: true},
	kinds: map[int]string{http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
		http.StatusTooManyRequests: "rate_limit_error", 0: "invalid_request_error"},
	form: anthropic{},
	problems: map[string]problem{
		"no_route":    {status: http.StatusNotFound, message: "Not Found"},
		"no_batch":    {status: http.StatusNotFound, message: "Message batch {id} not found"},
		"no_results":  {status: http.StatusNotFound, message: "Message batch {id} has no available results"},
		"in_progress": {status: http.StatusBadRequest, message: "Message batch {id} is still in progress; cancel it first"},
		"json":        {status: http.StatusBadRequest, message: "The request body is not valid JSON"},
		"no_requests": {status: http.StatusBadRequest, message: "requests: List should have at least 1 item after validation"},
		"id": {status: http.StatusBadRequest,
			message: "requests.{line}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"},
		"duplicate": {status: http.StatusBadRequest, message: "requests.{line}.custom_id: Duplicate custom_id '{detail}'; each custom_id " +
			"must be unique within a batch"},
		"body": {status: http.StatusBadRequest, message: "requests.{line}.params: Field required"},
		"too_many": {status: http.StatusRequestEntityTooLarge, message: "requests: Batch contains {count} requests, more than the maximum " +
			"of {limit}"},
		"too_large": {status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"},
		// limits of https://docs.anthropic.com/en/api/rate-limits#message-batches-api in the words for live requests
		"per_hour": {status: http.StatusTooManyRequests, message: overLimit("message batches per hour")},
		"pending":  {status: http.StatusTooManyRequests, message: overLimit("batch requests in the processing queue")},
	},
}

func overLimit(of string) string {
	return "This request would exceed the rate limit for your organization (org-sim) of {limit} " + of +
		". For details, refer to: https://docs.claude.com/en/api/rate-limits. Please try again later."
}

// anthropic has OpenAI's form of pages. It has no files.
type anthropic struct{ openai }

// failure is https://docs.anthropic.com/en/api/errors
func (anthropic) failure(p *problem, kind string) object {
	return object{"type": "error", "error": object{"type": kind, "message": p.message},
		"request_id": "req_" + hashOf([]byte(p.message)).String()}
}

// create is https://docs.anthropic.com/en/api/creating-message-batches
func (anthropic) create(_ *Handler, r *request, _ *batch) ([]byte, *problem) {
	var ask struct {
		Requests json.RawMessage `json:"requests"`
	}
	if s := jsonscan.New(r.body); s.Struct(&ask) != nil || !s.End() {
		return nil, r.api.problem("json")
	}
	return ask.Requests, nil
}

// batch is https://docs.anthropic.com/en/api/retrieving-message-batches. All requests count as processing until the end.
func (anthropic) batch(_ *Handler, b *batch, r *request) object {
	counts := map[string]int{"processing": len(b.lines), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
	out := object{
		"id": b.id, "type": "message_batch", "processing_status": b.api.states[b.state(r.now)], "request_counts": counts, "ended_at": nil,
		"created_at": rfc3339(b.created), "expires_at": rfc3339(b.created.Add(24 * time.Hour)), "archived_at": nil,
		"cancel_initiated_at": nil, "results_url": nil,
	}
	undone := "canceled"
	switch b.fate {
	case expired:
		undone, out["expires_at"] = "expired", rfc3339(b.ended())
	case cancelled:
		out["cancel_initiated_at"] = rfc3339(b.cancelled)
	}
	if b.state(r.now) >= completed {
		out["ended_at"], out["results_url"] = rfc3339(b.ended()), r.base+"/v1/messages/batches/"+b.id+"/results"
		counts["processing"], counts[undone] = 0, len(b.lines)-b.runs
		counts["succeeded"], counts["errored"] = b.tally(r.now)
	}
	return out
}

func (anthropic) deleted(id string) object { return object{"id": id, "type": "message_batch_deleted"} }

// line is https://docs.anthropic.com/en/docs/build-with-claude/batch-processing#retrieving-batch-results
func (anthropic) line(b *batch, l *line, status int, body []byte) string {
	result := `"canceled"`
	switch {
	case status == http.StatusOK:
		result = `"succeeded","message":` + string(body)
	case status != 0:
		result = `"errored","error":` + string(body)
	case b.fate == expired:
		result = `"expired"`
	}
	return fmt.Sprintf(`{"custom_id":%s,"result":{"type":%s}}`, encode(l.id), result)
}
