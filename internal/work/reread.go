package work

import (
	"bytes"
	"errors"
	"io"
	"sort"
)

// ReadLine returns the line at an offset that Lines or AppendAt gave, without its newline, also after a rewrite, unless
// that dropped it. The journal must have been opened with Reread.
func (j *Journal) ReadLine(offset int64) ([]byte, error) {
	if !j.cfg.Reread {
		panic("work: ReadLine needs a journal with Reread")
	}
	// The lock is held while reading, as it is while writing: a rewrite replaces and closes the file.
	j.mu.Lock()
	defer j.mu.Unlock()
	at, ok := j.moved.now(offset)
	if !ok || at < 0 || at >= j.size {
		return nil, &JournalError{Path: j.path, Err: errors.New("a line that was written earlier is missing")}
	}
	for want := int64(16 << 10); ; want *= 4 {
		b := make([]byte, min(want, j.size-at))
		if _, err := j.file.ReadAt(b, at); err != nil && err != io.EOF {
			return nil, &JournalError{Path: j.path, Err: err}
		}
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return b[:i:i], nil
		}
		if int64(len(b)) == j.size-at {
			return nil, &JournalError{Path: j.path, Err: io.ErrUnexpectedEOF}
		}
	}
}

// moved says where lines are after a rewrite. The offsets that were given before it stay as they are, and those given
// after it continue where the old file ended, so that no two lines ever have the same. The zero value is no rewrite.
type moved struct {
	end   int64 // of the old file
	drops []drop
}

// drop is a stretch of the old file that is not in the new one.
type drop struct {
	from, to int64
	before   int64 // bytes that were dropped before it
}

func (m *moved) drop(offset, size int64) {
	n := len(m.drops)
	if n > 0 && m.drops[n-1].to == offset {
		m.drops[n-1].to += size
		return
	}
	m.drops = append(m.drops, drop{from: offset, to: offset + size, before: m.total()})
}

// total is how many bytes were dropped.
func (m *moved) total() int64 {
	if len(m.drops) == 0 {
		return 0
	}
	last := m.drops[len(m.drops)-1]
	return last.before + last.to - last.from
}

// given is the offset under which a line at that place of the file is known.
func (m *moved) given(at int64) int64 { return at + m.total() }

// now is where the line of a given offset is; not ok if it was dropped.
func (m *moved) now(offset int64) (at int64, ok bool) {
	if offset >= m.end {
		return offset - m.total(), true
	}
	i := sort.Search(len(m.drops), func(i int) bool { return m.drops[i].from > offset })
	if i == 0 {
		return offset, true
	}
	d := m.drops[i-1]
	return offset - d.before - (d.to - d.from), offset >= d.to
}
