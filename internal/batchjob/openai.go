package batchjob

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/provider"
)

// tagKey is the member of a batch's metadata that has the tag of its part.
const tagKey = "sluice_part"

// openAI is the Batch API of OpenAI, which other providers have, too (https://platform.openai.com/docs/api-reference/batch,
// https://platform.openai.com/docs/api-reference/files, and https://github.com/openai/openai-python: resources/batches.py,
// resources/files.py, types/batch.py).
func openAI() form {
	return form{
		endpoints: []provider.Endpoint{provider.ChatCompletions, provider.Responses, provider.Embeddings}, // of BatchCreateParams
		frame:     Frame{Between: "\n", Close: "\n"},
		id:        "custom_id",
		before:    func(e provider.Endpoint) string { return `,"method":"POST","url":"` + e.String() + `","body":` },
		path:      "/v1/batches/", cancel: "/cancel", size: "limit", after: "after",
		upload: openAIUpload,
		create: func(p *File, file string) (provider.Control, error) {
			return post("/v1/batches", map[string]any{
				"input_file_id": file, "endpoint": p.Endpoint.String(), "completion_window": "24h",
				"metadata": map[string]string{tagKey: p.Tag},
			}), nil
		},
		results: func(id string) provider.Control { return get("/v1/files/"+segment(id)+"/content", nil) },
		batch:   openAIBatch,
		result:  openAIResult,
	}
}

// openAIUpload sends the file of a part as a form. The boundary is not in a line of JSON.
func openAIUpload(c *client, ctx context.Context, p *File) (string, error) {
	boundary := "sluice-" + p.Tag
	open := fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"+
		"--%[1]s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%[2]s.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n",
		boundary, p.Tag)
	end := "\r\n--" + boundary + "--\r\n"
	ctl := provider.Control{Method: http.MethodPost, Path: "/v1/files", Type: "multipart/form-data; boundary=" + boundary,
		Size: int64(len(open)) + p.Size + int64(len(end))}
	ctl.Open = func() (io.ReadCloser, error) {
		f, err := p.Open()
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(open), f, strings.NewReader(end)), f}, err
	}
	a, err := c.send(ctx, ctl, nil, nil)
	if err != nil {
		return "", c.refused(a, err)
	}
	o, _ := parseObject(a.Body)
	if id := o.text("id"); id != "" {
		return id, nil
	}
	return "", c.senseless(a, "file ID")
}

// openAIBatch reads a batch (types/batch.py).
func openAIBatch(o object) Batch {
	counts := o.object("request_counts")
	b := Batch{ID: o.text("id"), Tag: o.object("metadata").text(tagKey), File: o.text("input_file_id"), Status: Status(o.text("status")),
		Requests: counts.number("total"), Succeeded: counts.number("completed"), Failed: counts.number("failed"),
		Created: o.instant("created_at"), Expires: o.instant("expires_at")}
	switch b.Status {
	case "", Validating, Running, Finishing, Cancelling, Completed, Expired, Cancelled, Failed: // the words of OpenAI
	default:
		b.Status = Running
	}
	for _, name := range []string{"completed_at", "expired_at", "cancelled_at", "failed_at"} {
		if b.Ended.IsZero() {
			b.Ended = o.instant(name)
		}
	}
	b.Results = slices.DeleteFunc([]string{o.text("output_file_id"), o.text("error_file_id")}, func(id string) bool { return id == "" })
	if b.Status == Failed {
		b.Problem = openAIProblem(o["errors"])
	}
	return b
}

// openAIProblem returns the reason why a batch failed. It is the first error, unless a later one is of another kind than Invalid.
func openAIProblem(errors []byte) (p *Problem) {
	var said struct{ Data []json.RawMessage }
	_ = json.Unmarshal(errors, &said) // another form gives no reason
	lines := make(map[int]string)
	for _, text := range said.Data {
		fault, _ := parseObject(text)
		one := problem(fault)
		if p == nil || p.Kind == Invalid && one.Kind != Invalid {
			p = &one
		}
		if line := fault.number("line"); line > 0 && one.Kind == Invalid {
			lines[line-1] = one.Message
		}
	}
	if p != nil && len(lines) > 0 && p.Kind == Invalid {
		p.Lines = lines
	}
	return p
}

// openAIResult reads a line of an output or error file (https://platform.openai.com/docs/api-reference/batch/request-output).
func openAIResult(o object) (Result, bool) {
	failed, r := o["error"], Result{}
	if o["response"] != nil {
		response, ok := parseObject(o["response"])
		r = Result{Fate: Answered, Status: response.number("status_code"), RequestID: response.text("request_id"), Body: response["body"]}
		if r.Body != nil || failed == nil || !ok {
			return r, ok
		}
	}
	fates := map[string]Fate{"batch_expired": PastWindow, "batch_cancelled": CalledOff}
	r.Fate, r.Body = cmp.Or(fates[o.object("error").text("code")], Answered), wrapped(failed)
	return r, failed != nil
}

// wrapped returns a value as an error in a body.
func wrapped(failed []byte) []byte { return append(append([]byte(`{"error":`), failed...), '}') }
