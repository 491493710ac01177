package batchjob

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
)

// Item is a line in the file of a part: a request, and the data of its item.
type Item struct {
	ID    string          `json:"custom_id"`
	Hash  string          `json:"input"`
	Note  json.RawMessage `json:"metadata,omitzero"`
	Added string          `json:"added,omitzero"` // field of Body that Sluice added
	Key   string          `json:"cache,omitzero"` // key of the response in the cache
	Body  json.RawMessage `json:"body"`           // the request as it is sent live
}

// ItemResult is the result of an item.
type ItemResult struct {
	Item
	Result
}

// requestID returns the ID of a request at the provider: the tag of its part, and its position.
func requestID(tag string, position int) string { return tag + "-" + strconv.Itoa(position) }

// position returns the position of the request with an ID; false if the ID is not from the part.
func (r *Row) position(id string) (position int, ok bool) {
	position, err := strconv.Atoi(strings.TrimPrefix(id, r.Tag+"-"))
	return position, err == nil && position >= 0 && position < r.Requests && requestID(r.Tag, position) == id
}

// folder is the directory of the files.
type folder string

func (f folder) items(tag string) string   { return filepath.Join(string(f), tag+itemsSuffix) }
func (f folder) results(tag string) string { return filepath.Join(string(f), tag+".results.jsonl") }
func (f folder) draft(tag string) string   { return filepath.Join(string(f), tag+".draft") }

const itemsSuffix = ".items.jsonl"

var ours = regexp.MustCompile(`^([0-9a-f]{12})\.(items\.jsonl|results\.jsonl|draft)$`)

// sync syncs the names in the directory, if the system can.
func (f folder) sync() {
	atomicfile.SyncDir(string(f))
	atomicfile.SyncDir(filepath.Dir(string(f)))
}

// remove removes the files of a part, and the directory if it is empty.
func (f folder) remove(tag string) {
	for _, name := range []string{f.results(tag), f.draft(tag), f.items(tag)} {
		_ = os.Remove(name)
	}
	_ = os.Remove(string(f))
}

// clean removes the files of parts that are not open, and drafts.
func (f folder) clean(open map[string]bool) error {
	names, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, n := range names {
		if m := ours.FindStringSubmatch(n.Name()); m != nil && (!open[m[1]] || m[2] == "draft") {
			err = errors.Join(err, os.Remove(filepath.Join(string(f), n.Name())))
		}
	}
	_ = os.Remove(string(f))
	return err
}

// Found reports whether a directory has files of parts.
func Found(dir string) bool {
	names, _ := os.ReadDir(dir) // Open reports an error
	return slices.ContainsFunc(names, func(n fs.DirEntry) bool { return strings.HasSuffix(n.Name(), itemsSuffix) })
}

// draft writes the lines of a file that gets its name once it is complete and synced.
type draft struct {
	dir  folder
	file *os.File
	w    *bufio.Writer
}

func (f folder) create(tag string) (*draft, error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, err
	}
	file, err := os.Create(f.draft(tag))
	if err != nil {
		return nil, err
	}
	return &draft{dir: f, file: file, w: bufio.NewWriterSize(file, 1<<16)}, file.Chmod(0o600)
}

// add appends a line. It returns an error that an earlier write caused, too.
func (d *draft) add(line []byte) error {
	_, _ = d.w.Write(line)
	return d.w.WriteByte('\n')
}

// finish syncs the file and gives it its name.
func (d *draft) finish(name string) error {
	err := errors.Join(d.w.Flush(), d.file.Sync(), d.file.Close())
	if err == nil {
		err = os.Rename(d.file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(d.file.Name())
		return err
	}
	d.dir.sync()
	return nil
}

// drop removes the draft, unless it is finished.
func (d *draft) drop() {
	d.file.Close()
	_ = os.Remove(d.file.Name())
	_ = os.Remove(string(d.dir))
}

// readLines returns the lines of a file that has count lines, or any number if that is negative. An error is the last.
func readLines(name string, count int) iter.Seq2[work.Line, error] {
	return func(yield func(work.Line, error) bool) {
		file, err := os.Open(name)
		if err != nil {
			yield(work.Line{}, err)
			return
		}
		defer file.Close()
		r := work.NewLineReader(file, 0)
		for n := 0; ; n++ {
			line, err := r.Next()
			switch {
			case errors.Is(err, io.EOF) && (count < 0 || n == count):
				return
			case errors.Is(err, io.EOF):
				err = fmt.Errorf("%s is damaged: it has %d of %d lines", name, n, count)
			case err == nil && (line.Torn || n == count):
				err = damaged(name, n+1)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

func damaged(name string, line int) error { return fmt.Errorf("%s is damaged at line %d", name, line) }

// parse reads a line of a file into the struct that v points to.
func parse(name string, number int, line []byte, v any) error {
	s := jsonscan.New(line)
	if err := s.Struct(v); err != nil || !s.End() {
		return damaged(name, number)
	}
	return nil
}

// Items returns the items of a part, by position. An error is the last.
func (p *Part) Items() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		name := p.table.dir.items(p.row.Tag)
		for line, err := range readLines(name, p.row.Requests) {
			var it Item
			if err == nil {
				err = parse(name, line.Number, line.Bytes, &it)
			}
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}

// file returns the file of a part for the provider. An error of reading it is stored in unreadable.
func (p *Part) file(unreadable *error) *File {
	return &File{
		Tag: p.row.Tag, Model: p.row.Model, Endpoint: p.Endpoint, Requests: p.row.Requests, Size: p.row.Bytes,
		Open: func() (io.ReadCloser, error) {
			next, stop := iter.Pull2(p.chunks())
			return &chunkReader{next: next, stop: stop, unreadable: unreadable}, nil
		},
	}
}

// chunks returns the texts of the file for the provider. Each is valid until the next one.
func (p *Part) chunks() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		api, position := p.account.api, 0
		frame := api.Frame()
		text := []byte(frame.Open)
		for it, err := range p.Items() {
			if position > 0 {
				text = append(text, frame.Between...)
			}
			text = api.AppendRequest(text, requestID(p.row.Tag, position), p.Endpoint, it.Body)
			if !yield(text, err) || err != nil {
				return
			}
			position++
			text = text[:0]
		}
		yield([]byte(frame.Close), nil)
	}
}

// chunkReader reads texts.
type chunkReader struct {
	next       func() ([]byte, error, bool)
	stop       func()
	rest       []byte
	unreadable *error
}

func (r *chunkReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		text, err, ok := r.next()
		if err != nil {
			*r.unreadable = err
			return 0, err
		}
		if !ok {
			return 0, io.EOF
		}
		r.rest = text
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends reading.
func (r *chunkReader) Close() error {
	r.stop()
	return nil
}
