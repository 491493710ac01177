package work

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
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

// heldReason is the Reason of a run that is Paused because a caller paused its Schedulers and gave no reason.
const heldReason = "the scheduler is paused"

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

	Batches Raw `json:"batches,omitempty"` // Pending batches.
}

// Raw is JSON that is kept as it is. Unlike a json.RawMessage it can be compared.
type Raw string

// MarshalJSON returns it.
func (r Raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// UnmarshalJSON keeps it, without the spaces that a file has it with.
func (r *Raw) UnmarshalJSON(b []byte) error {
	var short bytes.Buffer
	err := json.Compact(&short, b)
	*r = Raw(short.String())
	return err
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
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case backupErr == nil && missing:
		return backup, nil // killed between the two renames of save
	case backupErr == nil:
		return backup, &DamagedStateError{Path: path, Backup: true, Err: err}
	case missing:
		return State{}, err
	}
	return State{}, &DamagedStateError{Path: path, Err: err}
}

// mostState bounds what is read of a state file, which has a few lines, and some for each batch at a provider.
const mostState = 16 << 20

func readState(path string) (state State, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return State{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostState { // a pipe or a device may have no end
		return State{}, errors.New("the file is not a regular file, or is too large")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return State{}, err
	}
	if err := json.Unmarshal(b, &state); err != nil {
		return State{}, err
	}
	if state.Status == "" {
		return State{}, errors.New("the file contains no status")
	}
	return state, nil
}

// save replaces the state file, keeping the one before as its backup. Whatever instant the process dies at, one of the
// two is whole; with sync also if the system does.
func (s State) save(path string, sync bool) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if len(b) >= mostState { // it could not be read again
		return fmt.Errorf("the state file would have %d bytes, but the maximum is %d: use fewer batches at once", len(b), mostState)
	}
	o := atomicfile.Options{
		Mode: 0o644, Draft: path + ".tmp", NoSync: !sync, // whoever has the journal has the name, too
		Backup: func() bool { _, damaged := readState(path); return damaged == nil }, // a damaged one must not replace a good backup
	}
	if err := atomicfile.Write(path, o, append(b, '\n')); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}

// Pauses counts the pauses and the rate-limit responses of the Schedulers that it observes. The zero value is ready. It is safe for
// concurrent use.
type Pauses struct {
	// IgnoreEarlier has Recall do nothing. It is set before the first use.
	IgnoreEarlier bool

	mu      sync.Mutex
	count   int
	limited int                  // rate-limit responses
	why     string               // accounts are paused as a whole; "": somebody said so
	until   map[string]RateLimit // by lane
	earlier string               // the lane whose pause an earlier run began; "": none
	held    map[string]bool      // accounts that are paused as a whole
	kick    chan struct{}        // tells a keeper; nil until there is one
}

// Observe counts rate-limit responses and the start of a pause, and remembers how long each lane's lasts, and which accounts are paused as
// a whole.
func (p *Pauses) Observe(e sluice.Event) {
	switch e.Type {
	case limits.EventCooldownStarted, limits.EventCooldownEnded, limits.EventPaused, limits.EventResumed:
	case limits.EventSlotReleased:
		if o := &e.Outcome; !o.Kind.Throttle() && o.Kind != sluice.OK || o.TooLarge || o.Unsent {
			return
		}
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Type {
	case limits.EventSlotReleased:
		if e.Outcome.Kind != sluice.OK {
			p.limited++
		} else if e.Lane == p.earlier && !p.until[e.Lane].Until.After(e.At) { // no event ends the pause of an earlier run
			p.earlier = ""
			delete(p.until, e.Lane)
		}
		return
	case limits.EventCooldownStarted:
		p.coolLocked(e)
	case limits.EventCooldownEnded:
		delete(p.until, e.Lane)
		return
	case limits.EventPaused:
		if p.held == nil {
			p.held = make(map[string]bool)
		}
		if len(p.held) == 0 { // several accounts pause together
			p.count++
		}
		p.held[e.Account] = true
	case limits.EventResumed:
		delete(p.held, e.Account)
	}
	wake.Up(p.kick)
}

func (p *Pauses) coolLocked(e sluice.Event) {
	if p.until == nil {
		p.until = make(map[string]RateLimit)
	}
	before, paused := p.until[e.Lane]
	if !paused { // else a request that tested it was rejected
		p.count++
	}
	switch {
	case !e.Until.After(before.Until):
	case paused && e.Outcome.Err == nil: // nothing is said of its cause
		before.Until = e.Until.UTC()
		p.until[e.Lane] = before
	default:
		l := limitOf(e)
		if paused && l.Kind == before.Kind && l.Dimension == before.Dimension {
			l.SeenAt = before.SeenAt
		}
		p.until[e.Lane] = l
	}
}

// Recall has the pause continue in which an earlier run ended: it is not counted again, and keeps its text, source and instant until a
// request succeeds.
func (p *Pauses) Recall(earlier State) {
	if l := earlier.RateLimit; p != nil && !p.IgnoreEarlier && !l.Until.IsZero() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.until, p.earlier = map[string]RateLimit{l.Lane: l}, l.Lane
	}
}

