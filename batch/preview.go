package batch

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
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

// ReadPreview returns what a run would do, and calls each with every remaining request. It reads the input and the output as
// Open does, and fails as Open does; it sends nothing, and creates, changes and locks nothing. Of cfg it takes what says what
// to read, and Output, RetryFailed, Changed, Cache, Budget, Upstreams and Price. Without an Output
// nothing is recorded.
func ReadPreview(cfg Config, each func(Request)) (Preview, error) {
	f, err := cfg.checkInput()
	if err == nil {
		err = cfg.checkChanged()
	}
	if err != nil {
		return Preview{}, err
	}
	if err := cfg.Budget.Check(cfg.Price != nil || cfg.Upstreams != nil); err != nil {
		return Preview{}, &ConfigError{Field: "Budget", Err: err}
	}
	in, err := openInput(cfg, f)
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
	pending := pendingOf(cfg.Output, cfg.standing())
	if pending.Parts > 0 && cfg.Batches == nil {
		return Preview{}, pending
	}
	l := look{in: in, each: each}
	if in.file != nil {
		err = l.file()
	} else {
		err = l.stdin()
	}
	failed, _ := in.failed.counts()
	p := Preview{Total: int(in.total.Load()), Done: int(in.already.Load()) - failed, Failed: failed, Equal: l.equal}
	p.Fields, p.Remaining = in.parser.fields, p.Total-p.Done-failed
	p.PendingParts, p.PendingLines = pending.Parts, pending.Lines
	return p, err
}

// standing returns the parts that stand in the state beside the output. A state that cannot be read has none: whoever only looks
// can do without, and a run says what is wrong with it.
func (cfg *Config) standing() []Part {
	if cfg.Output == "" {
		return nil
	}
	state, err := work.LoadState(work.StatePath(cfg.place()))
	if damaged, ok := errors.AsType[*work.DamagedStateError](err); err != nil && (!ok || !damaged.Backup) {
		return nil
	}
	stand, err := batchjob.Read([]byte(state.Batches))
	if err != nil {
		return nil
	}
	return stand
}

// place is where the output is, links followed: its state and its journal stand beside that.
func (cfg *Config) place() string {
	if to, err := filepath.EvalSymlinks(cfg.Output); err == nil {
		return to
	}
	return cfg.Output
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
		return &ConfigError{Field: "Output", Err: err}
	}
	return nil
}

// look goes through what is left.
type look struct {
	in    *input
	each  func(Request)
	equal int
	asked map[work.Hash]bool // with Cache
}

func (l *look) file() error {
	for row, err := range l.in.rest() {
		if err != nil {
			return err
		}
		rq, err := l.in.reread(row)
		if err != nil {
			return err
		}
		if err := l.give(&row, &rq, l.in.parser.hash(&rq)); err != nil {
			return err
		}
	}
	return nil
}

func (l *look) stdin() error {
	in := l.in
	for row, err := range in.arriving(context.Background()) {
		if err != nil {
			return inputFault(err)
		}
		rq, err := in.accept(row)
		if err != nil {
			return err
		}
		hash := in.parser.hash(&rq)
		already, err := in.recorded(&row, string(rq.id), hash)
		switch {
		case err != nil:
			return err
		case already:
		default:
			if err := l.give(&row, &rq, hash); err != nil {
				return err
			}
		}
		if in.reachedLimit() {
			return nil
		}
	}
	return nil
}

// give calls each with a request, unless it repeats another one.
func (l *look) give(row *rows.Row, rq *request, hash work.Hash) error {
	if l.in.cfg.Cache != "" {
		if l.asked == nil {
			l.asked = make(map[work.Hash]bool)
		}
		if l.asked[hash] {
			l.equal++
			return nil
		}
		l.asked[hash] = true
	}
	estimated, err := l.in.estimated(row, rq)
	if err == nil {
		l.each(estimated)
	}
	return err
}
