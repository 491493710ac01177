package work

import (
	"context"
	"fmt"
	"iter"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
)

// state is what a group is to a feed.
type state uint8

const (
	idle    state = iota // nothing of it is to be given
	open                 // from the beginning
	lacking              // something that it needs is not done
	ready                // it was lacking
	blocked              // something that it needs will not be done well
)

// Blocked is a stage that did not run because of one that it needs.
type Blocked struct {
	Name  string `json:"name"`  // Stage.
	Items int    `json:"items"` // Items that did not run.

	Need   string `json:"need"`      // Required stage.
	Failed int    `json:"failed"`    // Failed items of the required stage.
	Left   int    `json:"remaining"` // Remaining items of the required stage.
}

// String says what is blocked by what: "T3 needs T1, of which 2 items failed".
func (b Blocked) String() string {
	text := plainName(b.Name) + " needs " + plainName(b.Need)
	switch {
	case b.Failed > 0:
		return fmt.Sprintf("%s, of which %s failed", text, prose.Count(b.Failed, "item"))
	case b.Left == 1:
		return text + ", of which 1 item is not done"
	}
	return fmt.Sprintf("%s, of which %s are not done", text, prose.Count(b.Left, "item"))
}

// Settle says that an item has its result, now or from an earlier run, and whether that is good. An attempt that is tried
// again is no result. What is said of an item again, or of a number that has none, changes nothing.
func (t *Stages) Settle(number int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.linked {
		panic("work: Settle was called before Check")
	}
	i, known := t.group(number)
	if !known || !t.settled.Set(number) {
		return
	}
	t.settleLocked(i, ok)
}

// Feed gives the items that were selected and are not settled, each as soon as what it needs is done well: first all those
// that lack nothing, in their order, and then what has become ready, in the order in which it did. Read makes an item of its
// number; its error is given and ends the feed. While nothing is ready the feed waits, by Await, for Settle; it ends when
// nothing more can become ready, and when ctx ends.
//
// A need that was left out by Only or From counts by what earlier runs did: what needs it is blocked if that is not all done
// well. There is one feed at a time; one after a run that was stopped gives what that left.
func (t *Stages) Feed(ctx context.Context, read func(number int) (Item, error)) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		wake := t.begin()
		for c := (cursor{}); ctx.Err() == nil; {
			number, more := t.take(&c)
			if number >= 0 {
				item, err := read(number)
				if !yield(item, err) || err != nil {
					return
				}
				continue
			}
			if !more {
				return
			}
			if err := Await(ctx, wake); err != nil {
				if ctx.Err() == nil {
					yield(Item{}, err)
				}
				return
			}
		}
	}
}

// Blocked returns what is blocked, in the order of the input: before a run by what earlier ones did, and after it by all
// results.
func (t *Stages) Blocked() []Blocked {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sortLocked()
	var all []Blocked
	for i := range t.groups {
		g := &t.groups[i]
		if g.state != blocked || g.left == 0 {
			continue
		}
		for _, n := range g.needs {
			if m := &t.groups[n.of]; t.spoiltLocked(n.of) {
				all = append(all, Blocked{Name: g.name, Items: g.left, Need: m.name, Failed: m.failed, Left: m.left})
				break
			}
		}
	}
	return all
}

// begin makes everything ready for a feed, and returns what wakes it.
func (t *Stages) begin() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sorted = false
	t.sortLocked()
	return t.wake
}

// cursor is how far a feed is.
type cursor struct {
	number int    // all below were looked at for those that lack nothing
	next   uint32 // the next item, plus 1, of a stage that became ready
}

// take returns the number of the next item to be given. A number below zero is none: then more says whether one may come.
func (t *Stages) take(c *cursor) (number int, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c.number < len(t.of) {
		number := c.number
		c.number++
		// What became ready meanwhile is in the queue.
		if i, ok := t.group(number); ok && t.groups[i].state == open && !t.settled.Has(number) {
			return number, true
		}
	}
	for {
		for c.next != 0 {
			number := int(c.next - 1)
			c.next = 0
			if number < len(t.next) {
				c.next = t.next[number]
			}
			if !t.settled.Has(number) {
				return number, true
			}
		}
		if len(t.queue) == 0 {
			return -1, t.waiting > 0
		}
		c.next = t.groups[t.queue[0]].first + 1
		t.queue = t.queue[1:]
	}
}

// sortLocked finds the states of all groups from what is settled.
func (t *Stages) sortLocked() {
	if t.sorted {
		return
	}
	if !t.linked {
		panic("work: the Stages were not checked: call Check first")
	}
	t.sorted, t.queue, t.waiting = true, nil, 0
	t.wake = make(chan struct{}, 1)
	for i := range t.groups {
		g := &t.groups[i]
		g.lacks, g.state = 0, idle
		for _, n := range g.needs {
			if !t.groups[n.of].well() {
				g.lacks++
			}
		}
		switch {
		case g.left == 0 || g.leftOut:
		case g.lacks == 0:
			g.state = open
		default:
			g.state = lacking
			t.waiting++
		}
	}
	for i := range t.groups {
		if g := &t.groups[i]; g.failed > 0 || g.left > 0 && g.leftOut {
			t.blockLocked(uint32(i))
		}
	}
}

// well says that all of a group is done well.
func (g *group) well() bool { return g.left == 0 && g.failed == 0 }

// spoiltLocked says whether a group will not be done well in this run.
func (t *Stages) spoiltLocked(i uint32) bool {
	g := &t.groups[i]
	return g.failed > 0 || g.left > 0 && (g.leftOut || g.state == blocked)
}

// settleLocked counts a result of a group.
func (t *Stages) settleLocked(i uint32, ok bool) {
	g := &t.groups[i]
	g.left--
	if !ok {
		g.failed++
	}
	switch {
	case !t.sorted:
	case !ok && g.failed == 1:
		t.blockLocked(i)
	case g.well():
		t.releaseLocked(i)
	}
}

// releaseLocked lets what needs a group go on, now that this is done well.
func (t *Stages) releaseLocked(i uint32) {
	for _, d := range t.groups[i].dependents {
		g := &t.groups[d]
		if g.lacks--; g.lacks == 0 && g.state == lacking {
			g.state = ready
			t.queue = append(t.queue, d)
			t.waiting--
			wake.Up(t.wake)
		}
	}
}

// blockLocked blocks what needs a group that will not be done well, directly or not.
func (t *Stages) blockLocked(i uint32) {
	for next := []uint32{i}; len(next) > 0; {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		for _, d := range t.groups[i].dependents {
			if t.groups[d].state != lacking {
				continue
			}
			t.groups[d].state = blocked
			t.waiting--
			next = append(next, d)
		}
	}
	if t.waiting == 0 {
		wake.Up(t.wake)
	}
}
