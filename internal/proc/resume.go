package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// stateVersion is that of the directory's files.
const stateVersion = 1

// hungAfter is how long a run that goes on writes nothing at most: it writes its state every 30 s in any case.
const hungAfter = 120 * time.Second

// rerunName is the file that says which stages are being run again, and since when: their results from before do not count.
const rerunName = "rerun.json"

// rerun is what Only and From ask for.
type rerun struct {
	Only  []string  `json:"only,omitempty"`
	From  string    `json:"from,omitempty"`
	Since time.Time `json:"since"`
}

// openState opens the directory, and finds what earlier runs did.
func (x *Exec) openState() (err error) {
	if x.reopens, err = openDirectory(x.dir); err != nil {
		return fault.FileOf("Dir", err)
	}
	if err := x.checkState(); err != nil {
		return err
	}
	journal, err := work.OpenJournal(ResultsPath(x.dir), work.JournalConfig{
		Sync: x.cfg.Sync, Prefix: journalPrefix, State: StatePath(x.dir), Hash: x.settings.String(), Version: stateVersion, Limits: true, Read: Work, Logger: x.log,
	})
	if err != nil {
		return fault.FileOf("Dir", x.locked(err))
	}
	x.journal = journal
	if err := x.resume(); err != nil {
		return errors.Join(err, journal.Close())
	}
	return nil
}

// checkState refuses the directory of another run.
func (x *Exec) checkState() error {
	earlier, _ := work.LoadState(StatePath(x.dir)) // OpenJournal warns if it is damaged
	switch {
	case earlier.Version > stateVersion:
		return &DirectoryError{Dir: x.dir, Text: "was written by a newer Sluice", Advice: "use that version, or another directory with --state"}
	case earlier.Hash != "" && earlier.Hash != x.settings.String() && x.cfg.Items.Changed == rows.ChangedRefused && hasLines(ResultsPath(x.dir)):
		return &DirectoryError{Dir: x.dir, Text: "belongs to another command, or to other settings of this command",
			Advice: "use another directory with --state, retry failed items with --redo failed,none, or run all items again with --redo changed"}
	}
	return nil
}

