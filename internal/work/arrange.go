package work

import (
	"bufio"
	"errors"
)

// lineAt is where a line of a journal is, its newline included.
type lineAt struct {
	offset int64
	size   int64
}

// Arrange puts the journal's lines in order, into its own file: first those that place knows, by their numbers, then the
// others as they are. Of several lines with one number the first has the place. Items are at most so many; a number is
// below that. With Aside, it is then that the file is written, and the journal aside is removed. It must come after
// the last Append.
//
// The file is replaced at once, and the journal aside is removed after that: a crash leaves the old file or the new one,
// and a run that is started again arranges again.
func (j *Journal) Arrange(items int, place func(Line) (number int, ok bool)) error {
	if err := j.Flush(); err != nil { // no sync is under way after it
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	lines, others, sorted, err := j.findLocked(items, place)
	if err == nil && (!sorted || j.path != j.out) {
		err = j.arrangeLocked(lines, others, place)
	}
	if err != nil {
		j.err = &JournalError{Path: j.out, Err: err}
		return j.err
	}
	return nil
}

// findLocked finds the lines, and says how many have no place, and whether all stand where they belong.
func (j *Journal) findLocked(items int, place func(Line) (number int, ok bool)) (lines []lineAt, others int, sorted bool, err error) {
	lines, sorted = make([]lineAt, items), true
	last := -1
	eachLine(j.file, j.size, func(line Line, lineErr error) bool {
		if err = lineErr; err != nil {
			return false
		}
		number, ok := place(line)
		if !ok || lines[number].size > 0 {
			others++
			return true
		}
		sorted = sorted && others == 0 && number > last
		last = number
		lines[number] = lineAt{line.Offset, int64(len(line.Bytes)) + 1}
		return true
	})
	return lines, others, sorted, err
}

func (j *Journal) arrangeLocked(lines []lineAt, others int, place func(Line) (number int, ok bool)) (err error) {
	tmp, err := openNew(j.disk, j.out+".order.tmp") // the lock makes the name ours
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
	var buf []byte
	for _, l := range lines {
		if l.size == 0 {
			continue
		}
		if int64(cap(buf)) < l.size {
			buf = make([]byte, l.size)
		}
		if _, err := j.file.ReadAt(buf[:l.size], l.offset); err != nil {
			return err
		}
		w.Write(buf[:l.size]) // a bufio.Writer keeps its first error for Flush
	}
	if others > 0 {
		eachLine(j.file, j.size, func(line Line, lineErr error) bool {
			if number, ok := place(line); !ok || lines[number].offset != line.Offset {
				w.Write(line.Bytes)
				w.WriteByte('\n')
			}
			err = lineErr
			return true
		})
	}
	was := j.file // whose rights the file keeps
	if j.held != nil {
		was = j.held
	}
	info, statErr := was.Stat()
	if err := errors.Join(err, statErr, w.Flush()); err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(info.Mode().Perm()), tmp.Sync()); err != nil {
		return err
	}
	return j.replaceLocked(tmp, j.out)
}
