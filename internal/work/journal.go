package work

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// SyncMode says when lines of a journal are forced to the disk. A killed process loses nothing in any mode; it is the
// power cut that they are about.
type SyncMode uint8

// Modes.
const (
	SyncInterval SyncMode = iota // all lines of an interval together, in the background
	SyncEach                     // before Append returns; appends at the same time share one sync
	SyncNone                     // when the system likes
)

// UnmarshalText reads each, interval or none.
func (m *SyncMode) UnmarshalText(b []byte) error {
	for i, name := range [...]string{"interval", "each", "none"} {
		if name == string(b) {
			*m = SyncMode(i)
			return nil
		}
	}
	return fmt.Errorf("sync %q: want each, interval or none", b)
}

// JournalConfig shapes a Journal. The zero value is useful.
type JournalConfig struct {
	Sync      SyncMode      // when lines are synced to the disk. Default SyncInterval
	SyncEvery time.Duration // with SyncInterval. Default 100 ms

	// Whole says whether a last line without its newline is a whole one nevertheless, such as one that an editor left.
	// Nil says no.
	Whole func(line []byte) bool

	// Prefix is how every line begins. A torn line that begins otherwise is not cut off but refused: the file is
	// something else.
	Prefix string

	// Synced is told, after every sync, up to where lines are on the disk: those at offsets below it, as AppendAt and
	// Result.Offset give them. It must be quick and not wait for the journal. Nil is nobody.
	Synced func(end int64)

	// State is where the state file is. Default: StatePath of the journal. Version and Hash are written to it: of the form of
	// what there is, and of what the results depend on beside the input, so that the next run can tell whether it is of them.
	// Limits tells pauses for limits from others, by the status Limited.
	State   string
	Version int
	Hash    string
	Limits  bool

	Logger *slog.Logger // nil discards

	disk disk // nil: the system's
}

// Journal is a file of lines, one per result, that is the checkpoint of its run: a line that is in it is done. One
// process at a time has it open. It is safe for concurrent use.
type Journal struct {
	path string
	cfg  JournalConfig
	disk disk

	created bool // the journal did not exist before
	earlier State
	known   bool  // earlier was read from a file
	last    State // as it was written
	kept    Raw   // see Keep
	start   time.Time
	stateMu sync.Mutex // serialises writers of the state file
	ran     bool

	// mu is held while writing, against the rule of the house: lines must not interleave, and a partial one must be
	// cut off before the next.
	mu      sync.Mutex
	file    file
	size    int64
	written uint64 // lines
	err     error  // the first; nothing is written after it
	closed  bool
	keep    func(Line) bool // what the next Append leaves of the lines before it; nil: all

	syncMu  sync.Mutex
	syncEnd *sync.Cond
	syncing bool
	synced  uint64 // lines
	syncErr error

	dirty chan struct{}
	stop  chan struct{}
	idle  chan struct{} // closed when the goroutine of SyncInterval has ended
}

// LockedError is returned by OpenJournal for a journal that another process has open.
type LockedError struct {
	Path string
	PID  int // 0 when it is not known
}

// Error names the file and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Path)
	}
	return fmt.Sprintf("%s is in use by process %d", e.Path, e.PID)
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

// OpenJournal opens or creates the journal at path, locks it, and cuts off a last line that was torn. It fails with a
// *LockedError if another process has it open.
func OpenJournal(path string, cfg JournalConfig) (*Journal, error) {
	switch {
	case cfg.SyncEvery < 0:
		return nil, errors.New("work: SyncEvery is negative")
	case cfg.Sync > SyncNone:
		return nil, errors.New("work: Sync is not a known mode")
	}
	cfg.SyncEvery = cmp.Or(cfg.SyncEvery, 100*time.Millisecond)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	path, err := followLinks(path) // a rename must replace the file, not the link
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, cfg: cfg, disk: cfg.disk, start: time.Now()}
	if j.disk == nil {
		j.disk = systemDisk{}
	}
	j.syncEnd = sync.NewCond(&j.syncMu)
	if err := j.open(); err != nil {
		return nil, err
	}
	if err := j.ready(); err != nil {
		if j.created { // and still locked
			j.disk.Remove(j.path)
		}
		j.file.Close()
		return nil, err
	}
	if cfg.Sync == SyncInterval {
		j.dirty, j.stop, j.idle = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		go j.syncLoop()
	}
	return j, nil
}

