package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mistralBatches is Mistral's Batch API. Its files are those of openaiBatches.
// https://docs.mistral.ai/capabilities/batch
// https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/batchjob.py
type mistralBatches struct{}

// traits are https://docs.mistral.ai/capabilities/batch (a million pending requests in a workspace) and
// https://docs.mistral.ai/api/#tag/files (512 MB in a file). Lines that did not run stand in no file.
func (mistralBatches) traits() traits {
	return traits{dialect: openai{}, pending: true, enqueues: true, partial: true, breaks: true, requests: 1_000_000, bytes: 512 << 20}
}

// refusal has the form of the error in https://github.com/cline/cline/issues/9085
func (mistralBatches) refusal(p *apiProblem) []byte {
	return marshal(struct {
		Object  string  `json:"object"`
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}{"error", p.message, cmp.Or(p.kind, "invalid_request_error"), nil, cmp.Or(p.code, strconv.Itoa(p.status))})
}

func (m mistralBatches) serve(s *Server, r *control) reply {
	id, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.path, "/v1/batch/jobs"), "/"), "/")
	switch {
	case id == "" && r.method == http.MethodPost:
		s.countBatch("create", "")
		return m.create(s, r)
	case id == "" && r.method == http.MethodGet:
		s.countBatch("list", "")
		return m.list(s, r)
	case verb == "" && r.method == http.MethodGet:
		s.countBatch("get", "")
		return m.one(s, id, func(b *batch) []byte { return marshal(m.object(b, r.now)) })
	case verb == "cancel" && r.method == http.MethodPost:
		s.countBatch("cancel", "")
		return m.one(s, id, func(b *batch) []byte { s.cancelLocked(b, r.now); return marshal(m.object(b, r.now)) })
	case verb == "" && r.method == http.MethodDelete:
		s.countBatch("delete", "")
		return m.one(s, id, func(b *batch) []byte {
			s.forgetLocked(b)
			return []byte(`{"id":"` + id + `","object":"batch","deleted":true}`)
		})
	}
	return s.refuseBatch(m, &apiProblem{status: http.StatusNotFound, message: "no Route matched with those values"})
}

func (m mistralBatches) one(s *Server, id string, do func(*batch) []byte) reply {
	missing := &apiProblem{status: http.StatusNotFound, message: "Batch job " + id + " not found"}
	return s.withBatch(m, id, missing, func(b *batch) ([]byte, *apiProblem) { return do(b), nil })
}

// create is https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/createbatchjobrequest.py
func (m mistralBatches) create(s *Server, r *control) reply {
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
	bad := func(message string) reply {
		return s.refuseBatch(m, &apiProblem{status: http.StatusBadRequest, message: message})
	}
	if !r.decode(&ask) {
		return bad("Invalid JSON in the body")
	}
	endpoint, known := openaiEndpoint(ask.Endpoint)
	if !known {
		return bad("Endpoint " + ask.Endpoint + " is not supported for batch jobs")
	}
	if len(ask.Files) == 0 == (len(ask.Requests) == 0) {
		return bad("One of input_files and requests must be given")
	}
	b := &batch{api: m, created: r.now, endpoint: endpoint, path: ask.Endpoint, model: ask.Model, input: ask.Files, metadata: ask.Metadata}
	what := slices.Clone(r.body)
	for _, id := range ask.Files {
		s.mu.Lock()
		file := s.fileLocked(id)
		s.mu.Unlock()
		if file == nil {
			return s.refuseBatch(m, &apiProblem{status: http.StatusNotFound, message: "File " + id + " not found"})
		}
		if most := cmp.Or(s.config.Batches.MaxBytes, m.traits().bytes); len(file.data) > most {
			return bad(fmt.Sprintf("The input file has %d bytes, more than the maximum of %d", len(file.data), most))
		}
		what = append(what, file.hash[:]...)
		m.read(b, file.data)
	}
	for _, one := range ask.Requests {
		b.lines = append(b.lines, batchLine{id: one.ID, body: one.Body})
	}
	if most := cmp.Or(s.config.Batches.MaxRequests, m.traits().requests); len(b.lines) > most {
		return bad(fmt.Sprintf("The batch has %d requests, more than the maximum of %d", len(b.lines), most))
	}
	s.weigh(b)
	return m.start(s, b, hashOf(what), r.now)
}

// start has the batch run if there is room.
func (m mistralBatches) start(s *Server, b *batch, what hash, now time.Time) reply {
	s.mu.Lock()
	if short := s.roomLocked(b); short != nil {
		s.mu.Unlock()
		return s.refuseBatch(m, &apiProblem{status: http.StatusTooManyRequests, kind: "rate_limited", code: "1300", wait: short.wait,
			why: short.why, message: "Rate limit exceeded"})
	}
	defer s.mu.Unlock()
	b.id = uuid(s.nextIDLocked())
	b.output = s.resultLocked(b, uuid(s.nextIDLocked()), false)
	b.errors = s.resultLocked(b, uuid(s.nextIDLocked()), true)
	s.startLocked(b)
	return reply{status: http.StatusOK, body: marshal(m.object(b, now)), lost: s.droppedLocked(what)}
}

