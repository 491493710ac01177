package batch

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Preview is what a run would have before it.
type Preview struct {
	Total     int `json:"total"`                    // Items of the input.
	Done      int `json:"done"`                     // Successful items of all runs.
	Failed    int `json:"failed"`                   // Failed items of all runs.
	Remaining int `json:"remaining"`                // Items without a result.
	Equal     int `json:"equal_requests,omitempty"` // Remaining items that repeat another request. With Cache.

	Fields PromptFields `json:"-"` // of rows with a prompt

	PendingParts int `json:"-"` // that earlier runs began, of calls by way of Batch APIs
	PendingLines int `json:"-"` // in them: of the remaining lines, those that are not handed over again
}

// Request is the request of an item.
type Request struct {
	Line     int // or the place in a JSON array
	Provider string
	Model    string
	Endpoint provider.Endpoint
	Price    provider.Request // what the body says of its price
	Size     int              // bytes of the body
}

// ReadPreview returns what a run would do, and calls each with every remaining request, unless that fails. It reads the input and the output
// as Open does, and fails as Open does; it sends nothing, and creates, changes and locks nothing. Of cfg it takes the fields that say what
// to read, and Output, RetryFailed, Changed, Cache, Budget, Upstreams and Price. Without an Output, no item has a result.
func ReadPreview(cfg Config, each func(Request) error) (Preview, error) {
	err := cfg.checkInput()
	if err == nil {
		err = cfg.checkChanged()
	}
	if err != nil {
		return Preview{}, err
	}
	if err := cfg.Budget.Check(cfg.Price != nil || cfg.Upstreams != nil); err != nil {
		return Preview{}, &FieldError{Field: "Budget", Err: err}
	}
	in, err := openInput(&cfg)
	if err != nil {
		return Preview{}, err
	}
	defer in.close()
	if err := in.differsFrom(cfg.Output); err != nil {
		return Preview{}, err
	}
	if err := in.scan(); err != nil {
		return Preview{}, err
	}
	if err := (&Batch{cfg: cfg, input: in, back: &direct{}}).match(); err != nil {
		return Preview{}, err
	}
	earlier, err := cfg.earlierParts()
	if err != nil {
		return Preview{}, err
	}
	pending := pendingOf(cfg.Output, earlier)
	if pending.Parts > 0 && cfg.Batches == nil {
		return Preview{}, pending
	}
	p := Preview{PendingParts: pending.Parts, PendingLines: pending.Lines}
	asked := make(map[work.Hash]bool)
	for rq, err := range in.remaining(context.Background()) {
		if err != nil {
			return p, err
		}
		if cfg.Cache != "" && asked[rq.hash] {
			p.Equal++
			continue
		}
		if cfg.Cache != "" {
			asked[rq.hash] = true
		}
		if err = in.show(&rq, each); err != nil {
			return p, err
		}
	}
	failed, _ := in.failed.counts()
	p.Total, p.Done, p.Failed, p.Fields = int(in.total.Load()), int(in.already.Load())-failed, failed, in.parser.fields
	p.Remaining = p.Total - p.Done - failed
	return p, nil
}

// show calls each with a request.
func (in *input) show(rq *request, each func(Request) error) error {
	price, err := provider.Estimate(rq.endpoint, rq.body)
	if err != nil {
		return rq.row.Wrong(in.cfg.Input, &problem{Text: err.Error()})
	}
	return each(Request{
		Line: rq.row.Number, Provider: rq.provider.Name, Model: rq.model, Endpoint: rq.endpoint, Price: price, Size: len(rq.body),
	})
}

// earlierParts returns the rows of batches of earlier runs. Their directory is beside the output, links followed.
func (cfg *Config) earlierParts() ([]Part, error) {
	if cfg.Output == "" {
		return nil, nil
	}
	output := cfg.Output
	if to, err := filepath.EvalSymlinks(output); err == nil {
		output = to
	}
	rows, err := batchjob.Read(output + BatchesSuffix)
	if err != nil {
		return nil, &FieldError{Field: "Output", Err: err}
	}
	return rows, nil
}

// match matches the output with the input, and leaves it as it is.
func (b *Batch) match() error {
	if b.cfg.Output == "" {
		return nil
	}
	if err := checkPlain(b.cfg.Output); err != nil {
		return err
	}
	r, err := OpenRecordings(b.cfg.Output)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	m := &matcher{batch: b}
	return m.read(b.cfg.Output, r.lines())
}

// checkPlain refuses an output that is there and keeps nothing, such as a directory, a pipe or a device.
func checkPlain(path string) error {
	if err := regular.Check(path); err != nil {
		return &FieldError{Field: "Output", Err: err}
	}
	return nil
}
