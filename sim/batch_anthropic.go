package sim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// anthropicBatches is Anthropic's Batch API. It keeps no metadata.
// https://docs.anthropic.com/en/docs/build-with-claude/batch-processing
// https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/types/messages/message_batch.py
type anthropicBatches struct{}

// traits are https://docs.anthropic.com/en/docs/build-with-claude/batch-processing#batch-limitations
func (anthropicBatches) traits() traits {
	return traits{dialect: anthropic{}, pending: true, partial: true, lists: true, one: true, requests: 100_000, bytes: 256 << 20}
}

// refusal is https://docs.anthropic.com/en/api/errors
func (anthropicBatches) refusal(p *apiProblem) []byte {
	kind := p.kind
	if kind == "" {
		kind = map[int]string{http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
			http.StatusTooManyRequests: "rate_limit_error"}[p.status]
	}
	return marshal(anthropicError{Type: "error", Error: anthropicProblem{cmp.Or(kind, "invalid_request_error"), p.message},
		RequestID: "req_" + RequestHash([]byte(p.message))})
}

func (a anthropicBatches) serve(s *Server, r *control) reply {
	if r.header["Anthropic-Version"] == nil {
		return s.refuseBatch(a, &apiProblem{status: http.StatusBadRequest, message: "anthropic-version: header is required"})
	}
	id, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.path, "/v1/messages/batches"), "/"), "/")
	switch {
	case id == "" && r.method == http.MethodPost:
		s.countBatch("create", "")
		return a.create(s, r)
	case id == "" && r.method == http.MethodGet:
		s.countBatch("list", "")
		return a.list(s, r)
	case verb == "" && r.method == http.MethodGet:
		s.countBatch("get", "")
		return a.one(s, r, id, func(*batch) {})
	case verb == "cancel" && r.method == http.MethodPost:
		s.countBatch("cancel", "")
		return a.one(s, r, id, func(b *batch) { s.cancelLocked(b, r.now) })
	case verb == "" && r.method == http.MethodDelete:
		s.countBatch("delete", "")
		return a.remove(s, r, id)
	case verb == "results" && r.method == http.MethodGet:
		s.countBatch("results", "")
		return a.results(s, r, id)
	}
	return s.refuseBatch(a, &apiProblem{status: http.StatusNotFound, message: "Not Found"})
}

