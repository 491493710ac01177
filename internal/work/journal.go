package work

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/fault"
)

// SyncMode says when lines of a journal are forced to the disk. A killed process loses nothing in any mode; it is the
// power cut that they are about.
type SyncMode uint8

// Modes.
const (
	SyncInterval SyncMode = iota // all lines of 100 ms together, in the background
	SyncEach                     // before Append returns; appends at the same time share one sync
)

const syncEvery = 100 * time.Millisecond

var syncNames = [...]string{"interval", "each"}

// String returns interval or each.
func (m SyncMode) String() string { return syncNames[m&1] }

// UnmarshalText reads each or interval.
func (m *SyncMode) UnmarshalText(b []byte) error {
	i := slices.Index(syncNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("sync %q: want each or interval", b)
	}
	*m = SyncMode(i)
	return nil
}

// JournalConfig shapes a Journal. The zero value is useful.
type JournalConfig struct {
	Sync SyncMode // when lines are synced to the disk. Default SyncInterval

	// Whole says whether a last line without its newline is a whole one nevertheless, such as one that an editor left.
	// Nil says no.
	Whole func(line []byte) bool

	// Prefix is how every line begins. A torn line that begins otherwise is not cut off but refused: the file is
	// something else.
	Prefix string

	// Synced is told, after every sync, up to where lines are on the disk: those at offsets below it, as Append and
	// Result.Offset give them. It must be quick and not wait for the journal. Nil is nobody.
	Synced func(end int64)

	// State is where the state file is. Default: StatePath of the journal. Version and Hash are written to it: of the form of
	// what there is, and of what the results depend on beside the input, so that the next run can tell whether it is of them.
	// Limits tells pauses for limits from others, by the status Limited.
	State   string
	Version int
	Hash    string
	Limits  bool

	// Read returns the work of a line, for the state of a run after a kill. Default: the state omits results after its last write.
	Read func(line []byte) LastRun

	Logger *slog.Logger // nil discards

	disk disk // nil: the system's
}

// Journal is a file of lines, one per result, that is the checkpoint of its run: a line that is in it is done. One
// process at a time has it open. It is safe for concurrent use.
type Journal struct {
	path    string
	cfg     JournalConfig
	created bool // the journal did not exist before
	state   stateFile

	// mu is held while writing, against the rule of the house: lines must not interleave, and a partial one must be
	// cut off before the next.
	mu      sync.Mutex
	file    file
	size    int64
	written uint64          // appends
	start   atomic.Int64    // size before the lines of this run
	err     error           // the first; nothing is written after it
	keep    func(Line) bool // what the next Append leaves of the lines before it; nil: all
	timer   *time.Timer     // syncs, with SyncInterval
	due     bool            // it will, for an append after the last sync

	// syncMu is held while syncing: who waits for it meanwhile shares the next sync.
	syncMu  sync.Mutex
	synced  uint64 // appends
	syncErr error
}

// JournalError is returned when a journal cannot be written, or when a line of it cannot be read.
type JournalError struct {
	Path string
	Line int // 0 when it is not about one
	Err  error
}

// Error names the file, the line, and what is wrong.
func (e *JournalError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("journal %s line %d: %v", e.Path, e.Line, e.Err)
	}
	return fmt.Sprintf("journal %s: %v", e.Path, e.Err)
}

// Unwrap returns what is wrong.
func (e *JournalError) Unwrap() error { return e.Err }

// Hint says what can be done.
func (e *JournalError) Hint() string {
	switch {
	case e.Line == 1:
		return "the file is not an output of Sluice: use another output"
	case fault.DiskFull(e.Err):
		return fault.EntryOf(fault.Disk).Fix
	}
	return cmp.Or(fault.HintOf(e.Err), "repair the file or make it writable, then resume with the same command")
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *JournalError) FaultCode() string {
	if e.Line == 1 {
		return fault.Output
	}
	return fault.Disk
}

// OpenJournal opens or creates the journal at path, locks it, and cuts off a last line that was torn. It fails with a
// *LockedError if another process has it open.
func OpenJournal(path string, cfg JournalConfig) (*Journal, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.disk == nil {
		cfg.disk = systemDisk{}
	}
	path = FollowLinks(path) // a rename must replace the file, not the link
	j := &Journal{path: path, cfg: cfg}
	j.state.path, j.state.log = cmp.Or(cfg.State, StatePath(path)), cfg.Logger
	var err error
	if j.file, err = j.open(); err != nil {
		return nil, err
	}
	if err := j.ready(); err != nil {
		if j.created && j.size == 0 { // and still locked
			cfg.disk.Remove(path)
		}
		j.file.Close()
		return nil, err
	}
	j.timer = time.AfterFunc(syncEvery, func() { _ = j.Flush() }) // its error is kept in j.err
	return j, nil
}

// wrong is an error of the journal.
func (j *Journal) wrong(err error) error { return &JournalError{Path: j.path, Err: err} }

// Path returns where the lines are, links followed.
func (j *Journal) Path() string { return j.path }

