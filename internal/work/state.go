package work

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/limits"
)

// Status is how a run stands.
type Status string

// Statuses.
const (
	Running     Status = "running"
	Paused      Status = "paused"            // all goes on when RateLimitUntil is past, or, with a Reason, when somebody says so
	Limited     Status = "paused_rate_limit" // Paused with a RateLimitUntil, where the journal tells the two apart
	Interrupted Status = "interrupted"       // drained or cancelled, resumable
	CalledOff   Status = "called_off"        // what was pending elsewhere is called off; what is left can be done by another run
	Completed   Status = "completed"         // every item is recorded
	Failed      Status = "failed"            // by an error of ours, resumable
	Stopped     Status = "stopped"           // a budget was spent or the account can do no more; resumable
)

// State is what the file beside a journal says of its run. The journal is the truth; this is for people.
type State struct {
	Version        int       `json:"version,omitempty"`         // Version of the journal.
	Status         Status    `json:"status"`                    // `running`, `paused`, `paused_rate_limit`, `interrupted`, `called_off`, `completed`, `failed` or `stopped`.
	Reason         string    `json:"reason,omitempty"`          // Reason for the status.
	PID            int       `json:"pid"`                       // Process ID.
	Hash           string    `json:"hash,omitempty"`            // Hash of settings.
	StartedAt      time.Time `json:"started_at"`                // Start of the first run.
	UpdatedAt      time.Time `json:"updated_at"`                // Last write.
	Heartbeat      time.Time `json:"heartbeat"`                 // Last heartbeat, at most 30 s ago.
	PauseCount     int       `json:"pause_count"`               // Pauses of all runs.
	RateLimitUntil time.Time `json:"rate_limit_until,omitzero"` // End of the longest pause.
	RateLimit      RateLimit `json:"rate_limit,omitzero"`       // Cause of the longest pause.
	Outlook        string    `json:"outlook,omitempty"`         // State of the agent's usage windows.

	Total        int `json:"total"`         // Items of the input.
	Done         int `json:"done"`          // Successful items of all runs.
	Failed       int `json:"failed"`        // Failed items of all runs.
	Throttles    int `json:"throttles"`     // Rate-limited requests.
	InputTokens  int `json:"input_tokens"`  // Input tokens.
	OutputTokens int `json:"output_tokens"` // Output tokens.

	Batches json.RawMessage `json:"batches,omitempty"` // Pending batches.
}

// RateLimit is what a pause is for.
type RateLimit struct {
	Kind      sluice.Kind      `json:"kind"`                // Kind of the failure.
	Dimension limits.Dimension `json:"dimension,omitempty"` // Name of the limit, such as `rpm`.
	Lane      string           `json:"lane,omitempty"`      // Model, or upstream and model.
	Source    string           `json:"source,omitempty"`    // Part of the response that reports the limit.
	Text      string           `json:"text,omitempty"`      // Message from the provider.
	Until     time.Time        `json:"until"`               // End of the pause.
	Stated    bool             `json:"stated,omitempty"`    // The provider sent the end time.
	SeenAt    time.Time        `json:"seen_at"`             // First rejection.
}

// StatePath returns where the state of the journal at path is.
func StatePath(journal string) string { return journal + ".state.json" }

// DamagedStateError is returned by LoadState with a state from the backup, or without one (Backup is false).
type DamagedStateError struct {
	Path   string
	Backup bool  // the state is the one before
	Err    error // what is wrong with the file
}

// Error says what is damaged and what was used instead.
func (e *DamagedStateError) Error() string {
	if e.Backup {
		return fmt.Sprintf("state file %s is damaged (%v): Sluice reads its backup instead", e.Path, e.Err)
	}
	return fmt.Sprintf("state file %s is damaged (%v), and no intact backup exists", e.Path, e.Err)
}

// Unwrap returns what was wrong with the file.
func (e *DamagedStateError) Unwrap() error { return e.Err }

// LoadState reads a state file. If that is damaged or missing while its backup is good, the backup's state is returned,
// with a *DamagedStateError if it was damaged. With neither file the error is fs.ErrNotExist.
func LoadState(path string) (State, error) {
	state, err := readState(path)
	if err == nil {
		return state, nil
	}
	backup, backupErr := readState(path + ".bak")
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case !missing:
		return backup, &DamagedStateError{Path: path, Backup: backupErr == nil, Err: err}
	case backupErr != nil:
		return State{}, err
	}
	return backup, nil // killed between the two renames of save
}

// mostState bounds what is read of a state file, which has a few lines, and some for each batch at a provider.
const mostState = 16 << 20

func readState(path string) (State, error) {
	f, err := regular.Open(path)
	if err != nil {
		return State{}, err
	}
	defer f.Close()
	var state State
	b, err := io.ReadAll(io.LimitReader(f, mostState))
	if err = cmp.Or(err, json.Unmarshal(b, &state)); err == nil && state.Status == "" {
		err = errors.New("the file contains no status")
	}
	if err != nil {
		return State{}, err
	}
	return state, nil
}

// save replaces the state file, keeping the one before as its backup. Whatever instant the process dies at, one of the
// two is whole, also if the system does.
func (s State) save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if len(b) >= mostState { // it could not be read again
		return fmt.Errorf("the state file would have %d bytes, but the maximum is %d: use fewer batches at once", len(b), mostState)
	}
	o := atomicfile.Options{
		Mode: 0o644, Draft: path + ".tmp", // whoever has the journal has the name, too
		Backup: func() bool { _, damaged := readState(path); return damaged == nil }, // a damaged one must not replace a good backup
	}
	if err := atomicfile.Write(path, o, append(b, '\n')); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}