// followLinks returns what path leads to, also where there is nothing yet.
func followLinks(path string) (string, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	for range 40 { // as many as the system follows
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link, or not there
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("too many links")}
}

// Path returns where the lines are, links followed.
func (j *Journal) Path() string { return j.path }

// ready makes what was opened fit to be written.
func (j *Journal) ready() error {
	if err := j.cutTornLine(); err != nil {
		return &JournalError{Path: j.path, Err: err}
	}
	if j.cfg.Sync != SyncNone {
		j.syncDir() // a line that is synced in a file that has no name is lost, also if another run made the file
	}
	return j.beginState()
}

// cutTornLine truncates the file after its last newline, unless what follows is a whole line.
func (j *Journal) cutTornLine() error {
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	j.size = info.Size()
	end := j.size
	block := make([]byte, 64<<10)
	for end > 0 {
		b := block[:min(int64(len(block)), end)]
		if _, err := j.file.ReadAt(b, end-int64(len(b))); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			end -= int64(len(b) - i - 1)
			break
		}
		end -= int64(len(b))
	}
	if end == j.size {
		return nil
	}
	tail := make([]byte, j.size-end)
	if _, err := j.file.ReadAt(tail, end); err != nil {
		return err
	}
	if j.cfg.Whole != nil && j.cfg.Whole(tail) {
		_, err := j.file.Write([]byte("\n"))
		j.size++
		return err
	}
	torn := len(tail)
	tail = bytes.TrimRight(tail, "\x00 \t\r") // NUL is what a power cut leaves where only the file's size was written
	tail = bytes.TrimPrefix(tail, byteOrderMark)
	n := min(len(tail), len(j.cfg.Prefix))
	if string(tail[:n]) != j.cfg.Prefix[:n] {
		return errors.New("the last line is not a result: check that this is the output of an earlier run")
	}
	j.cfg.Logger.Info("removed an incomplete last line", "journal", j.path, "bytes", torn)
	j.size = end
	return j.file.Truncate(end)
}

// Append writes whole lines, each of which ends in its newline, with one write. When it returns nil, they are with the
// system (and with SyncEach on the disk). When it fails, no part of them is left, and no later Append succeeds. A kill in
// the midst may leave the first of them.
func (j *Journal) Append(lines []byte) error {
	_, err := j.AppendAt(lines)
	return err
}

// AppendAt is Append that also returns where the first of the lines is.
func (j *Journal) AppendAt(lines []byte) (offset int64, err error) {
	if len(lines) == 0 || lines[len(lines)-1] != '\n' {
		panic("work: a journal accepts only whole lines")
	}
	j.mu.Lock()
	if j.err == nil && j.closed {
		j.err = &JournalError{Path: j.path, Err: os.ErrClosed}
	}
	if err := j.err; err != nil {
		j.mu.Unlock()
		return 0, err
	}
	if err := j.writeLocked(lines); err != nil {
		j.err = &JournalError{Path: j.path, Err: err}
		j.mu.Unlock()
		return 0, j.err
	}
	offset = j.size - int64(len(lines))
	j.written += uint64(bytes.Count(lines, []byte{'\n'}))
	n := j.written
	j.mu.Unlock()

	switch j.cfg.Sync {
	case SyncEach:
		return offset, j.syncTo(n)
	case SyncInterval:
		wake.Up(j.dirty)
	}
	return offset, nil
}

// writeLocked writes lines, and with the first ones drops what Rewrite said.
func (j *Journal) writeLocked(lines []byte) error {
	if keep := j.keep; keep != nil {
		j.keep = nil
		return j.rewriteLocked(keep, lines)
	}
	if _, err := j.file.Write(lines); err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(len(lines))
	return nil
}

