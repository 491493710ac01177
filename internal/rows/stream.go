package rows

import (
	"bufio"
	"context"
	"io"
	"iter"
)

// Stream gives the rows of standard input, which r reads, that have something on them. A row is valid until the next. An
// error is the last: an *Error that is about a line, or a *DamagedError of compressed data. The error of ctx, if that can
// end, does not wait for r: a read that hangs is left to itself.
func Stream(ctx context.Context, r io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		from := r
		if ctx.Done() != nil {
			from = newInterruptible(ctx, r)
		}
		part(&stream{r: from}, stdin, nil, yield)
	}
}

// stream reads standard input, which may be compressed: how it begins tells. It reads nothing before it is read.
type stream struct {
	r io.Reader
	u *unpacked // nil: nothing was read yet, or it is not compressed
	b *bufio.Reader
}

func (s *stream) Read(p []byte) (int, error) {
	if s.b == nil {
		s.b = bufio.NewReaderSize(s.r, 16) // it is passed by once the first bytes are read
		if s.gzipped() {
			s.u = newUnpacked(stdin, s.b)
		}
	}
	if s.u != nil {
		return s.u.Read(p)
	}
	return s.b.Read(p)
}

// gzipped looks at no more bytes than it has to: they may be long in coming.
func (s *stream) gzipped() bool {
	for n := 1; n <= len(gzipMagic); n++ {
		if head, _ := s.b.Peek(n); string(head) != gzipMagic[:n] {
			return false
		}
	}
	return true
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
