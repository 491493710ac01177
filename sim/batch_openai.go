package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// openaiBatches is OpenAI's Batch API, and the files it shares with Mistral's.
// https://platform.openai.com/docs/guides/batch
// https://github.com/openai/openai-python/blob/main/src/openai/types/batch.py
type openaiBatches struct{}

// traits are https://platform.openai.com/docs/guides/batch#rate-limits
func (openaiBatches) traits() traits {
	return traits{dialect: openai{}, enqueues: true, partial: true, breaks: true, lists: true, requests: 50_000, bytes: 200 << 20}
}

// refusal is https://platform.openai.com/docs/guides/error-codes
func (openaiBatches) refusal(p *apiProblem) []byte {
	e := openaiProblem{Message: p.message, Type: cmp.Or(p.kind, "invalid_request_error")}
	if p.param != "" {
		e.Param = &p.param
	}
	if p.code != "" {
		e.Code = &p.code
	}
	return marshal(openaiError{e})
}

func (o openaiBatches) serve(s *Server, r *control) reply {
	if rest, ok := strings.CutPrefix(r.path, "/v1/files"); ok {
		return o.serveFiles(s, r, strings.Split(rest, "/"))
	}
	id, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.path, "/v1/batches"), "/"), "/")
	switch {
	case r.method == http.MethodPost && id == "":
		s.countBatch("create", "")
		return o.create(s, r)
	case r.method == http.MethodGet && id == "":
		s.countBatch("list", "")
		return o.list(s, r)
	case r.method == http.MethodGet && verb == "":
		s.countBatch("get", "")
		return o.one(s, id, func(b *batch) *apiProblem { return nil }, r.now)
	case r.method == http.MethodPost && verb == "cancel":
		s.countBatch("cancel", "")
		return o.one(s, id, func(b *batch) *apiProblem { return o.cancel(s, b, r.now) }, r.now)
	}
	return s.refuseBatch(o, unknownURL(r))
}

// unknownURL is https://platform.openai.com/docs/guides/error-codes
func unknownURL(r *control) *apiProblem {
	return &apiProblem{status: http.StatusNotFound, message: "Invalid URL (" + r.method + " " + r.path + ")"}
}