// ready makes what was opened fit to be written.
func (j *Journal) ready() error {
	if err := j.cutTornLine(); err != nil {
		return j.wrong(err)
	}
	// A line that is synced in a file that has no name is lost, also if another run made the file.
	j.cfg.disk.SyncDir(filepath.Dir(j.path))
	return j.state.begin(j.cfg, j.file, j.size == 0)
}

// cutTornLine truncates the file after its last newline, unless what follows is a whole line.
func (j *Journal) cutTornLine() error {
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	j.size = info.Size()
	var tail []byte
	for whole := false; !whole && int64(len(tail)) < j.size; {
		tail = make([]byte, min(j.size, max(64<<10, 4*int64(len(tail)))))
		if _, err := j.file.ReadAt(tail, j.size-int64(len(tail))); err != nil {
			return err
		}
		i := bytes.LastIndexByte(tail, '\n')
		tail, whole = tail[i+1:], i >= 0
	}
	if len(tail) == 0 {
		return nil
	}
	if j.cfg.Whole != nil && j.cfg.Whole(tail) {
		_, err := j.file.Write([]byte("\n"))
		j.size++
		return err
	}
	torn := int64(len(tail))
	tail = bytes.TrimRight(tail, "\x00 \t\r") // NUL is what a power cut leaves where only the file's size was written
	tail = bytes.TrimPrefix(tail, byteOrderMark)
	n := min(len(tail), len(j.cfg.Prefix))
	if string(tail[:n]) != j.cfg.Prefix[:n] {
		return errors.New("the last line is not a result: check that this is the output of an earlier run")
	}
	j.cfg.Logger.Info("removed an incomplete last line", "journal", j.path, "bytes", torn)
	j.size -= torn
	return j.file.Truncate(j.size)
}

// Append writes whole lines, each of which ends in its newline, with one write, and returns where the first of them is. When it returns no
// error, they are with the system (and with SyncEach on the disk). When it fails, no part of them is left, and no later Append succeeds. A
// kill in the midst may leave the first of them.
func (j *Journal) Append(lines []byte) (offset int64, err error) {
	if len(lines) == 0 || lines[len(lines)-1] != '\n' {
		panic("work: a journal accepts only whole lines")
	}
	offset, n, err := j.write(lines)
	if err == nil && j.cfg.Sync == SyncEach {
		err = j.syncTo(n)
	}
	return offset, err
}

// write writes lines, and returns where they are and how many appends there were.
func (j *Journal) write(lines []byte) (offset int64, n uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, 0, j.err
	}
	if j.keep != nil {
		err = j.rewriteLocked(lines)
	} else if _, err = j.file.Write(lines); err == nil {
		j.size += int64(len(lines))
	} else {
		err = errors.Join(err, j.file.Truncate(j.size))
	}
	if err != nil {
		j.err = j.wrong(err)
		return 0, 0, j.err
	}
	j.written++
	if j.cfg.Sync == SyncInterval && !j.due {
		j.due = true
		j.timer.Reset(syncEvery)
	}
	return j.size - int64(len(lines)), j.written, nil
}

// Flush forces all lines to the disk.
func (j *Journal) Flush() error {
	j.mu.Lock()
	if j.err == nil {
		j.err = j.missing() // no more is called for results that would be lost
	}
	n, err := j.written, j.err
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return j.syncTo(n)
}

// syncTo returns when the first n appends are on the disk.
func (j *Journal) syncTo(n uint64) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	if j.synced >= n || j.syncErr != nil {
		return j.syncErr
	}
	j.mu.Lock()
	upTo, file, end := j.written, j.file, j.size
	j.due = false
	j.mu.Unlock()
	if err := file.Sync(); err != nil {
		// After a failed sync the system may have dropped the pages: trying again would report a success that is none.
		j.syncErr = j.wrong(err)
		j.mu.Lock()
		j.err = cmp.Or(j.err, j.syncErr)
		j.mu.Unlock()
		return j.syncErr
	}
	j.synced = upTo
	if j.cfg.Synced != nil {
		j.cfg.Synced(end) // before whoever waits for the sync goes on
	}
	return nil
}

// markStart notes that the lines of this run start here.
func (j *Journal) markStart() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.start.Store(j.size)
}

// Lines gives the journal's lines from the first, without their newlines, and their numbers from 1. A line is valid
// until the next.
func (j *Journal) Lines() iter.Seq2[Line, error] {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.linesLocked()
}

func (j *Journal) linesLocked() iter.Seq2[Line, error] {
	return NewLineReader(io.NewSectionReader(j.file, 0, j.size), 0).All()
}

// Close syncs, writes the state, and unlocks the journal. One that was created and got no line is removed, unless it is of a run
// that did all there was.
func (j *Journal) Close() error {
	err := j.Flush()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	j.timer.Stop()
	j.syncMu.Lock() // no sync is under way
	defer j.syncMu.Unlock()
	j.mu.Lock()
	j.err = j.wrong(os.ErrClosed)
	j.mu.Unlock()
	completed := j.state.end()
	if j.created && j.size == 0 && !completed {
		j.cfg.disk.Remove(j.path)
	}
	return errors.Join(err, j.file.Close())
}
