package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// State is what became of an item, or of one try of it.
type State string

// States. RateLimited and Interrupted are of tries alone: such an item is left to do, and has no result.
const (
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Quarantined State = "quarantined" // it ended too many workers
	RateLimited State = "rate_limited"
	Interrupted State = "interrupted"
)

// Result is what is written of an item: as a line of the results, and as the result.json of its directory, where one that is
// not final is of a try. One type, so that whoever reads both sees the same.
type Result struct {
	ID    string      `json:"custom_id"`       // ID of the item.
	Line  int64       `json:"line"`            // Line number of the item.
	State State       `json:"state"`           // `succeeded`, `failed`, `quarantined`, `rate_limited` or `interrupted`.
	Kind  sluice.Kind `json:"kind"`            // `ok`, or the kind of the failure.
	Final bool        `json:"final"`           // This is the item's final result.
	Stage string      `json:"stage,omitempty"` // Stage.

	ExitCode *int   `json:"exit_code"`        // Exit code, if the command exited. Null: it did not exit by itself, or never ran.
	Signal   string `json:"signal,omitempty"` // Signal that ended the command.

	Attempts  int   `json:"attempts"`      // Attempts, except rate-limited attempts.
	Throttles int   `json:"throttles"`     // Rate-limited requests.
	Wait      int64 `json:"wait_ms"`       // Waiting time of the item or request.
	Queued    int64 `json:"queued_ms"`     // Wait in the queue.
	Cooldown  int64 `json:"cooldown_ms"`   // Wait in cooldowns.
	Backoff   int64 `json:"backoff_ms"`    // Wait in backoff.
	Latency   int64 `json:"latency_ms"`    // Duration of the last attempt.
	CPU       int64 `json:"cpu_ms"`        // Processor time of the last attempt.
	MaxRSS    int64 `json:"max_rss_bytes"` // Largest memory use of the last attempt.

	Started time.Time `json:"started_at,omitzero"` // Start of the last attempt.
	Ended   time.Time `json:"ended_at,omitzero"`   // End of the last attempt.

	InputTokens  int      `json:"input_tokens"`  // Input tokens.
	OutputTokens int      `json:"output_tokens"` // Output tokens.
	Cost         *float64 `json:"cost_usd"`      // Cost, if known.

	Fault  *Fault          `json:"error"`            // Failure, if the item failed.
	Result json.RawMessage `json:"result,omitempty"` // Result of a worker process.

	Dir   string `json:"dir"`   // Directory of the item.
	Input string `json:"input"` // Hash of the item and its command.
}

// Fault is why a try failed.
type Fault struct {
	Code    sluice.Kind `json:"code"`               // Kind of the failure.
	Message string      `json:"message"`            // Error message, without keys.
	Source  string      `json:"source,omitempty"`   // Part of the output that reports the error.
	Until   time.Time   `json:"until,omitzero"`     // Time of the limit's reset or of the next attempt.
	Tries   []string    `json:"attempts,omitempty"` // Errors of failed worker processes.
}

// journalPrefix is how every line of the results begins.
const journalPrefix = `{"custom_id":`

// stateOf says what became of a try that ended as kind.
func stateOf(kind sluice.Kind, quarantined bool) State {
	switch {
	case kind == sluice.OK:
		return Succeeded
	case quarantined:
		return Quarantined
	case kind.Throttle():
		return RateLimited
	}
	return Failed
}

