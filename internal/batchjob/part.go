// Package batchjob sends requests through the Batch APIs of providers. Each request is sent once, even if the process is killed at any
// instant.
//
// A Table has one row per part: the requests that become one batch at a provider. Each row has one of four states:
//
//	new ──► sent ──► ended ──► recorded
//
// A row is new once the file of its requests is on disk. It is sent before the provider is asked to create a batch, so that a new process
// looks for the batch before it creates another one. It is ended once its results are on disk, or if it has none. It is recorded once the
// caller has recorded its results. A sent row becomes new again if the provider certainly did not create a batch. An ended row becomes sent
// again when a Table is opened, if its file of results is missing. Every change is saved before the Table acts on it.
package batchjob

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// State is the state of a part.
type State string

// States.
const (
	New      State = "new"
	Sent     State = "sent"
	Ended    State = "ended"
	Recorded State = "recorded"
)

// Row is the row of a part in the table. It is saved and displayed in this form, so it has more fields than other types.
type Row struct {
	Tag       string    `json:"tag"`                     // ID of the part.
	State     State     `json:"state"`                   // `new`, `sent`, `ended` or `recorded`.
	Status    Status    `json:"status,omitempty"`        // Status at the provider.
	Lost      bool      `json:"lost,omitempty"`          // Missing results.
	Account   string    `json:"account"`                 // Provider.
	Model     string    `json:"model"`                   // Model.
	Endpoint  string    `json:"endpoint"`                // Endpoint.
	File      string    `json:"file,omitempty"`          // File ID.
	Batch     string    `json:"batch,omitempty"`         // Batch ID.
	Guess     bool      `json:"guess,omitempty"`         // Uncertain batch.
	Not       []string  `json:"not,omitempty"`           // Other batches.
	Results   bool      `json:"results,omitempty"`       // Local results.
	Requests  int       `json:"requests"`                // Requests.
	Succeeded int       `json:"succeeded,omitempty"`     // Successful requests.
	Failed    int       `json:"failed,omitempty"`        // Failed requests.
	Input     int       `json:"tokens,omitempty"`        // Input tokens.
	Output    int       `json:"output_tokens,omitempty"` // Declared output tokens.
	Unstated  int       `json:"unstated,omitempty"`      // Requests without maximum output.
	Bytes     int64     `json:"bytes,omitempty"`         // File size.
	BegunAt   time.Time `json:"begun_at,omitzero"`       // First submission.
	SentAt    time.Time `json:"sent_at,omitzero"`        // Last submission.
	MadeAt    time.Time `json:"made_at,omitzero"`        // Creation of the batch.
	EndedAt   time.Time `json:"ended_at,omitzero"`       // End of the batch.
	ExpiresAt time.Time `json:"expires_at,omitzero"`     // Expiry of the batch.
	Problem   *Problem  `json:"problem,omitempty"`       // Last problem.
}

// Open reports whether the results of a part may still come, or are not recorded.
func (r *Row) Open() bool { return r.State != Recorded }

// AtProvider reports whether the requests of a part may take up room at the provider.
func (r *Row) AtProvider() bool { return r.State == Sent && !r.Lost && !r.Status.Ended() }

// Refused reports whether a part has no results because the provider rejected it as a whole.
func (r *Row) Refused() bool {
	return r.State == Ended && !r.Results && r.Problem != nil && (r.Problem.Kind == Invalid || r.Problem.Kind == Broken)
}

// Count adds a request to the sums of a part.
func (r *Row) Count(q *Request) {
	r.Requests++
	r.Input += max(0, q.Cost.Input)
	if r.Output += max(0, q.Cost.MaxOutput); q.Cost.MaxOutput <= 0 && !q.Endpoint.Embeds() {
		r.Unstated++
	}
}

// small returns the fields that a recorded part keeps.
func (r *Row) small() Row {
	return Row{Tag: r.Tag, State: Recorded, Status: r.Status, Account: r.Account, Model: r.Model, Endpoint: r.Endpoint, Batch: r.Batch,
		Requests: r.Requests, Succeeded: r.Succeeded, Failed: r.Failed, BegunAt: r.BegunAt, MadeAt: r.MadeAt, EndedAt: r.EndedAt}
}

var isTag = regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString

// check rejects a row that no Table saved: tags are names of files.
func (r *Row) check() error {
	switch {
	case !isTag(r.Tag):
		return fmt.Errorf("tag %.40q: want 12 hexadecimal digits", r.Tag)
	case r.Account == "":
		return fmt.Errorf("part %s has no account", r.Tag)
	case r.Requests <= 0 || min(r.Input, r.Output, r.Unstated) < 0 || r.Bytes < 0:
		return fmt.Errorf("part %s has a number out of range", r.Tag)
	case !slices.Contains([]State{New, Sent, Ended, Recorded}, r.State):
		return fmt.Errorf("part %s has the unknown state %.40q", r.Tag, r.State)
	case endpointOf(r.Endpoint) == provider.NoEndpoint:
		return fmt.Errorf("part %s has the unknown endpoint %.60q", r.Tag, r.Endpoint)
	}
	return nil
}

// endpointOf returns the endpoint with a path; NoEndpoint if there is none.
func endpointOf(path string) (e provider.Endpoint) {
	_ = e.UnmarshalText([]byte(path))
	return e
}
