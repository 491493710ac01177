package batchjob

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// API is one account's Batch API. It is safe for concurrent use. Its errors are a *sluice.CallError where the provider
// refused or could not be reached, whose Outcome.Unsent says that nothing reached it; one that it knows no batch or file of that
// id for is ErrUnknown or ErrGone besides.
type API interface {
	// Limits returns the limits of batches. A zero is unknown.
	Limits() provider.BatchAPI

	// Endpoints returns the endpoints of requests in batches.
	Endpoints() []provider.Endpoint

	// Frame returns the texts around and between the requests of a file.
	Frame() Frame

	// AppendRequest appends a request in the form of a file, without the fields that ask for a stream: batches have none.
	AppendRequest(dst []byte, id string, e provider.Endpoint, body []byte) []byte

	// Upload hands over a part's file, and returns the provider's id for it: "" where the requests travel with Create.
	Upload(ctx context.Context, p *File) (file string, err error)

	// Create creates a batch of a file. It is never repeated by itself: if its effect is unknown, call Find.
	Create(ctx context.Context, p *File, file string) (Batch, error)

	// Find returns the batches that may be of a file whose first submission was at an instant: batches with its tag, or, if the
	// provider stores no names (Anthropic), later batches with the same number of requests. Then only the ids of results tell,
	// which contain the tag. It allows for clocks that differ.
	Find(ctx context.Context, p *File, since time.Time) ([]Batch, error)

	// Get returns how a batch stands.
	Get(ctx context.Context, id string) (Batch, error)

	// Cancel cancels a batch, which ends soon. Finished results can be fetched.
	Cancel(ctx context.Context, id string) error

	// Fetch writes one of the files of Batch.Results to w, from its beginning: io.ErrUnexpectedEOF says that it was cut off. A
	// provider that has it no more says ErrGone. What w says is returned as it is.
	Fetch(ctx context.Context, result string, w io.Writer) error

	// ParseResult reads a line of such a file. What it returns shares the line's memory.
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

// File is the file of a part, as the provider gets it.
type File struct {
	Tag      string // 12 hexadecimal digits that no other part has
	Model    string // "" where it has several
	Endpoint provider.Endpoint
	Requests int
	Size     int64                         // bytes of its file
	Open     func() (io.ReadCloser, error) // the file, from its beginning
}

// Batch is how a batch stands at its provider.
type Batch struct {
	ID     string
	Tag    string // of the part that it is; "" where the provider keeps none
	File   string // of its requests; "" for none
	Status Status

	Requests, Succeeded, Failed int // as far as the provider tells; 0 while it does not
	Created, Ended, Expires     time.Time

	Results []string // what Fetch takes, once Status.Ended
	Problem *Problem // why it failed as a whole
}

// Status is the status of a batch at its provider.
type Status string

// Statuses. Each client translates the words of its provider.
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

// Ended reports whether it will not change any more.
func (s Status) Ended() bool {
	return s == Completed || s == Expired || s == Cancelled || s == Failed
}

// known reports whether a client gave the status. A provider may have other words.
func (s Status) known() bool {
	switch s {
	case Validating, Queued, Running, Finishing, Cancelling:
		return true
	}
	return s.Ended()
}

// Problem is why a batch failed as a whole, or was not taken.
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
	NoRoom   ProblemKind = "no_room"   // too much is enqueued: the same can be submitted later
	TooLarge ProblemKind = "too_large" // fewer requests at once may do
	Invalid  ProblemKind = "invalid"   // requests are wrong: it would fail again
	Broken   ProblemKind = "broken"    // the provider's own fault
)

// Result is the result of a request.
type Result struct {
	ID        string // as RequestID made it
	Fate      Fate
	Status    int    // of HTTP, where the provider says it or its error's type does; 0 else
	RequestID string // the provider's name for the answer
	Body      []byte // the answer as a live call has it, or the error
}

// Fate is how a request ended.
type Fate string

// Fates.
const (
	Missing    Fate = ""          // the batch is complete, and has no result of it
	Answered   Fate = "answered"  // by whatever Status
	PastWindow Fate = "expired"   // it was not begun in time, and costs nothing
	CalledOff  Fate = "cancelled" // it was not begun before the batch was cancelled, and costs nothing
)
