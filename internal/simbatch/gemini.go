package simbatch

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// geminiAPI is Gemini's Batch API, and its files.
// https://ai.google.dev/api/batch-api and https://ai.google.dev/gemini-api/docs/batch-api
// https://github.com/googleapis/python-genai/blob/main/google/genai/batches.py
//
// A file is downloaded from two addresses: the guide's begins with /download, and the SDK's does not
// (https://github.com/googleapis/python-genai/blob/v3.4.0/google/genai/files.py, download).
var geminiAPI = &api{
	lists: map[string]list{
		"batch": {path: "/v1beta/batches", usual: 100, max: 1000},               // https://ai.google.dev/api/batch-api#method:-batches.list
		"file":  {path: "/v1beta/files", prefix: "batch-", usual: 10, max: 100}, // https://ai.google.dev/api/files#method:-files.list
	},
	separator: ":", endpoint: "/v1beta/models/any:generateContent", lacks: "upload results",
	bytes:   2 << 30,                    // https://ai.google.dev/gemini-api/docs/rate-limits#batch-api
	members: []string{"key", "request"}, // https://ai.google.dev/gemini-api/docs/batch-api#input-file
	ids:     regexp.MustCompile(``),
	states: [...]string{"BATCH_STATE_PENDING", "BATCH_STATE_RUNNING", "BATCH_STATE_RUNNING", "BATCH_STATE_RUNNING", "BATCH_STATE_SUCCEEDED",
		"BATCH_STATE_EXPIRED", "BATCH_STATE_FAILED", "BATCH_STATE_FAILED", "BATCH_STATE_CANCELLED"},
	// An expired batch has no results (JobState in https://github.com/googleapis/python-genai/blob/main/google/genai/types.py). A
	// cancelled one ends with an error, and has none either (https://google.aip.dev/151).
	ends: ends{ordered: true, quiet: true},
	kinds: map[int]string{http.StatusNotFound: "NOT_FOUND", http.StatusForbidden: "PERMISSION_DENIED",
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", 0: "INVALID_ARGUMENT"},
	form: gemini{},
	problems: map[string]problem{
		// https://ai.google.dev/gemini-api/docs/troubleshooting and https://github.com/googleapis/python-genai/issues/1218
		"no_route":   {status: http.StatusNotFound, message: "Requested entity was not found."},
		"no_batch":   {status: http.StatusNotFound, message: "Requested entity was not found."},
		"no_results": {status: http.StatusNotFound, message: "Requested entity was not found."},
		"no_file": {status: http.StatusForbidden,
			message: "You do not have permission to access the File {id} or it may not exist."},
		"upload":      {message: "Only generated files can be downloaded."},
		"size":        {message: "The file is larger than the maximum of {limit} bytes."},
		"offset":      {message: "The upload is at another offset."},
		"json":        {message: "Invalid JSON payload received. Unexpected token."},
		"no_requests": {status: http.StatusBadRequest, message: "Request contains an invalid argument."},
		"too_many":    {status: http.StatusBadRequest, message: "Request contains an invalid argument."},
		// codes of https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
		"line":       {code: "3", message: "Line {line} of the input file is not a valid request."},
		"body":       {code: "3", message: "Line {line} of the input file is not a valid request."},
		"empty_file": {code: "3", message: "The input file is empty."},
		"expired":    {code: "4", message: "The batch expired before it was done."},
		"broken":     {code: "13", message: "An internal error has occurred."},
		"cancelled":  {code: "1", message: "The operation was cancelled."},
		// https://github.com/googleapis/python-genai/issues/1901
		"per_hour":        {status: http.StatusTooManyRequests, message: overQuota},
		"enqueued_tokens": {status: http.StatusTooManyRequests, message: overQuota},
	},
}

const overQuota = "You exceeded your current quota, please check your plan and billing details. For more information on this error, " +
	"head to: https://ai.google.dev/gemini-api/docs/rate-limits."

type gemini struct{}

// failure is https://google.aip.dev/193
func (gemini) failure(p *problem, kind string) object {
	out := object{"code": p.status, "message": p.message, "status": kind}
	if p.wait > 0 {
		out["details"] = []object{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": seconds(p.wait)}}
	}
	return object{"error": out}
}

func (gemini) deleted(string) object { return object{} }

// geminiInput is the input of a batch. Google's JSON has two names for a member: https://protobuf.dev/programming-guides/json/
type geminiInput struct {
	File   string `json:"fileName"`
	File2  string `json:"file_name"`
	Inline struct {
		Requests json.RawMessage `json:"requests"`
	} `json:"requests"`
}

// create is https://ai.google.dev/api/batch-api#method:-models.batchgeneratecontent
func (gemini) create(h *Handler, r *request, b *batch) ([]byte, *problem) {
	model, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, ":batchGenerateContent"), "/v1beta/models/")
	if !ok {
		return nil, r.api.problem("no_route")
	}
	var ask struct {
		Batch struct {
			Name  string       `json:"displayName"`
			Name2 string       `json:"display_name"`
			From  *geminiInput `json:"inputConfig"`
			From2 *geminiInput `json:"input_config"`
		} `json:"batch"`
	}
	if s := jsonscan.New(r.body); s.Struct(&ask) != nil || !s.End() {
		return nil, r.api.problem("json")
	}
	from := cmp.Or(ask.Batch.From, ask.Batch.From2, &geminiInput{})
	b.asked = asked{endpoint: "/v1beta/models/" + model + ":generateContent", model: model, input: cmp.Or(from.File, from.File2),
		metadata: json.RawMessage(cmp.Or(ask.Batch.Name, ask.Batch.Name2))}
	if b.input != "" {
		f := h.input(r.api, strings.TrimPrefix(b.input, "files/"))
		if f == nil {
			return nil, r.api.problem("no_route")
		}
		return f.data, nil
	}
	s := jsonscan.New(from.Inline.Requests)
	for range s.Elements {
		values := readMembers(&s, "metadata", "request")
		b.lines = append(b.lines, line{id: string(values[0]), body: values[1]})
	}
	return nil, nil
}

