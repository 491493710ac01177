package simbatch

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
)

// anthropic is Anthropic's Batch API. It keeps no metadata.
// https://docs.anthropic.com/en/docs/build-with-claude/batch-processing
// https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/types/messages/message_batch.py
type anthropic struct{}

// traits are https://docs.anthropic.com/en/docs/build-with-claude/batch-processing#batch-limitations
func (anthropic) traits() traits {
	return traits{batches: "/v1/messages/batches", separator: "/", endpoint: "/v1/messages", batchID: "msgbatch_",
		pending: true, partial: true, lists: true, one: true, requests: 100_000, bytes: 256 << 20}
}

// problem is https://docs.anthropic.com/en/api/errors
func (anthropic) problem(p *problem) any {
	kind := map[int]string{http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
		http.StatusTooManyRequests: "rate_limit_error"}[p.status]
	return object{"type": "error", "error": object{"type": cmp.Or(kind, "invalid_request_error"), "message": p.message},
		"request_id": "req_" + hashOf([]byte(p.message)).String()}
}

func (anthropic) missing(r *request, what string) *problem {
	p := &problem{status: http.StatusNotFound, message: "Not Found"}
	if what == "batch" {
		p.message = "Message batch " + r.id + " not found"
	}
	return p
}

// customID is https://docs.anthropic.com/en/api/creating-message-batches#body-requests-custom-id
var customID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// create is https://docs.anthropic.com/en/api/creating-message-batches
func (a anthropic) create(h *Handler, r *request, b *batch) *problem {
	requests, size := h.maxima(a)
	if len(r.body) > size {
		return &problem{status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"}
	}
	var first *problem
	seen := map[string]bool{}
	add := func(values [][]byte) {
		l := line{id: text(values[0]), body: values[1]}
		n := len(b.lines)
		switch {
		case first != nil:
		case !customID.MatchString(l.id):
			first = bad("requests.%d.custom_id: String should match pattern '%s'", n, customID)
		case seen[l.id]:
			first = bad("requests.%d.custom_id: Duplicate custom_id '%s'; each custom_id must be unique within a batch", n, l.id)
		case !isObject(l.body):
			first = bad("requests.%d.params: Field required", n)
		}
		seen[l.id] = true
		b.lines = append(b.lines, l)
	}
	s := jsonscan.New(r.body)
	for s.Enter('{'); s.Next('}'); {
		if string(s.Key()) != "requests" {
			s.Skip()
			continue
		}
		for s.Enter('['); s.Next(']'); {
			add(readMembers(&s, []string{"custom_id", "params"}))
		}
	}
	switch {
	case !s.End():
		return bad("The request body is not valid JSON")
	case len(b.lines) == 0:
		return bad("requests: List should have at least 1 item after validation")
	case first != nil:
		return first
	case len(b.lines) > requests:
		return &problem{status: http.StatusRequestEntityTooLarge,
			message: fmt.Sprintf("requests: Batch contains %d requests, more than the maximum of %d", len(b.lines), requests)}
	}
	h.weigh(b)
	return nil
}

// full is a limit of https://docs.anthropic.com/en/api/rate-limits#message-batches-api in the words for live requests.
func (anthropic) full(h *Handler, _ *batch, short *shortfall) *problem {
	limit, what := h.config.PerHour, "message batches per hour"
	if short.why == "pending" {
		limit, what = h.config.Pending, "batch requests in the processing queue"
	}
	return &problem{message: "This request would exceed the rate limit for your organization (org-sim) of " + prose.Group(limit) + " " + what +
		". For details, refer to: https://docs.claude.com/en/api/rate-limits. Please try again later."}
}

// end is https://docs.anthropic.com/en/api/deleting-message-batches
func (a anthropic) end(h *Handler, b *batch, r *request, deletes bool) (object, *problem) {
	if !deletes {
		h.cancel(b, r.now)
		return a.object(h, b, r), nil
	}
	if b.phase(r.now) != ended {
		return nil, bad("Message batch %s is still in progress; cancel it first", b.id)
	}
	h.forget(b)
	return object{"id": b.id, "type": "message_batch_deleted"}, nil
}

// object is https://docs.anthropic.com/en/api/retrieving-message-batches. All requests count as processing until the end.
func (anthropic) object(_ *Handler, b *batch, r *request) object {
	counts := map[string]int{"processing": len(b.lines), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
	out := object{
		"id": b.id, "type": "message_batch", "processing_status": "in_progress", "request_counts": counts, "ended_at": nil,
		"created_at": rfc3339(b.created), "expires_at": rfc3339(b.created.Add(24 * time.Hour)), "archived_at": nil,
		"cancel_initiated_at": nil, "results_url": nil,
	}
	undone := "canceled"
	switch b.outcome {
	case expired:
		undone, out["expires_at"] = "expired", rfc3339(b.ended())
	case cancelled:
		out["processing_status"], out["cancel_initiated_at"] = "canceling", rfc3339(b.cancelled)
	}
	if b.phase(r.now) == ended {
		out["processing_status"], out["ended_at"] = "ended", rfc3339(b.ended())
		out["results_url"] = r.base + "/v1/messages/batches/" + b.id + "/results"
		counts["processing"], counts[undone] = 0, len(b.lines)-b.runs
		counts["succeeded"], counts["errored"] = b.tally(r.now)
	}
	return out
}

// list is https://docs.anthropic.com/en/api/listing-message-batches
func (a anthropic) list(h *Handler, batches []*batch, _ []*file, r *request) object {
	part, more := page(r, batches, batchID, 20, 1000)
	return listing(part, more, batchID, func(b *batch) object { return a.object(h, b, r) })
}

// file is not used: Anthropic's Batch API has no files.
func (anthropic) file(*Handler, *file, *request) object { return nil }

// line is https://docs.anthropic.com/en/docs/build-with-claude/batch-processing#retrieving-batch-results
func (anthropic) line(b *batch, l *line, status int, body []byte) string {
	result := `"canceled"`
	switch {
	case status == http.StatusOK:
		result = `"succeeded","message":` + string(body)
	case status != 0:
		result = `"errored","error":` + string(body)
	case b.outcome == expired:
		result = `"expired"`
	}
	return fmt.Sprintf(`{"custom_id":%s,"result":{"type":%s}}`, encode(l.id), result)
}
