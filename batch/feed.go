package batch

import (
	"bytes"
	"context"
	"io"
	"iter"

	"github.com/sluice-llm/sluice/work"
)

// feed gives the items that are left to do.
func (b *Batch) feed(ctx context.Context) iter.Seq2[work.Item, error] {
	if b.input.file == nil {
		return b.feedStdin(ctx)
	}
	return b.feedFile
}

// feedFile reads a file again that was checked.
func (b *Batch) feedFile(yield func(work.Item, error) bool) {
	in := b.input
	done := in.index.Done()
	seen, total := 0, int(in.total.Load())
	for line, err := range each(in.lines()) {
		if seen == total {
			break
		}
		if err != nil {
			yield(work.Item{}, err)
			return
		}
		seen++
		if done.Has(line.Number-1) || in.twins.led.Has(line.Number-1) {
			continue
		}
		item, err := b.again(line, line.Bytes == nil)
		if !yield(item, err) || err != nil {
			return
		}
	}
	if info, err := in.file.Stat(); err == nil && (info.Size() < in.info.Size() || !info.ModTime().Equal(in.info.ModTime())) {
		b.log.Warn("the input was changed during the run", "input", in.cfg.Input)
	}
}

// changedSince is said of a line that was right when it was scanned.
const changedSince = " (the file changed since it was checked)"

// again makes an item of a line that scan has seen.
func (b *Batch) again(line work.Line, tooLong bool) (work.Item, error) {
	in := b.input
	rq, bad := in.read(line, tooLong)
	if other, ok := in.duplicates[line.Number-1]; ok && bad == nil {
		bad = duplicateOf(rq.id, other)
	}
	if bad != nil && !in.invalid.Has(line.Number-1) {
		bad.text += changedSince
		return work.Item{}, in.problem(line.Number, bad)
	}
	return b.item(line, &rq, bad)
}

// reloader returns how the items of a file are read again.
func (in *input) reloader(b *Batch) func(seq, ref int64) (work.Item, error) {
	if in.file == nil {
		return nil
	}
	var buf []byte
	return func(seq, ref int64) (work.Item, error) {
		line := work.Line{Number: int(seq), Offset: ref}
		var err error
		if buf, err = in.readLineAt(buf, ref); err != nil {
			return work.Item{}, err
		}
		line.Bytes = buf
		if len(buf) > maxLine {
			line.Bytes = nil // as when it was read first: its hash is of no bytes
			return b.again(line, true)
		}
		clean(&line)
		return b.again(line, false)
	}
}

// readLineAt reads the line that begins at offset into buf, or as much of it as shows that it is too long.
func (in *input) readLineAt(buf []byte, offset int64) ([]byte, error) {
	size := in.info.Size()
	for want := int64(16 << 10); ; want *= 4 {
		n := min(want, size-offset)
		if int64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := in.file.ReadAt(buf, offset); err != nil {
			return nil, err
		}
		if i := bytes.IndexByte(buf, '\n'); i >= 0 {
			return buf[:i], nil
		}
		if n == size-offset || n > maxLine {
			return buf, nil
		}
	}
}

// feedStdin reads standard input and checks it as it comes.
func (b *Batch) feedStdin(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		in := b.input
		r := work.NewLineReader(newInterruptible(ctx, in.cfg.Stdin), maxLine)
		for line, err := range each(r) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(work.Item{}, err)
				return
			}
			item, already, err := b.arrived(line, line.Bytes == nil)
			joined := err == nil && !already && in.arrivals.join(ctx, &item)
			if !already && !joined && (!yield(item, err) || err != nil) {
				return
			}
			// Checked here, not once the next line is read: that may be long in coming.
			if in.reachedLimit() {
				return
			}
		}
	}
}

// arrived checks a line of standard input and makes its item, unless it is recorded already.
func (b *Batch) arrived(line work.Line, tooLong bool) (item work.Item, already bool, err error) {
	in := b.input
	rq, bad := in.read(line, tooLong)
	if bad == nil {
		if err := in.priced(line.Number, &rq); err != nil {
			return work.Item{}, false, err
		}
	}
	if refused := in.remember(line, &rq, bad); refused != nil {
		return work.Item{}, false, in.problem(line.Number, refused)
	}
	if other, ok := in.duplicates[line.Number-1]; ok && bad == nil {
		bad = duplicateOf(rq.id, other)
	}
	in.total.Add(1)
	if item, err = b.item(line, &rq, bad); err != nil {
		return work.Item{}, false, err
	}
	recorded, ok := in.past.Find([]byte(item.ID))
	if !ok {
		return item, false, nil
	}
	if !in.past.Same(recorded, item.Hash) && b.cfg.Changed != ChangedKeep {
		return work.Item{}, false, &ChangedError{Path: "-", Lines: []int{line.Number}, IDs: []string{item.ID}}
	}
	in.already.Add(1)
	if in.pastFailed.Has(recorded) {
		in.alreadyFailed.Add(1)
	}
	if in.pastMendable.Has(recorded) {
		in.alreadyMendable.Add(1)
	}
	return work.Item{}, true, nil
}

// interruptible is a reader whose Read also ends with a context. The reads of the reader beneath are made by a
// goroutine that cannot be interrupted: it ends with the read that it is in.
type interruptible struct {
	ctx    context.Context
	chunks chan chunk
	rest   []byte
	err    error
}

type chunk struct {
	b   []byte
	err error
}

func newInterruptible(ctx context.Context, r io.Reader) *interruptible {
	i := &interruptible{ctx: ctx, chunks: make(chan chunk)}
	go func() {
		for {
			b := make([]byte, 64<<10)
			n, err := r.Read(b)
			select {
			case i.chunks <- chunk{b[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return i
}

func (i *interruptible) Read(p []byte) (int, error) {
	if len(i.rest) == 0 && i.err == nil {
		select {
		case c := <-i.chunks:
			i.rest, i.err = c.b, c.err
		case <-i.ctx.Done():
			i.err = i.ctx.Err()
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	if len(i.rest) == 0 && i.err != nil {
		return n, i.err
	}
	return n, nil
}
