package batch

import (
	"maps"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// earlierFailures are the failures that earlier runs recorded, by kind.
type earlierFailures struct {
	lines map[sluice.Kind]*work.Bits // of the output, for rows of standard input that are yet to come; of Open and the feed

	mu    sync.Mutex
	kinds map[sluice.Kind]int
}

// add counts a failure.
func (f *earlierFailures) add(kind sluice.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds = make(map[sluice.Kind]int)
	}
	f.kinds[kind]++
}

// remember keeps that a line of the output is a failure, which counts once its row comes.
func (f *earlierFailures) remember(line int, kind sluice.Kind) {
	if f.lines == nil {
		f.lines = make(map[sluice.Kind]*work.Bits)
	}
	if f.lines[kind] == nil {
		f.lines[kind] = &work.Bits{}
	}
	f.lines[kind].Set(line)
}

// recall counts the failure that a line of the output is, if it is one.
func (f *earlierFailures) recall(line int) {
	for kind, lines := range f.lines {
		if lines.Has(line) {
			f.add(kind)
		}
	}
}

// counts says how many there are, and of which kinds.
func (f *earlierFailures) counts() (n int, kinds map[sluice.Kind]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.kinds {
		n += of
	}
	return n, maps.Clone(f.kinds)
}
