package simbatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// openai is OpenAI's Batch API.
// https://platform.openai.com/docs/guides/batch
// https://github.com/openai/openai-python/blob/main/src/openai/types/batch.py
type openai struct{}

// traits are https://platform.openai.com/docs/guides/batch#rate-limits
func (openai) traits() traits {
	return traits{batches: "/v1/batches", files: "/v1/files", separator: "/", endpoint: "/v1/chat/completions", lacks: "delete results",
		batchID: "batch_", fileID: "file-", enqueues: true, partial: true, breaks: true, lists: true, requests: 50_000, bytes: 200 << 20}
}

// problem is https://platform.openai.com/docs/guides/error-codes
func (openai) problem(p *problem) any {
	kind := p.kind
	if kind == "" {
		kind = "invalid_request_error"
	}
	return object{"error": object{"message": p.message, "type": kind, "param": orNull(p.param), "code": orNull(p.code)}}
}

// missing is https://platform.openai.com/docs/guides/error-codes and https://community.openai.com/t/no-such-file-object/539471
func (openai) missing(r *request, what string) *problem {
	p := &problem{status: http.StatusNotFound, message: "Invalid URL (" + r.Method + " " + r.URL.Path + ")"}
	switch what {
	case "batch":
		p.message = "No batch found with id '" + r.id + "'."
	case "file":
		p.message, p.param = "No such File object: "+r.id, "id"
	}
	return p
}

func missingParameter(name string) *problem {
	return &problem{status: http.StatusBadRequest, message: "Missing required parameter: '" + name + "'.", param: name, code: "missing_required_parameter"}
}

func invalidValue(name, value string) *problem {
	return &problem{status: http.StatusBadRequest, message: "Invalid value: '" + value + "'.", param: name, code: "invalid_value"}
}

