package work

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
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

func (j *Journal) rewriteLocked(keep func(Line) bool, last []byte) (err error) {
	// The file lock makes the name ours; one that a crash left is overwritten. It is opened as the journal is, to become it.
	tmp, err := os.OpenFile(j.path+".rewrite.tmp", os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	w := bufio.NewWriterSize(tmp, 256<<10)
	var gone moved
	eachLine(j.file, j.size, func(line Line, lineErr error) bool {
		if err = lineErr; err != nil {
			return true
		}
		if keep(line) {
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
	if err := j.replaceByLocked(tmp); err != nil {
		return err
	}
	j.moved = gone
	return nil
}

// replaceByLocked makes the new file the journal. It is locked before it has the journal's name.
func (j *Journal) replaceByLocked(tmp *os.File) error {
	info, err := tmp.Stat()
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // where an open file can be neither replaced nor renamed
		j.file.Close()
		tmp.Close()
		if err := os.Rename(tmp.Name(), j.path); err != nil {
			return err
		}
		return errors.Join(j.open(), j.cutTornLine())
	}
	if err := lockFile(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), j.path); err != nil {
		return err
	}
	syncDir(filepath.Dir(j.path))
	j.file.Close()
	j.file, j.size = tmp, info.Size()
	return nil
}