func hasLines(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// locked says more of a run that has the directory and says nothing.
func (x *Exec) locked(err error) error {
	other, ok := errors.AsType[*work.LockedError](err)
	if !ok {
		return err
	}
	state, wrong := work.LoadState(StatePath(x.dir))
	if age := time.Since(state.Heartbeat); wrong == nil && age > hungAfter {
		return &HungError{LockedError: *other, Dir: x.dir, For: age.Round(time.Second)}
	}
	return err
}

// HungError is returned for a directory that a process has which gave no sign of life for long.
type HungError struct {
	work.LockedError
	Dir string
	For time.Duration
}

// Error names the process.
func (e *HungError) Error() string {
	return fmt.Sprintf("%s is in use by process %d, which has written nothing for %v", e.Dir, e.PID, e.For)
}

// Hint says what can be done.
func (e *HungError) Hint() string {
	return fmt.Sprintf("stop the hung process with kill %d, then run the same command again to resume", e.PID)
}

// resume matches the results with the items.
func (x *Exec) resume() error {
	again, err := x.openRerun()
	if err != nil {
		return err
	}
	m := &matcher{x: x, rerun: again, changed: rows.ChangedError{Path: x.cfg.Items.Path, Array: x.input.file.Array()}}
	for line, err := range x.journal.Lines() {
		if err != nil {
			return err
		}
		if err := m.match(line); err != nil {
			return err
		}
	}
	x.since = again.Since
	switch {
	case m.changed.Err() != nil:
		return m.changed.Err()
	case m.lines > 0 && m.matched == 0 && x.input.file != nil && x.input.total > 0:
		return &DirectoryError{Dir: x.dir, Text: fmt.Sprintf("contains %d results, but none of them is for an item of %s", m.lines, x.cfg.Items.Path),
			Advice: "use another directory with --state"}
	case len(m.drop) > 0:
		x.journal.Rewrite(func(line work.Line) bool { return !m.drop[line.Number] })
	}
	return nil
}

// openRerun says since when results of the chosen stages count: a run that was cut short goes on.
func (x *Exec) openRerun() (rerun, error) {
	asked := rerun{Only: x.cfg.Items.Only, From: x.cfg.Items.From}
	if len(asked.Only) == 0 && asked.From == "" {
		return rerun{}, nil // what is left of those is done too
	}
	since, err := x.rerunSince()
	if asked.Since = since; err != nil || !since.IsZero() {
		return asked, err
	}
	asked.Since = time.Now().UTC()
	return asked, writeJSON(filepath.Join(x.dir, rerunName), asked)
}

// rerunSince is when a rerun of the same stages began that was cut short; zero if there was none.
func (x *Exec) rerunSince() (time.Time, error) {
	b, err := os.ReadFile(filepath.Join(x.dir, rerunName))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	var before rerun
	if err == nil && (json.Unmarshal(b, &before) != nil || before.From != x.cfg.Items.From || !slices.Equal(before.Only, x.cfg.Items.Only)) {
		return time.Time{}, nil
	}
	return before.Since, err
}

// endRerun says that the chosen stages were run.
func (x *Exec) endRerun() error {
	err := os.Remove(filepath.Join(x.dir, rerunName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// matcher goes through the lines of the results.
type matcher struct {
	x       *Exec
	rerun   rerun
	lines   int
	matched int
	drop    map[int]bool // lines that are of items that run again
	changed rows.ChangedError
}

func (m *matcher) match(line work.Line) error {
	x, in := m.x, m.x.input
	m.lines++
	rec, hash, err := readResult(line.Bytes)
	if err != nil {
		return &work.JournalError{Path: ResultsPath(x.dir), Line: line.Number, Err: err}
	}
	if in.file == nil {
		m.matched++
		if rec.State != Succeeded && x.cfg.Items.RetryFailed {
			m.again(line, rec)
			return nil
		}
		in.index.Add(line.Number-1, []byte(rec.ID), hash)
		x.tally.earlier(rec, true)
		return nil
	}
	number, ok := in.index.Find([]byte(rec.ID))
	if !ok {
		return nil // of an item that the file does not have any more
	}
	m.matched++
	selected := in.stages.selected(number)
	switch {
	case !in.index.Same(number, hash) && x.cfg.Items.Changed == rows.ChangedRefused:
		m.changed.Add(number+1, rec.ID)
		return nil
	case selected && !in.index.Same(number, hash) && x.cfg.Items.Changed == rows.ChangedRedo,
		selected && rec.State != Succeeded && x.cfg.Items.RetryFailed,
		selected && rec.Ended.Before(m.rerun.Since):
		m.again(line, rec)
		return nil
	}
	if in.index.Done().Set(number) {
		in.stages.settle(number, rec.State == Succeeded)
		x.tally.earlier(rec, selected)
	}
	return nil
}

// again has an item run again.
func (m *matcher) again(line work.Line, rec *Result) {
	if m.drop == nil {
		m.drop = make(map[int]bool)
		m.x.input.dropped = make(map[string]time.Time)
	}
	m.drop[line.Number] = true
	m.x.input.dropped[rec.ID] = rec.Ended
}

// adopted is the result that an earlier run left in the item's directory, and did not write to the results.
func adopted(rec *Result) *work.Given {
	g := &work.Given{
		Result: work.Result{Data: &try{adopted: true, result: rec, stage: rec.Stage, quarantined: rec.State == Quarantined}},
	}
	if rec.Kind != sluice.OK {
		text := ""
		if rec.Fault != nil {
			text = rec.Fault.Message
		}
		g.Err = &sluice.CallError{Outcome: sluice.Outcome{Kind: rec.Kind, Err: &EndError{Text: text}}}
	}
	return g
}
