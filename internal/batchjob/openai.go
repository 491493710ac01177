package batchjob

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// tagKey is the member of a batch's metadata that holds the tag of its part.
const tagKey = "sluice_part"

// openAI is the Batch API of OpenAI, which others have too (https://platform.openai.com/docs/api-reference/batch,
// https://platform.openai.com/docs/api-reference/files, and the same in https://github.com/openai/openai-python:
// resources/batches.py, resources/files.py, types/batch.py).
type openAI struct{ caller }

// Endpoints returns the endpoints of ours that BatchCreateParams lists.
func (o *openAI) Endpoints() []provider.Endpoint {
	return []provider.Endpoint{provider.ChatCompletions, provider.Responses, provider.Embeddings}
}

// Frame is that of lines.
func (o *openAI) Frame() Frame { return Frame{Between: "\n", Close: "\n"} }

// AppendRequest appends a line (https://platform.openai.com/docs/api-reference/batch/request-input).
func (o *openAI) AppendRequest(dst []byte, id string, e provider.Endpoint, body []byte) []byte {
	dst = jsonscan.AppendString(append(dst, `{"custom_id":`...), id)
	dst = jsonscan.AppendString(append(dst, `,"method":"POST","url":`...), e.String())
	return append(appendBody(append(dst, `,"body":`...), body, streamed), '}')
}

// openAIFile is a file (types/file_object.py).
type openAIFile struct {
	ID       string `json:"id"`
	Filename string `json:"filename"`
}

// fileName is what the file of a part is called.
func fileName(tag string) string { return tag + ".jsonl" }

// Upload sends a part's file as a form.
func (o *openAI) Upload(ctx context.Context, p *File) (string, error) {
	a, err := o.send(ctx, form(p), nil)
	if err != nil {
		return "", o.refused(a, err, nil)
	}
	var file openAIFile
	if err := o.read(a, &file); err != nil {
		return "", err
	}
	if file.ID == "" {
		return "", o.senseless(a, "id")
	}
	return file.ID, nil
}

// form is the call that uploads a part's file. Its parts end at a line that no line of JSON is.
func form(p *File) call {
	end := "sluice-" + p.Tag
	open := fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"+
		"--%[1]s\r\nContent-Disposition: form-data; name=\"file\"; filename=%[2]q\r\nContent-Type: application/jsonl\r\n\r\n",
		end, fileName(p.Tag))
	tail := "\r\n--" + end + "--\r\n"
	c := call{Control: provider.Control{Method: http.MethodPost, Path: "/v1/files", Type: "multipart/form-data; boundary=" + end,
		Size: int64(len(open)) + p.Size + int64(len(tail))}}
	c.Open = func() (io.ReadCloser, error) {
		f, err := p.Open()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(open), f, strings.NewReader(tail)), f}, nil
	}
	return c
}

// next has a query ask for the page behind an id. It fails for a page that was asked for already.
func next(query url.Values, name, id string) bool {
	if id == "" || query.Get(name) == id {
		return false
	}
	query.Set(name, id)
	return true
}

// openAIBatch is a batch (types/batch.py).
type openAIBatch struct {
	ID            string                                 `json:"id"`
	Status        string                                 `json:"status"`
	InputFile     string                                 `json:"input_file_id"`
	OutputFile    string                                 `json:"output_file_id"`
	ErrorFile     string                                 `json:"error_file_id"`
	CreatedAt     float64                                `json:"created_at"` // seconds since 1970, as all these
	ExpiresAt     float64                                `json:"expires_at"`
	CompletedAt   float64                                `json:"completed_at"`
	ExpiredAt     float64                                `json:"expired_at"`
	CancelledAt   float64                                `json:"cancelled_at"`
	FailedAt      float64                                `json:"failed_at"`
	Metadata      map[string]any                         `json:"metadata"`
	Errors        json.RawMessage                        `json:"errors"` // of the whole: {"data":[...]}
	RequestCounts struct{ Total, Completed, Failed int } `json:"request_counts"`
}

// Create has an uploaded file run.
func (o *openAI) Create(ctx context.Context, p *File, file string) (Batch, error) {
	a, err := o.send(ctx, post("/v1/batches", map[string]any{
		"input_file_id": file, "endpoint": p.Endpoint.String(), "completion_window": "24h",
		"metadata": map[string]string{tagKey: p.Tag},
	}, nil), nil)
	if err != nil {
		return Batch{}, o.refused(a, err, nil)
	}
	return o.batchIn(a)
}

// Find returns the batches of a part's tag among those made since then.
func (o *openAI) Find(ctx context.Context, p *File, since time.Time) (found []Batch, err error) {
	query := url.Values{"limit": {"100"}}
	for range pages {
		a, err := o.send(ctx, get("/v1/batches", query, nil), nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Data    []openAIBatch `json:"data"`
			HasMore bool          `json:"has_more"`
		}
		if err := o.read(a, &page); err != nil {
			return nil, err
		}
		for i := range page.Data {
			if b := o.batch(&page.Data[i]); b.Tag == p.Tag && b.ID != "" {
				found = append(found, b)
			}
		}
		n := len(page.Data)
		if !page.HasMore || n == 0 || !next(query, "after", page.Data[n-1].ID) {
			return found, nil
		}
		first, last := seconds(page.Data[0].CreatedAt), seconds(page.Data[n-1].CreatedAt)
		if last.Before(begun(since, a.Header)) && !last.After(first) { // newest first, and the others are older
			return found, nil
		}
	}
	return nil, errors.New("the list of batches has too many pages")
}

