package batchjob

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
)

// maxResult limits the bytes of a line of results.
const maxResult = 256 << 20

var (
	errIncomplete = errors.New("the results are incomplete")
	errFiles      = errors.New("files of batches")
)

// fetched takes the files of a batch's results and stores the results of the part.
type fetched struct {
	*draft
	part      *Part
	seen      work.Bits
	line      []byte // incomplete
	buf       []byte
	strangers int    // results of other requests
	stranger  string // the ID of the first
}

func (p *Part) newFetched() (*fetched, error) {
	d, err := p.table.dir.create(p.row.Tag)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFiles, err)
	}
	return &fetched{part: p, draft: d}, nil
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
		return f.store(&r)
	}
	return nil
}

func (f *fetched) store(r *Result) error {
	f.buf = jsonscan.AppendStruct(f.buf[:0], r)
	if err := f.add(f.buf); err != nil {
		return fmt.Errorf("%w: %w", errFiles, err)
	}
	return nil
}

// finish makes the results durable.
func (f *fetched) finish() error {
	if err := f.draft.finish(f.dir.results(f.part.row.Tag)); err != nil {
		return fmt.Errorf("%w: %w", errFiles, err)
	}
	return nil
}

// fetchResults fetches and stores the results of a part's batch. It returns false if the batch belongs to another part. Results that
// the provider counts must be there. With all, a completed batch must have a result of each request.
func (t *Table) fetchResults(ctx context.Context, p *Part, all bool) (own bool, err error) {
	var f *fetched
	err = p.account.call(ctx, "fetch "+p.row.Batch, true, func(ctx context.Context) (err error) {
		if f != nil {
			f.drop()
		}
		if f, err = p.newFetched(); err != nil {
			return err
		}
		for _, name := range p.seen.Results {
			if err := p.account.api.Fetch(ctx, name, f); err != nil {
				return err
			}
			if err := f.endLine(); err != nil { // the last line may have no newline
				return err
			}
		}
		return nil
	})
	if f != nil {
		defer f.drop()
	}
	if err != nil {
		return false, err
	}
	want := expected(p.seen, p.row.Requests)
	switch {
	case p.row.Guess && f.seen.Len() == 0 && (f.strangers > 0 || want == 0):
		return false, nil
	case f.strangers > 0:
		t.log.Warn("some results are ignored, because their requests do not belong to the batch part",
			"part", p.row.Tag, "batch", p.row.Batch, "results", f.strangers, "first", fmt.Sprintf("%.80q", f.stranger))
	}
	if all && p.seen.Status == Completed {
		want = p.row.Requests
	}
	if f.seen.Len() < want {
		return false, fmt.Errorf("%w: there are %d of %d", errIncomplete, f.seen.Len(), want)
	}
	return true, f.finish()
}

// expected returns the minimum number of results of a batch. Impossible counts are ignored.
func expected(b *Batch, requests int) int {
	counted := b.Succeeded + b.Failed
	if min(b.Succeeded, b.Failed) < 0 {
		counted = 0
	}
	if b.Status == Completed && counted == 0 {
		counted = requests
	}
	return min(counted, requests)
}

// storeRejected stores results for the requests that the provider named when it rejected a part.
func (p *Part) storeRejected(why *Problem) error {
	f, err := p.newFetched()
	if err != nil {
		return err
	}
	defer f.drop()
	for _, position := range slices.Sorted(maps.Keys(why.Lines)) {
		fault := map[string]string{"type": "invalid_request_error", "message": cmp.Or(why.Lines[position], why.Message)}
		body, err := json.Marshal(map[string]any{"error": fault})
		if err == nil {
			err = f.store(&Result{ID: requestID(p.row.Tag, position), Fate: Answered, Status: http.StatusBadRequest, Body: body})
		}
		if err != nil {
			return err
		}
	}
	return f.finish()
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
			if errors.Is(err, fs.ErrNotExist) && !row.Results { // its items are not known
				return
			}
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
	buf   []byte
}

// span is a line of a file. Its end is 0 if there is none.
type span struct {
	number     int
	start, end int64
}

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
		r.lines[position] = span{line.Number, line.Offset, line.Offset + int64(len(line.Bytes))}
	}
	file, err := os.Open(name)
	r.File = file
	return r, err
}

// at returns the result at a position. It is valid until the next call.
func (r *resultReader) at(position int) (one Result, err error) {
	line := r.lines[position]
	size := int(line.end - line.start)
	r.buf = slices.Grow(r.buf[:0], size)[:size]
	if _, err := r.ReadAt(r.buf, line.start); err != nil {
		return Result{}, err
	}
	return one, parse(r.Name(), line.number, r.buf, &one)
}
