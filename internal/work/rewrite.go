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
		panic("work: Rewrite comes before the first Append")
	}
	j.keep = keep
}

// rewriteLocked makes a new journal of the lines that keep wants and the last one. A nil keep wants all.
func (j *Journal) rewriteLocked(keep func(Line) bool, last []byte) (err error) {
	to := j.path
	if j.takes {
		to = AsidePath(j.out)
	}
	tmp, err := openNew(j.disk, to+".rewrite.tmp") // the lock makes the name ours
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
	var gone moved
	eachLine(j.file, j.size, func(line Line, lineErr error) bool {
		if err = lineErr; err != nil {
			return true
		}
		if keep == nil || keep(line) {
			w.Write(line.Bytes)
			w.WriteByte('\n') // a bufio.Writer keeps its first error for Flush
		} else if j.cfg.Reread {
			gone.drop(line.Offset, int64(len(line.Bytes))+1)
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
	gone.end = j.size
	if err := j.replaceLocked(tmp, to); err != nil {
		return err
	}
	j.moved = gone
	return nil
}

// replaceLocked makes the new file the journal, under the name to. It is locked before it has that. The file of the run's
// results stays locked as long as the journal is aside.
func (j *Journal) replaceLocked(tmp file, to string) error {
	info, err := tmp.Stat()
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // where an open file can be neither replaced nor renamed
		return j.reopenLocked(tmp, to)
	}
	if err := tmp.Lock(); err != nil {
		return err
	}
	if err := j.disk.Rename(tmp.Name(), to); err != nil {
		return err
	}
	j.syncDir()
	j.leaveLocked(to)
	j.file, j.path, j.size = tmp, to, info.Size()
	return nil
}

// leaveLocked gives up the files that the journal under the name to has replaced. A journal aside is removed only now
// that the file is whole.
func (j *Journal) leaveLocked(to string) {
	takes := j.takes
	j.takes = false
	switch {
	case takes && to != j.out: // the file was the journal; now that is aside
		j.held = j.file
		return
	case to != j.path:
		j.disk.Remove(j.path)
		j.syncDir()
	}
	j.file.Close()
	if to == j.out && j.held != nil {
		j.held.Close()
		j.held = nil
	}
}

// reopenLocked is replaceLocked where files must be closed for it.
func (j *Journal) reopenLocked(tmp file, to string) (err error) {
	tmp.Close()
	was := j.path
	if keeps := j.takes && to != j.out; keeps {
		j.held = j.file
	} else {
		j.file.Close()
	}
	if to == j.out && j.held != nil {
		j.held.Close()
		j.held = nil
	}
	if err := j.disk.Rename(tmp.Name(), to); err != nil {
		return err
	}
	if !j.takes && to != was {
		j.disk.Remove(was)
	}
	j.takes, j.path = false, to
	if j.file, err = j.openLocked(to, 0); err != nil {
		return err
	}
	return j.cutTornLine()
}
