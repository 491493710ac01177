package telemetry

import (
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	mostLanes  = 100     // lanes that are told apart: a series each is what a watcher pays for
	otherLanes = "other" // what those beyond share
	mostLabel  = 200     // bytes of a label
)

// byLane holds a value for each lane, up to mostLanes, and one for all others. It is safe for concurrent use.
type byLane[T any] struct {
	create func(label string) *T

	mu     sync.RWMutex
	lanes  map[string]*T
	others *T
}

func newByLane[T any](create func(label string) *T) *byLane[T] {
	return &byLane[T]{create: create, lanes: make(map[string]*T)}
}

// of returns the value of a lane.
func (b *byLane[T]) of(lane string) *T {
	b.mu.RLock()
	v, others := b.lanes[lane], b.others
	b.mu.RUnlock()
	switch {
	case v != nil:
		return v
	case others != nil:
		return others
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.lanes[lane] != nil:
		return b.lanes[lane]
	case len(b.lanes) < mostLanes:
		v = b.create(label(lane))
		b.lanes[strings.Clone(lane)] = v // a lane may be a piece of a line
		return v
	case b.others == nil:
		b.others = b.create(otherLanes)
	}
	return b.others
}

// label makes text fit for a label: short, and UTF-8.
func label(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= mostLabel {
		return text
	}
	cut := mostLabel
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
