package batch

import (
	"iter"

	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
)

// Request is what a line of an input asks for.
type Request struct {
	Line     int
	Model    string
	Endpoint provider.Endpoint
	Price    provider.Request // what the body says of its price
}

// Requests reads an input as a run would and sends nothing. It takes of cfg what says what to read: Input, Stdin,
// Provider, BaseURL, Model, System, MaxTokens, Set and Limit. The first bad line ends it with an *InputError, and a bad
// field with a *ConfigError.
func Requests(cfg Config) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		f, err := cfg.checkInput()
		if err != nil {
			yield(Request{}, err)
			return
		}
		in, err := openInput(cfg, f)
		if err != nil {
			yield(Request{}, err)
			return
		}
		defer in.close()
		for line, err := range each(in.reader()) {
			if err != nil {
				yield(Request{}, &ConfigError{Field: "Input", Err: err})
				return
			}
			rq, err := in.request(line)
			if !yield(rq, err) || err != nil || in.reachedLimit() {
				return
			}
		}
	}
}

// reader returns a reader of the file or of standard input.
func (in *input) reader() *work.LineReader {
	if in.file != nil {
		return in.lines()
	}
	return work.NewLineReader(in.cfg.Stdin, maxLine)
}

// request reads a line and what it costs.
func (in *input) request(line work.Line) (Request, error) {
	rq, bad := in.read(line, line.Bytes == nil)
	if bad == nil {
		if other, ok := in.index.Add(line.Number-1, rq.id, work.Hash{}); !ok {
			bad = duplicateOf(rq.id, other)
		}
	}
	if bad != nil {
		return Request{}, in.problem(line.Number, bad)
	}
	in.total.Add(1)
	price, err := provider.Estimate(rq.endpoint, rq.body)
	if err != nil {
		return Request{}, in.problem(line.Number, &problem{text: err.Error()})
	}
	return Request{Line: line.Number, Model: rq.model, Endpoint: rq.endpoint, Price: price}, nil
}
