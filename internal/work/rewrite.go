package work

import (
	"bufio"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Rewrite makes the next Append replace the journal by a file with the lines for which keep returns true, and the new lines after them.
// So a run without results removes no line. Rewrite must be called before the first Append, which calls keep under the journal's lock.
func (j *Journal) Rewrite(keep func(Line) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written > 0 {
		panic("work: Rewrite was called after the first Append")
	}
	j.keep = keep
}

// rewriteLocked replaces the journal by the lines that Rewrite keeps, and the new ones.
func (j *Journal) rewriteLocked(lines []byte) error {
	keep := j.keep
	j.keep = nil
	kept := 0
	err := j.replaceLocked(func(w *bufio.Writer) error {
		for line, err := range j.linesLocked() {
			if err != nil {
				return err
			}
			if keep(line) {
				kept += len(line.Bytes) + 1
				w.Write(line.Bytes)
				w.WriteByte('\n') // a bufio.Writer keeps its first error for Flush
			}
		}
		w.Write(lines)
		return nil
	})
	j.start.Store(int64(kept))
	return err
}

// Sort sorts the lines by their ranks. Lines of the same rank keep their order. Sort does not rewrite a sorted journal. If Sort fails, the
// journal is unchanged. Sort needs disk space for a second journal, and 16 bytes of memory per line.
func (j *Journal) Sort(rank func(line []byte) uint32) error {
	type place struct {
		offset int64
		rank   uint32
		size   uint32 // with the newline
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	var lines []place
	for line, err := range j.linesLocked() {
		if err != nil {
			return err
		}
		lines = append(lines, place{line.Offset, rank(line.Bytes), uint32(len(line.Bytes)) + 1})
	}
	before := func(a, b place) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.offset, b.offset)) }
	if slices.IsSortedFunc(lines, before) {
		return nil
	}
	slices.SortFunc(lines, before)
	return j.replaceLocked(func(w *bufio.Writer) error {
		var line []byte
		for _, at := range lines {
			line = slices.Grow(line[:0], int(at.size))[:at.size]
			if _, err := j.file.ReadAt(line, at.offset); err != nil {
				return err
			}
			if line[at.size-1] != '\n' {
				return errors.New("the file was changed while it was sorted")
			}
			w.Write(line)
		}
		return nil
	})
}

// replaceLocked replaces the journal by a new file, which write fills. The file is synced and then renamed, so a crash leaves the old or
// the new journal. The new file is locked before it gets the journal's name.
func (j *Journal) replaceLocked(write func(w *bufio.Writer) error) (err error) {
	name := j.path + ".rewrite.tmp" // the lock makes the name ours
	j.cfg.disk.Remove(name)         // a crash left it, or it is a link of somebody else's, who must not choose which file is written
	draft, err := j.cfg.disk.Open(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			draft.Close()
			j.cfg.disk.Remove(name)
		}
	}()
	w := bufio.NewWriterSize(draft, 256<<10)
	if err := write(w); err != nil {
		return err
	}
	was, err := j.file.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), draft.Chmod(was.Mode().Perm()), draft.Sync()); err != nil {
		return err
	}
	info, err := draft.Stat()
	if err != nil {
		return err
	}
	file := draft
	if runtime.GOOS == "windows" { // where an open file can be neither replaced nor renamed
		if err := errors.Join(draft.Close(), j.file.Close(), j.cfg.disk.Rename(name, j.path)); err != nil {
			return err
		}
		file, err = j.open()
	} else if err = draft.Lock(); err == nil {
		err = j.cfg.disk.Rename(name, j.path)
	}
	if err != nil {
		return err
	}
	j.cfg.disk.SyncDir(filepath.Dir(j.path))
	j.file.Close()
	j.file, j.size = file, info.Size()
	return nil
}
