package batch

import (
	"context"
	"iter"

	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// feedFile reads a file again that was checked.
func (b *Batch) feedFile(yield func(work.Item, error) bool) {
	in := b.input
	for row, err := range in.rest() {
		if err != nil {
			yield(work.Item{}, err)
			return
		}
		item, err := b.again(row)
		if !yield(item, err) || err != nil {
			return
		}
	}
	if in.file.Changed() {
		b.log.Warn("the input was changed during the run", "input", in.cfg.Input)
	}
}

// rest gives the rows of a file that scan has seen and that are left to do. An error is the last, also where the file does not
// have all of them any more.
func (in *input) rest() iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		done, seen, last := in.index.Done(), 0, 0
		for row, err := range in.file.Rows() {
			if seen == in.scanned {
				return
			}
			seen, last = seen+1, row.Number
			if err == nil && done.Has(row.Number-1) {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
		if seen < in.scanned {
			yield(rows.Row{}, rows.Missing(in.cfg.Input, last+1, in.file.Array()))
		}
	}
}

// changedSince is said of a row that was right when it was scanned.
const changedSince = " (the file changed since it was checked)"

// again makes an item of a row that scan has seen.
func (b *Batch) again(r rows.Row) (work.Item, error) {
	rq, err := b.input.reread(r)
	if err != nil {
		return work.Item{}, err
	}
	return b.item(r, &rq)
}

// reread parses a row that scan has seen.
func (in *input) reread(r rows.Row) (request, error) {
	rq, bad := in.read(r)
	if bad != nil {
		bad.Text += changedSince
		return request{}, r.Wrong(in.cfg.Input, bad)
	}
	return rq, nil
}

// reloader returns how the items of a file are read again.
func (in *input) reloader(b *Batch) func(seq, ref int64) (work.Item, error) {
	if in.file == nil {
		return nil
	}
	var r *rows.Reader // made when it is needed
	return func(seq, ref int64) (work.Item, error) {
		if r == nil {
			made, err := in.file.Reader()
			if err != nil {
				return work.Item{}, err
			}
			r = made
		}
		row, err := r.At(ref, int(seq))
		if err != nil {
			return work.Item{}, err
		}
		return b.again(row)
	}
}

// arriving gives the rows of standard input.
func (in *input) arriving(ctx context.Context) iter.Seq2[rows.Row, error] {
	return rows.Stream(ctx, in.cfg.Stdin)
}

// feedStdin reads standard input and checks it as it comes.
func (b *Batch) feedStdin(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		in := b.input
		for row, err := range in.arriving(ctx) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(work.Item{}, inputFault(err))
				return
			}
			item, already, err := b.arrived(row)
			if !already && (!yield(item, err) || err != nil) {
				return
			}
			// Checked here, not once the next line is read: that may be long in coming.
			if in.reachedLimit() {
				return
			}
		}
	}
}

// arrived checks a row of standard input and makes its item, unless it is recorded already.
func (b *Batch) arrived(r rows.Row) (item work.Item, already bool, err error) {
	rq, err := b.input.accept(r)
	if err != nil {
		return work.Item{}, false, err
	}
	if item, err = b.item(r, &rq); err != nil {
		return work.Item{}, false, err
	}
	already, err = b.input.recorded(&r, item.ID, item.Hash)
	if already || err != nil {
		return work.Item{}, already, err
	}
	return item, false, nil
}

// accept checks a row of standard input and counts it.
func (in *input) accept(r rows.Row) (request, error) {
	rq, bad := in.read(r)
	if bad == nil {
		if err := in.priced(&r, &rq); err != nil {
			return request{}, err
		}
		bad = in.remember(&r, &rq)
	}
	if bad != nil {
		return request{}, r.Wrong(in.cfg.Input, bad)
	}
	in.total.Add(1)
	return rq, nil
}

// recorded says whether a row of standard input is recorded already.
func (in *input) recorded(r *rows.Row, id string, hash work.Hash) (bool, error) {
	recorded, ok := in.past.Find([]byte(id))
	if !ok {
		return false, nil
	}
	if !in.past.Same(recorded, hash) && in.cfg.Changed != ChangedKeep {
		return false, &ChangedError{Path: "-", Array: r.Source != 0, Number: r.Number, ID: id}
	}
	in.already.Add(1)
	in.failed.recall(recorded)
	return true, nil
}