// create is https://docs.anthropic.com/en/api/creating-message-batches
func (a anthropicBatches) create(s *Server, r *control) reply {
	most, heaviest := cmp.Or(s.config.Batches.MaxRequests, a.traits().requests), cmp.Or(s.config.Batches.MaxBytes, a.traits().bytes)
	if len(r.body) > heaviest {
		return s.refuseBatch(a, &apiProblem{status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"})
	}
	b := &batch{api: a, created: r.now, endpoint: messages}
	if wrong := a.read(b, r.body); wrong != "" {
		return s.refuseBatch(a, &apiProblem{status: http.StatusBadRequest, message: wrong})
	}
	if len(b.lines) > most {
		return s.refuseBatch(a, &apiProblem{status: http.StatusRequestEntityTooLarge,
			message: fmt.Sprintf("requests: Batch contains %d requests, more than the maximum of %d", len(b.lines), most)})
	}
	s.weigh(b)
	s.mu.Lock()
	if short := s.roomLocked(b); short != nil {
		s.mu.Unlock()
		return s.refuseBatch(a, a.shortfall(s, short))
	}
	defer s.mu.Unlock()
	b.id = "msgbatch_" + s.nextIDLocked()
	b.output = s.resultLocked(b, b.id, false)
	s.startLocked(b)
	return reply{status: http.StatusOK, body: marshal(a.object(b, r)), lost: s.droppedLocked(hashOf(r.body))}
}

// shortfall is a limit of https://docs.anthropic.com/en/api/rate-limits#message-batches-api; the words are those of the
// limits on live calls.
func (anthropicBatches) shortfall(s *Server, short *shortfall) *apiProblem {
	limit, what := s.config.Batches.PerHour, "message batches per hour"
	if short.why == whyPending {
		limit, what = s.config.Batches.Pending, "batch requests in the processing queue"
	}
	return &apiProblem{status: http.StatusTooManyRequests, why: short.why, wait: short.wait,
		message: "This request would exceed the rate limit for your organization (org-sim) of " + thousands(limit) + " " + what +
			". For details, refer to: https://docs.claude.com/en/api/rate-limits. Please try again later."}
}

// read takes the requests apart, and says what is wrong with them.
func (anthropicBatches) read(b *batch, body []byte) (wrong string) {
	seen := map[string]bool{}
	note := func(text string) {
		if wrong == "" {
			wrong = text
		}
	}
	request := func(s *scanner) bool {
		var l batchLine
		ok := s.members(func(key, value []byte) {
			switch string(key) {
			case "custom_id":
				l.id = textOf(value)
			case "params":
				l.body = value
			}
		})
		at := "requests." + strconv.Itoa(len(b.lines)) + "."
		switch {
		case !goodCustomID(l.id):
			note(at + "custom_id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'")
		case seen[l.id]:
			note(at + "custom_id: Duplicate custom_id '" + l.id + "'; each custom_id must be unique within a batch")
		case !l.isObject():
			note(at + "params: Field required")
		}
		seen[l.id] = true
		b.lines = append(b.lines, l)
		return ok
	}
	s := scanner{b: body}
	s.space()
	ok := s.object(func(key []byte) bool {
		if string(key) == "requests" {
			return s.array(func() bool { return request(&s) })
		}
		return s.value(false, 0)
	})
	if s.space(); !ok || s.i != len(body) {
		return "The request body is not valid JSON"
	}
	if len(b.lines) == 0 {
		note("requests: List should have at least 1 item after validation")
	}
	return wrong
}

// goodCustomID is https://docs.anthropic.com/en/api/creating-message-batches#body-requests-custom-id
func goodCustomID(id string) bool {
	other := func(c rune) bool {
		return !(c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	return 1 <= len(id) && len(id) <= 64 && !strings.ContainsFunc(id, other)
}

func noMessageBatch(id string) *apiProblem {
	return &apiProblem{status: http.StatusNotFound, message: "Message batch " + id + " not found"}
}

func (a anthropicBatches) one(s *Server, r *control, id string, do func(*batch)) reply {
	return s.withBatch(a, id, noMessageBatch(id), func(b *batch) ([]byte, *apiProblem) {
		do(b)
		return marshal(a.object(b, r)), nil
	})
}

// remove is https://docs.anthropic.com/en/api/deleting-message-batches: only a batch that has ended can be deleted.
func (a anthropicBatches) remove(s *Server, r *control, id string) reply {
	return s.withBatch(a, id, noMessageBatch(id), func(b *batch) ([]byte, *apiProblem) {
		if b.phase(r.now) != phaseEnded {
			return nil, &apiProblem{status: http.StatusBadRequest,
				message: "Message batch " + id + " is still in progress; cancel it first"}
		}
		s.forgetLocked(b)
		return []byte(`{"id":"` + id + `","type":"message_batch_deleted"}`), nil
	})
}

// results is https://docs.anthropic.com/en/api/retrieving-message-batch-results
func (a anthropicBatches) results(s *Server, r *control, id string) reply {
	s.mu.Lock()
	b := s.batchLocked(a, id)
	ready := b != nil && b.phase(r.now) == phaseEnded
	s.mu.Unlock()
	switch {
	case b == nil:
		return s.refuseBatch(a, noMessageBatch(id))
	case !ready:
		return s.refuseBatch(a, &apiProblem{status: http.StatusNotFound, message: "Message batch " + id + " has no available results"})
	case s.config.Batches.LoseResults:
		return s.refuseBatch(a, &apiProblem{status: http.StatusNotFound, message: "The results of message batch " + id + " are no longer available"})
	}
	return reply{status: http.StatusOK, kind: "application/x-jsonl", body: b.output.write(s), results: b.output}
}

// list is https://docs.anthropic.com/en/api/listing-message-batches
func (a anthropicBatches) list(s *Server, r *control) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, limit := s.listedLocked(a, r.now), r.number("limit", 20, 1000)
	var page []*batch
	var more bool
	if before := r.query.Get("before_id"); before != "" {
		slices.Reverse(all)
		page, more, _ = window(all, before, limit, batchID)
		slices.Reverse(page)
	} else {
		page, more, _ = window(all, r.query.Get("after_id"), limit, batchID)
	}
	out := anthropicList{Data: []anthropicBatch{}, More: more}
	for _, b := range page {
		out.Data = append(out.Data, a.object(b, r))
	}
	if len(page) > 0 {
		out.First, out.Last = &page[0].id, &page[len(page)-1].id
	}
	return reply{status: http.StatusOK, body: marshal(out)}
}

type anthropicList struct {
	Data  []anthropicBatch `json:"data"`
	More  bool             `json:"has_more"`
	First *string          `json:"first_id"`
	Last  *string          `json:"last_id"`
}

// anthropicBatch is https://docs.anthropic.com/en/api/retrieving-message-batches
type anthropicBatch struct {
	ID       string  `json:"id"`
	Type     string  `json:"type"`
	Status   string  `json:"processing_status"`
	Counts   tallies `json:"request_counts"`
	Ended    *string `json:"ended_at"`
	Created  string  `json:"created_at"`
	Expires  string  `json:"expires_at"`
	Archived *string `json:"archived_at"`
	Cancel   *string `json:"cancel_initiated_at"`
	Results  *string `json:"results_url"`
}

type tallies struct {
	Processing int `json:"processing"`
	Succeeded  int `json:"succeeded"`
	Errored    int `json:"errored"`
	Canceled   int `json:"canceled"`
	Expired    int `json:"expired"`
}

// object is a batch as it stands. All requests count as processing until the batch has ended.
func (anthropicBatches) object(b *batch, r *control) anthropicBatch {
	out := anthropicBatch{ID: b.id, Type: "message_batch", Status: "in_progress", Counts: tallies{Processing: len(b.lines)},
		Created: instant(b.created), Expires: instant(b.created.Add(24 * time.Hour))}
	if b.outcome == outcomeExpired {
		out.Expires = instant(b.ended())
	}
	if b.outcome == outcomeCancelled {
		at := instant(b.cancelled)
		out.Status, out.Cancel = "canceling", &at
	}
	if b.phase(r.now) != phaseEnded {
		return out
	}
	end, results := instant(b.ended()), r.base+"/v1/messages/batches/"+b.id+"/results"
	out.Status, out.Ended, out.Results, out.Counts.Processing = "ended", &end, &results, 0
	out.Counts.Succeeded, out.Counts.Errored = b.tally(r.now)
	if undone := len(b.lines) - b.runs; b.outcome == outcomeExpired {
		out.Counts.Expired = undone
	} else {
		out.Counts.Canceled = undone
	}
	return out
}

// instant is a time as Anthropic and Google write it.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// answered is https://docs.anthropic.com/en/docs/build-with-claude/batch-processing#retrieving-batch-results
func (anthropicBatches) answered(b []byte, l *batchLine, status int, body []byte) []byte {
	b = appendString(append(b, `{"custom_id":`...), l.id)
	if status == http.StatusOK {
		b = append(b, `,"result":{"type":"succeeded","message":`...)
	} else {
		b = append(b, `,"result":{"type":"errored","error":`...)
	}
	return append(append(b, body...), "}}\n"...)
}

func (anthropicBatches) undone(b []byte, l *batchLine, expired bool) []byte {
	b = appendString(append(b, `{"custom_id":`...), l.id)
	if expired {
		return append(b, `,"result":{"type":"expired"}}`+"\n"...)
	}
	return append(b, `,"result":{"type":"canceled"}}`+"\n"...)
}
