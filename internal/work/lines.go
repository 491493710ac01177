package work

import (
	"bytes"
	"fmt"
	"io"
)

// Line is one line of a text.
type Line struct {
	Number int    // from 1
	Offset int64  // of its first byte
	Bytes  []byte // without the newline; valid until the next line is read
	Torn   bool   // it is the last and has no newline
}

// TooLongError is returned for a line that is longer than a LineReader's limit.
type TooLongError struct {
	Line  int
	Limit int
}

// Error names the line and the limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("line %d is longer than %d MiB", e.Line, e.Limit>>20)
}

// LineReader reads lines of any length up to a limit, without copying the usual ones. Use NewLineReader.
type LineReader struct {
	r      io.Reader
	limit  int
	buf    []byte
	start  int // of the next line in buf
	end    int
	offset int64 // of buf[0]
	number int
	err    error // of r
}

const lineBuffer = 256 << 10

var byteOrderMark = []byte("\ufeff")

// NewLineReader returns a reader of r's lines of at most limit bytes; 0 is any length.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: r, limit: limit, buf: make([]byte, lineBuffer)}
}

// Next returns the next line, or io.EOF after the last. A line above the limit is skipped and reported as a
// *TooLongError; the line after it can still be read.
func (l *LineReader) Next() (Line, error) {
	from := l.start // where to look for a newline
	for {
		if i := bytes.IndexByte(l.buf[from:l.end], '\n'); i >= 0 {
			return l.line(from+i, from+i+1)
		}
		from = l.end
		if l.limit > 0 && l.end-l.start > l.limit {
			return l.skipLong()
		}
		if l.err != nil {
			if l.err == io.EOF && l.start < l.end {
				line, err := l.line(l.end, l.end)
				line.Torn = true
				return line, err
			}
			return Line{}, l.err
		}
		from = l.fill(from)
	}
}

// line takes the line that ends at end and continues at next.
func (l *LineReader) line(end, next int) (Line, error) {
	l.number++
	b := l.buf[l.start:end:end]
	at := l.offset + int64(l.start)
	l.start = next
	if l.number == 1 && bytes.HasPrefix(b, byteOrderMark) { // an editor put it there
		b, at = b[len(byteOrderMark):], at+int64(len(byteOrderMark))
	}
	if l.limit > 0 && len(b) > l.limit {
		return Line{Number: l.number, Offset: at}, &TooLongError{Line: l.number, Limit: l.limit}
	}
	return Line{Number: l.number, Offset: at, Bytes: b}, nil
}

// fill reads more, after making room, and returns where from is then.
func (l *LineReader) fill(from int) int {
	if l.start > 0 {
		n := copy(l.buf, l.buf[l.start:l.end])
		l.offset += int64(l.start)
		from -= l.start
		l.start, l.end = 0, n
		if len(l.buf) > 4*lineBuffer && n < lineBuffer/2 {
			l.buf = append(make([]byte, 0, lineBuffer), l.buf[:n]...)[:lineBuffer] // after a long line
		}
	}
	if l.end == len(l.buf) {
		l.buf = append(l.buf, make([]byte, len(l.buf))...)
	}
	for range 100 {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		l.err = err
		if n > 0 || err != nil {
			return from
		}
	}
	l.err = io.ErrNoProgress
	return from
}

// skipLong drops a line above the limit without keeping it.
func (l *LineReader) skipLong() (Line, error) {
	l.number++
	at := l.offset + int64(l.start)
	for {
		if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 {
			l.start += i + 1
			break
		}
		l.start = l.end
		if l.err != nil {
			break
		}
		l.fill(l.end)
	}
	return Line{Number: l.number, Offset: at}, &TooLongError{Line: l.number, Limit: l.limit}
}
