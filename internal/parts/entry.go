package parts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/provider"
)

// entry is what is saved of a part.
type entry struct {
	Status
	Size    int64     `json:"size,omitempty"`    // of its file at the provider, in bytes
	TriedAt time.Time `json:"tried_at,omitzero"` // of the last Create of which it is not known what became of it
	Guess   bool      `json:"guess,omitempty"`   // nothing but its results will tell whether Batch is the part's
	Not     []string  `json:"not,omitempty"`     // batches that are known not to be it, or not any more
	Breaks  int       `json:"breaks,omitempty"`  // how often its batch failed by the provider's fault
	Files   int       `json:"files,omitempty"`   // of results
	Marked  bool      `json:"marked,omitempty"`  // its members were refused one by one, which their file says
}

// version is of what Save is given. A reader that knows less must not write.
const version = 1

// mostMerged is how many parts that are over are remembered.
const mostMerged = 1000

type saved struct {
	Version int     `json:"version"`
	Parts   []entry `json:"parts"`
}

// Read returns what Save was given, for whoever only looks.
func Read(text []byte) ([]Status, error) {
	entries, err := decode(text, false)
	if err != nil {
		return nil, err
	}
	all := make([]Status, len(entries))
	for i := range entries {
		all[i] = entries[i].Status
	}
	return all, nil
}

// decode reads what encode wrote. Who writes it again must know all of it.
func decode(text []byte, strict bool) ([]entry, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var s saved
	dec := json.NewDecoder(bytes.NewReader(text))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(&s); err != nil {
		if newer(text) {
			return nil, errNewer
		}
		return nil, fmt.Errorf("saved parts: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("saved parts: unexpected data follows")
	}
	if s.Version != version {
		return nil, errNewer
	}
	tags := map[string]bool{}
	for i := range s.Parts {
		e := &s.Parts[i]
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("saved parts: part %d: %w", i+1, err)
		}
		if tags[e.Tag] {
			return nil, fmt.Errorf("saved parts: tag %s occurs twice", e.Tag)
		}
		tags[e.Tag] = true
	}
	return s.Parts, nil
}

var errNewer = errors.New("another version of Sluice wrote the saved parts: use that version")

func newer(text []byte) bool {
	var v struct {
		Version int `json:"version"`
	}
	return json.Unmarshal(text, &v) == nil && v.Version > version
}

// check keeps out what nobody wrote: tags become names of files.
func (e *entry) check() error {
	switch {
	case !isTag(e.Tag):
		return fmt.Errorf("tag %.40q: want 12 hexadecimal digits", e.Tag)
	case e.Account == "":
		return fmt.Errorf("part %s has no account", e.Tag)
	case e.Requests <= 0 || e.Tokens < 0 || e.Size < 0 || e.Files < 0 || e.Files > mostFiles || e.Breaks < 0:
		return fmt.Errorf("part %s has a number out of range", e.Tag)
	}
	s := batchapi.State(e.State)
	switch {
	case s == Waiting || s == Submitting || s == Refused || s == Merged || s == Dropped:
	case s == Fetched || s == Lost || known(s):
		if e.Batch == "" && !e.Marked {
			return fmt.Errorf("part %s has the state %s, but no batch", e.Tag, e.State)
		}
	default:
		return fmt.Errorf("part %s has the unknown state %.40q: use the version of Sluice that wrote it", e.Tag, e.State)
	}
	if _, ok := endpoint(e.Endpoint); !ok {
		return fmt.Errorf("part %s has the unknown endpoint %.60q", e.Tag, e.Endpoint)
	}
	return nil
}

// known reports whether a state is one of a batch.
func known(s batchapi.State) bool {
	switch s {
	case batchapi.Validating, batchapi.Queued, batchapi.Running, batchapi.Finishing, batchapi.Cancelling:
		return true
	}
	return s.Ended()
}

// stateOf is a batch's state as a part's. A provider may have words of its own: one that is not known is no end, and none is
// taken for a state that only parts have, such as Merged.
func stateOf(s batchapi.State) string {
	if !known(s) {
		s = batchapi.Running
	}
	return string(s)
}

func isTag(s string) bool {
	if len(s) != 12 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func endpoint(path string) (provider.Endpoint, bool) {
	for _, e := range provider.Endpoints() {
		if e.String() == path {
			return e, true
		}
	}
	return provider.NoEndpoint, false
}

// encode writes what decode reads.
func encode(entries []entry) ([]byte, error) {
	return json.Marshal(saved{Version: version, Parts: entries})
}

// small is what stays of a part that is over.
func (e *entry) small() entry {
	s := &e.Status
	return entry{Status: Status{
		Account: s.Account, Tag: s.Tag, Model: s.Model, Endpoint: s.Endpoint, State: s.State, End: s.End, Batch: s.Batch,
		Requests: s.Requests, Succeeded: s.Succeeded, Failed: s.Failed,
		BegunAt: s.BegunAt, MadeAt: s.MadeAt, EndedAt: s.EndedAt,
	}}
}

// undone is what became of members that have no result, where how the batch ended says so.
func (e *entry) undone() (batchapi.Fate, bool) {
	switch e.End {
	case batchapi.Expired:
		return batchapi.PastWindow, true
	case batchapi.Cancelled:
		return batchapi.CalledOff, true
	}
	return "", false
}

// ready reports whether what can come of it is here.
func (e *entry) ready() bool { return e.State == Fetched || e.State == Refused }
