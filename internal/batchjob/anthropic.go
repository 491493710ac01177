package batchjob

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// anthropic is the Batch API of Anthropic (https://platform.claude.com/docs/en/build-with-claude/batch-processing, and
// https://github.com/anthropics/anthropic-sdk-python: resources/messages/batches.py, types/messages/message_batch.py). Its
// requests travel with Create, and its batches bear no name of ours.
type anthropic struct{ caller }

// batchesPath is where batches are.
const batchesPath = "/v1/messages/batches"

// Endpoints returns the only endpoint.
func (n *anthropic) Endpoints() []provider.Endpoint { return []provider.Endpoint{provider.Messages} }

// Frame is the body of Create.
func (n *anthropic) Frame() Frame { return Frame{Open: `{"requests":[`, Between: ",", Close: "]}"} }

// AppendRequest appends a member of requests (types/messages/batch_create_params.py).
func (n *anthropic) AppendRequest(dst []byte, id string, _ provider.Endpoint, body []byte) []byte {
	dst = jsonscan.AppendString(append(dst, `{"custom_id":`...), id)
	return append(appendBody(append(dst, `,"params":`...), body, streamed), '}')
}

// Upload does nothing: the requests travel with Create.
func (n *anthropic) Upload(context.Context, *File) (string, error) { return "", nil }

// anthropicBatch is a batch (types/messages/message_batch.py).
type anthropicBatch struct {
	ID        string `json:"id"`
	Status    string `json:"processing_status"`
	CreatedAt any    `json:"created_at"` // RFC 3339, as all these, or null
	EndedAt   any    `json:"ended_at"`
	ExpiresAt any    `json:"expires_at"`
	Counts    struct {
		Processing, Succeeded, Errored, Canceled, Expired int
	} `json:"request_counts"`
}

// Create sends a part's file, which is the whole body.
func (n *anthropic) Create(ctx context.Context, p *File, _ string) (Batch, error) {
	a, err := n.send(ctx, call{Control: provider.Control{Method: http.MethodPost, Path: batchesPath, Open: p.Open, Size: p.Size}}, nil)
	if err != nil {
		return Batch{}, n.refused(a, err, wrongRequest)
	}
	return n.batchIn(a)
}

// named is how a refusal names the request that it is about: requests.3.params.max_tokens: Field required.
var named = regexp.MustCompile(`^requests\.([0-9]{1,7})\.`)

// wrongRequest finds the request that a refusal is about.
func wrongRequest(message string) map[int]string {
	m := named.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	at, err := strconv.Atoi(m[1])
	if err != nil {
		return nil
	}
	return map[int]string{at: message}
}

// Find returns the batches made since then of as many requests as the part has. The newest come first, say the documents.
func (n *anthropic) Find(ctx context.Context, p *File, since time.Time) (found []Batch, err error) {
	query := url.Values{"limit": {"100"}}
	for range pages {
		a, err := n.send(ctx, get(batchesPath, query, nil), nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Data    []anthropicBatch `json:"data"`
			HasMore bool             `json:"has_more"`
			LastID  string           `json:"last_id"`
		}
		if err := n.read(a, &page); err != nil {
			return nil, err
		}
		first := begun(since, a.Header)
		for i := range page.Data {
			b := n.batch(&page.Data[i])
			if !b.Created.IsZero() && b.Created.Before(first) {
				return found, nil
			}
			if b.Requests == p.Requests && b.ID != "" {
				found = append(found, b)
			}
		}
		if !page.HasMore || len(page.Data) == 0 || !next(query, "after_id", page.LastID) {
			return found, nil
		}
	}
	return nil, errors.New("the list of batches has too many pages")
}

// Get asks for a batch.
func (n *anthropic) Get(ctx context.Context, id string) (Batch, error) {
	a, err := n.send(ctx, get(batchesPath+"/"+segment(id), nil, ErrUnknown), nil)
	if err != nil {
		return Batch{}, err
	}
	return n.batchIn(a)
}

// Cancel is no error for a batch that has ended, or is about to.
func (n *anthropic) Cancel(ctx context.Context, id string) error {
	return n.cancel(ctx, batchesPath+"/"+segment(id)+"/cancel", id, n.Get)
}

// Fetch writes the results of a batch to w. Its results_url says no more than its id, and is not followed: the key goes to
// nobody else.
func (n *anthropic) Fetch(ctx context.Context, result string, w io.Writer) error {
	return n.fetch(ctx, batchesPath+"/"+segment(result)+"/results", nil, w)
}

// statuses are those that errors of a type have (https://platform.claude.com/docs/en/api/errors).
var statuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
	"not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504,
	"overloaded_error": 529,
}

// ParseResult reads a line of results (types/messages/message_batch_individual_response.py).
func (n *anthropic) ParseResult(line []byte) (Result, error) {
	var id, result, kind, message, failed, inner, requestID []byte
	if !members(line, member{"custom_id", &id}, member{"result", &result}) || text(id) == "" ||
		!members(result, member{"type", &kind}, member{"message", &message}, member{"error", &failed}) {
		return Result{}, senselessLine(line)
	}
	r := Result{ID: text(id), Fate: Answered}
	switch text(kind) {
	case "succeeded":
		if message == nil {
			return Result{}, senselessLine(line)
		}
		r.Status, r.Body = http.StatusOK, message
	case "errored":
		r.Body, kind = failed, nil
		if !members(failed, member{"error", &inner}, member{"request_id", &requestID}) {
			return Result{}, senselessLine(line)
		}
		if inner == nil { // the error alone, as older documents have it
			inner = failed
			r.Body = append(append([]byte(`{"type":"error","error":`), failed...), '}')
		}
		members(inner, member{"type", &kind})
		r.Status, r.RequestID = statuses[text(kind)], text(requestID)
	case "expired":
		r.Fate = PastWindow
	case "canceled":
		r.Fate = CalledOff
	default:
		return Result{}, senselessLine(line)
	}
	return r, nil
}

// batchIn reads an answer that is a batch.
func (n *anthropic) batchIn(a provider.Answer) (Batch, error) {
	var got anthropicBatch
	if err := n.read(a, &got); err != nil {
		return Batch{}, err
	}
	if got.ID == "" || got.Status == "" {
		return Batch{}, n.senseless(a, "id or processing_status")
	}
	return n.batch(&got), nil
}

// batch is a batch in our words. One that has ended was cancelled, or expired, if some of its requests were.
func (n *anthropic) batch(of *anthropicBatch) Batch {
	c := &of.Counts
	b := Batch{ID: of.ID, Requests: c.Processing + c.Succeeded + c.Errored + c.Canceled + c.Expired,
		Succeeded: c.Succeeded, Failed: c.Errored,
		Created: instant(of.CreatedAt), Ended: instant(of.EndedAt), Expires: instant(of.ExpiresAt)}
	switch {
	case of.Status == "in_progress":
		b.Status = Running
	case of.Status == "canceling":
		b.Status = Cancelling
	case of.Status != "ended":
		b.Status = Status(n.words(of.Status, 40))
		return b
	case c.Canceled > 0:
		b.Status = Cancelled
	case c.Expired > 0:
		b.Status = Expired
	default:
		b.Status = Completed
	}
	if b.Status.Ended() {
		b.Results = []string{of.ID}
	}
	return b
}

// instant is one in RFC 3339.
func instant(v any) time.Time {
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
