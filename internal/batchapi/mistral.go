package batchapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// mistral is the Batch API of Mistral (https://docs.mistral.ai/capabilities/batch, and
// https://github.com/mistralai/client-python: client/files.py, client/batch.py, client/models/batchjob.py). Its files are as
// OpenAI's, and jobs, which it calls batches, are its own.
type mistral struct{ openAI }

const (
	mistralJobs = "/v1/batch/jobs"

	// mistralPage is how many jobs or files are asked for at once: the default of both.
	mistralPage = 100

	// mistralHours is how long a job may take where nobody says otherwise: its default, timeout_hours of
	// models/createbatchjobrequest.py.
	mistralHours = 24
)

// Bounds are those of the provider's row. A job names its model once. The endpoints are those of ours in models/apiendpoint.py.
func (m *mistral) Bounds() Bounds {
	of := m.p.Batches
	return Bounds{
		Requests: of.Requests, Bytes: of.Bytes, OneModel: true,
		Endpoints: []provider.Endpoint{provider.ChatCompletions, provider.Embeddings},
	}
}

// AppendRequest appends a line: {"custom_id", "body"}, whose model is the job's (https://docs.mistral.ai/capabilities/batch).
func (m *mistral) AppendRequest(dst []byte, id string, r *Request) []byte {
	dst = jsonscan.AppendString(append(dst, `{"custom_id":`...), id)
	return append(appendBody(append(dst, `,"body":`...), r.Body, append([]string{"model"}, streamed...)), '}')
}

// ParseResult reads a line of an output or error file (extra/batch/client.py, _parse_output_obj).
func (m *mistral) ParseResult(line []byte) (Result, error) {
	var id, own, response, failed, status, requestID, body []byte
	if !members(line, member{"id", &own}, member{"custom_id", &id}, member{"response", &response}, member{"error", &failed}) ||
		text(id) == "" || response == nil && failed == nil {
		return Result{}, senselessLine(line)
	}
	r := Result{ID: text(id), Fate: Answered, RequestID: text(own)}
	if response != nil {
		if !members(response, member{"status_code", &status}, member{"request_id", &requestID}, member{"body", &body}) {
			return Result{}, senselessLine(line)
		}
		r.Status, r.Body, r.RequestID = number(status), body, cmp.Or(text(requestID), r.RequestID)
	}
	if failed == nil || body != nil && r.Status >= http.StatusBadRequest { // a refusal says more than the error beside it
		return r, nil
	}
	if r.Status < http.StatusBadRequest {
		r.Status = 0 // the SDK takes a line for failed that has an error, whatever else it has
	}
	r.Body = append(append([]byte(`{"error":`), failed...), '}')
	return r, nil
}

// FindFile searches for a file of the name.
func (m *mistral) FindFile(ctx context.Context, tag string) (string, error) {
	query, seen := url.Values{"search": {tag}, "purpose": {"batch"}}, 0
	for page := range pages {
		var list struct {
			Data  []openAIFile `json:"data"`
			Total int          `json:"total"`
		}
		if err := m.ask(ctx, get("/v1/files", paged(query, page), nil), &list); err != nil {
			return "", err
		}
		for _, file := range list.Data {
			if file.Filename == fileName(tag) {
				return file.ID, nil
			}
		}
		if seen += len(list.Data); last(len(list.Data), seen, list.Total) {
			return "", nil
		}
	}
	return "", errors.New("the list of files does not end")
}

// paged has a query ask for a page, counted from 0.
func paged(query url.Values, page int) url.Values {
	query.Set("page", strconv.Itoa(page))
	query.Set("page_size", strconv.Itoa(mistralPage))
	return query
}

// last reports whether no page comes behind one of n members, when so many were seen. Where the total is not told, an empty one
// is the end.
func last(n, seen, total int) bool { return n == 0 || total > 0 && seen >= total }

// hours returns how long a job may take.
func (m *mistral) hours() int {
	if w := m.p.Batches.Window; w >= time.Hour {
		return int(w / time.Hour)
	}
	return mistralHours
}

// Create has an uploaded file run.
func (m *mistral) Create(ctx context.Context, p *Part, file string) (Batch, error) {
	a, err := m.send(ctx, post(mistralJobs, map[string]any{
		"input_files": []string{file}, "endpoint": p.Endpoint.String(), "model": p.Model,
		"metadata": map[string]string{tagKey: p.Tag}, "timeout_hours": m.hours(),
	}, nil), nil)
	if err != nil {
		return Batch{}, m.refused(a, err, nil)
	}
	return m.batchIn(a)
}

