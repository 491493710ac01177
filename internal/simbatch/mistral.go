package simbatch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// mistral is Mistral's Batch API. It shares the files with OpenAI's.
// https://docs.mistral.ai/capabilities/batch
// https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/batchjob.py
type mistral struct{}

// traits are https://docs.mistral.ai/capabilities/batch (a million pending requests in a workspace) and
// https://docs.mistral.ai/api/#tag/files (512 MB in a file). No file contains the lines that did not run.
func (mistral) traits() traits {
	return traits{batches: "/v1/batch/jobs", files: "/v1/files", separator: "/", endpoint: "/v1/chat/completions", lacks: "results", uuid: true,
		pending: true, enqueues: true, partial: true, breaks: true, requests: 1_000_000, bytes: 512 << 20}
}

// problem has the form of the error in https://github.com/cline/cline/issues/9085
func (mistral) problem(p *problem) any {
	return object{"object": "error", "message": p.message, "type": cmp.Or(p.kind, "invalid_request_error"), "param": nil,
		"code": cmp.Or(p.code, strconv.Itoa(p.status))}
}

func (mistral) missing(r *request, what string) *problem {
	p := &problem{status: http.StatusNotFound, message: "no Route matched with those values"}
	if what == "batch" {
		p.message = "Batch job " + r.id + " not found"
	}
	return p
}

// create is https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/createbatchjobrequest.py
func (m mistral) create(h *Handler, r *request, b *batch) *problem {
	var ask struct {
		Files    []string        `json:"input_files"`
		Endpoint string          `json:"endpoint"`
		Model    string          `json:"model"`
		Metadata json.RawMessage `json:"metadata"`
		Requests []struct {
			ID   string          `json:"custom_id"`
			Body json.RawMessage `json:"body"`
		} `json:"requests"`
	}
	switch {
	case json.Unmarshal(r.body, &ask) != nil:
		return bad("Invalid JSON in the body")
	case !supports(ask.Endpoint):
		return bad("Endpoint %s is not supported for batch jobs", ask.Endpoint)
	case len(ask.Files) == 0 == (len(ask.Requests) == 0):
		return bad("One of input_files and requests must be given")
	}
	b.asked = asked{ask.Endpoint, ask.Model, ask.Files, ask.Metadata}
	requests, size := h.maxima(m)
	for _, id := range ask.Files {
		f := h.input(m, id)
		if f == nil {
			return &problem{status: http.StatusNotFound, message: "File " + id + " not found"}
		}
		if len(f.data) > size {
			return bad("The input file has %d bytes, more than the maximum of %d", len(f.data), size)
		}
		b.read(f.data, "custom_id", "body")
	}
	for _, one := range ask.Requests {
		b.lines = append(b.lines, line{id: one.ID, body: one.Body})
	}
	if len(b.lines) > requests {
		return bad("The batch has %d requests, more than the maximum of %d", len(b.lines), requests)
	}
	h.weigh(b)
	return nil
}

func (mistral) full(*Handler, *batch, *shortfall) *problem {
	return &problem{kind: "rate_limited", code: "1300", message: "Rate limit exceeded"}
}

func (m mistral) end(h *Handler, b *batch, r *request, deletes bool) (object, *problem) {
	if deletes {
		h.forget(b)
		return object{"id": b.id, "object": "batch", "deleted": true}, nil
	}
	h.cancel(b, r.now)
	return m.object(h, b, r), nil
}

func (mistral) status(b *batch, now time.Time) string {
	switch p := b.phase(now); {
	case p == ended:
		return [...]string{"SUCCESS", "TIMEOUT_EXCEEDED", "FAILED", "FAILED", "CANCELLED"}[b.outcome]
	case b.outcome == cancelled:
		return "CANCELLATION_REQUESTED"
	case p == validating:
		return "QUEUED"
	}
	return "RUNNING"
}

// object is https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/batchjob.py
func (m mistral) object(_ *Handler, b *batch, r *request) object {
	answered, failed := b.tally(r.now)
	errors := []object{}
	if b.phase(r.now) == ended {
		for _, p := range b.problems {
			errors = append(errors, object{"message": p.Message, "count": 1})
		}
		if b.outcome == broken {
			errors = append(errors, object{"message": "Internal server error", "count": len(b.lines)})
		}
	}
	return object{
		"id": b.id, "object": "batch", "input_files": slices.Concat([]string{}, b.asked.input), "metadata": b.asked.metadata,
		"endpoint": b.asked.endpoint, "model": orNull(b.asked.model), "agent_id": nil, "output_file": b.output.idOrNull(r.now),
		"error_file": b.errors.idOrNull(r.now), "errors": errors, "status": m.status(b, r.now), "created_at": b.created.Unix(),
		"started_at": unix(b.validated(), r.now), "completed_at": unix(b.ended(), r.now), "total_requests": len(b.lines),
		"completed_requests": answered + failed, "succeeded_requests": answered, "failed_requests": failed,
	}
}

// list is https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/jobs_api_routes_batch_get_batch_jobsop.py
// with the metadata as a JSON object.
func (m mistral) list(h *Handler, batches []*batch, _ []*file, r *request) object {
	var want map[string]string
	json.Unmarshal([]byte(r.query.Get("metadata")), &want) // anything else is no condition
	after, _ := time.Parse(time.RFC3339, r.query.Get("created_after"))
	states, model := r.query["status"], r.query.Get("model")
	batches = slices.DeleteFunc(batches, func(b *batch) bool {
		var has map[string]string
		json.Unmarshal(b.asked.metadata, &has) // as above
		for name, value := range want {
			if has[name] != value {
				return true
			}
		}
		return len(states) > 0 && !slices.Contains(states, m.status(b, r.now)) || b.created.Before(after) || model != "" && model != b.asked.model
	})
	if r.query.Get("order_by") == "created" {
		slices.Reverse(batches)
	}
	part, _ := page(r, batches, batchID, 100, 100)
	data := []object{}
	for _, b := range part {
		data = append(data, m.object(h, b, r))
	}
	return object{"object": "list", "data": data, "total": len(batches)}
}

// file is not used: OpenAI's describes the files.
func (mistral) file(*Handler, *file, *request) object { return nil }

// line is https://docs.mistral.ai/capabilities/batch#get-results. For a server error it has no body, as in
// https://github.com/mistralai/client-python/blob/main/src/mistralai/extra/tests/test_batch.py
func (mistral) line(_ *batch, l *line, status int, body []byte) string {
	failure := "null"
	if status >= http.StatusInternalServerError {
		body, failure = []byte("null"), `"Internal server error"`
	}
	return fmt.Sprintf(`{"id":"batch-%s","custom_id":%s,"response":{"status_code":%d,"body":%s},"error":%s}`, l.hash, encode(l.id), status, body, failure)
}
