package work

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
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
	r      *bufio.Reader
	long   []byte // a line that is longer than r's buffer
	limit  int
	offset int64 // of the next line
	number int
	err    error // of r; no line follows
}

const lineBuffer = 256 << 10

var byteOrderMark = []byte("\ufeff")

// NewLineReader returns a reader of r's lines of at most limit bytes; 0 is any length.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, lineBuffer), limit: limit}
}

// All gives the remaining lines. A *TooLongError is about one of them, any other error is the last.
func (l *LineReader) All() iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for l.err == nil {
			if line, err := l.Next(); err == io.EOF || !yield(line, err) {
				return
			}
		}
	}
}

// Next returns the next line, or io.EOF after the last. A line above the limit is skipped and reported as a
// *TooLongError; the line after it can still be read.
func (l *LineReader) Next() (Line, error) {
	if l.err != nil {
		return Line{}, l.err
	}
	b, err := l.r.ReadSlice('\n')
	size := len(b)
	if err == bufio.ErrBufferFull {
		b, size, err = l.readLong(b)
	}
	l.number++
	line := Line{Number: l.number, Offset: l.offset}
	l.offset += int64(size)
	if err == nil {
		size-- // the newline
	} else if l.err, line.Torn = err, true; err != io.EOF || size == 0 {
		return Line{}, err
	}
	if l.limit > 0 && size > l.limit {
		return line, &TooLongError{Line: l.number, Limit: l.limit}
	}
	line.Bytes = b[:size:size]
	if l.number == 1 && bytes.HasPrefix(line.Bytes, byteOrderMark) { // an editor put it there
		line.Bytes = line.Bytes[len(byteOrderMark):]
		line.Offset += int64(len(byteOrderMark))
	}
	return line, nil
}

// readLong reads the rest of a line of which b fills r's buffer, and returns the line and its size. Of a line above the limit, the bytes
// are a part.
func (l *LineReader) readLong(b []byte) (line []byte, size int, err error) {
	if cap(l.long) > 16*lineBuffer {
		l.long = nil
	}
	l.long, size, err = append(l.long[:0], b...), len(b), bufio.ErrBufferFull
	for err == bufio.ErrBufferFull {
		b, err = l.r.ReadSlice('\n')
		size += len(b)
		if l.limit == 0 || len(l.long) <= l.limit {
			l.long = append(l.long, b...)
		}
	}
	return l.long, size, err
}
