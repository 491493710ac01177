package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/prose"
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

// Ended reports whether the run does not continue.
func (s Status) Ended() bool { return s != Running && s != Paused && s != Limited }

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
	Offset         int64     `json:"offset,omitempty"`          // Size of the output before the last run.

	Counts
	Figures         // of all runs
	Last    LastRun `json:"last_run,omitzero"` // Part of the last run.
}

// Counts are numbers of items.
type Counts struct {
	Total  int `json:"total"`  // Items of the input.
	Done   int `json:"done"`   // Successful items of all runs.
	Failed int `json:"failed"` // Failed items of all runs.
}

// Finished returns the number of items with a result.
func (c Counts) Finished() int { return c.Done + c.Failed }

// Remaining returns the number of items without a result.
func (c Counts) Remaining() int { return max(0, c.Total-c.Finished()) }

// Tokens are the tokens of requests.
type Tokens struct {
	InputTokens  int `json:"input_tokens"`  // Input tokens.
	OutputTokens int `json:"output_tokens"` // Output tokens.
}

// TokensOf returns the tokens of a usage.
func TokensOf(u sluice.Usage) Tokens { return Tokens{u.Input, u.Output} }

// InOut describes the tokens: "1,200 in, 300 out".
func (t Tokens) InOut() string {
	return prose.Group(t.InputTokens) + " in, " + prose.Group(t.OutputTokens) + " out"
}

// Figures are the work of one or more runs.
type Figures struct {
	Runs      int `json:"runs,omitempty"` // Runs on this output.
	Throttles int `json:"throttles"`      // Rate-limited requests.
	Tokens
	Attempts int     `json:"attempts,omitempty"` // Attempts, except rate-limited attempts.
	Cost     float64 `json:"cost_usd,omitempty"` // Cost, if known.
	WallMS   int64   `json:"wall_ms,omitempty"`  // Duration of the run.
}

// LastRun is the work of the last run.
type LastRun struct {
	Done   int `json:"done"`   // Successful items of this run.
	Failed int `json:"failed"` // Failed items.
	Figures
}

// String describes the figures.
func (f Figures) String() string {
	wall := prose.Span(time.Duration(f.WallMS) * time.Millisecond)
	return prose.Fields(prose.If(f.Runs, prose.Count(f.Runs, "run")+" in ")+wall,
		prose.Count(f.Attempts, "attempt"), prose.If(f.Throttles, "rate-limited "+prose.Times(f.Throttles)),
		prose.If(f.InputTokens+f.OutputTokens, fmt.Sprintf("%s tokens in, %s out", prose.Group(f.InputTokens), prose.Group(f.OutputTokens))),
		prose.If(int(math.Ceil(f.Cost)), prose.Dollars(f.Cost)))
}

// String describes the last run.
func (l LastRun) String() string {
	return prose.Fields(prose.Group(l.Done)+" done", prose.If(l.Failed, prose.Group(l.Failed)+" failed"), l.Figures.String())
}

// add adds other work, and the number of its runs.
func (f Figures) add(g Figures) Figures {
	return Figures{f.Runs + g.Runs, f.Throttles + g.Throttles, Tokens{f.InputTokens + g.InputTokens, f.OutputTokens + g.OutputTokens},
		f.Attempts + g.Attempts, prose.RoundDollars(f.Cost + g.Cost), f.WallMS + g.WallMS}
}

// OneItem returns the work of one item. cost is nil if it is unknown.
func OneItem(done bool, attempts, throttles int, tokens Tokens, cost *float64) LastRun {
	one := LastRun{Figures: Figures{Attempts: attempts, Throttles: throttles, Tokens: tokens}}
	if cost != nil {
		one.Cost = *cost
	}
	if done {
		one.Done = 1
	} else {
		one.Failed = 1
	}
	return one
}

// CatchUp adds the results that a killed run recorded in its journal after the state was written. read returns the work of a line: one
// item that is done or failed.
func (s *State) CatchUp(journal io.ReaderAt, read func(line []byte) LastRun) error {
	counted := s.Last.Done + s.Last.Failed
	for line, err := range NewLineReader(io.NewSectionReader(journal, s.Offset, math.MaxInt64-s.Offset), 0).All() {
		switch counted--; {
		case err != nil:
			return err
		case counted >= 0 || line.Torn:
			continue
		}
		one := read(line.Bytes)
		s.Done, s.Failed, s.Figures = s.Done+one.Done, s.Failed+one.Failed, s.Figures.add(one.Figures)
		s.Last = LastRun{s.Last.Done + one.Done, s.Last.Failed + one.Failed, s.Last.Figures.add(one.Figures)}
	}
	return nil
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

// LoadState reads a state file. If it is missing, the error is fs.ErrNotExist.
func LoadState(path string) (state State, err error) {
	f, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, err
	}
	if err == nil {
		err = json.NewDecoder(f).Decode(&state)
		f.Close()
	}
	if err == nil && state.Status == "" {
		err = errors.New("the file contains no status")
	}
	if err != nil {
		return State{}, fmt.Errorf("state file %s cannot be read: %w", path, err)
	}
	return state, nil
}

// save replaces the state file: it is whole even if the process dies, or the system does.
func (s State) save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	o := atomicfile.Options{Mode: 0o644, Draft: path + ".tmp"} // the process that has the journal has the name, too
	if err := atomicfile.Write(path, o, append(b, '\n')); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}
