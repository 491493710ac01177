package telemetry

import (
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	mostLabels = 100     // lanes that are told apart: a series each is what a watcher pays for
	otherLanes = "other" // what those beyond share
	mostLabel  = 200     // bytes of a label
)

// table holds a value for each key, up to mostLabels, and one for all others. It is safe for concurrent use.
type table[K comparable, T any] struct {
	create func(key K) *T
	others func() *T // made when the first of them comes

	mu     sync.RWMutex
	values map[K]*T
	other  *T
}

func newTable[K comparable, T any](create func(key K) *T, others func() *T) *table[K, T] {
	return &table[K, T]{create: create, others: others, values: make(map[K]*T)}
}

// of returns the value of key.
func (t *table[K, T]) of(key K) *T {
	t.mu.RLock()
	v, other := t.values[key], t.other
	t.mu.RUnlock()
	switch {
	case v != nil:
		return v
	case other != nil:
		return other
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.values[key] != nil:
		return t.values[key]
	case len(t.values) < mostLabels:
		v = t.create(key)
		t.values[key] = v
		return v
	case t.other == nil:
		t.other = t.others()
	}
	return t.other
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