// batchIn reads an answer that is a job.
func (m *mistral) batchIn(a provider.Answer) (Batch, error) {
	var got mistralJob
	if err := m.read(a, &got); err != nil {
		return Batch{}, err
	}
	if got.ID == "" || got.Status == "" {
		return Batch{}, m.senseless(a, "id and status")
	}
	return m.batch(&got), nil
}

// Find returns the jobs of a part's tag among those made since then. The SDK would send the metadata that are looked for as
// members of the query, of which nothing says that they are heeded.
func (m *mistral) Find(ctx context.Context, p *Part, since time.Time) (found []Batch, err error) {
	query, seen := url.Values{"created_after": {since.Add(-skew).UTC().Format(time.RFC3339)}}, 0
	for page := range pages {
		var list struct {
			Data  []mistralJob `json:"data"`
			Total int          `json:"total"`
		}
		if err := m.ask(ctx, get(mistralJobs, paged(query, page), nil), &list); err != nil {
			return nil, err
		}
		for i := range list.Data {
			if b := m.batch(&list.Data[i]); b.Tag == p.Tag && b.ID != "" {
				found = append(found, b)
			}
		}
		if seen += len(list.Data); last(len(list.Data), seen, list.Total) {
			return found, nil
		}
	}
	return nil, errors.New("the list of batches does not end")
}

// Get asks for a job.
func (m *mistral) Get(ctx context.Context, id string) (Batch, error) {
	a, err := m.send(ctx, get(mistralJobs+"/"+segment(id), nil, ErrUnknown), nil)
	if err != nil {
		return Batch{}, err
	}
	return m.batchIn(a)
}

// Cancel is no error for a job that has ended, or is about to.
func (m *mistral) Cancel(ctx context.Context, id string) error {
	return m.cancel(ctx, mistralJobs+"/"+segment(id)+"/cancel", id, m.Get)
}

// mistralJob is a batch (models/batchjob.py). Its times are of Unix, in seconds.
type mistralJob struct {
	ID         string         `json:"id"`
	InputFiles []string       `json:"input_files"`
	Metadata   map[string]any `json:"metadata"`
	Status     string         `json:"status"`
	OutputFile string         `json:"output_file"`
	ErrorFile  string         `json:"error_file"`
	Errors     []struct {
		Message string `json:"message"`
	} `json:"errors"`
	Total       int     `json:"total_requests"`
	Succeeded   int     `json:"succeeded_requests"`
	Failed      int     `json:"failed_requests"`
	CreatedAt   float64 `json:"created_at"`
	CompletedAt float64 `json:"completed_at"`
}

// batch is a job in our words.
func (m *mistral) batch(of *mistralJob) Batch {
	tag, _ := of.Metadata[tagKey].(string)
	b := Batch{ID: of.ID, Tag: tag, State: m.state(of.Status), Requests: of.Total, Succeeded: of.Succeeded, Failed: of.Failed,
		Created: seconds(of.CreatedAt)}
	if len(of.InputFiles) > 0 {
		b.File = of.InputFiles[0]
	}
	if !b.Created.IsZero() {
		b.Expires = b.Created.Add(time.Duration(m.hours()) * time.Hour)
	}
	if !b.State.Ended() {
		return b
	}
	b.Ended = seconds(of.CompletedAt)
	b.Results = existing(of.OutputFile, of.ErrorFile)
	if b.State == Failed {
		b.Problem = m.whole(of)
	}
	return b
}

// whole is why a job failed as a whole. What it lists as errors has words only, which are about its requests unless they are
// known to be of the provider's own troubles; a job that lists none is not at fault.
func (m *mistral) whole(of *mistralJob) *Problem {
	var messages []string
	for _, e := range of.Errors {
		messages = append(messages, e.Message)
	}
	if len(messages) == 0 {
		return &Problem{Kind: Broken, Message: "the provider does not say why it failed"}
	}
	p := m.problem(fault{Message: strings.Join(messages, "; ")})
	if p.Kind != Invalid {
		return &p
	}
	switch v := provider.ClassifyText(m.p, 0, messages[0], time.Now()); {
	case v.Kind == sluice.Overloaded || v.Kind == sluice.ServerError || v.Kind == sluice.Timeout || v.Kind == sluice.Network:
		p.Kind = Broken
	case v.Kind.Throttle():
		p.Kind = NoRoom
	}
	return &p
}

// state is a state in our words (models/batchjobstatus.py). One that is not known is no end.
func (m *mistral) state(word string) State {
	switch word {
	case "QUEUED":
		return Queued
	case "RUNNING":
		return Running
	case "CANCELLATION_REQUESTED":
		return Cancelling
	case "SUCCESS":
		return Completed
	case "FAILED":
		return Failed
	case "TIMEOUT_EXCEEDED":
		return Expired
	case "CANCELLED":
		return Cancelled
	}
	return State(m.words(word, 40))
}
