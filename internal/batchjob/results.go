package batchjob

import (
	"bytes"
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
	"slices"

	"github.com/sluice-llm/sluice/internal/work"
)

// maxResult limits the bytes of a line of results.
const maxResult = 256 << 20

// storedResult is a line in the file of a part's results. Each request has one at most.
type storedResult struct {
	Position  int             `json:"position"`
	Fate      Fate            `json:"fate"`
	Status    int             `json:"status,omitzero"`
	RequestID string          `json:"request_id,omitzero"`
	Body      json.RawMessage `json:"body,omitzero"`
}

var (
	errIncomplete = errors.New("the results are incomplete")
	errFiles      = errors.New("files of batches")
)

// fetched takes the files of a batch's results and stores the results of the part.
type fetched struct {
	part      *Part
	draft     *draft
	seen      work.Bits
	line      []byte // incomplete
	strangers int    // results of other requests
	stranger  string // the ID of the first
}

// Write takes bytes of a file of results.
func (f *fetched) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		line := b[:i]
		if len(f.line) > 0 {
			f.line = append(f.line, line...)
			line = f.line
		}
		if err := f.add(line); err != nil {
			return 0, err
		}
		f.line, b = f.line[:0], b[i+1:]
	}
	if f.line = append(f.line, b...); len(f.line) > maxResult {
		return 0, fmt.Errorf("%w: a line is longer than %d MiB", errIncomplete, maxResult>>20)
	}
	return n, nil
}

// end ends a file, whose last line may have no newline.
func (f *fetched) end() error {
	line := f.line
	f.line = nil
	return f.add(line)
}

// add stores a result.
func (f *fetched) add(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	r, err := f.part.account.api.ParseResult(line)
	if err != nil {
		return fmt.Errorf("%w: %w", errIncomplete, err)
	}
	position, ok := positionOf(f.part.row.Tag, r.ID)
	switch {
	case !ok || position >= f.part.row.Requests:
		if f.strangers++; f.strangers == 1 {
			f.stranger = r.ID
		}
		return nil
	case !f.seen.Set(position):
		return nil
	}
	return f.store(position, &r)
}

func (f *fetched) store(position int, r *Result) error {
	s := storedResult{Position: position, Fate: r.Fate, Status: r.Status, RequestID: r.RequestID, Body: r.Body}
	if err := f.draft.add(&s); err != nil {
		return fmt.Errorf("%w: %w", errFiles, err)
	}
	return nil
}

// restart begins anew, with no result.
func (f *fetched) restart() (err error) {
	f.drop()
	*f = fetched{part: f.part}
	if f.draft, err = f.part.table.dir.create(f.part.row.Tag); err != nil {
		return fmt.Errorf("%w: %w", errFiles, err)
	}
	return nil
}

// finish makes the results durable.
func (f *fetched) finish() error {
	d := f.draft
	f.draft = nil
	if err := d.finish(d.dir.results(d.tag)); err != nil {
		return fmt.Errorf("%w: %w", errFiles, err)
	}
	return nil
}

func (f *fetched) drop() {
	if f.draft != nil {
		f.draft.drop()
		f.draft = nil
	}
}

// fetchResults fetches and stores the results of a part's batch. It returns false if the batch belongs to another part. Results that
// the provider counts must be there. With all, a completed batch must have a result of each request.
func (t *Table) fetchResults(ctx context.Context, p *Part, all bool) (own bool, err error) {
	f := &fetched{part: p}
	defer f.drop()
	err = p.account.call(ctx, "fetch "+p.row.Batch, true, func(ctx context.Context) error {
		if err := f.restart(); err != nil {
			return err
		}
		for _, name := range p.seen.Results {
			if err := p.account.api.Fetch(ctx, name, f); err != nil {
				return err
			}
			if err := f.end(); err != nil {
				return err
			}
		}
		return nil
	})
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
func (t *Table) storeRejected(p *Part, why *Problem) error {
	f := &fetched{part: p}
	defer f.drop()
	if err := f.restart(); err != nil {
		return err
	}
	for _, position := range slices.Sorted(maps.Keys(why.Lines)) {
		message := why.Lines[position]
		if message == "" {
			message = why.Message
		}
		body, err := json.Marshal(map[string]any{"error": map[string]string{"type": "invalid_request_error", "message": message}})
		if err == nil {
			err = f.store(position, &Result{Fate: Answered, Status: http.StatusBadRequest, Body: body})
		}
		if err != nil {
			return err
		}
	}
	return f.finish()
}

// Results returns the result of each item of an ended part: those that the provider sent, and then the missing ones. An error is the last.
func (p *Part) Results() iter.Seq2[ItemResult, error] {
	return func(yield func(ItemResult, error) bool) {
		err := p.results(func(r *ItemResult) bool { return yield(*r, nil) })
		if err != nil && !errors.Is(err, errStopped) {
			yield(ItemResult{}, err)
		}
	}
}

func (p *Part) results(yield func(*ItemResult) bool) error {
	row := p.Row()
	items, err := p.openItems()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !row.Results { // its items are not known
			return nil
		}
		return err
	}
	defer items.Close()
	var seen work.Bits
	give := func(position int, r Result) error {
		it, err := items.at(position)
		if err == nil && !yield(&ItemResult{Item: it, Result: r}) {
			err = errStopped
		}
		return err
	}
	if row.Results {
		name := p.table.dir.results(row.Tag)
		err := readLines(name, -1, func(line work.Line) error {
			var s storedResult
			if err := parse(name, line.Number, line.Bytes, &s); err != nil {
				return err
			}
			if s.Position < 0 || s.Position >= row.Requests || !seen.Set(s.Position) {
				return fmt.Errorf("%s is damaged at line %d", name, line.Number)
			}
			return give(s.Position, Result{Fate: s.Fate, Status: s.Status, RequestID: s.RequestID, Body: s.Body})
		})
		if err != nil {
			return err
		}
	}
	fate := CalledOff
	if row.Status == Completed {
		fate = Missing
	}
	for position := range row.Requests {
		if !seen.Has(position) {
			if err := give(position, Result{Fate: fate}); err != nil {
				return err
			}
		}
	}
	return nil
}

// itemReader reads the items of a part in any order.
type itemReader struct {
	*os.File
	offsets []int64 // of the lines, and of the end
	buf     []byte
}

func (p *Part) openItems() (*itemReader, error) {
	name := p.table.dir.items(p.row.Tag)
	offsets := make([]int64, 0, p.row.Requests+1)
	err := readLines(name, p.row.Requests, func(line work.Line) error {
		if len(offsets) == 0 {
			offsets = append(offsets, line.Offset)
		}
		offsets = append(offsets, line.Offset+int64(len(line.Bytes))+1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	file, err := os.Open(name)
	return &itemReader{File: file, offsets: offsets}, err
}

// at returns the item at a position. It is valid until the next call.
func (r *itemReader) at(position int) (it Item, err error) {
	from, to := r.offsets[position], r.offsets[position+1]
	r.buf = slices.Grow(r.buf[:0], int(to-from))[:to-from]
	if _, err := r.ReadAt(r.buf, from); err != nil && !errors.Is(err, io.EOF) {
		return Item{}, err
	}
	return it, parse(r.Name(), position+1, r.buf, &it)
}
