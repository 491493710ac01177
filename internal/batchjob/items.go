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

// positionOf returns the position of the request with an ID; false if the ID is not from the part.
func positionOf(tag, id string) (position int, ok bool) {
	rest, ok := strings.CutPrefix(id, tag+"-")
	position, err := strconv.Atoi(rest)
	return position, ok && err == nil && position >= 0 && requestID(tag, position) == id
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
	tag  string
	file *os.File
	w    *bufio.Writer
	line []byte
}

func (f folder) create(tag string) (*draft, error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(f.draft(tag), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &draft{dir: f, tag: tag, file: file, w: bufio.NewWriterSize(file, 1<<16)}, nil
}

// add appends the struct that v points to, as a line. It returns an error that an earlier write caused, too.
func (d *draft) add(v any) error {
	d.line = append(jsonscan.AppendStruct(d.line[:0], v), '\n')
	_, err := d.w.Write(d.line)
	return err
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

// drop removes the draft.
func (d *draft) drop() {
	d.file.Close()
	_ = os.Remove(d.file.Name())
	_ = os.Remove(string(d.dir))
}

// readLines calls fn with each line of a file that has count lines, or any number if that is negative. The offset is that of the line.
func readLines(name string, count int, fn func(line work.Line) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	n := 0
	for r := work.NewLineReader(file, 0); ; n++ {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && count >= 0 && n != count:
			return fmt.Errorf("%s is damaged: it has %d of %d lines", name, n, count)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case line.Torn || count >= 0 && n == count:
			return fmt.Errorf("%s is damaged at line %d", name, n+1)
		}
		if err := fn(line); err != nil {
			return err
		}
	}
}

// parse reads a line of a file into the struct that v points to.
func parse(name string, number int, line []byte, v any) error {
	s := jsonscan.New(line)
	if err := s.Struct(v); err != nil || !s.End() {
		return fmt.Errorf("%s is damaged at line %d", name, number)
	}
	return nil
}

// errStopped ends a loop over lines early.
var errStopped = errors.New("stopped")

// Items returns the items of a part, by position. An error is the last.
func (p *Part) Items() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		name := p.table.dir.items(p.row.Tag)
		err := readLines(name, p.row.Requests, func(line work.Line) error {
			var it Item
			if err := parse(name, line.Number, line.Bytes, &it); err != nil {
				return err
			}
			if !yield(it, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(Item{}, err)
		}
	}
}

// file returns the file of a part for the provider. note is called with an error that reading it causes.
func (p *Part) file(note func(error)) *File {
	return &File{
		Tag: p.row.Tag, Model: p.row.Model, Endpoint: p.Endpoint, Requests: p.row.Requests, Size: p.row.Bytes,
		Open: func() (io.ReadCloser, error) {
			next, stop := iter.Pull2(p.Items())
			return &fileReader{part: p, next: next, stop: stop, note: note, rest: []byte(p.account.api.Frame().Open)}, nil
		},
	}
}

// fileReader reads the file of a part for the provider.
type fileReader struct {
	part     *Part
	next     func() (Item, error, bool)
	stop     func()
	note     func(error)
	position int
	line     []byte
	rest     []byte // of the line
	ended    bool
}

func (r *fileReader) Read(b []byte) (int, error) {
	api, tag := r.part.account.api, r.part.row.Tag
	for len(r.rest) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		it, err, ok := r.next()
		if err != nil {
			r.note(err)
			return 0, err
		}
		r.line = r.line[:0]
		switch {
		case !ok:
			r.line, r.ended = append(r.line, api.Frame().Close...), true
		case r.position > 0:
			r.line = append(r.line, api.Frame().Between...)
		}
		if ok {
			r.line = api.AppendRequest(r.line, requestID(tag, r.position), r.part.Endpoint, it.Body)
		}
		r.rest = r.line
		r.position++
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends reading.
func (r *fileReader) Close() error {
	r.stop()
	return nil
}