// Flush forces all lines to the disk, in every mode but SyncNone.
func (j *Journal) Flush() error {
	j.mu.Lock()
	n, err := j.written, j.err
	if err == nil {
		err = j.missing()
		j.err = err // no more is called for results that would be lost
	}
	j.mu.Unlock()
	if err != nil || j.cfg.Sync == SyncNone {
		return err
	}
	return j.syncTo(n)
}

// missing is an error if the file is not, or not whole, where it was: somebody removed, replaced or cut it.
func (j *Journal) missing() error {
	here, err := j.file.Stat()
	if err != nil {
		return nil // closed
	}
	there, err := j.disk.Stat(j.path)
	switch {
	case err != nil || !os.SameFile(here, there):
		return &JournalError{Path: j.path, Err: &lostError{"was removed or replaced during the run: its results are lost"}}
	case here.Size() < j.size:
		return &JournalError{Path: j.path, Err: &lostError{"was truncated during the run: results are lost"}}
	}
	return nil
}

// lostError is what became of a file by somebody else's hand.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

// Hint says what can be done.
func (e *lostError) Hint() string {
	return "restore the file from a copy and run the same command again: items without a result are sent again"
}

// syncTo returns when the first n lines are on the disk. Of those who ask at once, one syncs for all.
func (j *Journal) syncTo(n uint64) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	for j.synced < n && j.syncErr == nil {
		if j.syncing {
			j.syncEnd.Wait()
			continue
		}
		j.syncing = true
		j.syncMu.Unlock()
		j.mu.Lock()
		upTo, file, end := j.written, j.file, j.size
		j.mu.Unlock()
		err := file.Sync()
		if err == nil && j.cfg.Synced != nil {
			j.cfg.Synced(end) // before whoever waits for the sync goes on
		}
		j.syncMu.Lock()
		j.syncing = false
		if err == nil {
			j.synced = upTo
		} else {
			// After a failed sync the system may have dropped the pages: trying again would report a success that is none.
			j.syncErr = &JournalError{Path: j.path, Err: err}
			j.mu.Lock()
			if j.err == nil {
				j.err = j.syncErr
			}
			j.mu.Unlock()
		}
		j.syncEnd.Broadcast()
	}
	return j.syncErr
}

// syncLoop syncs an interval after the first line that is not on the disk. An error shows at the next Append or Flush.
func (j *Journal) syncLoop() {
	defer close(j.idle)
	for {
		select {
		case <-j.dirty:
		case <-j.stop:
			return
		}
		select {
		case <-time.After(j.cfg.SyncEvery):
		case <-j.stop:
			return // Close syncs
		}
		_ = j.Flush() // kept in j.err
	}
}

// Lines gives the journal's lines from the first, without their newlines, and their numbers from 1. A line is valid
// until the next.
func (j *Journal) Lines() iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		j.mu.Lock()
		file, size := j.file, j.size
		j.mu.Unlock()
		eachLine(file, size, yield)
	}
}

func eachLine(file io.ReaderAt, size int64, yield func(Line, error) bool) {
	r := NewLineReader(io.NewSectionReader(file, 0, size), 0)
	for {
		line, err := r.Next()
		if err == io.EOF {
			return
		}
		if !yield(line, err) || err != nil {
			return
		}
	}
}

// keepEmpty makes a journal without a line stay: all that there was to do is done.
func (j *Journal) keepEmpty() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.created = false
}

// Close syncs, writes the state, and unlocks the journal. One that was created and got no line is removed, unless it is of a run
// that did all there was.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.mu.Unlock()
	if j.stop != nil {
		close(j.stop)
		<-j.idle
	}
	err := j.Flush()
	j.endState()
	if j.created && j.size == 0 {
		j.disk.Remove(j.path)
	}
	return errors.Join(err, j.file.Close())
}