const geminiTypes = "type.googleapis.com/google.ai.generativelanguage.v1main."

// batch is https://ai.google.dev/api/batch-api#Operation with https://ai.google.dev/api/batch-api#GenerateContentBatch as in
// https://github.com/googleapis/python-genai/issues/1323
func (g gemini) batch(h *Handler, b *batch, r *request) object {
	name := "batches/" + b.id
	stats := map[string]string{}
	answered, failed := b.tally(r.now)
	for key, n := range map[string]int{"requestCount": len(b.lines), "successfulRequestCount": answered, "failedRequestCount": failed,
		"pendingRequestCount": len(b.lines) - answered - failed} {
		if n > 0 { // Google's JSON leaves out zeros
			stats[key] = strconv.Itoa(n)
		}
	}
	about := object{"@type": geminiTypes + "GenerateContentBatch", "model": "models/" + b.model, "displayName": string(b.metadata),
		"createTime": rfc3339(b.created), "updateTime": rfc3339(b.created), "batchStats": stats, "name": name,
		"state": b.api.states[b.state(r.now)]}
	if b.input != "" {
		about["inputConfig"] = object{"fileName": b.input}
	}
	out := object{"name": name, "metadata": about}
	if b.state(r.now) < completed {
		return out
	}
	about["endTime"], about["updateTime"], out["done"] = rfc3339(b.ended()), rfc3339(b.ended()), true
	if b.fate == completed {
		response := g.output(h, b)
		about["output"], out["response"] = maps.Clone(response), response
		response["@type"] = geminiTypes + "GenerateContentBatchOutput"
	} else {
		out["error"] = object{"code": json.Number(b.problems[0].code), "message": b.problems[0].message}
	}
	return out
}

// output is https://ai.google.dev/api/batch-api#GenerateContentBatchOutput: a file if the requests were in one.
func (g gemini) output(h *Handler, b *batch) object {
	if b.input != "" {
		return object{"responsesFile": "files/" + b.output.id}
	}
	list := []object{}
	for i := range b.lines {
		one := g.outcome(h.answer(b, &b.lines[i]))
		if id := b.lines[i].id; id != "" {
			one["metadata"] = json.RawMessage(id)
		}
		list = append(list, one)
	}
	return object{"inlinedResponses": object{"inlinedResponses": list}}
}

// outcome is the response to a line, or its error with the code of a Status in place of the HTTP status.
func (gemini) outcome(status int, body []byte) object {
	if status == http.StatusOK {
		return object{"response": json.RawMessage(body)}
	}
	var failure struct{ Error struct{ Message string } }
	json.Unmarshal(body, &failure) // it is the simulator's own
	code := map[int]int{http.StatusBadRequest: 3, http.StatusNotFound: 5, http.StatusTooManyRequests: 8}[status]
	return object{"error": object{"code": cmp.Or(code, 13), "message": failure.Error.Message}}
}

