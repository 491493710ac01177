package batch

import (
	"context"
	"iter"

	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// remaining gives the requests of all items without a result: of a file that was checked, or of standard input as it comes. An error is the
// last. A request is valid until the next one.
func (in *input) remaining(ctx context.Context) iter.Seq2[request, error] {
	if in.file == nil {
		return in.arriving(ctx)
	}
	return func(yield func(request, error) bool) {
		for row, err := range in.rest() {
			rq := request{}
			if err == nil {
				rq, err = in.reread(row)
			}
			if !yield(rq, err) || err != nil {
				return
			}
		}
	}
}

// rest gives the rows of a file that scan has read and that have no result. An error is the last, also if the file does not have all of them
// any more.
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

// reread parses a row that scan has read.
func (in *input) reread(r rows.Row) (request, error) {
	rq, bad := in.read(r)
	if bad != nil {
		bad.Text += " (the file changed since it was checked)"
		return request{}, r.Wrong(in.cfg.Input, bad)
	}
	return rq, nil
}

// arriving reads standard input, and checks it as it comes.
func (in *input) arriving(ctx context.Context) iter.Seq2[request, error] {
	return func(yield func(request, error) bool) {
		for row, err := range rows.Stream(ctx, in.cfg.Stdin) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(request{}, inputFault(err))
				return
			}
			rq, bad := in.accept(row)
			if bad != nil {
				yield(rq, bad)
				return
			}
			already, err := in.recorded(&rq)
			if !already && (!yield(rq, err) || err != nil) {
				return
			}
			// Checked here, not once the next line is read: that may be long in coming.
			if in.reachedLimit() {
				return
			}
		}
	}
}

// recorded reports whether a row of standard input has a result.
func (in *input) recorded(rq *request) (bool, error) {
	recorded, ok := in.past.Find(rq.id)
	if !ok {
		return false, nil
	}
	if !in.past.Same(recorded, rq.hash) && in.cfg.Changed != ChangedKeep {
		return false, &ChangedError{Path: "-", Array: rq.row.Source != 0, Number: rq.row.Number, ID: string(rq.id)}
	}
	in.already.Add(1)
	in.failed.recall(recorded)
	return true, nil
}

// reloader returns the function that reads an item of a file again.
func (b *Batch) reloader() func(seq, ref int64) (work.Item, error) {
	file := b.input.file
	if file == nil {
		return nil
	}
	var r *rows.Reader // made when it is needed
	return func(seq, ref int64) (item work.Item, err error) {
		if r == nil {
			if r, err = file.Reader(); err != nil {
				return item, err
			}
		}
		row, err := r.At(ref, int(seq))
		if err != nil {
			return item, err
		}
		return b.again(row)
	}
}

// again makes an item of a row that scan has read.
func (b *Batch) again(r rows.Row) (work.Item, error) {
	rq, err := b.input.reread(r)
	if err != nil {
		return work.Item{}, err
	}
	return b.item(&rq)
}
