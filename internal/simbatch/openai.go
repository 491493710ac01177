package simbatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// openaiAPI is OpenAI's Batch API, which accepts a batch even if its file has errors.
// https://platform.openai.com/docs/guides/batch
// https://github.com/openai/openai-python/blob/main/src/openai/types/batch.py
var openaiAPI = &api{
	lists: map[string]list{
		"batch": {path: "/v1/batches", prefix: "batch_", usual: 20, max: 100}, // https://platform.openai.com/docs/api-reference/batch/list
		"file":  {path: "/v1/files", prefix: "file-", usual: 10_000, max: 10_000},
	},
	separator: "/", endpoint: "/v1/chat/completions", lacks: "delete results",
	requests: 50_000, bytes: 200 << 20, // https://platform.openai.com/docs/guides/batch#rate-limits
	members: []string{"custom_id", "body", "method", "url"}, // https://platform.openai.com/docs/api-reference/batch/request-input
	ids:     regexp.MustCompile(`.`),
	// https://platform.openai.com/docs/guides/batch#4-check-the-status-of-a-batch
	states: [...]string{"validating", "in_progress", "finalizing", "cancelling", "completed", "expired", "failed", "failed", "cancelled"},
	ends:   ends{partial: true, split: true},
	kinds:  map[int]string{http.StatusTooManyRequests: "requests", 0: "invalid_request_error"},
	form:   openai{},

	// OpenAI documents no codes for the errors of lines: these are Azure's, which has the same API
	// (https://learn.microsoft.com/azure/ai-services/openai/how-to/batch), and the codes of live requests.
	problems: map[string]problem{
		// https://platform.openai.com/docs/guides/error-codes and https://community.openai.com/t/no-such-file-object/539471
		"no_route": {status: http.StatusNotFound, message: "Invalid URL ({method} {path})"},
		"no_batch": {status: http.StatusNotFound, message: "No batch found with id '{id}'."},
		"no_file":  {status: http.StatusNotFound, message: "No such File object: {id}", param: "id"},
		"ended":    {status: http.StatusConflict, message: "Cannot cancel a batch with status '{state}'."},
		"json":     {message: "We could not parse the JSON body of your request."},
		"value":    {code: "invalid_value", param: "{param}", message: "Invalid value: '{value}'."},
		"missing":  {code: "missing_required_parameter", param: "{detail}", message: "Missing required parameter: '{detail}'."},
		"id":       {code: "missing_required_parameter", param: "custom_id", message: "Missing required parameter: 'custom_id'."},
		"body":     {code: "missing_required_parameter", param: "body", message: "Missing required parameter: 'body'."},
		"line":     {code: "invalid_json_line", message: "This line is not parseable as valid JSON."},
		"method":   {code: "invalid_method", param: "method", message: "Invalid value: '{detail}'. Supported values are: 'POST'."},
		"url":      {code: "url_mismatch", param: "url", message: "The URL provided for this request does not match the batch endpoint."},
		"duplicate": {code: "duplicate_custom_id", param: "custom_id", message: "The custom_id for this request is a duplicate of another " +
			"request. The custom_id parameter must be unique for each request in a batch."},
		"model": {code: "model_mismatch", param: "body.model", message: "The provided model '{model}' does not match the model '{first}' of " +
			"the first request. A batch may have requests to one model only."},
		"empty_file": {code: "empty_file", message: "The input file is empty. Please ensure that the batch contains at least one request."},
		"too_many": {code: "too_many_tasks", message: "The number of requests in the input file exceeds the maximum allowed value of " +
			"{limit}."},
		"too_large": {code: "maximum_input_file_size_exceeded", message: "The batch input file is larger than the {limit} maximum. Please " +
			"try again with a smaller batch."},
		"broken": {code: "server_error", message: "The batch failed due to an internal server error. Please try again."},
		// https://github.com/openai/openai-python/issues/2084
		"enqueued_tokens": {code: "token_limit_exceeded", message: "Enqueued token limit reached for {model} in organization org-sim. " +
			"Limit: {limit} enqueued tokens. Please try again once some in_progress batches have been completed."},
		"per_hour": {status: http.StatusTooManyRequests, code: "rate_limit_exceeded", message: "Rate limit reached for batch creation in " +
			"organization org-sim: Limit {limit} batches per hour. Please try again in {wait}."},
	},
}

type openai struct{}

// failure is https://platform.openai.com/docs/guides/error-codes
func (openai) failure(p *problem, kind string) object {
	return object{"error": object{"message": p.message, "type": kind, "param": orNull(p.param), "code": orNull(p.code)}}
}

func (openai) deleted(id string) object { return object{"id": id, "object": "file", "deleted": true} }