// supports reports whether the lines of OpenAI's batches can go to an endpoint.
func supports(endpoint string) bool {
	return slices.Contains([]string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings"}, endpoint)
}

// create accepts a batch even if its file has errors. They show after validation.
func (o openai) create(h *Handler, r *request, b *batch) *problem {
	var ask struct {
		File     string          `json:"input_file_id"`
		Endpoint string          `json:"endpoint"`
		Window   string          `json:"completion_window"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(r.body, &ask) != nil {
		return bad("We could not parse the JSON body of your request.")
	}
	f := h.input(o, ask.File)
	switch {
	case ask.File == "":
		return missingParameter("input_file_id")
	case !supports(ask.Endpoint):
		return invalidValue("endpoint", ask.Endpoint)
	case ask.Window != "24h":
		return invalidValue("completion_window", ask.Window)
	case f == nil:
		r.id = ask.File
		return o.missing(r, "file")
	}
	b.asked = asked{endpoint: ask.Endpoint, input: f.id, metadata: ask.Metadata}
	requests, size := h.maxima(o)
	if len(f.data) > size {
		b.wrong(0, "maximum_input_file_size_exceeded", "", "The batch input file is larger than the %d maximum. Please try again with a smaller batch.", size)
		return nil
	}
	o.read(b, f.data)
	switch {
	case len(b.problems) > 0:
	case len(b.lines) == 0:
		b.wrong(0, "empty_file", "", "The input file is empty. Please ensure that the batch contains at least one request.")
	case len(b.lines) > requests:
		b.wrong(0, "too_many_tasks", "", "The number of requests in the input file exceeds the maximum allowed value of %d.", requests)
	default:
		o.checkModels(h, b)
	}
	return nil
}

// read reads the lines. OpenAI documents no codes of their errors: these are Azure's, which has the same API
// (https://learn.microsoft.com/azure/ai-services/openai/how-to/batch), and the codes of live requests.
// https://platform.openai.com/docs/api-reference/batch/request-input
func (openai) read(b *batch, data []byte) {
	seen := map[string]bool{}
	readLines(data, []string{"custom_id", "method", "url", "body"}, func(n int, values [][]byte, ok bool) {
		l := line{id: text(values[0]), body: values[3]}
		method, url := text(values[1]), text(values[2])
		absent := ""
		switch {
		case l.id == "":
			absent = "custom_id"
		case method == "":
			absent = "method"
		case url == "":
			absent = "url"
		case !isObject(l.body):
			absent = "body"
		}
		switch {
		case !ok:
			b.wrong(n, "invalid_json_line", "", "This line is not parseable as valid JSON.")
		case absent != "":
			b.wrong(n, "missing_required_parameter", absent, "Missing required parameter: '%s'.", absent)
		case method != http.MethodPost:
			b.wrong(n, "invalid_method", "method", "Invalid value: '%s'. Supported values are: 'POST'.", method)
		case url != b.asked.endpoint:
			b.wrong(n, "url_mismatch", "url", "The URL provided for this request does not match the batch endpoint.")
		case seen[l.id]:
			b.wrong(n, "duplicate_custom_id", "custom_id", "The custom_id for this request is a duplicate of another request. "+
				"The custom_id parameter must be unique for each request in a batch.")
		}
		seen[l.id] = true
		b.lines = append(b.lines, l)
	})
}

// wrong adds the error of a line, or with number 0 of the whole file. The first 100 count.
func (b *batch) wrong(number int, code, param, format string, args ...any) {
	p := lineProblem{Code: code, Message: fmt.Sprintf(format, args...)}
	if number > 0 {
		p.Line = &number
	}
	if param != "" {
		p.Param = &param
	}
	if len(b.problems) < 100 {
		b.problems = append(b.problems, p)
	}
}

// checkModels adds the lines of another model than the first one's.
// https://platform.openai.com/docs/guides/batch#1-prepare-your-batch-file
func (openai) checkModels(h *Handler, b *batch) {
	h.weigh(b)
	first, _, _ := h.host.Charge(b.asked.endpoint, "", b.lines[0].body)
	b.asked.model = first
	if len(b.tokens) == 1 {
		return
	}
	for i, l := range b.lines {
		if model, _, _ := h.host.Charge(b.asked.endpoint, "", l.body); model != first {
			b.wrong(i+1, "model_mismatch", "body.model", "The provided model '%s' does not match the model '%s' of the first request. "+
				"A batch may have requests to one model only.", model, first)
		}
	}
}

// full fails a batch for its tokens, and refuses one beyond the limit of an hour.
// https://github.com/openai/openai-python/issues/2084
func (openai) full(h *Handler, b *batch, short *shortfall) *problem {
	if short.model != "" {
		b.problems = nil
		b.wrong(0, "token_limit_exceeded", "", "Enqueued token limit reached for %s in organization org-sim. Limit: %s enqueued tokens. "+
			"Please try again once some in_progress batches have been completed.", short.model, prose.Group(h.config.EnqueuedTokens))
		return nil
	}
	return &problem{kind: "requests", code: "rate_limit_exceeded", message: fmt.Sprintf("Rate limit reached for batch creation in organization "+
		"org-sim: Limit %d batches per hour. Please try again in %s.", h.config.PerHour, seconds(short.wait))}
}

func (o openai) end(h *Handler, b *batch, r *request, _ bool) (object, *problem) {
	if !h.cancel(b, r.now) {
		return nil, &problem{status: http.StatusConflict, message: "Cannot cancel a batch with status '" + o.status(b, r.now) + "'."}
	}
	return o.object(h, b, r), nil
}

// status is https://platform.openai.com/docs/guides/batch#4-check-the-status-of-a-batch
func (openai) status(b *batch, now time.Time) string {
	p := b.phase(now)
	if p == ended {
		return [...]string{"completed", "expired", "failed", "failed", "cancelled"}[b.outcome]
	}
	if b.outcome == cancelled {
		return "cancelling"
	}
	return [...]string{"validating", "in_progress", "finalizing"}[p]
}

// object is https://platform.openai.com/docs/api-reference/batch/object
func (o openai) object(_ *Handler, b *batch, r *request) object {
	now := r.now
	answered, failed := b.tally(now)
	out := object{
		"id": b.id, "object": "batch", "endpoint": b.asked.endpoint, "model": orNull(b.asked.model), "errors": nil,
		"input_file_id": b.asked.input, "completion_window": "24h", "status": o.status(b, now), "output_file_id": b.output.idOrNull(now),
		"error_file_id": b.errors.idOrNull(now), "created_at": b.created.Unix(), "in_progress_at": unix(b.validated(), now),
		"expires_at": b.created.Add(24 * time.Hour).Unix(), "finalizing_at": nil, "completed_at": nil, "failed_at": nil, "expired_at": nil,
		"cancelling_at": unix(b.cancelled, now), "cancelled_at": nil, "metadata": b.asked.metadata,
		"request_counts": object{"total": len(b.lines), "completed": answered, "failed": failed},
	}
	out[[...]string{"completed_at", "expired_at", "failed_at", "failed_at", "cancelled_at"}[b.outcome]] = unix(b.ended(), now)
	switch b.outcome {
	case expired:
		out["expires_at"] = b.ended().Unix()
		fallthrough
	case completed:
		out["finalizing_at"] = unix(b.finished(), now)
	case invalid:
		out["in_progress_at"] = nil
	}
	if out["failed_at"] != nil {
		problems := b.problems
		if b.outcome == broken {
			problems = []lineProblem{{Code: "server_error", Message: "The batch failed due to an internal server error. Please try again."}}
		}
		out["errors"] = object{"object": "list", "data": problems}
	}
	return out
}

// list is https://platform.openai.com/docs/api-reference/batch/list and https://platform.openai.com/docs/api-reference/files/list
func (o openai) list(h *Handler, batches []*batch, files []*file, r *request) object {
	if strings.HasPrefix(r.URL.Path, "/v1/batches") {
		part, more := page(r, batches, batchID, 20, 100)
		return listing(part, more, batchID, func(b *batch) object { return o.object(h, b, r) })
	}
	if r.query.Get("order") == "asc" {
		slices.Reverse(files)
	}
	part, more := page(r, files, fileID, 10_000, 10_000)
	return listing(part, more, fileID, func(f *file) object { return o.file(h, f, r) })
}

// listing is a page of OpenAI's or Anthropic's lists.
func listing[T any](part []T, more bool, id func(T) string, describe func(T) object) object {
	data := []object{}
	for _, one := range part {
		data = append(data, describe(one))
	}
	out := object{"object": "list", "data": data, "has_more": more, "first_id": nil, "last_id": nil}
	if len(part) > 0 {
		out["first_id"], out["last_id"] = id(part[0]), id(part[len(part)-1])
	}
	return out
}

// file is https://platform.openai.com/docs/api-reference/files/object. Files with the purpose batch expire:
// https://github.com/openai/openai-python/blob/main/src/openai/types/file_create_params.py
func (openai) file(h *Handler, f *file, _ *request) object {
	out := object{
		"id": f.id, "object": "file", "bytes": len(h.content(f)), "created_at": f.created.Unix(), "expires_at": nil, "filename": f.name,
		"purpose": f.purpose, "status": "processed", "status_details": nil,
	}
	if f.batch == nil {
		out["expires_at"] = f.created.Add(30 * 24 * time.Hour).Unix()
		return out
	}
	out["created_at"], out["filename"] = f.batch.ended().Unix(), f.batch.id+"_output.jsonl"
	if f.failures {
		out["filename"] = f.batch.id + "_error.jsonl"
	}
	return out
}

// line is https://platform.openai.com/docs/api-reference/batch/request-output. Lines that did not run are
// https://platform.openai.com/docs/guides/batch#batch-expiration and, of a batch that was cancelled, BatchRequestOutput in
// https://github.com/openai/openai-openapi/blob/master/openapi.yaml
func (openai) line(b *batch, l *line, status int, body []byte) string {
	if status != 0 {
		return fmt.Sprintf(`{"id":"batch_req_%s","custom_id":%s,"response":{"status_code":%d,"request_id":"req_%[1]s","body":%[4]s},"error":null}`,
			l.hash, encode(l.id), status, body)
	}
	code, message := "batch_cancelled", "This request was not executed because the batch was cancelled."
	if b.outcome == expired {
		code, message = "batch_expired", "This request could not be executed before the completion window expired."
	}
	return fmt.Sprintf(`{"id":"batch_req_%s","custom_id":%s,"response":null,"error":{"code":%q,"message":%q}}`, l.hash, encode(l.id), code, message)
}
