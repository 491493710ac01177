package simbatch

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// gemini is Gemini's Batch API, and its files.
// https://ai.google.dev/api/batch-api and https://ai.google.dev/gemini-api/docs/batch-api
// https://github.com/googleapis/python-genai/blob/main/google/genai/batches.py
//
// A file is downloaded from two addresses: the guide's begins with /download, and the SDK's does not
// (https://github.com/googleapis/python-genai/blob/v3.4.0/google/genai/files.py, download).
type gemini struct{}

// traits are https://ai.google.dev/gemini-api/docs/rate-limits#batch-api and
// https://github.com/googleapis/python-genai/blob/main/google/genai/types.py (JobState): an expired batch has no results. A
// cancelled one ends with an error, and has none either (https://google.aip.dev/151).
func (gemini) traits() traits {
	return traits{batches: "/v1beta/batches", files: "/v1beta/files", separator: ":", endpoint: "/v1beta/models/any:generateContent",
		lacks: "upload results", fileID: "batch-", enqueues: true, breaks: true, ordered: true, one: true, bytes: 2 << 30}
}

// problem is https://google.aip.dev/193
func (gemini) problem(p *problem) any {
	kind := map[int]string{http.StatusNotFound: "NOT_FOUND", http.StatusForbidden: "PERMISSION_DENIED", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED"}[p.status]
	out := object{"code": p.status, "message": p.message, "status": cmp.Or(kind, "INVALID_ARGUMENT")}
	if p.wait > 0 {
		out["details"] = []object{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": seconds(p.wait)}}
	}
	return object{"error": out}
}

// missing is https://ai.google.dev/gemini-api/docs/troubleshooting and https://github.com/googleapis/python-genai/issues/1218
func (gemini) missing(r *request, what string) *problem {
	if what == "file" {
		return &problem{status: http.StatusForbidden,
			message: "You do not have permission to access the File " + r.id + " or it may not exist."}
	}
	return &problem{status: http.StatusNotFound, message: "Requested entity was not found."}
}

// geminiInput is the input of a batch. Google's JSON has two names for a member: https://protobuf.dev/programming-guides/json/
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
func (g gemini) create(h *Handler, r *request, b *batch) *problem {
	model, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, ":batchGenerateContent"), "/v1beta/models/")
	if !ok {
		return g.missing(r, "")
	}
	var ask struct {
		Batch struct {
			Name  string       `json:"displayName"`
			Name2 string       `json:"display_name"`
			From  *geminiInput `json:"inputConfig"`
			From2 *geminiInput `json:"input_config"`
		} `json:"batch"`
	}
	if json.Unmarshal(r.body, &ask) != nil {
		return bad("Invalid JSON payload received. Unexpected token.")
	}
	from := cmp.Or(ask.Batch.From, ask.Batch.From2, &geminiInput{})
	b.asked = asked{endpoint: "/v1beta/models/" + model + ":generateContent", model: model, metadata: json.RawMessage(cmp.Or(ask.Batch.Name, ask.Batch.Name2))}
	name := cmp.Or(from.File, from.File2)
	if name != "" {
		f := h.input(g, strings.TrimPrefix(name, "files/"))
		if f == nil {
			return g.missing(r, "")
		}
		b.asked.input = name
		b.read(f.data)
	}
	for _, one := range from.Inline.Requests {
		b.lines = append(b.lines, line{id: string(one.Metadata), body: one.Request})
	}
	if requests, _ := h.maxima(g); name == "" && len(b.lines) == 0 || requests > 0 && len(b.lines) > requests {
		return bad("Request contains an invalid argument.")
	}
	h.weigh(b)
	return nil
}

// full is https://github.com/googleapis/python-genai/issues/1901
func (gemini) full(*Handler, *batch, *shortfall) *problem {
	return &problem{message: "You exceeded your current quota, please check your plan and billing details. For more information on this error, " +
		"head to: https://ai.google.dev/gemini-api/docs/rate-limits."}
}

func (gemini) end(h *Handler, b *batch, r *request, deletes bool) (object, *problem) {
	if deletes {
		h.forget(b)
	} else {
		h.cancel(b, r.now)
	}
	return object{}, nil
}

const geminiTypes = "type.googleapis.com/google.ai.generativelanguage.v1main."

// object is https://ai.google.dev/api/batch-api#Operation with https://ai.google.dev/api/batch-api#GenerateContentBatch as in
// https://github.com/googleapis/python-genai/issues/1323
func (g gemini) object(h *Handler, b *batch, r *request) object {
	name := "batches/" + b.id
	stats := map[string]string{}
	answered, failed := b.tally(r.now)
	for key, n := range map[string]int{"requestCount": len(b.lines), "successfulRequestCount": answered, "failedRequestCount": failed,
		"pendingRequestCount": len(b.lines) - answered - failed} {
		if n > 0 { // Google's JSON leaves out zeros
			stats[key] = strconv.Itoa(n)
		}
	}
	about := object{"@type": geminiTypes + "GenerateContentBatch", "model": "models/" + b.asked.model, "displayName": string(b.asked.metadata),
		"createTime": rfc3339(b.created), "updateTime": rfc3339(b.created), "batchStats": stats, "state": "BATCH_STATE_RUNNING", "name": name}
	if b.asked.input != "" {
		about["inputConfig"] = object{"fileName": b.asked.input}
	}
	out := object{"name": name, "metadata": about}
	switch b.phase(r.now) {
	case validating:
		about["state"] = "BATCH_STATE_PENDING"
	case ended:
		about["endTime"], about["updateTime"], out["done"] = rfc3339(b.ended()), rfc3339(b.ended()), true
		about["state"] = "BATCH_STATE_" + [...]string{"SUCCEEDED", "EXPIRED", "FAILED", "FAILED", "CANCELLED"}[b.outcome]
		if b.outcome != completed {
			out["error"] = g.failure(b)
			break
		}
		about["output"] = g.output(h, b)
		response := g.output(h, b)
		response["@type"] = geminiTypes + "GenerateContentBatchOutput"
		out["response"] = response
	}
	return out
}

