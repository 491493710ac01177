package cluster

import (
	"context"
	"sync"

	"github.com/sluice-llm/sluice/internal/wake"
)

// batcher gathers what many hand in while the batch before is on its way, so that batches grow with the load by themselves and
// a lone item does not wait. Its queue is bounded by those who put: each waits, or has a window.
type batcher[T any] struct {
	most int         // items of a batch
	size func(T) int // bytes of an item

	mu     sync.Mutex
	items  []T
	busy   bool            // a batch is on its way
	closed bool            // nothing is taken any more
	quiet  []chan struct{} // told when nothing is left
	kick   chan struct{}
}

func newBatcher[T any](most int, size func(T) int) *batcher[T] {
	return &batcher[T]{most: most, size: size, kick: make(chan struct{}, 1)}
}

// put hands in items; false after close.
func (b *batcher[T]) put(items ...T) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.items = append(b.items, items...)
	b.mu.Unlock()
	wake.Up(b.kick)
	return true
}

// close lets run end when what was put is done.
func (b *batcher[T]) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	wake.Up(b.kick)
}

// run has batches flushed, one at a time, until the context ends, or until nothing is left after close.
func (b *batcher[T]) run(ctx context.Context, flush func(context.Context, []T)) {
	for {
		batch, end := b.next()
		if end {
			return
		}
		if len(batch) > 0 {
			flush(ctx, batch)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case <-b.kick:
		case <-ctx.Done():
			return
		}
	}
}

// wait returns when nothing is left, or with the context's error.
func (b *batcher[T]) wait(ctx context.Context) error {
	b.mu.Lock()
	if len(b.items) == 0 && !b.busy {
		b.mu.Unlock()
		return nil
	}
	quiet := make(chan struct{})
	b.quiet = append(b.quiet, quiet)
	b.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next takes a batch off the queue; the batch before is done.
func (b *batcher[T]) next() (batch []T, end bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, bytes := 0, 0
	for n < len(b.items) && n < b.most && bytes < batchBytes {
		bytes += b.size(b.items[n])
		n++
	}
	b.busy = n > 0
	if n == 0 {
		for _, quiet := range b.quiet {
			close(quiet)
		}
		b.quiet = nil
		return nil, b.closed
	}
	batch = b.items[:n:n]
	b.items = b.items[n:]
	if len(b.items) == 0 {
		b.items = nil
	}
	return batch, false
}
