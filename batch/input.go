package batch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// input is the lines of a batch. A file is read twice: once by scan, which checks it, and once by the feed. Standard
// input is read by the feed alone.
type input struct {
	cfg    *Config
	parser *parser
	file   *rows.File // nil for standard input

	index    work.Index // of the lines of a request, by number
	past     work.Index // of standard input: of the output's lines, by number
	failed   earlierFailures
	problems InputErrors

	scanned int  // rows of a file that were read
	array   bool // the rows so far are items of a JSON array

	total     atomic.Int64
	already   atomic.Int64
	bare      int             // prompts and plain text
	models    map[string]int  // of a file
	tokens    int             // of input, as estimated, with Batches and a deadline
	costs     map[string]bool // models whose price is known, where a budget needs it
	providers []provider.Provider
}

func openInput(cfg *Config) (*input, error) {
	parser, err := newParser(cfg)
	if err != nil {
		return nil, err
	}
	in := &input{cfg: cfg, parser: parser, models: make(map[string]int)}
	if cfg.Input == "-" {
		return in, nil
	}
	columns := needsPrompt
	if parser.template != nil {
		columns = nil // the template says which it needs
	}
	in.file, err = openRows(cfg.Input, columns)
	return in, err
}

// openRows opens a file of rows. What is the fault of what was given says so.
func openRows(path string, columns func([]string) *problem) (*rows.File, error) {
	file, err := rows.Open(path, columns)
	if _, room := errors.AsType[*UnpackError](err); err != nil && !room {
		return nil, &FieldError{Field: "Input", Err: err}
	}
	return file, err
}

// needsPrompt refuses a table without a column of prompts.
func needsPrompt(columns []string) *problem {
	if slices.Contains(columns, "prompt") {
		return nil
	}
	const most = 10
	quoted := make([]string, 0, most)
	for _, name := range columns[:min(most, len(columns))] {
		quoted = append(quoted, clip(fmt.Appendf(nil, "%q", name)))
	}
	text := "the table has no column named prompt, only " + strings.Join(quoted, ", ")
	if more := len(columns) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &problem{Text: text, Hint: "rename a column to prompt, or build prompts from other columns with --template"}
}

func (in *input) close() {
	if in.file != nil {
		in.file.Close()
	}
}

// differsFrom refuses an output that is the input.
func (in *input) differsFrom(output string) error {
	if in.file != nil && in.file.Is(output) {
		return &FieldError{Field: "Output", Err: errors.New("is the same file as the input")}
	}
	return nil
}

// reachedLimit says whether enough lines were read.
func (in *input) reachedLimit() bool {
	return in.cfg.Limit > 0 && in.total.Load() >= int64(in.cfg.Limit)
}

// scan reads a file and checks every line.
func (in *input) scan() error {
	if in.file == nil {
		return nil
	}
	for row, err := range in.file.Rows() {
		if wrong, ok := err.(*InputError); ok { // there is no reading on
			in.problems.Add(wrong)
			break
		}
		if err != nil {
			return &FieldError{Field: "Input", Err: err}
		}
		in.scanned++
		if _, err := in.accept(row); err != nil {
			in.problems.Add(err)
			in.total.Add(1) // it is a line, too
		}
		if in.reachedLimit() {
			break
		}
	}
	return in.problems.Err()
}

// read parses a row.
func (in *input) read(r rows.Row) (request, *problem) {
	if r.Bad != nil {
		return request{}, r.Bad
	}
	in.array = r.Source != 0
	rq, bad := in.parser.parse(&r)
	if bad != nil {
		return rq, bad
	}
	if size := len(rq.body) + len(rq.id) + len(rq.model); in.cfg.Remote != nil && size > MaxTaskBytes {
		return rq, &problem{
			Text: fmt.Sprintf("the request has %.1f MB, but the maximum for workers is %d MB", float64(size)/1e6, MaxTaskBytes/1_000_000),
			Hint: "shorten the request, or run without --distribute",
		}
	}
	rq.row, rq.hash = r, in.parser.hash(&rq)
	return rq, nil
}

// accept parses a new row, checks it and enters it into the index.
func (in *input) accept(r rows.Row) (request, *InputError) {
	rq, bad := in.read(r)
	if bad == nil {
		bad = in.priced(&rq)
	}
	if bad == nil {
		if other, ok := in.index.Add(r.Number-1, rq.id, rq.hash); !ok {
			bad = in.duplicateOf(rq.id, other)
		}
	}
	if bad != nil {
		return request{}, r.Wrong(in.cfg.Input, bad)
	}
	in.total.Add(1)
	if in.file != nil {
		in.count(&rq)
	}
	return rq, nil
}

func (in *input) duplicateOf(id []byte, other int) *problem {
	return &problem{Text: fmt.Sprintf("custom_id %s is also in %s", strconv.Quote(clip(id)), rows.Place(other+1, in.array))}
}

// count counts a request by model and provider.
func (in *input) count(rq *request) {
	if rq.filled {
		in.bare++
	}
	if in.cfg.mayGoLive() {
		if est, err := provider.Estimate(rq.endpoint, rq.body); err == nil {
			in.tokens += est.Cost.Input
		}
	}
	n, known := in.models[rq.model]
	if !known {
		in.meet(rq.provider)
	}
	in.models[rq.model] = n + 1
}

func (in *input) meet(p provider.Provider) {
	for _, known := range in.providers {
		if known.Name == p.Name {
			return
		}
	}
	in.providers = append(in.providers, p)
}

// item makes the item of a request.
func (b *Batch) item(rq *request) (work.Item, error) {
	c := &call{endpoint: rq.endpoint, body: bytes.Clone(rq.body), bound: rq.bound, terms: b.terms}
	est, err := provider.Estimate(rq.endpoint, c.body)
	if err != nil {
		return work.Item{}, rq.row.Wrong(b.cfg.Input, &problem{Text: err.Error()})
	}
	c.stream = est.Stream
	c.route, err = b.back.route(rq.provider)
	note := bytes.Clone(rq.metadata)
	item := work.Item{
		ID: string(rq.id), Seq: int64(rq.row.Number), Ref: rq.row.Offset, Lane: rq.model, Cost: est.Cost, Hash: rq.hash, Note: note,
		Size: len(c.body) + len(note), Data: c,
	}
	b.back.carryOn(&item)
	return item, err
}