// record is a result as it is written.
func (x *Exec) record(r *work.Result) *Result {
	rec := &Result{
		ID: r.ID, Line: r.Seq, Kind: r.Kind, Final: true, Input: r.Hash.String(), Dir: directoryOf(int(r.Seq), r.ID),
		Attempts: r.Tally.Attempts, Throttles: r.Tally.Throttles,
		Wait:   millis(r.Tally.Queued) + millis(r.Tally.Cooldown) + millis(r.Tally.Backoff), // so that they add up
		Queued: millis(r.Tally.Queued), Cooldown: millis(r.Tally.Cooldown), Backoff: millis(r.Tally.Backoff),
		Latency: millis(r.Tally.Latency), InputTokens: r.Tally.Usage.Input, OutputTokens: r.Tally.Usage.Output,
	}
	if r.HasCost {
		rec.Cost = &r.Cost
	}
	t, _ := r.Data.(*try)
	if t != nil {
		t.describe(rec)
	}
	rec.State = stateOf(r.Kind, t != nil && t.quarantined)
	if r.Kind != sluice.OK {
		rec.Fault = faultOf(r.Kind, r.Err)
	}
	return rec
}

// faultOf describes an error, of the last try since the counts stand beside it.
func faultOf(kind sluice.Kind, err error) *Fault {
	if call, ok := errors.AsType[*sluice.CallError](err); ok && call.Err != nil {
		err = call.Err
	}
	f := &Fault{Code: kind}
	if err != nil {
		f.Message = provider.Redact(err.Error())
	}
	if end, ok := errors.AsType[*EndError](err); ok {
		f.Source, f.Until = end.From, end.Until
	}
	if q, ok := errors.AsType[*quarantinedError](err); ok {
		for _, cause := range q.Causes {
			f.Tries = append(f.Tries, provider.Redact(cause.Error()))
		}
	}
	return f
}

func millis(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }

// encode appends a result's line to b.
func (x *Exec) encode(b []byte, r *work.Result) []byte {
	line, err := json.Marshal(x.record(r))
	if err != nil { // what a worker said is checked when it comes
		panic(fmt.Sprintf("proc: result of %q: %v", r.ID, err))
	}
	return append(append(b, line...), '\n')
}

// keep writes the result of an item into its directory, before its line goes to the results: what is there a resume takes over.
func (x *Exec) keep(r *work.Result) error {
	if t, ok := r.Data.(*try); ok && t.adopted {
		return nil
	}
	dir := x.itemDir(int(r.Seq), r.ID)
	if err := own(dir.path); err != nil { // an item that never ran has none
		return err
	}
	return writeJSON(filepath.Join(dir.path, resultName), x.record(r))
}

var errNotResult = errors.New("not a result of sluice exec: want the fields custom_id, kind and input")

// readResult reads a line of the results, or a result.json.
func readResult(b []byte) (*Result, work.Hash, error) {
	rec := new(Result)
	if err := json.Unmarshal(b, rec); err != nil {
		return nil, work.Hash{}, err
	}
	hash, err := work.ParseHash([]byte(rec.Input))
	if err != nil || rec.State == "" {
		return nil, work.Hash{}, errNotResult
	}
	return rec, hash, nil
}

// Work returns the work of a line of the results: one item, which is done or failed.
func Work(line []byte) (one work.LastRun) {
	r, _, err := readResult(line)
	if err != nil {
		return one
	}
	return work.OneItem(r.State == Succeeded, r.Attempts, r.Throttles, work.Tokens{InputTokens: r.InputTokens, OutputTokens: r.OutputTokens}, r.Cost)
}

// finished returns the final result that a run left in an item's directory and did not come to write to the results.
func (x *Exec) finished(dir itemDir, id string, hash work.Hash) *Result {
	b, err := readPlain(filepath.Join(dir.path, resultName))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			x.log.Warn("a result cannot be read: the item runs again", "item", id, "error", err)
		}
		return nil
	}
	rec, h, err := readResult(b)
	if err != nil || !rec.Final || h != hash || rec.ID != id || rec.State == RateLimited || rec.State == Interrupted {
		return nil
	}
	return rec
}

// mostResult bounds what is read of a result.json: what a persistent worker answers, as JSON, is a multiple of a line at most.
const mostResult = 8 * usualMaxLine

// readPlain reads a file that a command may have replaced: by a pipe, which might never end, or by one that has no end.
func readPlain(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostResult {
		return nil, fmt.Errorf("%s is not a regular file, or is too large", path)
	}
	return os.ReadFile(path)
}
