package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// geminiBatches is Gemini's Batch API, and the files it needs.
// https://ai.google.dev/api/batch-api and https://ai.google.dev/gemini-api/docs/batch-api
// https://github.com/googleapis/python-genai/blob/main/google/genai/batches.py
type geminiBatches struct{}

// traits are https://ai.google.dev/gemini-api/docs/rate-limits#batch-api and
// https://github.com/googleapis/python-genai/blob/main/google/genai/types.py (JobState), which says of an expired batch that
// it has no results; a cancelled one ends with an error, and has none either (https://google.aip.dev/151).
func (geminiBatches) traits() traits {
	return traits{dialect: gemini{}, enqueues: true, breaks: true, ordered: true, one: true, bytes: 2 << 30}
}

// refusal is https://google.aip.dev/193
func (geminiBatches) refusal(p *apiProblem) []byte {
	kind := cmp.Or(p.kind, map[int]string{http.StatusNotFound: "NOT_FOUND", http.StatusForbidden: "PERMISSION_DENIED",
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED"}[p.status], "INVALID_ARGUMENT")
	out := geminiProblem{Code: p.status, Message: p.message, Status: kind}
	if p.wait > 0 {
		out.Details = []geminiDetail{{Type: rpc + "RetryInfo", RetryDelay: wholeWait(p.wait)}}
	}
	return marshal(geminiError{out})
}

func (g geminiBatches) serve(s *Server, r *control) reply {
	if strings.Contains(r.path, "/v1beta/files") {
		return g.serveFiles(s, r)
	}
	if model, ok := strings.CutPrefix(r.path, "/v1beta/models/"); ok {
		if r.method != http.MethodPost {
			return g.missing(s)
		}
		s.countBatch("create", "")
		return g.create(s, r, strings.TrimSuffix(model, ":batchGenerateContent"))
	}
	id, verb, _ := strings.Cut(strings.TrimPrefix(r.path, "/v1beta/"), ":")
	switch {
	case id == "batches" && r.method == http.MethodGet:
		s.countBatch("list", "")
		return g.list(s, r)
	case verb == "" && r.method == http.MethodGet:
		s.countBatch("get", "")
		return g.one(s, id, func(b *batch) []byte { return marshal(g.operation(s, b, r)) })
	case verb == "cancel" && r.method == http.MethodPost:
		s.countBatch("cancel", "")
		return g.one(s, id, func(b *batch) []byte { s.cancelLocked(b, r.now); return []byte("{}") })
	case verb == "" && r.method == http.MethodDelete:
		s.countBatch("delete", "")
		return g.one(s, id, func(b *batch) []byte { s.forgetLocked(b); return []byte("{}") })
	}
	return g.missing(s)
}

// missing is https://ai.google.dev/gemini-api/docs/troubleshooting
func (g geminiBatches) missing(s *Server) reply { return s.refuseBatch(g, noEntity()) }

func noEntity() *apiProblem {
	return &apiProblem{status: http.StatusNotFound, message: "Requested entity was not found."}
}

func (g geminiBatches) one(s *Server, id string, do func(*batch) []byte) reply {
	return s.withBatch(g, id, noEntity(), func(b *batch) ([]byte, *apiProblem) { return do(b), nil })
}

// geminiAsk is what creates a batch; Google's JSON takes either name of a member.
// https://protobuf.dev/programming-guides/json/
type geminiAsk struct {
	Batch struct {
		Name  string       `json:"displayName"`
		Name2 string       `json:"display_name"`
		From  *geminiInput `json:"inputConfig"`
		From2 *geminiInput `json:"input_config"`
	} `json:"batch"`
}

type geminiInput struct {
	File   string `json:"fileName"`
	File2  string `json:"file_name"`
	Inline struct {
		Requests []struct {
			Request  json.RawMessage `json:"request"`
			Metadata json.RawMessage `json:"metadata"`
		} `json:"requests"`
	} `json:"requests"`
}

// create is https://ai.google.dev/api/batch-api#method:-models.batchgeneratecontent
func (g geminiBatches) create(s *Server, r *control, model string) reply {
	var ask geminiAsk
	from := &geminiInput{}
	if !r.decode(&ask) {
		return s.refuseBatch(g, &apiProblem{status: http.StatusBadRequest, message: "Invalid JSON payload received. Unexpected token."})
	}
	if ask.Batch.From != nil {
		from = ask.Batch.From
	} else if ask.Batch.From2 != nil {
		from = ask.Batch.From2
	}
	b := &batch{api: g, created: r.now, endpoint: generate, model: model, name: cmp.Or(ask.Batch.Name, ask.Batch.Name2)}
	name := cmp.Or(from.File, from.File2)
	if name != "" {
		s.mu.Lock()
		file := s.fileLocked(name)
		s.mu.Unlock()
		if file == nil {
			return g.missing(s)
		}
		b.input = []string{name}
		g.read(b, file.data)
	}
	for _, one := range from.Inline.Requests {
		b.lines = append(b.lines, batchLine{id: string(one.Metadata), body: one.Request})
	}
	if most := s.config.Batches.MaxRequests; name == "" && len(b.lines) == 0 || most > 0 && len(b.lines) > most {
		return s.refuseBatch(g, &apiProblem{status: http.StatusBadRequest, message: "Request contains an invalid argument."})
	}
	s.weigh(b)
	s.mu.Lock()
	if short := s.roomLocked(b); short != nil {
		s.mu.Unlock()
		// https://github.com/googleapis/python-genai/issues/1901
		return s.refuseBatch(g, &apiProblem{status: http.StatusTooManyRequests, wait: short.wait, why: short.why,
			message: "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: " +
				"https://ai.google.dev/gemini-api/docs/rate-limits."})
	}
	defer s.mu.Unlock()
	id := s.nextIDLocked()
	b.id = "batches/" + id
	b.output = s.resultLocked(b, "files/batch-"+id, false)
	s.startLocked(b)
	lost := s.droppedLocked(hashOf(append([]byte(r.path), r.body...)))
	return reply{status: http.StatusOK, body: marshal(g.operation(s, b, r)), lost: lost}
}

// read takes a file of requests apart. https://ai.google.dev/gemini-api/docs/batch-api#input-file
func (geminiBatches) read(b *batch, data []byte) {
	wrong := func(number int, message string) {
		b.problems = append(b.problems, batchProblem{Message: message, Line: &number})
	}
	readLines(data, "key", "request", nil, func(number int, l batchLine, ok bool) {
		if !ok {
			wrong(number, fmt.Sprintf("Failed to parse line %d of the input file.", number))
		} else if !l.isObject() {
			wrong(number, fmt.Sprintf("Line %d of the input file has no request.", number))
		}
		b.lines = append(b.lines, l)
	})
	if len(b.lines) == 0 {
		wrong(0, "The input file is empty.")
	}
}

// list is https://ai.google.dev/api/batch-api#method:-batches.list
func (g geminiBatches) list(s *Server, r *control) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, more, _ := window(s.listedLocked(g, r.now), r.query.Get("pageToken"), r.number("pageSize", 100, 1000), batchID)
	var out struct {
		Operations []geminiOperation `json:"operations,omitempty"`
		Next       string            `json:"nextPageToken,omitempty"`
	}
	for _, b := range page {
		out.Operations = append(out.Operations, g.operation(s, b, r))
	}
	if more {
		out.Next = page[len(page)-1].id
	}
	return reply{status: http.StatusOK, body: marshal(out)}
}

// geminiOperation is https://ai.google.dev/api/batch-api#Operation
type geminiOperation struct {
	Name     string         `json:"name"`
	Metadata geminiBatch    `json:"metadata"`
	Done     bool           `json:"done,omitempty"`
	Error    *geminiStatus  `json:"error,omitempty"`
	Response map[string]any `json:"response,omitempty"`
}

// geminiStatus is https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto
type geminiStatus struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// geminiBatch is https://ai.google.dev/api/batch-api#GenerateContentBatch, as it was seen in
// https://github.com/googleapis/python-genai/issues/1323
type geminiBatch struct {
	Type    string            `json:"@type"`
	Model   string            `json:"model"`
	Display string            `json:"displayName,omitempty"`
	Input   map[string]string `json:"inputConfig,omitempty"`
	Output  map[string]any    `json:"output,omitempty"`
	Created string            `json:"createTime"`
	Ended   string            `json:"endTime,omitempty"`
	Updated string            `json:"updateTime"`
	Stats   map[string]string `json:"batchStats"`
	State   string            `json:"state"`
	Name    string            `json:"name"`
}

const geminiTypes = "type.googleapis.com/google.ai.generativelanguage.v1main."

// operation is a batch as it stands.
func (g geminiBatches) operation(s *Server, b *batch, r *control) geminiOperation {
	m := geminiBatch{Type: geminiTypes + "GenerateContentBatch", Model: "models/" + b.model, Display: b.name, Created: instant(b.created),
		Updated: instant(b.created), Stats: map[string]string{}, State: "BATCH_STATE_RUNNING", Name: b.id}
	if len(b.input) > 0 {
		m.Input = map[string]string{"fileName": b.input[0]}
	}
	answered, failed := b.tally(r.now)
	for name, n := range map[string]int{"requestCount": len(b.lines), "successfulRequestCount": answered, "failedRequestCount": failed,
		"pendingRequestCount": len(b.lines) - answered - failed} {
		if n > 0 { // as any number in Google's JSON, zero is left out
			m.Stats[name] = strconv.Itoa(n)
		}
	}
	out := geminiOperation{Name: b.id}
	switch p := b.phase(r.now); p {
	case phaseValidating:
		m.State = "BATCH_STATE_PENDING"
	case phaseEnded:
		m.Ended, m.Updated, out.Done = instant(b.ended()), instant(b.ended()), true
		m.State, out.Error = g.end(b)
		if out.Error == nil {
			m.Output = g.output(s, b)
			out.Response = map[string]any{"@type": geminiTypes + "GenerateContentBatchOutput"}
			for name, value := range m.Output {
				out.Response[name] = value
			}
		}
	}
	out.Metadata = m
	return out
}

// end is how a batch ended, with a code of https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
func (geminiBatches) end(b *batch) (state string, problem *geminiStatus) {
	switch b.outcome {
	case outcomeExpired:
		return "BATCH_STATE_EXPIRED", &geminiStatus{4, "The batch expired before it was done."}
	case outcomeInvalid:
		return "BATCH_STATE_FAILED", &geminiStatus{3, b.problems[0].Message}
	case outcomeBroken:
		return "BATCH_STATE_FAILED", &geminiStatus{13, "An internal error has occurred."}
	case outcomeCancelled:
		return "BATCH_STATE_CANCELLED", &geminiStatus{1, "The operation was cancelled."}
	}
	return "BATCH_STATE_SUCCEEDED", nil
}

// output is https://ai.google.dev/api/batch-api#GenerateContentBatchOutput: a file if the requests were in one.
func (g geminiBatches) output(s *Server, b *batch) map[string]any {
	if len(b.input) > 0 {
		return map[string]any{"responsesFile": b.output.id}
	}
	var list []json.RawMessage
	for i := range b.lines {
		status, body := s.lineAnswer(b, &b.lines[i])
		one := g.outcome(nil, status, body)
		if id := b.lines[i].id; id != "" {
			one = append(append(append([]byte(`"metadata":`), id...), ','), one...)
		}
		list = append(list, append(append([]byte{'{'}, one...), '}'))
	}
	return map[string]any{"inlinedResponses": map[string]any{"inlinedResponses": list}}
}

// outcome appends the member that says what a line was answered; an error has the code of a Status, not that of HTTP.
func (geminiBatches) outcome(b []byte, status int, body []byte) []byte {
	if status == http.StatusOK {
		return append(append(b, `"response":`...), body...)
	}
	var problem geminiError
	if err := json.Unmarshal(body, &problem); err != nil {
		panic(err) // it is our own
	}
	code := map[int]int{http.StatusBadRequest: 3, http.StatusNotFound: 5, http.StatusTooManyRequests: 8, http.StatusServiceUnavailable: 14}[status]
	return append(append(b, `"error":`...), marshal(geminiStatus{cmp.Or(code, 13), problem.Error.Message})...)
}

// answered is https://ai.google.dev/gemini-api/docs/batch-api#retrieve-results
func (g geminiBatches) answered(b []byte, l *batchLine, status int, body []byte) []byte {
	b = append(g.outcome(append(b, '{'), status, body), `,"key":`...)
	return append(appendString(b, l.id), "}\n"...)
}

// undone is never asked for: a batch that is not done has no results.
func (geminiBatches) undone(b []byte, _ *batchLine, _ bool) []byte { return b }
