package batchjob

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/http"
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

// remove removes the files of a part.
func (f folder) remove(tag string) {
	for _, name := range []string{f.results(tag), f.draft(tag), f.items(tag)} {
		_ = os.Remove(name)
	}
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
	return err
}

// draft writes the lines of a file that gets its name once it is complete and synced.
type draft struct {
	dir  folder
	file *os.File
	w    *bufio.Writer
}

// errFiles is the error of a draft.
var errFiles = errors.New("files of batches")

func filesError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errFiles, err)
}

func (f folder) create(tag string) (*draft, error) {
	err := os.MkdirAll(string(f), 0o700)
	file, openErr := os.OpenFile(f.draft(tag), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err = cmp.Or(err, openErr); err != nil {
		return nil, filesError(err)
	}
	return &draft{dir: f, file: file, w: bufio.NewWriterSize(file, 1<<16)}, nil
}

// add appends a line. It returns an error that an earlier write caused, too.
func (d *draft) add(line []byte) error {
	_, _ = d.w.Write(line)
	return filesError(d.w.WriteByte('\n'))
}

// finish syncs the file and gives it its name.
func (d *draft) finish(name string) error {
	err := errors.Join(d.w.Flush(), d.file.Sync(), d.file.Close())
	if err == nil {
		err = os.Rename(d.file.Name(), name)
	}
	if err == nil {
		atomicfile.SyncDir(string(d.dir))
		atomicfile.SyncDir(filepath.Dir(string(d.dir)))
	}
	return filesError(err)
}

// drop removes the draft, unless it is finished.
func (d *draft) drop() {
	if d == nil {
		return
	}
	d.file.Close()
	_ = os.Remove(d.file.Name())
	_ = os.Remove(string(d.dir)) // if no part was added, and so no table
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

// maxResult limits the bytes of a line of results.
const maxResult = 256 << 20

var errIncomplete = errors.New("the results are incomplete")

// fetched takes the files of a batch's results and stores the results of the part.
type fetched struct {
	*draft
	part      *Part
	seen      work.Bits
	line      []byte // incomplete
	strangers int    // results of other requests
	stranger  string // the ID of the first
}

// Write takes bytes of a file of results.
func (f *fetched) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if f.line = append(f.line, line...); len(f.line) > maxResult {
			return 0, fmt.Errorf("%w: a line is longer than %d MiB", errIncomplete, maxResult>>20)
		}
		if line[len(line)-1] == '\n' {
			if err := f.endLine(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// endLine stores the result in a line.
func (f *fetched) endLine() error {
	line := bytes.TrimSpace(f.line)
	f.line = f.line[:0]
	if len(line) == 0 {
		return nil
	}
	r, err := f.part.account.api.ParseResult(line)
	if err != nil {
		return fmt.Errorf("%w: %w", errIncomplete, err)
	}
	position, ok := f.part.row.position(r.ID)
	switch {
	case !ok:
		if f.strangers++; f.strangers == 1 {
			f.stranger = r.ID
		}
	case f.seen.Set(position):
		return f.add(jsonscan.AppendStruct(nil, &r))
	}
	return nil
}

// fetchResults fetches and stores the results of a part's batch. It returns false if the batch belongs to another part. Results that
// the provider counts must be there. With all, a completed batch must have a result of each request.
func (t *Table) fetchResults(ctx context.Context, p *Part, all bool) (own bool, err error) {
	f, err := call(ctx, p.account, "fetch "+p.row.Batch, true, func(ctx context.Context) (*fetched, error) {
		d, err := t.dir.create(p.row.Tag)
		f := &fetched{part: p, draft: d}
		for _, name := range p.seen.Results {
			if err == nil {
				err = p.account.api.Fetch(ctx, name, f)
			}
			if err == nil {
				err = f.endLine() // the last line may have no newline
			}
		}
		if err != nil {
			d.drop()
		}
		return f, err
	})
	if err != nil {
		return false, err
	}
	defer f.drop()
	want := min(p.seen.Succeeded+p.seen.Failed, p.row.Requests)
	if p.seen.Status == Completed && (all || want == 0) {
		want = p.row.Requests
	}
	switch {
	case p.row.Guess && f.seen.Len() == 0 && (f.strangers > 0 || want == 0):
		return false, nil
	case f.strangers > 0:
		t.cfg.Logger.Warn("some results are ignored, because their requests do not belong to the batch part",
			"part", p.row.Tag, "batch", p.row.Batch, "results", f.strangers, "first", fmt.Sprintf("%.80q", f.stranger))
	}
	if f.seen.Len() < want {
		return false, fmt.Errorf("%w: there are %d of %d", errIncomplete, f.seen.Len(), want)
	}
	return true, f.finish(t.dir.results(p.row.Tag))
}

// storeRejected stores results for the requests that the provider named when it rejected a part.
func (p *Part) storeRejected(why *Problem) error {
	d, err := p.table.dir.create(p.row.Tag)
	if err != nil {
		return err
	}
	defer d.drop()
	for _, position := range slices.Sorted(maps.Keys(why.Lines)) {
		fault := map[string]string{"type": "invalid_request_error", "message": cmp.Or(why.Lines[position], why.Message)}
		body, err := json.Marshal(map[string]any{"error": fault})
		if err == nil {
			r := Result{ID: requestID(p.row.Tag, position), Fate: Answered, Status: http.StatusBadRequest, Body: body}
			err = d.add(jsonscan.AppendStruct(nil, &r))
		}
		if err != nil {
			return err
		}
	}
	return d.finish(d.dir.results(p.row.Tag))
}

// Results returns the result of each item of an ended part, by position. An error is the last.
func (p *Part) Results() iter.Seq2[ItemResult, error] {
	return func(yield func(ItemResult, error) bool) {
		row, position := p.Row(), 0
		missing := Result{Fate: CalledOff}
		if row.Status == Completed {
			missing.Fate = Missing
		}
		results, err := p.openResults(&row)
		if err != nil {
			yield(ItemResult{}, err)
			return
		}
		defer results.Close()
		for it, err := range p.Items() {
			r := missing
			if err == nil && results.lines[position].end > 0 {
				r, err = results.at(position)
			}
			if !yield(ItemResult{Item: it, Result: r}, err) || err != nil {
				return
			}
			position++
		}
	}
}

// resultReader reads the stored results of a part in any order.
type resultReader struct {
	*os.File
	lines []span // by position
}

// span is a line of a file. Its end is 0 if there is none.
type span struct{ start, end int64 }

func (p *Part) openResults(row *Row) (*resultReader, error) {
	r := &resultReader{lines: make([]span, row.Requests)}
	if !row.Results {
		return r, nil
	}
	name := p.table.dir.results(row.Tag)
	for line, err := range readLines(name, -1) {
		var one Result
		if err == nil {
			err = parse(name, line.Number, line.Bytes, &one)
		}
		if err != nil {
			return nil, err
		}
		position, ok := row.position(one.ID)
		if !ok || r.lines[position].end > 0 {
			return nil, damaged(name, line.Number)
		}
		r.lines[position] = span{line.Offset, line.Offset + int64(len(line.Bytes))}
	}
	file, err := os.Open(name)
	r.File = file
	return r, err
}

// at returns the result at a position.
func (r *resultReader) at(position int) (one Result, err error) {
	line := r.lines[position]
	text := make([]byte, line.end-line.start)
	if _, err := r.ReadAt(text, line.start); err != nil {
		return Result{}, err
	}
	return one, parse(r.Name(), position+1, text, &one)
}
