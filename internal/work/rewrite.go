package work

import (
	"bufio"
	"cmp"
	"errors"
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

// rewriteLocked replaces the journal by the kept lines and the last one.
func (j *Journal) rewriteLocked(keep func(Line) bool, last []byte) error {
	return j.replaceLocked(func(w *bufio.Writer) (err error) {
		eachLine(j.file, j.size, func(line Line, lineErr error) bool {
			if err = lineErr; err == nil && keep(line) {
				w.Write(line.Bytes)
				w.WriteByte('\n') // a bufio.Writer keeps its first error for Flush
			}
			return true
		})
		w.Write(last)
		return err
	})
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
	var wrong error
	eachLine(j.file, j.size, func(line Line, err error) bool {
		wrong = err
		lines = append(lines, place{line.Offset, rank(line.Bytes), uint32(len(line.Bytes)) + 1})
		return true
	})
	before := func(a, b place) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.offset, b.offset)) }
	if wrong != nil || slices.IsSortedFunc(lines, before) {
		return wrong
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
	tmp, err := openNew(j.disk, j.path+".rewrite.tmp") // the lock makes the name ours
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			j.disk.Remove(tmp.Name())
		}
	}()
	w := bufio.NewWriterSize(tmp, 256<<10)
	if err := write(w); err != nil {
		return err
	}
	was, err := j.file.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), tmp.Chmod(was.Mode().Perm()), tmp.Sync()); err != nil {
		return err
	}
	info, err := tmp.Stat()
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // where an open file can be neither replaced nor renamed
		return j.reopenLocked(tmp)
	}
	if err := tmp.Lock(); err != nil {
		return err
	}
	if err := j.disk.Rename(tmp.Name(), j.path); err != nil {
		return err
	}
	j.syncDir()
	j.file.Close()
	j.file, j.size = tmp, info.Size()
	return nil
}

// reopenLocked ends replaceLocked where files must be closed for it.
func (j *Journal) reopenLocked(tmp file) (err error) {
	tmp.Close()
	j.file.Close()
	if err := j.disk.Rename(tmp.Name(), j.path); err != nil {
		return err
	}
	if j.file, err = j.openLocked(j.path, 0); err != nil {
		return err
	}
	return j.cutTornLine()
}
