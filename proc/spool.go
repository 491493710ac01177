package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	usualOutput = 16 << 20 // of one stream that is kept
	tailShare   = 8        // of that, a part this small is for the end
)

// spool keeps what a command writes to one stream: its beginning in a file as it comes and, where that is too long, its end.
// The command gets a pipe, so that it can write as much as it likes.
type spool struct {
	file *os.File
	room int64 // for the beginning
	tail ring
	lost int64 // bytes between beginning and end
	err  error // of the file

	read, write *os.File
	done        chan struct{}
}

// newSpool makes the file and begins to read.
func newSpool(path string, most int64) (*spool, error) {
	s := &spool{room: most - most/tailShare, tail: ring{most: int(most / tailShare)}, done: make(chan struct{})}
	var err error
	if s.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	if s.read, s.write, err = os.Pipe(); err != nil {
		s.file.Close()
		return nil, err
	}
	go s.copy()
	return s, nil
}

func (s *spool) copy() {
	defer close(s.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := s.read.Read(buf)
		s.take(buf[:n])
		if err != nil {
			return // all who could write are gone, or close waits for no more
		}
	}
}

func (s *spool) take(b []byte) {
	if n := min(s.room, int64(len(b))); n > 0 {
		if _, err := s.file.Write(b[:n]); err != nil && s.err == nil {
			s.err = err
		}
		s.room -= n
		b = b[n:]
	}
	s.lost += int64(s.tail.add(b))
}

// started lets go of the end of the pipe that the command has now.
func (s *spool) started() { s.write.Close() }

// close takes what was written, puts the end behind the beginning, and returns what the file holds, or its two ends if it is
// longer than a command's end needs. The command must be over, or not have been started. What it left behind, and may still
// have the pipe, is not waited for. The file may have another one in its place by now, or none.
func (s *spool) close() ([]byte, error) {
	s.write.Close()
	_ = s.read.SetReadDeadline(time.Unix(1, 0)) // ends copy
	<-s.done
	s.drain()
	s.read.Close()
	if s.lost > 0 {
		if _, err := fmt.Fprintf(s.file, "\n[… %d bytes are left out here …]\n", s.lost); err != nil && s.err == nil {
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

// mostPiped is more than a pipe holds.
const mostPiped = 1 << 20

// drain takes what is in the pipe: all that the command wrote, which is there before it ends. What it left behind may write on.
func (s *spool) drain() {
	_ = s.read.SetReadDeadline(time.Time{})
	raw, err := s.read.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	_ = raw.Read(func(fd uintptr) bool {
		for taken := 0; taken < mostPiped; {
			n, err := readFD(fd, buf)
			if n <= 0 || err != nil {
				return true
			}
			s.take(buf[:n])
			taken += n
		}
		return true
	})
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
