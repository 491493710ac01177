package rows

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/sluice-llm/sluice/internal/fault"
)

const (
	gzipSuffix = ".gz"
	gzipMagic  = "\x1f\x8b" // what a compressed input begins with: no text in UTF-8 does
)

// DamagedError is returned for a compressed input that is cut short or damaged.
type DamagedError struct {
	Path   string // "-" is standard input
	Offset int64  // about how many bytes could be read
	Err    error
}

// Error names the input and about where it is damaged.
func (e *DamagedError) Error() string {
	name := spoken(e.Path)
	if errors.Is(e.Err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("%s is truncated or damaged: its gzip data ends at about byte %d", name, e.Offset)
	}
	return fmt.Sprintf("%s is damaged: its gzip data is invalid at about byte %d: %v", name, e.Offset, e.Err)
}

// Unwrap returns what is wrong.
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint says what can be done.
func (e *DamagedError) Hint() string {
	return "copy or write the file again, and test it with gzip -t"
}

// UnpackError is returned when there is no room for what a compressed input holds.
type UnpackError struct {
	Path string
	Dir  string // where it was to go
	Err  error
}

// Error names the input and the directory.
func (e *UnpackError) Error() string {
	return fmt.Sprintf("%s cannot be unpacked into %s: %v", e.Path, e.Dir, e.Err)
}

// Unwrap returns what the system said.
func (e *UnpackError) Unwrap() error { return e.Err }

// Hint says what can be done.
func (e *UnpackError) Hint() string {
	return "free disk space there, or set TMPDIR to another directory"
}

// unpacked reads what a compressed text holds. Its errors are *DamagedErrors, but for those of the reader beneath.
type unpacked struct {
	path string
	from source
	r    *gzip.Reader // nil before the first read
}

// source counts what is read of a reader, and keeps its error, to tell it from those of what is read.
type source struct {
	r   io.Reader
	n   int64
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func newUnpacked(path string, r io.Reader) *unpacked {
	return &unpacked{path: path, from: source{r: r}}
}

func (u *unpacked) Read(p []byte) (n int, err error) {
	if u.r == nil {
		if u.r, err = gzip.NewReader(&u.from); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, u.damage(err)
		}
	}
	if n, err = u.r.Read(p); err != nil && err != io.EOF {
		err = u.damage(err)
	}
	return n, err
}

func (u *unpacked) damage(err error) error {
	if u.from.err != nil {
		return u.from.err
	}
	return &DamagedError{Path: u.path, Offset: u.from.n, Err: err}
}

// unpackFile returns the file, or one of what it holds if it is compressed, which drop removes.
func unpackFile(file *os.File) (*os.File, error) {
	path := file.Name()
	head := make([]byte, len(gzipMagic))
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case string(head[:n]) == gzipMagic:
		return spool(newUnpacked(path, file))
	case strings.HasSuffix(strings.ToLower(path), gzipSuffix):
		return nil, fmt.Errorf("%s is not compressed with gzip, although its name ends in .gz", path)
	}
	return file, nil
}

// spool copies what a compressed input holds into a file that nobody else can open and that goes with the process.
func spool(u *unpacked) (*os.File, error) {
	tmp, err := os.CreateTemp("", "sluice-input-*") // for its owner alone
	if err != nil {
		return nil, &UnpackError{Path: u.path, Dir: os.TempDir(), Err: err}
	}
	_ = os.Remove(tmp.Name()) // where the system takes no open file away, drop does
	if err := u.copyTo(tmp); err != nil {
		drop(tmp)
		return nil, err
	}
	return tmp, nil
}

// drop closes the file and makes sure that it is gone.
func drop(tmp *os.File) {
	tmp.Close()
	_ = os.Remove(tmp.Name())
}

// copyTo writes all that it holds.
func (u *unpacked) copyTo(w io.Writer) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := u.Read(buf)
		if _, wrong := w.Write(buf[:n]); wrong != nil {
			return &UnpackError{Path: u.path, Dir: os.TempDir(), Err: wrong}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *UnpackError) FaultCode() string { return fault.Disk }
