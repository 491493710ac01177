package batch

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// Recordings is an output file as whoever wants its answers reads it, while a run writes to it or not: what stood in it
// when it was opened. Close it. It is not safe for concurrent use.
type Recordings struct {
	path   string
	file   *os.File
	size   int64
	seed   maphash.Seed
	places []place // sorted, once Index was called
}

// place is where the result of an item stands.
type place struct {
	id     uint64 // hash of its custom_id
	offset int64
	size   int
}

// RecordingError is a line of a file of results that is none.
type RecordingError struct {
	Path string
	Line int
}

// Error names the line.
func (e *RecordingError) Error() string {
	return fmt.Sprintf("%s line %d: not a result: want the field custom_id, and response or error", e.Path, e.Line)
}

// Hint says what can be done.
func (e *RecordingError) Hint() string { return "name the output file of a run, not its input file" }

// FaultCode is the code of the error in the catalogue of errors.
func (e *RecordingError) FaultCode() string { return fault.Output }

// OpenRecordings opens an output file.
func OpenRecordings(path string) (*Recordings, error) {
	file, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Recordings{path: path, file: file, size: info.Size(), seed: maphash.MakeSeed()}, nil
}

// Close closes the file.
func (r *Recordings) Close() error { return r.file.Close() }

// All gives the results in the order in which they stand. A last line that is torn, since it is being written, is left
// out. An error is the last: a *RecordingError for a line that is no result.
func (r *Recordings) All() iter.Seq2[Recording, error] {
	return func(yield func(Recording, error) bool) {
		for line, err := range r.lines() {
			if err != nil {
				yield(Recording{}, err)
				return
			}
			rec, err := ParseRecording(line.Bytes)
			if err != nil {
				yield(Recording{}, &RecordingError{Path: r.path, Line: line.Number})
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// lines gives the lines that have something on them, but for a torn last one.
func (r *Recordings) lines() iter.Seq2[work.Line, error] {
	return func(yield func(work.Line, error) bool) {
		reader := work.NewLineReader(io.NewSectionReader(r.file, 0, r.size), 0)
		for line, err := range rows.Lines(reader) {
			if err == nil && line.Torn && unfinished(line.Bytes) {
				return
			}
			if !yield(line.Line, err) || err != nil {
				return
			}
		}
	}
}

// unfinished reports whether a last line without its end is the beginning of a result.
func unfinished(line []byte) bool {
	_, err := ParseRecording(line)
	return err != nil && torn(line)
}

// Index reads the whole file, so that Find can find a result. It takes 24 bytes for each.
func (r *Recordings) Index() error {
	r.places = nil
	for line, err := range r.lines() {
		if err != nil {
			return err
		}
		rec, err := ParseRecording(line.Bytes)
		if err != nil {
			return &RecordingError{Path: r.path, Line: line.Number}
		}
		r.places = append(r.places, place{maphash.String(r.seed, rec.ID), line.Offset, len(line.Bytes)})
	}
	slices.SortFunc(r.places, func(a, b place) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.offset, a.offset)) })
	return nil
}

// Len returns how many results Index found.
func (r *Recordings) Len() int { return len(r.places) }

// Find returns the result of an item, the last one if there are several; ok is false if there is none. Call Index before.
func (r *Recordings) Find(id string) (rec Recording, ok bool, err error) {
	h := maphash.String(r.seed, id)
	i, _ := slices.BinarySearchFunc(r.places, h, func(p place, h uint64) int { return cmp.Compare(p.id, h) })
	for ; i < len(r.places) && r.places[i].id == h; i++ {
		line := make([]byte, r.places[i].size)
		if _, err := r.file.ReadAt(line, r.places[i].offset); err != nil && err != io.EOF {
			return Recording{}, false, err
		}
		if rec, err = ParseRecording(line); err != nil {
			return Recording{}, false, fmt.Errorf("%s was changed while it was read", r.path)
		}
		if rec.ID == id {
			return rec, true, nil
		}
	}
	return Recording{}, false, nil
}