// create takes a batch, whatever is in its file: that is told when it was validated.
func (o openaiBatches) create(s *Server, r *control) reply {
	var ask struct {
		File     string          `json:"input_file_id"`
		Endpoint string          `json:"endpoint"`
		Window   string          `json:"completion_window"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if !r.decode(&ask) {
		_, body := openai{}.refusal(&call{}, &refusal{reason: reasonNotJSON})
		s.countBatch("", WhyBadRequest)
		return reply{status: http.StatusBadRequest, body: body}
	}
	endpoint, known := openaiEndpoint(ask.Endpoint)
	wrong := &apiProblem{status: http.StatusBadRequest}
	switch {
	case ask.File == "":
		wrong.message, wrong.param, wrong.code = "Missing required parameter: 'input_file_id'.", "input_file_id", "missing_required_parameter"
	case !known:
		wrong.message, wrong.param, wrong.code = "Invalid value: '"+ask.Endpoint+"'.", "endpoint", "invalid_value"
	case ask.Window != "24h":
		wrong.message, wrong.param, wrong.code = "Invalid value: '"+ask.Window+"'. Value must be '24h'.", "completion_window", "invalid_value"
	default:
		wrong = nil
	}
	if wrong != nil {
		return s.refuseBatch(o, wrong)
	}
	s.mu.Lock()
	file := s.fileLocked(ask.File)
	s.mu.Unlock()
	if file == nil {
		return s.refuseBatch(o, noFile(ask.File))
	}
	b := &batch{api: o, created: r.now, endpoint: endpoint, path: ask.Endpoint, input: []string{file.id}, metadata: ask.Metadata}
	o.read(s, b, file.data)
	return o.start(s, b, hashOf(append([]byte(file.hash.String()), r.body...)))
}

// start has the batch run, unless there were too many in an hour.
func (o openaiBatches) start(s *Server, b *batch, what hash) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	short := s.roomLocked(b)
	switch {
	case short == nil:
	case short.why == whyEnqueued:
		s.store.counts.Refused[whyEnqueued]++
		// https://github.com/openai/openai-python/issues/2084
		b.problems = []batchProblem{{Code: "token_limit_exceeded", Message: fmt.Sprintf("Enqueued token limit reached for %s in organization "+
			"org-sim. Limit: %s enqueued tokens. Please try again once some in_progress batches have been completed.",
			short.model, thousands(s.config.Batches.EnqueuedTokens))}}
	default:
		s.mu.Unlock()
		defer s.mu.Lock()
		return s.refuseBatch(o, &apiProblem{status: http.StatusTooManyRequests, kind: "requests", code: "rate_limit_exceeded", wait: short.wait,
			why: short.why, message: fmt.Sprintf("Rate limit reached for batch creation in organization org-sim: Limit %d batches per hour. "+
				"Please try again in %s.", s.config.Batches.PerHour, wholeWait(short.wait))})
	}
	b.id = "batch_" + s.nextIDLocked()
	b.output = s.resultLocked(b, "file-"+s.nextIDLocked(), false)
	b.errors = s.resultLocked(b, "file-"+s.nextIDLocked(), true)
	s.startLocked(b)
	return reply{status: http.StatusOK, body: marshal(o.object(b, b.created)), lost: s.droppedLocked(what)}
}

// resultLocked names a file of results.
func (s *Server) resultLocked(b *batch, id string, failures bool) *resultFile {
	f := &resultFile{id: id, batch: b, failures: failures}
	s.store.results[id] = f
	return f
}

// openaiEndpoint is the endpoint of a path that batches may ask for.
func openaiEndpoint(path string) (endpoint, bool) {
	switch path {
	case "/v1/chat/completions":
		return chat, true
	case "/v1/responses":
		return responses, true
	case "/v1/embeddings":
		return embeddings, true
	}
	return 0, false
}

// read takes the file apart, and notes what is wrong with it.
func (o openaiBatches) read(s *Server, b *batch, data []byte) {
	most, heaviest := cmp.Or(s.config.Batches.MaxRequests, o.traits().requests), cmp.Or(s.config.Batches.MaxBytes, o.traits().bytes)
	if len(data) > heaviest {
		b.problems = []batchProblem{{Code: "maximum_input_file_size_exceeded",
			Message: fmt.Sprintf("The batch input file is larger than the %d maximum. Please try again with a smaller batch.", heaviest)}}
		return
	}
	var v openaiLines
	v.path, v.seen = b.path, map[string]bool{}
	v.read(data)
	switch {
	case len(v.problems) > 0:
		b.problems = v.problems
	case len(v.lines) == 0:
		b.problems = []batchProblem{{Code: "empty_file", Message: "The input file is empty. Please ensure that the batch contains at least one request."}}
	case len(v.lines) > most:
		b.problems = []batchProblem{{Code: "too_many_tasks",
			Message: fmt.Sprintf("The number of requests in the input file exceeds the maximum allowed value of %d.", most)}}
	default:
		b.lines = v.lines
		s.weigh(b)
		b.problems, b.model = v.mixed(s, b)
	}
}

// openaiLines reads a file of requests.
// https://platform.openai.com/docs/api-reference/batch/request-input
type openaiLines struct {
	path     string
	lines    []batchLine
	seen     map[string]bool
	problems []batchProblem
}

// maxProblems is how many problems of a file are told.
const maxProblems = 100

// read notes the problems of every line. OpenAI lists no codes for them: these are Azure's, which has the same API
// (https://learn.microsoft.com/azure/ai-services/openai/how-to/batch), and such as live calls have.
func (v *openaiLines) read(data []byte) {
	var nextMethod, nextURL string
	other := func(key, value []byte) {
		switch string(key) {
		case "method":
			nextMethod = textOf(value)
		case "url":
			nextURL = textOf(value)
		}
	}
	readLines(data, "custom_id", "body", other, func(number int, l batchLine, ok bool) {
		method, url := nextMethod, nextURL
		nextMethod, nextURL = "", ""
		if !ok {
			v.wrong(number, "invalid_json_line", "This line is not parseable as valid JSON.", "")
			return
		}
		switch {
		case l.id == "":
			v.wrong(number, "missing_required_parameter", "Missing required parameter: 'custom_id'.", "custom_id")
		case method == "":
			v.wrong(number, "missing_required_parameter", "Missing required parameter: 'method'.", "method")
		case url == "":
			v.wrong(number, "missing_required_parameter", "Missing required parameter: 'url'.", "url")
		case !l.isObject():
			v.wrong(number, "missing_required_parameter", "Missing required parameter: 'body'.", "body")
		case method != http.MethodPost:
			v.wrong(number, "invalid_method", "Invalid value: '"+method+"'. Supported values are: 'POST'.", "method")
		case url != v.path:
			v.wrong(number, "url_mismatch", "The URL provided for this request does not match the batch endpoint.", "url")
		case v.seen[l.id]:
			v.wrong(number, "duplicate_custom_id", "The custom_id for this request is a duplicate of another request. "+
				"The custom_id parameter must be unique for each request in a batch.", "custom_id")
		}
		v.seen[l.id] = true
		v.lines = append(v.lines, l)
	})
}

func (v *openaiLines) wrong(number int, code, message, param string) {
	if len(v.problems) == maxProblems {
		return
	}
	p := batchProblem{Code: code, Line: &number, Message: message}
	if param != "" {
		p.Param = &param
	}
	v.problems = append(v.problems, p)
}

// mixed notes lines of another model than the first: an input file can have requests to a single model.
// https://platform.openai.com/docs/guides/batch#1-prepare-your-batch-file
func (v *openaiLines) mixed(s *Server, b *batch) (problems []batchProblem, model string) {
	if len(b.tokens) == 1 {
		return nil, sortedKeys(b.tokens)[0]
	}
	for i := range b.lines {
		c, _ := s.lineCall(b, &b.lines[i])
		if i == 0 {
			model = c.model
		}
		if c.model != model {
			v.wrong(i+1, "model_mismatch", "The provided model '"+c.model+"' does not match the model '"+model+
				"' of the first request. A batch may have requests to one model only.", "body.model")
		}
	}
	return v.problems, model
}

func (o openaiBatches) one(s *Server, id string, do func(*batch) *apiProblem, now time.Time) reply {
	missing := &apiProblem{status: http.StatusNotFound, message: "No batch found with id '" + id + "'."}
	return s.withBatch(o, id, missing, func(b *batch) ([]byte, *apiProblem) {
		wrong := do(b)
		return marshal(o.object(b, now)), wrong
	})
}

func (o openaiBatches) cancel(s *Server, b *batch, now time.Time) *apiProblem {
	if s.cancelLocked(b, now) {
		return nil
	}
	return &apiProblem{status: http.StatusConflict, message: "Cannot cancel a batch with status '" + o.status(b, now) + "'."}
}

// list is https://platform.openai.com/docs/api-reference/batch/list
func (o openaiBatches) list(s *Server, r *control) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, more, ok := window(s.listedLocked(o, r.now), r.query.Get("after"), r.number("limit", 20, 100), batchID)
	if !ok {
		page, more = nil, false
	}
	out := openaiList{Object: "list", Data: []any{}, More: more}
	for _, b := range page {
		out.Data = append(out.Data, o.object(b, r.now))
	}
	if len(page) > 0 {
		out.First, out.Last = &page[0].id, &page[len(page)-1].id
	}
	return reply{status: http.StatusOK, body: marshal(out)}
}

// openaiList is a page of anything.
type openaiList struct {
	Object string  `json:"object"`
	Data   []any   `json:"data"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
	More   bool    `json:"has_more"`
	Total  *int    `json:"total,omitempty"` // Mistral's
}

// openaiBatch is https://platform.openai.com/docs/api-reference/batch/object
type openaiBatch struct {
	ID         string           `json:"id"`
	Object     string           `json:"object"`
	Endpoint   string           `json:"endpoint"`
	Model      *string          `json:"model"`
	Errors     *openaiBatchErrs `json:"errors"`
	Input      string           `json:"input_file_id"`
	Window     string           `json:"completion_window"`
	Status     string           `json:"status"`
	Output     *string          `json:"output_file_id"`
	ErrorFile  *string          `json:"error_file_id"`
	Created    int64            `json:"created_at"`
	Begun      *int64           `json:"in_progress_at"`
	Expires    int64            `json:"expires_at"`
	Finalizing *int64           `json:"finalizing_at"`
	Completed  *int64           `json:"completed_at"`
	Failed     *int64           `json:"failed_at"`
	Expired    *int64           `json:"expired_at"`
	Cancelling *int64           `json:"cancelling_at"`
	Cancelled  *int64           `json:"cancelled_at"`
	Counts     struct {
		Total     int `json:"total"`
		Completed int `json:"completed"`
		Failed    int `json:"failed"`
	} `json:"request_counts"`
	Metadata json.RawMessage `json:"metadata"`
}

type openaiBatchErrs struct {
	Object string         `json:"object"`
	Data   []batchProblem `json:"data"`
}

// status is https://platform.openai.com/docs/guides/batch#4-check-the-status-of-a-batch
func (openaiBatches) status(b *batch, now time.Time) string {
	p := b.phase(now)
	if p == phaseEnded {
		return []string{"completed", "expired", "failed", "failed", "cancelled"}[b.outcome]
	}
	if b.outcome == outcomeCancelled {
		return "cancelling"
	}
	return []string{"validating", "in_progress", "finalizing"}[p]
}

// object is a batch as it stands.
func (o openaiBatches) object(b *batch, now time.Time) openaiBatch {
	out := openaiBatch{ID: b.id, Object: "batch", Endpoint: b.path, Input: b.input[0], Window: "24h", Status: o.status(b, now),
		Created: b.created.Unix(), Expires: b.created.Add(24 * time.Hour).Unix(), Metadata: b.metadata}
	if b.model != "" {
		out.Model = &b.model
	}
	if b.outcome == outcomeExpired {
		out.Expires = b.ended().Unix()
	}
	end := unix(b.ended(), now)
	if b.outcome != outcomeInvalid {
		out.Begun, out.Counts.Total = unix(b.validated(), now), len(b.lines)
		out.Counts.Completed, out.Counts.Failed = b.tally(now)
	}
	switch b.outcome {
	case outcomeCompleted:
		out.Finalizing, out.Completed = unix(b.finished(), now), end
	case outcomeExpired:
		out.Finalizing, out.Expired = unix(b.finished(), now), end
	case outcomeInvalid, outcomeBroken:
		if out.Failed = end; end != nil {
			problems := b.problems
			if b.outcome == outcomeBroken {
				problems = []batchProblem{{Code: "server_error", Message: "The batch failed due to an internal server error. Please try again."}}
			}
			out.Errors = &openaiBatchErrs{"list", problems}
		}
	case outcomeCancelled:
		out.Cancelling, out.Cancelled = unix(b.cancelled, now), end
	}
	if b.output.there(now) {
		out.Output = &b.output.id
	}
	if b.errors.there(now) {
		out.ErrorFile = &b.errors.id
	}
	return out
}

// answered is https://platform.openai.com/docs/api-reference/batch/request-output
func (openaiBatches) answered(b []byte, l *batchLine, status int, body []byte) []byte {
	b = append(append(b, `{"id":"batch_req_`...), l.hash.String()...)
	b = appendString(append(b, `","custom_id":`...), l.id)
	b = appendInt(append(b, `,"response":{"status_code":`...), status)
	b = append(append(b, `,"request_id":"req_`...), l.hash.String()...)
	b = append(append(b, `","body":`...), body...)
	return append(b, "},\"error\":null}\n"...)
}

// undone is https://platform.openai.com/docs/guides/batch#batch-expiration, and for batches that were cancelled
// https://github.com/openai/openai-openapi/blob/master/openapi.yaml (BatchRequestOutput)
func (openaiBatches) undone(b []byte, l *batchLine, expired bool) []byte {
	b = append(append(b, `{"id":"batch_req_`...), l.hash.String()...)
	b = appendString(append(b, `","custom_id":`...), l.id)
	code, message := "batch_cancelled", "This request was not executed because the batch was cancelled."
	if expired {
		code, message = "batch_expired", "This request could not be executed before the completion window expired."
	}
	return append(append(append(append(append(b, `,"response":null,"error":{"code":"`...), code...), `","message":"`...), message...), "\"}}\n"...)
}
