package batchjob

import (
	"net/http"

	"github.com/sluice-llm/sluice/provider"
)

// anthropic is the Batch API of Anthropic (https://platform.claude.com/docs/en/build-with-claude/batch-processing, and
// https://github.com/anthropics/anthropic-sdk-python: resources/messages/batches.py, types/messages/message_batch.py). The request that
// creates a batch has its requests. Batches have no names. The results_url of a batch is not used, so that the key stays at one host.
func anthropic() form {
	return form{
		dialect:   provider.Anthropic,
		endpoints: []provider.Endpoint{provider.Messages},
		frame:     Frame{Open: `{"requests":[`, Between: ",", Close: "]}"},
		id:        "custom_id",
		before:    func(provider.Endpoint) string { return `,"params":` },
		path:      "/v1/messages/batches/", cancel: "/cancel", size: "limit", after: "after_id",
		create: func(p *File, _ string) (provider.Control, error) {
			return provider.Control{Method: http.MethodPost, Path: "/v1/messages/batches", Open: p.Open, Size: p.Size}, nil
		},
		results: func(id string) provider.Control { return get("/v1/messages/batches/"+segment(id)+"/results", nil) },
		batch:   anthropicBatch,
		result:  anthropicResult,
	}
}

// anthropicBatch reads a batch (types/messages/message_batch.py). An ended batch was cancelled, or expired, if one of its requests was.
func anthropicBatch(o object) Batch {
	counts := o.object("request_counts")
	b := Batch{ID: o.text("id"), Status: Running, Succeeded: counts.number("succeeded"), Failed: counts.number("errored"),
		Created: o.instant("created_at"), Ended: o.instant("ended_at"), Expires: o.instant("expires_at"), Results: []string{o.text("id")}}
	cancelled, expired := counts.number("canceled"), counts.number("expired")
	b.Requests = counts.number("processing") + b.Succeeded + b.Failed + cancelled + expired
	switch status := o.text("processing_status"); {
	case status == "":
		b.Status = ""
	case status == "canceling":
		b.Status = Cancelling
	case status == "ended" && cancelled > 0:
		b.Status = Cancelled
	case status == "ended" && expired > 0:
		b.Status = Expired
	case status == "ended":
		b.Status = Completed
	}
	return b
}

// anthropicResult reads a line of results (types/messages/message_batch_individual_response.py).
func anthropicResult(o object) (r Result, ok bool) {
	o = o.object("result")
	switch o.text("type") {
	case "succeeded":
		r = Result{Fate: Answered, Status: http.StatusOK, Body: o["message"]}
		return r, r.Body != nil
	case "errored":
		failed, ok := parseObject(o["error"])
		r = Result{Fate: Answered, RequestID: failed.text("request_id"), Body: o["error"]}
		if failed["error"] != nil {
			failed = failed.object("error")
		} else { // the error without its frame, as in older documents
			r.Body = append(append([]byte(`{"type":"error","error":`), r.Body...), '}')
		}
		r.Status = anthropicStatus(failed.text("type"))
		return r, ok
	case "expired":
		return Result{Fate: PastWindow}, true
	case "canceled":
		return Result{Fate: CalledOff}, true
	}
	return Result{}, false
}

// anthropicStatus returns the HTTP status of a type of error (https://platform.claude.com/docs/en/api/errors); 0 is unknown.
func anthropicStatus(kind string) int {
	return map[string]int{
		"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
		"not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504,
		"overloaded_error": 529,
	}[kind]
}