func (gemini) page(of string, part []object, ids []string, more bool) object {
	out := object{}
	if len(part) > 0 { // Google's JSON leaves out empty lists
		out[map[string]string{"batch": "operations", "file": "files"}[of]] = part
	}
	if more {
		out["nextPageToken"] = ids[len(ids)-1]
	}
	return out
}

// file is https://ai.google.dev/api/files#File, which expires as of https://ai.google.dev/gemini-api/docs/files
func (gemini) file(_ *Handler, f *file, r *request) object {
	name := "files/" + f.id
	at := rfc3339(f.written())
	out := object{"name": name, "createTime": at, "updateTime": at, "uri": r.base + "/v1beta/" + name, "state": "ACTIVE"}
	if f.batch != nil {
		out["source"], out["mimeType"] = "GENERATED", "application/jsonl"
		out["downloadUri"] = r.base + "/download/v1beta/" + name + ":download?alt=media"
		return out
	}
	sum := sha256.Sum256(f.data)
	out["source"], out["mimeType"], out["displayName"] = "UPLOADED", f.mime, f.name
	out["sizeBytes"], out["sha256Hash"] = strconv.Itoa(len(f.data)), base64.StdEncoding.EncodeToString(sum[:])
	out["expirationTime"] = rfc3339(f.created.Add(48 * time.Hour))
	return out
}

// continues reports whether the request continues an upload, whose address is the only key that it needs.
// https://github.com/googleapis/python-genai/blob/main/google/genai/_api_client.py (_upload_fd)
func continues(r *request) bool { return r.of == "upload" && r.query.Has("upload_id") }

// resumable is https://ai.google.dev/gemini-api/docs/files#rest and
// https://github.com/googleapis/python-genai/blob/main/google/genai/_extra_utils.py (prepare_resumable_upload)
func (h *Handler) resumable(r *request) reply {
	command := strings.ReplaceAll(r.Header.Get("X-Goog-Upload-Command"), " ", "")
	if r.Header.Get("X-Goog-Upload-Protocol") == "resumable" && command == "start" {
		return h.startUpload(r)
	}
	f := h.find(r.api, r.query.Get("upload_id"))
	if f == nil || !f.created.IsZero() {
		return h.refuse(r, r.api.problem("no_route"))
	}
	active := reply{status: http.StatusOK, header: http.Header{"X-Goog-Upload-Status": {"active"}}}
	offset, _ := strconv.Atoi(r.Header.Get("X-Goog-Upload-Offset"))
	switch limit := h.config.MaxBytes; {
	case command == "query":
		active.header.Set("X-Goog-Upload-Size-Received", strconv.Itoa(len(f.data)))
		return active
	case limit > 0 && offset+len(r.body) > limit:
		return h.refuse(r, r.api.problem("size", "limit", limit))
	case !strings.HasPrefix(command, "upload") && command != "finalize", offset != len(f.data):
		return h.refuse(r, r.api.problem("offset"))
	}
	f.data = append(f.data, r.body...)
	if !strings.Contains(command, "finalize") {
		return active
	}
	f.created = r.now
	out := h.stored(f, object{"file": r.api.file(h, f, r)})
	out.header = http.Header{"X-Goog-Upload-Status": {"final"}}
	return out
}

// startUpload returns the address to which the file is to be sent.
func (h *Handler) startUpload(r *request) reply {
	var ask struct {
		File struct {
			Name  string `json:"displayName"`
			Name2 string `json:"display_name"`
			Mime  string `json:"mimeType"`
		} `json:"file"`
	}
	json.Unmarshal(r.body, &ask) // a body is optional
	h.stats.Calls["upload"]++
	f := &file{api: r.api, id: h.newID(""), name: cmp.Or(ask.File.Name, ask.File.Name2),
		mime: cmp.Or(r.Header.Get("X-Goog-Upload-Header-Content-Type"), ask.File.Mime, "application/jsonl")}
	h.files = append(h.files, f)
	return reply{status: http.StatusOK, header: http.Header{"X-Goog-Upload-Status": {"active"},
		"X-Goog-Upload-Url": {r.base + uploadPath + "?upload_id=" + f.id + "&upload_protocol=resumable"}}}
}

// line is https://ai.google.dev/gemini-api/docs/batch-api#retrieve-results
func (g gemini) line(_ *batch, l *line, status int, body []byte) string {
	out := g.outcome(status, body)
	out["key"] = l.id
	return string(encode(out))
}