// failure has a code of https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
func (gemini) failure(b *batch) object {
	message := [...]string{expired: "The batch expired before it was done.", broken: "An internal error has occurred.", cancelled: "The operation was cancelled."}[b.outcome]
	if b.outcome == invalid {
		message = b.problems[0].Message
	}
	return object{"code": [...]int{expired: 4, invalid: 3, broken: 13, cancelled: 1}[b.outcome], "message": message}
}

// output is https://ai.google.dev/api/batch-api#GenerateContentBatchOutput: a file if the requests were in one.
func (g gemini) output(h *Handler, b *batch) object {
	if b.asked.input != "" {
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
	code := map[int]int{http.StatusBadRequest: 3, http.StatusNotFound: 5, http.StatusTooManyRequests: 8, http.StatusServiceUnavailable: 14}[status]
	return object{"error": object{"code": cmp.Or(code, 13), "message": failure.Error.Message}}
}

// list is https://ai.google.dev/api/batch-api#method:-batches.list and https://ai.google.dev/api/files#method:-files.list
func (g gemini) list(h *Handler, batches []*batch, files []*file, r *request) object {
	if strings.HasPrefix(r.URL.Path, "/v1beta/batches") {
		part, more := page(r, batches, batchID, 100, 1000)
		return geminiListing("operations", part, more, batchID, func(b *batch) object { return g.object(h, b, r) })
	}
	part, more := page(r, files, fileID, 10, 100)
	return geminiListing("files", part, more, fileID, func(f *file) object { return g.file(h, f, r) })
}

func geminiListing[T any](name string, part []T, more bool, id func(T) string, describe func(T) object) object {
	var list []object
	for _, one := range part {
		list = append(list, describe(one))
	}
	out := object{}
	if len(list) > 0 { // Google's JSON leaves out empty lists
		out[name] = list
	}
	if more {
		out["nextPageToken"] = id(part[len(part)-1])
	}
	return out
}

// file is https://ai.google.dev/api/files#File, which expires as of https://ai.google.dev/gemini-api/docs/files
func (gemini) file(_ *Handler, f *file, r *request) object {
	name := "files/" + f.id
	if f.batch != nil {
		at := rfc3339(f.batch.ended())
		return object{"name": name, "mimeType": "application/jsonl", "createTime": at, "updateTime": at, "uri": r.base + "/v1beta/" + name,
			"downloadUri": r.base + "/download/v1beta/" + name + ":download?alt=media", "state": "ACTIVE", "source": "GENERATED"}
	}
	sum := sha256.Sum256(f.data)
	return object{"name": name, "displayName": f.name, "mimeType": f.mime, "sizeBytes": strconv.Itoa(len(f.data)), "createTime": rfc3339(f.created),
		"updateTime": rfc3339(f.created), "expirationTime": rfc3339(f.created.Add(48 * time.Hour)),
		"sha256Hash": base64.StdEncoding.EncodeToString(sum[:]), "uri": r.base + "/v1beta/" + name, "state": "ACTIVE", "source": "UPLOADED"}
}

// continues reports whether the request continues an upload, whose address is the only key that it needs.
// https://github.com/googleapis/python-genai/blob/main/google/genai/_api_client.py (_upload_fd)
func continues(r *request) bool { return r.URL.Path == uploadPath && r.query.Has("upload_id") }

// resumable is https://ai.google.dev/gemini-api/docs/files#rest and
// https://github.com/googleapis/python-genai/blob/main/google/genai/_extra_utils.py (prepare_resumable_upload)
func (h *Handler) resumable(r *request) reply {
	command := strings.ReplaceAll(r.Header.Get("X-Goog-Upload-Command"), " ", "")
	if r.Header.Get("X-Goog-Upload-Protocol") == "resumable" && command == "start" {
		return h.startUpload(r)
	}
	f := h.findFile(gemini{}, r.query.Get("upload_id"))
	offset, _ := strconv.Atoi(r.Header.Get("X-Goog-Upload-Offset"))
	switch most := h.config.MaxBytes; {
	case f == nil || !f.begun:
		return h.refuse(r, r.api.missing(r, ""))
	case command == "query":
		return reply{status: http.StatusOK, header: http.Header{"X-Goog-Upload-Status": {"active"}, "X-Goog-Upload-Size-Received": {strconv.Itoa(len(f.data))}}}
	case most > 0 && offset+len(r.body) > most:
		return h.refuse(r, bad("The file is larger than the maximum of %d bytes.", most))
	case !strings.HasPrefix(command, "upload") && command != "finalize", offset != len(f.data):
		return h.refuse(r, bad("The upload is at another offset."))
	}
	f.data = append(f.data, r.body...)
	if !strings.Contains(command, "finalize") {
		return reply{status: http.StatusOK, header: http.Header{"X-Goog-Upload-Status": {"active"}}}
	}
	f.begun, f.created = false, r.now
	h.stats.Files++
	out := answer(object{"file": r.api.file(h, f, r)})
	out.header, out.lost = http.Header{"X-Goog-Upload-Status": {"final"}}, h.drops(hashOf(f.data))
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
	f := &file{api: r.api, id: h.newID(""), name: cmp.Or(ask.File.Name, ask.File.Name2), begun: true,
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
