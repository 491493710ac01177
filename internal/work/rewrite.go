package work

import (
	"bufio"
	"errors"
	"runtime"
)

// Rewrite makes the next Append replace the journal by one with the lines that keep wants and the new one behind them:
// a run that gets no result costs none of those before it. Append copies to a new file, syncs it and renames it, so that
// a crash leaves the old or the new one. It must be called before the first Append. keep is called by that, under the
// journal's lock.
func (j *Journal) Rewrite(keep func(Line) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written > 0 {
		panic("work: Rewrite was called after the first Append")
	}
	j.keep = keep
}

// rewriteLocked makes a new journal of the lines that keep wants and the last one.
func (j *Journal) rewriteLocked(keep func(Line) bool, last []byte) (err error) {
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
	eachLine(j.file, j.size, func(line Line, lineErr error) bool {
		if err = lineErr; err != nil {
			return true
		}
		if keep(line) {
			w.Write(line.Bytes)
			w.WriteByte('\n') // a bufio.Writer keeps its first error for Flush
		}
		return true
	})
	if err != nil {
		return err
	}
	w.Write(last)
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), tmp.Chmod(info.Mode().Perm()), tmp.Sync()); err != nil {
		return err
	}
	return j.replaceLocked(tmp)
}

// replaceLocked makes the new file the journal. It is locked before it has that name.
func (j *Journal) replaceLocked(tmp file) error {
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

// reopenLocked is replaceLocked where files must be closed for it.
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
