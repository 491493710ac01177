// Package parts carries requests to Batch APIs in parts, each submitted once, whatever instant the process dies at, and
// brings back what came of them.
//
// A part is a file of requests, a list of who they are of, and an entry in what Config.Save keeps. The entry is there before
// the provider hears of the part; the provider's ids are in it before anything is waited for. A process that finds a part
// that was begun, and does not know what became of it, asks the provider first, and for Terms.Grace again, before it submits.
package parts

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Config shapes a Desk.
type Config struct {
	APIs map[string]batchapi.API // by account, which is a provider's name

	// Known is what is known of the accounts' Batch APIs, for the batches that an hour takes and the requests that may be
	// pending. An account that is not named has no such bounds.
	Known map[string]provider.BatchAPI

	// Dir is where files of requests, members and results are: made when one is needed, with mode 0700, and removed when
	// none is left.
	Dir string

	// Saved is what Save was last given, by whatever process: nil for nothing.
	Saved []byte

	// Save keeps what the Desk knows: it is on the disk when it returns. It is called by one goroutine at a time.
	Save func(saved []byte) error

	// Resubmit has parts that are lost submitted again, though they may have been paid for, or dropped after Cancel. Each is
	// looked for once more before.
	Resubmit bool

	Terms    Terms
	Observer sluice.Observer // of the calls to the APIs, whose lane is "batch-api"; nil is nobody
	Logger   *slog.Logger    // nil discards
}

// Terms are what parts are held to. The zero value is what each provider allows.
type Terms struct {
	Poll  time.Duration // longest between two looks at a batch. Default 1 min
	Grace time.Duration // how long a batch may take to be found after it was made. Default 30 s
}

// Defaults of Terms.
const (
	defaultPoll  = time.Minute
	defaultGrace = 30 * time.Second
)

// Member is who a request is of.
type Member struct {
	ID     string // custom_id
	Hash   work.Hash
	Tokens int // of input, as estimated
}

// States of a part beside those of its batch.
const (
	Waiting    = "waiting"    // to be submitted
	Submitting = "submitting" // it is not known yet whether there is a batch
	Fetched    = "fetched"    // its results are here
	Refused    = "refused"    // it cannot be submitted: there are no results, and Status.Problem says why
	Merged     = "merged"     // what came of it is recorded
	Dropped    = "dropped"    // nothing comes of it: it was called off, refused or given up as lost, or its members went to other parts
	Lost       = "lost"       // the provider no longer has it, or its results, or its files here are gone
)

// Status is how a part stands, for people and for Config.Save.
type Status struct {
	Account   string            `json:"account"`             // Account at the provider.
	Tag       string            `json:"tag"`                 // ID of the batch in Sluice.
	Model     string            `json:"model,omitempty"`     // Model.
	Endpoint  string            `json:"endpoint"`            // Endpoint of the requests.
	State     string            `json:"state"`               // State, such as `in_progress` or `merged`.
	End       batchapi.State    `json:"end,omitempty"`       // Final state at the provider.
	File      string            `json:"file,omitempty"`      // Input file ID at the provider.
	Batch     string            `json:"batch,omitempty"`     // Batch ID at the provider.
	Requests  int               `json:"requests"`            // Requests in the batch.
	Succeeded int               `json:"succeeded,omitempty"` // Successful requests.
	Failed    int               `json:"failed,omitempty"`    // Failed requests.
	Tokens    int               `json:"tokens,omitempty"`    // Estimated input tokens.
	BegunAt   time.Time         `json:"begun_at,omitzero"`   // Start of the submission.
	MadeAt    time.Time         `json:"made_at,omitzero"`    // Creation time at the provider.
	EndedAt   time.Time         `json:"ended_at,omitzero"`   // End time at the provider.
	ExpiresAt time.Time         `json:"expires_at,omitzero"` // Expiry time at the provider.
	Problem   *batchapi.Problem `json:"problem,omitempty"`   // Reason why the batch failed.
}

// Over reports whether nothing is left of the part but this.
func (s *Status) Over() bool { return s.State == Merged || s.State == Dropped }

// Held reports whether its requests may take up room at the provider.
func (s *Status) Held() bool {
	switch s.State {
	case Waiting, Fetched, Refused, Merged, Dropped, Lost:
		return false
	}
	return !batchapi.State(s.State).Ended()
}

// Result is what became of a member.
type Result struct {
	Index  int // of the member in its part
	Member Member
	batchapi.Result
}

// TooLargeError is returned for a request that no part can hold.
type TooLargeError struct {
	Size, Most int64 // in bytes of a part's file
}

// Error says so.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the request needs %d bytes in a batch file, but the maximum is %d: shorten the request, or send it live",
		e.Size, e.Most)
}

// LostError is what Desk.Err says of parts of which nothing can come, though they may have been paid for.
type LostError struct {
	Parts []Status // that the provider no longer has, or whose results it no longer has
	Bare  []Status // whose files in Dir are gone, so that nobody knows whose their results are
	Dir   string   // Config.Dir
}

// Error names the first of them.
func (e *LostError) Error() string {
	if len(e.Parts) == 0 {
		p := &e.Bare[0]
		return fmt.Sprintf("%d parts are lost, such as part %s, batch %q of %s: its files in %s are missing",
			len(e.Bare), p.Tag, p.Batch, p.Account, e.Dir)
	}
	p := &e.Parts[0]
	return fmt.Sprintf("%d parts are lost, such as batch %s of %s: the provider does not know the batch with this key, or deleted the results", len(e.Parts), p.Batch, p.Account)
}