// begun is the earliest instant that the provider may give to a batch which was made after since: its clock is not ours, but
// its answers bear its time.
func begun(since time.Time, h http.Header) time.Time {
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		since = since.Add(time.Until(theirs))
	}
	return since.Add(-skew)
}

// Get asks for a batch.
func (o *openAI) Get(ctx context.Context, id string) (Batch, error) {
	a, err := o.send(ctx, get("/v1/batches/"+segment(id), nil, ErrUnknown), nil)
	if err != nil {
		return Batch{}, err
	}
	return o.batchIn(a)
}

// Cancel is no error for a batch that has ended, or is about to.
func (o *openAI) Cancel(ctx context.Context, id string) error {
	return o.cancel(ctx, "/v1/batches/"+segment(id)+"/cancel", id, o.Get)
}

// Fetch writes a file to w.
func (o *openAI) Fetch(ctx context.Context, result string, w io.Writer) error {
	return o.fetch(ctx, "/v1/files/"+segment(result)+"/content", nil, w)
}

// ParseResult reads a line of an output or error file (https://platform.openai.com/docs/api-reference/batch/request-output).
func (o *openAI) ParseResult(line []byte) (Result, error) {
	var id, response, failed, status, requestID, body, code []byte
	if !members(line, member{"custom_id", &id}, member{"response", &response}, member{"error", &failed}) || text(id) == "" {
		return Result{}, senselessLine(line)
	}
	r := Result{ID: text(id), Fate: Answered}
	if response != nil {
		if !members(response, member{"status_code", &status}, member{"request_id", &requestID}, member{"body", &body}) {
			return Result{}, senselessLine(line)
		}
		r.Status, r.RequestID, r.Body = number(status), text(requestID), body
		if body != nil || failed == nil {
			return r, nil
		}
	}
	if failed == nil {
		return Result{}, senselessLine(line)
	}
	r.Body = append(append([]byte(`{"error":`), failed...), '}')
	if members(failed, member{"code", &code}) {
		switch text(code) {
		case "batch_expired":
			r.Fate = PastWindow
		case "batch_cancelled":
			r.Fate = CalledOff
		}
	}
	return r, nil
}

// batchIn reads an answer that is a batch.
func (o *openAI) batchIn(a provider.Answer) (Batch, error) {
	var got openAIBatch
	if err := o.read(a, &got); err != nil {
		return Batch{}, err
	}
	if got.ID == "" || got.Status == "" {
		return Batch{}, o.senseless(a, "id or status")
	}
	return o.batch(&got), nil
}

// batch is a batch in our words: its states are ours.
func (o *openAI) batch(of *openAIBatch) Batch {
	tag, _ := of.Metadata[tagKey].(string)
	b := Batch{ID: of.ID, Tag: tag, File: of.InputFile, Status: Status(o.words(of.Status, 40)),
		Requests: of.RequestCounts.Total, Succeeded: of.RequestCounts.Completed, Failed: of.RequestCounts.Failed,
		Created: seconds(of.CreatedAt), Expires: seconds(of.ExpiresAt),
		Ended: seconds(cmp.Or(of.CompletedAt, of.ExpiredAt, of.CancelledAt, of.FailedAt))}
	if b.Status.Ended() {
		b.Results = existing(of.OutputFile, of.ErrorFile)
	}
	if b.Status == Failed {
		b.Problem = o.whole(of)
	}
	return b
}

// existing are the files that there are.
func existing(files ...string) []string {
	return slices.DeleteFunc(files, func(id string) bool { return id == "" })
}

// whole is why a batch failed as a whole. The first error says it, unless a later one is of another kind than Invalid.
func (o *openAI) whole(of *openAIBatch) *Problem {
	p := Problem{Kind: Broken, Message: "the batch failed, and the provider gives no reason"}
	lines := make(map[int]string)
	var said struct{ Data []fault }
	_ = json.Unmarshal(of.Errors, &said) // what has another form says nothing
	for i, f := range said.Data {
		one := o.problem(f)
		if i == 0 || p.Kind == Invalid && one.Kind != Invalid {
			p = one
		}
		if at, ok := place(f.Line); ok && one.Kind == Invalid {
			lines[at] = one.Message
		}
	}
	if len(lines) > 0 && p.Kind == Invalid {
		p.Lines = lines
	}
	return &p
}

// seconds is an instant as OpenAI writes it; 0 is none.
func seconds(s float64) time.Time {
	if s <= 0 || s > 1e11 {
		return time.Time{}
	}
	return time.Unix(int64(s), 0).UTC()
}

// cancel asks for the end of a batch. One that has ended, or is about to, cannot be cancelled, which is as good.
func (c *caller) cancel(ctx context.Context, path, id string, get func(context.Context, string) (Batch, error)) error {
	err := c.ask(ctx, post(path, nil, ErrUnknown), nil)
	refusal, ok := errors.AsType[*provider.Error](err)
	if !ok || refusal.Status != http.StatusBadRequest && refusal.Status != http.StatusConflict {
		return err
	}
	if b, looked := get(ctx, id); looked == nil && (b.Status.Ended() || b.Status == Cancelling) {
		return nil
	}
	return err
}
