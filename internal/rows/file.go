package rows

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/work"
)

// File is the rows of a file as it was when it was opened. Close it. It is safe for concurrent use; its Readers are not.
type File struct {
	path    string
	columns func([]string) *Problem
	file    *os.File // of a compressed one, what it holds
	size    int64
	info    os.FileInfo // of the file that was named
	spooled bool        // file is not that one
	array   bool        // its rows are the items of a JSON array
}

// Open opens a file of rows. columns says what is wrong with the names of a table's columns, which it does not keep; nil takes any.
// What a compressed file holds is unpacked first into a file of its own, which Close removes: an
// *UnpackError says that there is no room for it, and a *DamagedError that it is not whole.
func Open(path string, columns func(names []string) *Problem) (*File, error) {
	file, err := regular.Open(path)
	if _, other := errors.AsType[*regular.Error](err); other {
		return nil, fmt.Errorf("%w: name a file, or use - and pipe the data in", err)
	}
	if err != nil {
		return nil, err
	}
	f := &File{columns: columns, path: path, file: file}
	if f.info, err = file.Stat(); err == nil {
		err = f.unpack()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	f.array = !Table(path) && startsArray(bufio.NewReaderSize(f.from(0), tableBuffer))
	return f, nil
}

// Array reports whether the rows are the items of a JSON array: their numbers are then places in it. It is false of nil.
func (f *File) Array() bool { return f != nil && f.array }

// unpack reads what a compressed file holds into one of its own.
func (f *File) unpack() error {
	inner, err := unpackFile(f.file)
	if err != nil {
		return err
	}
	f.size = f.info.Size()
	if inner == f.file {
		return nil
	}
	f.Close()
	f.file, f.spooled = inner, true
	f.size, err = inner.Seek(0, io.SeekCurrent)
	return err
}

// Rows gives the rows that have something on them. A row is valid until the next. An error is the last; one that is about a
// line is an *Error.
func (f *File) Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) { part(f.from(0), f.path, f.columns, yield) }
}

// from reads what stands from an offset on.
func (f *File) from(offset int64) *io.SectionReader {
	return io.NewSectionReader(f.file, offset, f.size-offset)
}

// Is says whether path leads to the file that was opened.
func (f *File) Is(path string) bool {
	info, err := os.Stat(path)
	return err == nil && os.SameFile(f.info, info)
}

// Changed says whether it can be seen that the file was changed since it was opened, so that the rows may not be those that
// it had then. What was unpacked does not change.
func (f *File) Changed() bool {
	if f.spooled {
		return false
	}
	info, err := f.file.Stat()
	return err == nil && (info.Size() < f.info.Size() || !info.ModTime().Equal(f.info.ModTime()))
}

// Close closes the file.
func (f *File) Close() {
	if f.spooled {
		drop(f.file)
	} else {
		f.file.Close()
	}
}

// Reader reads single rows of a File again. Take one from File.Reader. It is not safe for concurrent use.
type Reader struct {
	file  *File
	buf   []byte
	raw   json.RawMessage
	table *table // nil: lines, or an array
}

// Reader returns one. The names of a table's columns are taken as they are, as Rows has seen to them.
func (f *File) Reader() (*Reader, error) {
	r := &Reader{file: f}
	if !Table(f.path) {
		return r, nil
	}
	r.table = newTable(f.path)
	r.table.reset(f.from(0), 0, 1)
	return r, r.table.header(nil)
}

// At reads the row that begins at offset, on the line with that number. It is valid until the next. The error is a *Error if the
// file does not have it any more.
func (r *Reader) At(offset int64, number int) (Row, error) {
	row, err := r.at(offset, number)
	if err == io.EOF {
		err = Missing(r.file.path, number, r.file.array)
	}
	return row, err
}

func (r *Reader) at(offset int64, number int) (Row, error) {
	if r.table != nil {
		r.table.reset(r.file.from(offset), offset, number)
		again, err := r.table.next()
		again.Number = number // a reader that begins at the blank lines before it counts those
		return again, err
	}
	if r.file.array {
		return r.elementAt(offset, number)
	}
	again := Row{Line: work.Line{Number: number, Offset: offset}}
	if err := r.readLine(offset); err != nil {
		return Row{}, err
	}
	if len(r.buf) > MaxBytes {
		again.Bad = tooLong()
		return again, nil
	}
	again.Bytes = r.buf
	clean(&again.Line)
	return again, nil
}

// readLine reads the line that begins at offset into buf, or as much of it as shows that it is too long.
func (r *Reader) readLine(offset int64) error {
	left := r.file.size - offset
	for want := int64(16 << 10); ; want *= 4 {
		n := min(want, left)
		if int64(cap(r.buf)) < n {
			r.buf = make([]byte, n)
		}
		r.buf = r.buf[:n]
		if _, err := r.file.file.ReadAt(r.buf, offset); err != nil {
			return err
		}
		if i := bytes.IndexByte(r.buf, '\n'); i >= 0 {
			r.buf = r.buf[:i]
			return nil
		}
		if n == left || n > MaxBytes {
			return nil
		}
	}
}
