package batchjob

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// API is the Batch API of an account. It is safe for concurrent use. Each method sends a request once. An error for a rejection, or for a
// provider that cannot be reached, is a *sluice.CallError, whose Outcome.Unsent reports that the provider did not get the request.
type API interface {
	// Limits returns the limits of batches.
	Limits() provider.BatchAPI

	// Endpoints returns the endpoints of requests in batches.
	Endpoints() []provider.Endpoint

	// Frame returns the texts around the requests of a file.
	Frame() Frame

	// AppendRequest appends a request in the form of a file, without the fields that ask for a stream. The body has no newlines.
	AppendRequest(dst []byte, id string, e provider.Endpoint, body []byte) []byte

	// Upload uploads the file of a part, and returns its ID at the provider: "" if Create sends the requests.
	Upload(ctx context.Context, p *File) (file string, err error)

	// Create creates a batch of a file. If its effect is unknown, call Find.
	Create(ctx context.Context, p *File, file string) (Batch, error)

	// Find returns the batches that may be of a file, whose first submission was at an instant: batches with its tag, or, if the provider
	// stores no names (Anthropic), later batches with the same number of requests. Then only the IDs of results contain the tag.
	Find(ctx context.Context, p *File, since time.Time) ([]Batch, error)

	// Get returns a batch. Its error is ErrUnknown if the provider does not know the batch.
	Get(ctx context.Context, id string) (Batch, error)

	// Cancel cancels a batch, which ends soon. Its error is ErrUnknown if the provider does not know the batch.
	Cancel(ctx context.Context, id string) error

	// Fetch writes one of Batch.Results to w, from the start. Its error is io.ErrUnexpectedEOF if the response is incomplete, ErrGone if
	// the provider does not have the results, or the error of w.
	Fetch(ctx context.Context, result string, w io.Writer) error

	// ParseResult reads a line of results. The result shares the memory of the line.
	ParseResult(line []byte) (Result, error)
}

// Errors of an API.
var (
	ErrUnknown = errors.New("the provider does not know this batch") // with this key
	ErrGone    = errors.New("the provider deleted the results")
	ErrNone    = errors.New("this provider has no Batch API that Sluice supports")
)

// Frame has the texts around and between the requests of a file.
type Frame struct{ Open, Between, Close string }

// File is the file of a part in the form of the provider.
type File struct {
	Tag      string // 12 hexadecimal digits, unique
	Model    string
	Endpoint provider.Endpoint
	Requests int
	Size     int64                         // in bytes
	Open     func() (io.ReadCloser, error) // the file, from the start
}

// Batch is a batch at its provider.
type Batch struct {
	ID     string
	Tag    string // tag of its part; "" if the provider stores none
	File   string // ID of the file of its requests; "" for none
	Status Status

	Requests, Succeeded, Failed int // 0 while the provider does not state them
	Created, Ended, Expires     time.Time

	Results []string // for Fetch, once the batch has ended
	Problem *Problem // why it failed as a whole
}

// Status is the status of a batch at its provider.
type Status string

// Statuses of a batch. A batch with an unknown status is Running.
const (
	Validating Status = "validating"
	Queued     Status = "queued"
	Running    Status = "in_progress"
	Finishing  Status = "finalizing"
	Cancelling Status = "cancelling"
	Completed  Status = "completed"
	Expired    Status = "expired"   // finished results can be fetched
	Cancelled  Status = "cancelled" // finished results can be fetched
	Failed     Status = "failed"    // as a whole: see Problem
)

// Ended reports whether the status is final.
func (s Status) Ended() bool {
	return s == Completed || s == Expired || s == Cancelled || s == Failed
}

// Problem is the reason why a batch failed or was rejected as a whole.
type Problem struct {
	Kind    ProblemKind    `json:"kind"`             // `no_room`, `too_large`, `invalid` or `broken`.
	Code    string         `json:"code,omitempty"`   // Error code from the provider.
	Message string         `json:"message"`          // Error message, without keys.
	Lines   map[int]string `json:"lines,omitempty"`  // Errors of single requests, by zero-based position.
	Tokens  int            `json:"tokens,omitempty"` // Enqueued token limit, for `no_room`. 0 if the provider does not say.
}

// ProblemKind is the kind of a Problem.
type ProblemKind string

// Kinds of problems.
const (
	NoRoom   ProblemKind = "no_room"   // too much is enqueued: the same part may succeed later
	TooLarge ProblemKind = "too_large" // a smaller part may succeed
	Invalid  ProblemKind = "invalid"   // requests are wrong: the same part would fail again
	Broken   ProblemKind = "broken"    // an error of the provider
)

// Result is the result of a request.
type Result struct {
	ID        string          `json:"id,omitzero"` // of the request at the provider
	Fate      Fate            `json:"fate"`
	Status    int             `json:"status,omitzero"`     // HTTP status; 0 is unknown
	RequestID string          `json:"request_id,omitzero"` // the provider's ID of the response
	Body      json.RawMessage `json:"response,omitzero"`   // of a live response, or the error
}

// Fate describes how a request ended.
type Fate string

// Fates.
const (
	Missing    Fate = ""          // the batch is complete and has no result of the request
	Answered   Fate = "answered"  // with any Status
	PastWindow Fate = "expired"   // it did not start in time, and costs nothing
	CalledOff  Fate = "cancelled" // the batch was cancelled before it started, and costs nothing
)