// uuid writes 32 hexadecimal digits as a UUID.
func uuid(s string) string {
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// read takes a file of requests apart: https://docs.mistral.ai/capabilities/batch#prepare-your-batch
func (mistralBatches) read(b *batch, data []byte) {
	before := len(b.lines)
	readLines(data, "custom_id", "body", nil, func(number int, l batchLine, ok bool) {
		if !ok || !l.isObject() {
			b.problems = append(b.problems, batchProblem{Message: fmt.Sprintf("Line %d is not a valid request", number)})
		}
		b.lines = append(b.lines, l)
	})
	if len(b.lines) == before {
		b.problems = append(b.problems, batchProblem{Message: "The input file is empty"})
	}
}

// list is https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/jobs_api_routes_batch_get_batch_jobsop.py
// whose metadata are read as a JSON object.
func (m mistralBatches) list(s *Server, r *control) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	var want map[string]string
	json.Unmarshal([]byte(r.query.Get("metadata")), &want) // what is not understood is not there
	after, _ := time.Parse(time.RFC3339, r.query.Get("created_after"))
	all := slices.DeleteFunc(s.listedLocked(m, r.now), func(b *batch) bool {
		var has map[string]string
		json.Unmarshal(b.metadata, &has) // as want
		for name, value := range want {
			if has[name] != value {
				return true
			}
		}
		states := r.query["status"]
		return len(states) > 0 && !slices.Contains(states, m.status(b, r.now)) || b.created.Before(after) ||
			r.query.Get("model") != "" && r.query.Get("model") != b.model
	})
	if r.query.Get("order_by") == "created" {
		slices.Reverse(all)
	}
	out := struct {
		Data   []mistralJob `json:"data"`
		Object string       `json:"object"`
		Total  int          `json:"total"`
	}{[]mistralJob{}, "list", len(all)}
	page, _ := strconv.Atoi(r.query.Get("page"))
	size := r.number("page_size", 100, 100)
	all = all[min(len(all), max(page, 0)*size):]
	for _, b := range all[:min(len(all), size)] {
		out.Data = append(out.Data, m.object(b, r.now))
	}
	return reply{status: http.StatusOK, body: marshal(out)}
}

// mistralJob is https://github.com/mistralai/client-python/blob/main/src/mistralai/client/models/batchjob.py
type mistralJob struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	Files     []string        `json:"input_files"`
	Metadata  json.RawMessage `json:"metadata"`
	Endpoint  string          `json:"endpoint"`
	Model     *string         `json:"model"`
	Agent     *string         `json:"agent_id"`
	Output    *string         `json:"output_file"`
	ErrorFile *string         `json:"error_file"`
	Errors    []mistralError  `json:"errors"`
	Status    string          `json:"status"`
	Created   int64           `json:"created_at"`
	Started   *int64          `json:"started_at"`
	Completed *int64          `json:"completed_at"`
	Total     int             `json:"total_requests"`
	Done      int             `json:"completed_requests"`
	Succeeded int             `json:"succeeded_requests"`
	Failed    int             `json:"failed_requests"`
}

type mistralError struct {
	Message string `json:"message"`
	Count   int    `json:"count"`
}

func (mistralBatches) status(b *batch, now time.Time) string {
	switch p := b.phase(now); {
	case p == phaseEnded:
		return []string{"SUCCESS", "TIMEOUT_EXCEEDED", "FAILED", "FAILED", "CANCELLED"}[b.outcome]
	case b.outcome == outcomeCancelled:
		return "CANCELLATION_REQUESTED"
	case p == phaseValidating:
		return "QUEUED"
	}
	return "RUNNING"
}

// object is a job as it stands.
func (m mistralBatches) object(b *batch, now time.Time) mistralJob {
	out := mistralJob{ID: b.id, Object: "batch", Files: b.input, Metadata: b.metadata, Endpoint: b.path, Errors: []mistralError{},
		Status: m.status(b, now), Created: b.created.Unix(), Started: unix(b.validated(), now), Completed: unix(b.ended(), now), Total: len(b.lines)}
	if out.Files == nil {
		out.Files = []string{}
	}
	if b.model != "" {
		out.Model = &b.model
	}
	out.Succeeded, out.Failed = b.tally(now)
	out.Done = out.Succeeded + out.Failed
	if b.phase(now) == phaseEnded {
		for _, p := range b.problems {
			out.Errors = append(out.Errors, mistralError{p.Message, 1})
		}
		if b.outcome == outcomeBroken {
			out.Errors = append(out.Errors, mistralError{"Internal server error", len(b.lines)})
		}
	}
	if b.output.there(now) {
		out.Output = &b.output.id
	}
	if b.errors.there(now) {
		out.ErrorFile = &b.errors.id
	}
	return out
}

// answered is https://docs.mistral.ai/capabilities/batch#get-results. Of a line that failed by an error of the server's, the
// error tells, and there is no body, as in
// https://github.com/mistralai/client-python/blob/main/src/mistralai/extra/tests/test_batch.py
func (mistralBatches) answered(b []byte, l *batchLine, status int, body []byte) []byte {
	b = append(append(b, `{"id":"batch-`...), l.hash.String()...)
	b = appendString(append(b, `","custom_id":`...), l.id)
	b = appendInt(append(b, `,"response":{"status_code":`...), status)
	if status >= http.StatusInternalServerError {
		return append(b, `,"body":null},"error":"Internal server error"}`+"\n"...)
	}
	return append(append(append(b, `,"body":`...), body...), "},\"error\":null}\n"...)
}

// undone is never asked for: traits.lists is false.
func (mistralBatches) undone(b []byte, _ *batchLine, _ bool) []byte { return b }
