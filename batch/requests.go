package batch

import (
	"context"
	"iter"

	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Request is what a line of an input asks for.
type Request struct {
	Line     int // or the place in a JSON array
	Provider string
	Model    string
	Endpoint provider.Endpoint
	Price    provider.Request // what the body says of its price
	Size     int              // bytes of the body
}

// Requests reads an input as a run would and sends nothing. It takes of cfg what says what to read: Input, Stdin,
// Format, Template, Provider, BaseURL, Model, System, MaxTokens, Set and Limit. The first bad line ends it with an *InputError, and a bad
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
		for row, err := range in.all() {
			if err != nil {
				if _, ok := err.(*InputError); !ok {
					err = &ConfigError{Field: "Input", Err: err}
				}
				yield(Request{}, err)
				return
			}
			rq, err := in.request(row)
			if !yield(rq, err) || err != nil || in.reachedLimit() {
				return
			}
		}
	}
}

// all gives the rows of the file or of standard input.
func (in *input) all() iter.Seq2[rows.Row, error] {
	if in.file != nil {
		return in.file.Rows()
	}
	return in.arriving(context.Background())
}

// request reads a row and what it costs.
func (in *input) request(line rows.Row) (Request, error) {
	rq, bad := in.read(line)
	if bad == nil {
		if other, ok := in.index.Add(line.Number-1, rq.id, work.Hash{}); !ok {
			bad = in.duplicateOf(rq.id, other)
		}
	}
	if bad != nil {
		return Request{}, line.Wrong(in.cfg.Input, bad)
	}
	in.total.Add(1)
	return in.estimated(&line, &rq)
}

// estimated says what a request costs.
func (in *input) estimated(row *rows.Row, rq *request) (Request, error) {
	price, err := provider.Estimate(rq.endpoint, rq.body)
	if err != nil {
		return Request{}, row.Wrong(in.cfg.Input, &problem{Text: err.Error()})
	}
	return Request{
		Line: row.Number, Provider: rq.provider.Name, Model: rq.model, Endpoint: rq.endpoint, Price: price, Size: len(rq.body),
	}, nil
}
