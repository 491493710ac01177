package batch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
)

// mostProblems is how many bad lines are named.
const mostProblems = 10

// input is the lines of a batch. A file is read twice: once by scan, which checks it, and once by the feed. Standard
// input is read by the feed alone.
type input struct {
	cfg    Config
	parser *parser
	file   *os.File // nil for standard input
	info   os.FileInfo

	index        work.Index // of the lines of a request, by number; forgotten when a file's output is matched
	past         work.Index // of standard input: of the output's lines, by number
	pastFailed   work.Bits  // of those, failures, and of those such as another try may mend
	pastMendable work.Bits
	invalid      work.Bits // lines that are none, with SkipInvalid
	duplicates   map[int]int
	problems     []*InputError
	more         int

	total           atomic.Int64
	already         atomic.Int64
	alreadyFailed   atomic.Int64
	alreadyMendable atomic.Int64
	bare            int            // prompts and plain text
	models          map[string]int // of a file
	providers       []provider.Provider
}

func openInput(cfg Config, f fill) (*input, error) {
	in := &input{cfg: cfg, parser: newParser(f), models: make(map[string]int), duplicates: make(map[int]int)}
	if cfg.Input == "-" {
		return in, nil
	}
	file, err := os.Open(cfg.Input)
	if err != nil {
		return nil, &ConfigError{Field: "Input", Err: err}
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file: give - and pipe it in", cfg.Input)
	}
	if err != nil {
		file.Close()
		return nil, &ConfigError{Field: "Input", Err: err}
	}
	in.file, in.info = file, info
	return in, nil
}

func (in *input) close() {
	if in.file != nil {
		in.file.Close()
	}
}

// differsFrom refuses an output that is the input.
func (in *input) differsFrom(output string) error {
	if in.file == nil {
		return nil
	}
	if out, err := os.Stat(output); err == nil && os.SameFile(in.info, out) {
		return &ConfigError{Field: "Output", Err: errors.New("is the input")}
	}
	return nil
}

// lines returns a reader of the file as it was when it was opened.
func (in *input) lines() *work.LineReader {
	return work.NewLineReader(io.NewSectionReader(in.file, 0, in.info.Size()), maxLine)
}

// each gives the lines of r that have something on them, cleaned. One that is too long comes without its bytes. An error
// is the last.
func each(r *work.LineReader) iter.Seq2[work.Line, error] {
	return func(yield func(work.Line, error) bool) {
		for {
			line, err := r.Next()
			if err == io.EOF {
				return
			}
			_, tooLong := errors.AsType[*work.TooLongError](err)
			if err != nil && !tooLong {
				yield(work.Line{}, err)
				return
			}
			if (tooLong || clean(&line)) && !yield(line, nil) {
				return
			}
		}
	}
}

// clean strips what is no part of a line's text, and says whether anything is left.
func clean(line *work.Line) bool {
	if line.Number == 1 {
		line.Bytes = bytes.TrimPrefix(line.Bytes, []byte("\ufeff"))
	}
	line.Bytes = bytes.TrimSuffix(line.Bytes, []byte("\r"))
	return len(bytes.TrimSpace(line.Bytes)) > 0
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
	for line, err := range each(in.lines()) {
		if err != nil {
			return &ConfigError{Field: "Input", Err: err}
		}
		rq, bad := in.read(line, line.Bytes == nil)
		if bad = in.remember(line, &rq, bad); bad != nil {
			in.refuse(line.Number, bad)
		}
		in.total.Add(1)
		if in.reachedLimit() {
			break
		}
	}
	if len(in.problems) > 0 {
		return &InputErrors{Problems: in.problems, More: in.more}
	}
	return nil
}

// read parses a line.
func (in *input) read(line work.Line, tooLong bool) (request, *problem) {
	if tooLong {
		return request{}, &problem{text: fmt.Sprintf("longer than %d MiB", maxLine>>20)}
	}
	return in.parser.parse(line.Bytes, line.Number)
}

// remember enters a line into the index, under the id that its result will have. It returns what is to be refused.
func (in *input) remember(line work.Line, rq *request, bad *problem) *problem {
	number := line.Number - 1
	if bad == nil {
		other, ok := in.index.Add(number, rq.id, in.parser.hash(rq))
		if ok {
			if in.file != nil {
				in.count(rq)
			}
			return nil
		}
		bad = duplicateOf(rq.id, other)
		if in.cfg.SkipInvalid {
			in.duplicates[number] = other
		}
	}
	if !in.cfg.SkipInvalid {
		return bad
	}
	in.invalid.Set(number)
	if _, ok := in.index.Add(number, invalidID(line.Number), work.HashOf(line.Bytes)); !ok {
		return bad
	}
	return nil
}

func duplicateOf(id []byte, other int) *problem {
	return &problem{text: fmt.Sprintf("custom_id %s is that of line %d too", strconv.Quote(clip(id)), other+1)}
}

// invalidID is the custom_id under which a line that is no request is recorded: its own may be missing, unreadable or
// another line's.
func invalidID(number int) []byte { return fmt.Appendf(nil, "line %d", number) }

// count counts a request by model and provider.
func (in *input) count(rq *request) {
	if rq.filled {
		in.bare++
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

func (in *input) refuse(number int, bad *problem) {
	if len(in.problems) == mostProblems {
		in.more++
		return
	}
	in.problems = append(in.problems, in.problem(number, bad))
}

func (in *input) problem(number int, bad *problem) *InputError {
	return &InputError{Path: in.cfg.Input, Line: number, Problem: bad.text, Hint: bad.hint}
}

// item makes the work item of a line that is left to do.
func (b *Batch) item(line work.Line, rq *request, bad *problem) (work.Item, error) {
	item := work.Item{Seq: int64(line.Number), Ref: line.Offset}
	if bad != nil {
		item.ID, item.Hash = string(invalidID(line.Number)), work.HashOf(line.Bytes)
		item.Handler, item.Data = work.HandlerFunc(handleInvalid), bad
		return item, nil
	}
	c := &call{endpoint: rq.endpoint, body: bytes.Clone(rq.body)}
	est, err := provider.Estimate(rq.endpoint, c.body)
	if err != nil {
		return work.Item{}, b.input.problem(line.Number, &problem{text: err.Error()})
	}
	c.stream = est.Stream
	item.ID, item.Lane, item.Cost = string(rq.id), rq.model, est.Cost
	item.Hash = b.input.parser.hash(rq)
	item.Size = len(c.body)
	if b.router != nil {
		item.Handler, item.Data = b.router.handler, &trip{call: c}
		return item, nil
	}
	a, err := b.account(rq.provider)
	if err != nil {
		return work.Item{}, err
	}
	item.Handler, item.Data = a.handler, c
	return item, nil
}
