package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// eventStart is how every line of a file of events begins.
const eventStart = `{"event":`

var errNotEvents = errors.New("contains data other than events")

// mendTail makes a file of events end with a whole line, so that what is appended begins on a new one: a run that was
// killed leaves a cut one, which says nothing. f appends to the file of that name. Only a regular file has a tail.
func mendTail(name string, f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	r, err := os.Open(name)
	if err != nil {
		return err
	}
	defer r.Close()
	head := make([]byte, min(len(eventStart), int(info.Size())))
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	if !bytes.HasPrefix([]byte(eventStart), head) {
		return fmt.Errorf("%s %w", name, errNotEvents)
	}
	last, at, err := lastLine(r, info.Size())
	if err != nil || len(last) == 0 {
		return err
	}
	if _, err := (&decoder{}).decode(last); err == nil { // whole, its newline is missing
		_, err := f.WriteString("\n")
		return err
	}
	if !bytes.HasPrefix(last, []byte(eventStart)[:min(len(last), len(eventStart))]) {
		return fmt.Errorf("%s %w at its end", name, errNotEvents)
	}
	return f.Truncate(at)
}

// lastLine returns what follows the last newline of a file of that size, and where it begins.
func lastLine(r io.ReaderAt, size int64) (last []byte, at int64, err error) {
	from := max(0, size-mostLine)
	last = make([]byte, size-from)
	if _, err := r.ReadAt(last, from); err != nil {
		return nil, 0, err
	}
	i := bytes.LastIndexByte(last, '\n') + 1
	if i == 0 && from > 0 {
		return nil, 0, fmt.Errorf("the last line %w: it is longer than %d bytes", errNotEvents, mostLine)
	}
	return last[i:], from + int64(i), nil
}
