package batch

import (
	"context"
	"encoding/binary"
	"iter"
	"sync"

	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
)

// mostJoined bounds how many lines of standard input wait for the results of others. The next one stops intake until
// some of those are recorded.
const mostJoined = 1 << 16

// arrivals are the requests of standard input that are open or answered. The zero value is ready. It is safe for
// concurrent use.
type arrivals struct {
	mu      sync.Mutex
	open    map[work.Hash]*set
	answers map[uint64]int64 // where in the output the answer to a request is, by half of its hash
	joined  int              // twins of all sets that are not recorded
	room    chan struct{}    // tells the feed that joined fell; made by the first who waits
}

// set is a request of standard input that is open, and the lines after it that ask for the same.
type set struct {
	seq    int64 // of the line that is called
	twins  []work.Duplicate
	closed bool          // its twins are taken: who comes now is too late
	done   chan struct{} // closed when its result is recorded
	before *set          // it came too late for that one
}

// half is what of a hash the answers are known by: who reads one looks at the whole.
func half(h work.Hash) uint64 { return binary.BigEndian.Uint64(h[:8]) }

// know keeps where the answer to a request is.
func (a *arrivals) know(hash work.Hash, offset int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.knowLocked(hash, offset)
}

func (a *arrivals) knowLocked(hash work.Hash, offset int64) {
	if a.answers == nil {
		a.answers = make(map[uint64]int64)
	}
	a.answers[half(hash)] = offset
}

// join adds an item to the set that is open for its request, and says so; if there is none, the item opens one, and is
// to be handled. Where nothing is shared, items are of no set.
func (a *arrivals) join(ctx context.Context, item *work.Item) bool {
	if item.Also == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.joined >= mostJoined && ctx.Err() == nil {
		a.awaitRoomLocked(ctx)
	}
	s := a.open[item.Hash]
	if s != nil && !s.closed {
		s.twins = append(s.twins, work.Duplicate{ID: item.ID, Seq: item.Seq, Hash: item.Hash, Note: item.Note})
		a.joined++
		return true
	}
	if a.open == nil {
		a.open = make(map[work.Hash]*set)
	}
	a.open[item.Hash] = &set{seq: item.Seq, done: make(chan struct{}), before: s}
	return false
}

func (a *arrivals) awaitRoomLocked(ctx context.Context) {
	if a.room == nil {
		a.room = make(chan struct{}, 1)
	}
	a.mu.Unlock()
	defer a.mu.Lock()
	select {
	case <-a.room:
	case <-ctx.Done():
	}
}

// also gives the twins of the set that is open for a request, until there are none; then it is closed.
func (a *arrivals) also(hash work.Hash) iter.Seq2[work.Duplicate, error] {
	return func(yield func(work.Duplicate, error) bool) {
		for {
			t, ok := a.take(hash)
			if !ok || !yield(t, nil) {
				return
			}
		}
	}
}

func (a *arrivals) take(hash work.Hash) (t work.Duplicate, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.open[hash]
	if len(s.twins) == 0 {
		s.closed = true
		if s.recorded() {
			delete(a.open, hash)
		}
		return work.Duplicate{}, false
	}
	t, s.twins = s.twins[0], s.twins[1:]
	a.joined--
	wake.Up(a.room)
	return t, true
}

func (s *set) recorded() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// told takes note of a result that is recorded.
func (a *arrivals) told(r *work.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.open[r.Hash]
	for s != nil && s.seq != r.Seq { // a later one may have come meanwhile
		s = s.before
	}
	if s == nil || s.recorded() {
		return // a twin, or no request
	}
	if r.Err == nil && r.DuplicateOf == "" {
		a.knowLocked(r.Hash, r.Offset)
	}
	close(s.done)
	if s.closed && a.open[r.Hash] == s {
		delete(a.open, r.Hash)
	}
}

// find returns where the answer to an item's request is. If that is about to be recorded, it waits for it.
func (a *arrivals) find(ctx context.Context, item *work.Item) (offset int64, ok bool, err error) {
	a.mu.Lock()
	s := a.open[item.Hash]
	var before *set
	if s != nil {
		before = s.before
	}
	a.mu.Unlock()
	if before != nil {
		if err := work.Await(ctx, before.done); err != nil {
			return 0, false, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s != nil {
		s.before = nil
	}
	offset, ok = a.answers[half(item.Hash)]
	return offset, ok, nil
}
