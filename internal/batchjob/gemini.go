package batchjob

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/provider"
)

// jsonLines is the content type of a file in the guide.
const jsonLines = "application/jsonl"

// gemini is the Batch API of Gemini (https://ai.google.dev/gemini-api/docs/batch-api, https://ai.google.dev/api/batch-api, and
// https://github.com/googleapis/python-genai: google/genai/files.py, batches.py, _transformers.py). The results are in a file, because the
// requests are. A batch has one model, which is in its address, and one embedding per request.
func gemini() form {
	return form{
		dialect:   provider.Gemini,
		endpoints: []provider.Endpoint{provider.GenerateContent, provider.StreamGenerateContent, provider.EmbedContent},
		frame:     Frame{Between: "\n", Close: "\n"},
		id:        "key",
		before:    func(provider.Endpoint) string { return `,"request":` },
		path:      "/v1beta/batches/", cancel: ":cancel", size: "pageSize", after: "pageToken", forbids: true,
		upload: geminiUpload,
		create: geminiCreate,
		results: func(id string) provider.Control {
			return get("/v1beta/files/"+segment(id)+":download", url.Values{"alt": {"media"}})
		},
		batch:  geminiBatch,
		result: geminiResult,
	}
}

// geminiUpload starts a session, which takes the file in one request. The address identifies the session, so that it needs no key.
func geminiUpload(c *client, ctx context.Context, p *File) (string, error) {
	about := map[string]any{"display_name": p.Tag, "mime_type": jsonLines, "size_bytes": p.Size}
	a, err := c.with(map[string]string{
		"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start",
		"X-Goog-Upload-Header-Content-Length": strconv.FormatInt(p.Size, 10), "X-Goog-Upload-Header-Content-Type": jsonLines,
	}).send(ctx, post("/upload/v1beta/files", map[string]any{"file": about}), nil, nil)
	if err != nil {
		return "", c.refused(a, err)
	}
	// The host and the version of the address are not used: they are the account's.
	u, err := url.Parse(a.Header.Get("X-Goog-Upload-Url"))
	if err != nil || !strings.HasPrefix(u.Path, "/upload/") || strings.Contains(u.Path, "..") {
		return "", c.senseless(a, "upload address")
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(u.Path, "/upload/"), "/")
	session := c.with(map[string]string{"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"})
	session.to.Key = ""
	a, err = session.send(ctx, provider.Control{
		Method: http.MethodPost, Path: "/upload/v1beta/" + path, Query: u.Query(), Open: p.Open, Size: p.Size, Type: jsonLines,
	}, nil, nil)
	if err != nil {
		return "", c.refused(a, err)
	}
	o, _ := parseObject(a.Body)
	if name := o.object("file").text("name"); name != "" {
		return name, nil
	}
	return "", c.senseless(a, "file name")
}

// with returns a client that sends more headers.
func (c *client) with(headers map[string]string) *client {
	other := *c
	if other.to.Header = c.to.Header.Clone(); other.to.Header == nil {
		other.to.Header = http.Header{}
	}
	for name, value := range headers {
		other.to.Header.Set(name, value)
	}
	return &other
}

func geminiCreate(p *File, file string) (provider.Control, error) {
	path, err := provider.GenerateContent.Path(p.Model)
	model, _, _ := strings.Cut(path, ":")
	method := ":batchGenerateContent"
	if p.Endpoint == provider.EmbedContent {
		method = ":asyncBatchEmbedContent"
	}
	batch := map[string]any{"displayName": p.Tag, "inputConfig": map[string]string{"fileName": file}}
	return post(model+method, map[string]any{"batch": batch}), err
}

// geminiBatch reads a batch. It is an operation, whose metadata describes the batch. The metadata and the response have the same output.
func geminiBatch(o object) Batch {
	m := o.object("metadata")
	counts := m.object("batchStats")
	b := Batch{ID: o.text("name"), Tag: m.text("displayName"), File: m.object("inputConfig").text("fileName"), Status: geminiStatus(o, m),
		Requests: counts.number("requestCount"), Succeeded: counts.number("successfulRequestCount"), Failed: counts.number("failedRequestCount"),
		Created: m.instant("createTime"), Ended: m.instant("endTime")}
	if file := cmp.Or(m.object("output").text("responsesFile"), o.object("response").text("responsesFile")); file != "" {
		b.Results = []string{file}
	}
	if failed := o.object("error"); b.Status == Failed && o["error"] != nil {
		b.Problem = &Problem{Kind: Broken, Code: string(failed["code"]), Message: failed.text("message")}
		switch rpcStatus(failed.number("code")) {
		case http.StatusTooManyRequests:
			b.Problem.Kind = NoRoom
		case http.StatusBadRequest, http.StatusNotFound:
			b.Problem.Kind = Invalid
		}
	}
	return b
}

// geminiStatus returns the status of a batch. States start with BATCH_STATE_ or JOB_STATE_ (_transformers.py, t_job_state; types.py,
// JobState), or are missing.
func geminiStatus(o, metadata object) Status {
	_, word, _ := strings.Cut(metadata.text("state"), "STATE_")
	code := o.object("error").number("code")
	switch word {
	case "RUNNING", "UPDATING":
		return Running
	case "CANCELLING":
		return Cancelling
	case "SUCCEEDED", "PARTIALLY_SUCCEEDED":
		return Completed
	case "FAILED", "CANCELLED", "EXPIRED":
		return Status(strings.ToLower(word))
	case "PENDING", "QUEUED", "PAUSED":
		return Queued
	}
	switch {
	case code == rpcCancelled:
		return Cancelled
	case code != 0:
		return Failed
	case string(o["done"]) == "true":
		return Completed
	}
	return Queued
}

// geminiResult reads a line of a file of responses. A "status object", says the guide, which files have as error
// (https://github.com/googleapis/python-genai/issues/1341), is an error.
func geminiResult(o object) (Result, bool) {
	failed := o["error"]
	if failed == nil {
		failed = o["status"]
	}
	if failed == nil {
		response, ok := parseObject(o["response"])
		return Result{Fate: Answered, Status: http.StatusOK, RequestID: response.text("responseId"), Body: o["response"]}, ok
	}
	fault, ok := parseObject(failed)
	r := Result{Fate: Answered, Status: rpcStatus(fault.number("code")), Body: wrapped(failed)}
	if fault.number("code") == rpcCancelled {
		r.Fate = CalledOff
	}
	return r, ok
}

// rpcCancelled is the code of a cancelled request.
const rpcCancelled = 1

// rpcStatus returns the HTTP status of a code of google.rpc, or of an HTTP status, as errors of live requests have; 0 is unknown
// (https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto).
func rpcStatus(code int) int {
	statuses := [...]int{0, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}
	switch {
	case code >= 400 && code < 600:
		return code
	case code > 0 && code < len(statuses):
		return statuses[code]
	}
	return 0
}
