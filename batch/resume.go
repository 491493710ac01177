package batch

import (
	"bytes"
	"iter"
	"math"

	"github.com/sluice-llm/sluice/internal/work"
)

// resume matches the output with the input and marks what is done.
func (b *Batch) resume() error {
	m := &matcher{batch: b}
	if err := b.back.match(); err != nil {
		return err
	}
	if err := m.read(b.journal.Path(), b.journal.Lines()); err != nil {
		return err
	}
	b.sorted = b.input.file != nil && !m.shuffled
	if m.drop.Len() > 0 {
		b.journal.Rewrite(func(line work.Line) bool { return !m.drop.Has(line.Number) })
	}
	return nil
}

// sort sorts the output into the order of the input, once all items are recorded. Lines of other items go last. If sorting fails, for
// example because the disk is full, the output stays complete and unsorted.
func (b *Batch) sort() {
	if p := b.runner.Report(); b.sorted && p.Done+p.Failed == 0 {
		return
	}
	err := b.journal.Sort(func(line []byte) uint32 {
		rec, _ := ParseRecording(line)
		return b.input.rank(rec.ID)
	})
	if err != nil {
		b.log.Warn("the output is complete, but not sorted: to sort it, run the same command again", "error", err)
	}
}

// rank returns the position in the input of the item with this ID. IDs that are not in the input have the highest rank.
func (in *input) rank(id string) uint32 {
	if number, ok := in.index.Find([]byte(id)); ok {
		return uint32(number)
	}
	return math.MaxUint32
}

// matcher goes through the output's lines.
type matcher struct {
	batch   *Batch
	lines   int       // of the output
	matched int       // of those, lines of the input
	drop    work.Bits // line numbers of results that the next result removes
	changed ChangedError

	last     uint32 // rank of the last line
	shuffled bool   // the lines are not in the order of the input
}

// read matches the lines of the output at path.
func (m *matcher) read(path string, lines iter.Seq2[work.Line, error]) error {
	b, in := m.batch, m.batch.input
	m.changed.Path, m.changed.Array = in.cfg.Input, in.array
	for line, err := range lines {
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line.Bytes)) == 0 {
			continue // an editor left it
		}
		m.lines++
		rec, hash, err := parseResult(line.Bytes)
		if err != nil {
			return &work.JournalError{Path: path, Line: line.Number, Err: err}
		}
		if in.file == nil {
			m.remember(line, &rec, hash)
			continue
		}
		rank := in.rank(rec.ID)
		m.shuffled, m.last = m.shuffled || rank < m.last, rank
		if rank == math.MaxUint32 {
			continue
		}
		number := int(rank)
		m.matched++
		switch m.judge(number, &rec, hash) {
		case counts:
			if in.index.Done().Set(number) && rec.Error != nil {
				in.failed.add(rec.kind())
			}
		case again:
			m.drop.Set(line.Number)
		case refused:
			m.changed.Add(number+1, rec.ID)
		}
	}
	switch {
	case m.lines > 0 && m.matched == 0 && in.file != nil && in.total.Load() > 0:
		return &OtherInputError{Input: in.cfg.Input, Output: b.cfg.Output, Lines: m.lines}
	case m.changed.Err() != nil:
		return m.changed.Err()
	}
	in.already.Store(int64(in.index.Done().Len()))
	return nil
}

// remember keeps a recorded result until its line comes from standard input.
func (m *matcher) remember(line work.Line, rec *Recording, hash work.Hash) {
	number := line.Number
	if rec.Error != nil && m.batch.cfg.RetryFailed {
		m.drop.Set(line.Number)
		return
	}
	in := m.batch.input
	if _, ok := in.past.Add(number-1, []byte(rec.ID), hash); ok && rec.Error != nil {
		in.failed.remember(number-1, rec.kind())
	}
}

// verdict says what a recorded result is to the line with its id.
type verdict uint8

const (
	counts  verdict = iota // the line is done
	again                  // it is dropped, and the line runs again
	refused                // the line is not what was run
)

func (m *matcher) judge(number int, rec *Recording, hash work.Hash) verdict {
	cfg := &m.batch.cfg
	if !m.batch.input.index.Same(number, hash) {
		switch cfg.Changed {
		case ChangedRedo:
			return again
		case ChangedRefused:
			return refused
		}
	}
	if rec.Error != nil && (cfg.RetryFailed || m.batch.back.pends(number, rec)) {
		return again
	}
	return counts
}