func (openai) create(h *Handler, r *request, b *batch) ([]byte, *problem) {
	var ask struct {
		File     string          `json:"input_file_id"`
		Endpoint string          `json:"endpoint"`
		Window   string          `json:"completion_window"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if s := jsonscan.New(r.body); s.Struct(&ask) != nil || !s.End() {
		return nil, r.api.problem("json")
	}
	f := h.input(r.api, ask.File)
	switch {
	case ask.File == "":
		return nil, r.api.problem("missing", "detail", "input_file_id")
	case !slices.Contains([]string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings"}, ask.Endpoint):
		return nil, r.api.problem("value", "param", "endpoint", "value", ask.Endpoint)
	case ask.Window != "24h":
		return nil, r.api.problem("value", "param", "completion_window", "value", ask.Window)
	case f == nil:
		return nil, r.api.problem("no_file", "id", ask.File)
	}
	b.asked = asked{endpoint: ask.Endpoint, input: f.id, metadata: ask.Metadata}
	return f.data, nil
}

// batch is https://platform.openai.com/docs/api-reference/batch/object
func (openai) batch(_ *Handler, b *batch, r *request) object {
	at := func(t time.Time) any { // null if the instant has not come
		if t.IsZero() || t.After(r.now) {
			return nil
		}
		return t.Unix()
	}
	answered, failed := b.tally(r.now)
	out := object{
		"id": b.id, "object": "batch", "endpoint": b.endpoint, "model": orNull(b.model), "errors": nil, "input_file_id": b.input,
		"completion_window": "24h", "status": b.api.states[b.state(r.now)], "output_file_id": b.output.idOrNull(r.now),
		"error_file_id": b.errors.idOrNull(r.now), "created_at": b.created.Unix(), "in_progress_at": at(b.validated()),
		"expires_at": b.created.Add(24 * time.Hour).Unix(), "finalizing_at": nil, "completed_at": nil, "failed_at": nil, "expired_at": nil,
		"cancelling_at": at(b.cancelled), "cancelled_at": nil, "metadata": b.metadata,
		"request_counts": object{"total": len(b.lines), "completed": answered, "failed": failed},
	}
	out[b.api.states[b.fate]+"_at"] = at(b.ended())
	switch b.fate {
	case expired:
		out["expires_at"] = b.ended().Unix()
		fallthrough
	case completed:
		out["finalizing_at"] = at(b.finished())
	case invalid:
		out["in_progress_at"] = nil
	}
	if out["failed_at"] != nil {
		var list []object
		for _, p := range b.problems {
			list = append(list, object{"code": p.code, "line": orNull(p.line), "message": p.message, "param": orNull(p.param)})
		}
		out["errors"] = object{"object": "list", "data": list}
	}
	return out
}

// page is https://platform.openai.com/docs/api-reference/files/list
func (openai) page(_ string, part []object, ids []string, more bool) object {
	out := object{"object": "list", "data": part, "has_more": more, "first_id": nil, "last_id": nil}
	if len(part) > 0 {
		out["first_id"], out["last_id"] = ids[0], ids[len(ids)-1]
	}
	return out
}

// file is https://platform.openai.com/docs/api-reference/files/object. Files with the purpose batch expire:
// https://github.com/openai/openai-python/blob/main/src/openai/types/file_create_params.py
func (openai) file(h *Handler, f *file, _ *request) object {
	out := object{
		"id": f.id, "object": "file", "bytes": len(h.content(f)), "created_at": f.written().Unix(), "expires_at": nil, "filename": f.name,
		"purpose": f.purpose, "status": "processed", "status_details": nil,
	}
	if f.batch == nil {
		out["expires_at"] = f.created.Add(30 * 24 * time.Hour).Unix()
		return out
	}
	out["filename"] = f.batch.id + "_output.jsonl"
	if f.failures {
		out["filename"] = f.batch.id + "_error.jsonl"
	}
	return out
}

// line is https://platform.openai.com/docs/api-reference/batch/request-output. Lines that did not run are
// https://platform.openai.com/docs/guides/batch#batch-expiration and, of a batch that was cancelled, BatchRequestOutput in
// https://github.com/openai/openai-openapi/blob/master/openapi.yaml
func (openai) line(b *batch, l *line, status int, body []byte) string {
	response, failure := "null", "null"
	switch {
	case status != 0:
		response = fmt.Sprintf(`{"status_code":%d,"request_id":"req_%s","body":%s}`, status, l.hash, body)
	case b.fate == expired:
		failure = `{"code":"batch_expired","message":"This request could not be executed before the completion window expired."}`
	default:
		failure = `{"code":"batch_cancelled","message":"This request was not executed because the batch was cancelled."}`
	}
	return fmt.Sprintf(`{"id":"batch_req_%s","custom_id":%s,"response":%s,"error":%s}`, l.hash, encode(l.id), response, failure)
}