// Limit returns what a lane pauses for, or what it paused for last.
func (p *Pauses) Limit(lane string) RateLimit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[lane]
}

// mostText is how much of a provider's words the state keeps.
const mostText = 300

// limitOf is what the event of a pause says of it.
func limitOf(e sluice.Event) RateLimit {
	l := RateLimit{Kind: e.Outcome.Kind, Dimension: e.Outcome.Dimension, Lane: e.Lane, Until: e.Until.UTC(), SeenAt: e.At.UTC()}
	if err := e.Outcome.Err; err != nil {
		l.Text = prose.Clip(strings.ToValidUTF8(err.Error(), "\ufffd"), mostText)
		if from, ok := errors.AsType[interface {
			error
			Source() string
		}](err); ok {
			l.Source = from.Source()
		}
		if by, ok := errors.AsType[interface {
			error
			Stated() bool
		}](err); ok {
			l.Stated = by.Stated()
		}
	}
	return l
}

// Count returns how many pauses there were.
func (p *Pauses) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Because says why accounts are paused as a whole, where it is not that somebody said so, which is "".
func (p *Pauses) Because(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = why
}

// watch returns a channel that is sent to when a pause begins or grows, or the whole run goes on.
func (p *Pauses) watch() <-chan struct{} {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kick == nil {
		p.kick = make(chan struct{}, 1)
	}
	return p.kick
}

// now returns the numbers of pauses and of rate-limit responses, what the longest present one is for, and why accounts are paused as a whole.
func (p *Pauses) now() (count, limited int, limit RateLimit, held string) {
	if p == nil {
		return 0, 0, RateLimit{}, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, lane := range slices.Sorted(maps.Keys(p.until)) { // of pauses that end at once the same is told each time
		l := p.until[lane]
		if l.Until.After(now) && l.Until.After(limit.Until) {
			limit = l
		}
	}
	if len(p.held) > 0 {
		held = cmp.Or(p.why, heldReason)
	}
	return p.count, p.limited, limit, held
}

// beginState reads what an earlier run left and says that this process has the journal.
func (j *Journal) beginState() error {
	earlier, err := LoadState(j.statePath())
	if _, damaged := errors.AsType[*DamagedStateError](err); damaged {
		j.cfg.Logger.Warn(err.Error())
	}
	j.earlier, j.known, j.kept = earlier, earlier.Status != "", earlier.Batches
	state := earlier
	state.Status, state.Reason, state.Outlook = Running, "", ""
	state.PauseCount = 0 // those of before are added
	return j.writeState(state)
}

// Earlier returns the state that the run before left; ok is whether there was one.
func (j *Journal) Earlier() (state State, ok bool) { return j.earlier, j.known }

// statePath returns where the state is.
func (j *Journal) statePath() string { return cmp.Or(j.cfg.State, StatePath(j.path)) }

// saveState writes the state of the run on this journal; its pauses come on top of earlier ones.
func (j *Journal) saveState(s State) error {
	j.stateMu.Lock()
	defer j.stateMu.Unlock()
	j.ran = true
	return j.writeState(s)
}

func (j *Journal) writeState(s State) error {
	s.PID = os.Getpid()
	s.UpdatedAt = time.Now().UTC()
	s.Heartbeat, s.Hash, s.Version = s.UpdatedAt, j.cfg.Hash, j.cfg.Version
	s.StartedAt = j.start.UTC()
	if j.known {
		s.StartedAt = j.earlier.StartedAt
	}
	s.PauseCount += j.earlier.PauseCount
	s.Batches = j.kept
	j.last = s
	return s.save(j.statePath(), j.cfg.Sync != SyncNone)
}

// Keep puts what a run knows of batches at a provider into the state: JSON, nil for nothing. It is on the disk when Keep returns,
// and stays there, for other runs too, until another Keep.
func (j *Journal) Keep(batches []byte) error {
	j.stateMu.Lock()
	defer j.stateMu.Unlock()
	j.kept, j.earlier.Batches = Raw(batches), Raw(batches)
	j.last.Batches, j.last.UpdatedAt = j.kept, time.Now().UTC()
	return j.last.save(j.statePath(), true)
}

// Kept returns what the state has by the last Keep, of an earlier run too.
func (j *Journal) Kept() []byte {
	j.stateMu.Lock()
	defer j.stateMu.Unlock()
	return []byte(j.kept)
}

// Withdraw makes Close leave the state as it was before this run, of which nothing came.
func (j *Journal) Withdraw() {
	j.stateMu.Lock()
	defer j.stateMu.Unlock()
	j.ran = false
}

// endState takes back what beginState wrote if there was no run.
func (j *Journal) endState() {
	j.stateMu.Lock()
	defer j.stateMu.Unlock()
	if j.ran {
		return
	}
	path := j.statePath()
	if !j.known && j.kept == "" {
		os.Remove(path)
		os.Remove(path + ".bak")
		return
	}
	if !j.known {
		return
	}
	if err := j.earlier.save(path, j.cfg.Sync != SyncNone); err != nil {
		j.cfg.Logger.Warn("the state file could not be updated", "error", err)
	}
}
