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
	fill   fill
	parser *parser
	format Format      // not by name
	file   *os.File    // nil for standard input; of a compressed input, what it holds
	size   int64       // of the file
	info   os.FileInfo // of the file that was named
	spool  bool        // the file is not that one

	anyColumns bool // a table needs none in particular

	index        work.Index // of the lines of a request, by number; forgotten when a file's output is matched
	past         work.Index // of standard input: of the output's lines, by number
	pastFailed   work.Bits  // of those, failures, and of those such as another try may mend
	pastMendable work.Bits
	invalid      work.Bits // lines that are none, with SkipInvalid
	twins        twins     // of a file, with Dedupe
	arrivals     arrivals  // of standard input, with Dedupe
	duplicates   map[int]int
	problems     []*InputError
	more         int

	scanned int       // rows of a file that were read
	sampled bool      // only the chosen ones of them are the input
	chosen  work.Bits // by line

	total           atomic.Int64
	already         atomic.Int64
	alreadyFailed   atomic.Int64
	alreadyMendable atomic.Int64
	bare            int             // prompts and plain text
	models          map[string]int  // of a file
	costs           map[string]bool // models whose price is known, where a budget needs it
	providers       []provider.Provider
}

func openInput(cfg Config, f fill) (*input, error) {
	in := &input{cfg: cfg, fill: f, format: f.format, parser: newParser(f), models: make(map[string]int), duplicates: make(map[int]int)}
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
	if err := in.unpack(); err != nil {
		file.Close()
		return nil, err
	}
	return in, nil
}

// unpack reads what a compressed file holds into one of its own.
func (in *input) unpack() error {
	inner, err := unpackFile(in.file)
	if _, room := errors.AsType[*UnpackError](err); err != nil && !room {
		err = &ConfigError{Field: "Input", Err: err}
	}
	if err != nil {
		return err
	}
	if in.size = in.info.Size(); inner == in.file {
		return nil
	}
	in.file.Close()
	in.file, in.spool = inner, true
	in.size, err = inner.Seek(0, io.SeekCurrent)
	return err
}

func (in *input) close() {
	switch {
	case in.file == nil:
	case in.spool:
		dropSpool(in.file)
	default:
		in.file.Close()
	}
}

// differsFrom refuses an output that is the input.
func (in *input) differsFrom(output string) error {
	if in.file == nil {
		return nil
	}
	for _, name := range []string{output, work.AsidePath(output)} {
		if out, err := os.Stat(name); err == nil && os.SameFile(in.info, out) {
			return &ConfigError{Field: "Output", Err: errors.New("is the input")}
		}
	}
	return nil
}

// each gives the lines of r that have something on them, cleaned. One that is too long comes without its bytes. An error
// is the last.
func each(r *work.LineReader) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for {
			line, err := r.Next()
			if err == io.EOF {
				return
			}
			var bad *problem
			if err != nil {
				if _, long := errors.AsType[*work.TooLongError](err); !long {
					yield(row{}, err)
					return
				}
				bad = tooLong()
			}
			if (bad != nil || clean(&line)) && !yield(row{line, bad}, nil) {
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
	sample := newSample(in)
	for row, err := range in.rows() {
		if wrong, ok := err.(*InputError); ok { // there is no reading on
			in.problems = append(in.problems, wrong)
			break
		}
		if err != nil {
			return &ConfigError{Field: "Input", Err: err}
		}
		rq, bad := in.read(row)
		if bad == nil {
			if err := in.priced(row.Number, &rq); err != nil {
				return err
			}
		}
		sample.offer(row.Line, &rq, bad)
		if bad = in.remember(row.Line, &rq, bad); bad != nil {
			in.refuse(row.Number, bad)
		}
		in.scanned++
		in.total.Add(1)
		if in.reachedLimit() {
			break
		}
	}
	sample.choose()
	if len(in.problems) > 0 {
		return &InputErrors{Problems: in.problems, More: in.more}
	}
	return nil
}

// read parses a row.
func (in *input) read(r row) (request, *problem) {
	if r.bad != nil {
		return request{}, r.bad
	}
	return in.parser.parse(r.Bytes, r.Number)
}

// remember enters a line into the index, under the id that its result will have. It returns what is to be refused.
func (in *input) remember(line work.Line, rq *request, bad *problem) *problem {
	number := line.Number - 1
	if bad == nil {
		hash := in.parser.hash(rq)
		other, ok := in.index.Add(number, rq.id, hash)
		if ok {
			if in.file != nil {
				in.count(rq)
				in.meetTwin(line, hash)
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
	item.Also = b.input.also(&item)
	if b.router != nil {
		c.trip = &trip{}
		item.Handler, item.Data = b.router.handler, c
		return item, nil
	}
	a, err := b.account(rq.provider)
	if err != nil {
		return work.Item{}, err
	}
	item.Handler, item.Data = a.handler, c
	return item, nil
}
