package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	maxOutput = 16 << 20 // of one stream that is kept
	tailShare = 8        // of that, a part this small is for the end
)

// spool keeps what a command writes to one stream: its beginning in a file as it comes and, where that is too long, its end.
// It takes all that is written: an error of the file is told by close.
type spool struct {
	file *os.File
	room int64 // for the beginning
	tail ring
	lost int64 // bytes between beginning and end
	err  error // of the file
}

// newSpool makes the file.
func newSpool(path string, most int64) (*spool, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &spool{file: file, room: most - most/tailShare, tail: ring{most: int(most / tailShare)}}, nil
}

// Write takes what a command wrote.
func (s *spool) Write(b []byte) (int, error) {
	all := len(b)
	if n := min(s.room, int64(len(b))); n > 0 {
		if _, err := s.file.Write(b[:n]); err != nil && s.err == nil {
			s.err = err
		}
		s.room -= n
		b = b[n:]
	}
	s.lost += int64(s.tail.add(b))
	return all, nil
}

// close puts the end behind the beginning, and returns what the file holds, or its two ends if it is longer than a command's end
// needs. The file may have another one in its place by now, or none.
func (s *spool) close() ([]byte, error) {
	if s.lost > 0 {
		if _, err := fmt.Fprintf(s.file, "\n[… %d bytes omitted …]\n", s.lost); err != nil && s.err == nil {
			s.err = err
		}
	}
	for _, part := range s.tail.parts() {
		if _, err := s.file.Write(part); err != nil && s.err == nil {
			s.err = err
		}
	}
	if s.err != nil {
		return nil, errors.Join(s.err, s.file.Close())
	}
	kept, err := ends(s.file) // not by its name: the command may have removed or replaced it
	return kept, errors.Join(err, s.file.Close())
}

// mostLooked is how much of one stream is looked at.
const mostLooked = 4 << 20

// ends returns what a file holds, without its middle if that is much.
func ends(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() <= mostLooked {
		return io.ReadAll(io.NewSectionReader(f, 0, mostLooked))
	}
	b := make([]byte, mostLooked)
	if _, err := f.ReadAt(b[:mostLooked/4], 0); err != nil {
		return nil, err
	}
	b[mostLooked/4] = '\n'
	if _, err := f.ReadAt(b[mostLooked/4+1:], info.Size()-(mostLooked-mostLooked/4-1)); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

// ring keeps the last bytes that it is given.
type ring struct {
	most int
	b    []byte
	at   int // of the oldest, once b is full
}

// add takes bytes in and returns how many were dropped.
func (r *ring) add(b []byte) (dropped int) {
	if over := len(b) - r.most; over > 0 {
		dropped = over
		b = b[over:]
	}
	if room := r.most - len(r.b); room > 0 && r.at == 0 {
		n := min(room, len(b))
		r.b = append(r.b, b[:n]...)
		b = b[n:]
	}
	dropped += len(b)
	for len(b) > 0 {
		n := copy(r.b[r.at:], b)
		r.at = (r.at + n) % len(r.b)
		b = b[n:]
	}
	return dropped
}

// parts returns what is kept, in order.
func (r *ring) parts() [2][]byte { return [2][]byte{r.b[r.at:], r.b[:r.at]} }
