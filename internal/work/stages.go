package work

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Stages orders the items of an input: some run only after others are done well. An item may be of a stage, and then it may need
// other stages. A stage needs what any of its items needs, and starts as a whole when that is done. A stage that needs one that
// failed or is blocked is itself blocked: it is neither run nor recorded, and Blocked returns it.
//
// Use: Add all items, Check, then Only and From for a part of them, Settle for what earlier runs recorded, and give Feed
// to Config.Feed and each result to Settle, from Config.OnResult. The zero value is ready. Settle and Blocked are safe for
// concurrent use with a feed; the others come before it.
//
// An item takes 4 bytes, one of a stage 8.
type Stages struct {
	groups []group
	names  map[string]uint32 // of stages, to their groups
	needy  bool              // some stage needs another
	linked bool              // by Check

	of   []uint32 // the group of each item, by number, plus 1; 0 is no item
	next []uint32 // the next item of the same stage, plus 1; no longer than there are any

	mu      sync.Mutex
	settled Bits
	sorted  bool          // the states of the groups are up to date
	queue   []uint32      // groups that became ready, in that order
	waiting int           // groups that may become ready
	wake    chan struct{} // of the feed: the queue grew, or nothing waits any more
}

// group is what starts at once: the items of a stage. The first of all groups is of the items without one, and needs nothing.
type group struct {
	name       string // of the stage
	first      uint32 // the number of the first item; the others are in Stages.next
	last       uint32 // likewise
	needs      []need
	dependents []uint32 // groups that need this one
	leftOut    bool     // by Only or From

	left   int   // items that have no result
	failed int   // items that failed
	lacks  int   // needs that are not done well
	state  state // if Stages.sorted
}

// need is a stage that a group needs.
type need struct {
	name string
	of   uint32 // its group, from Check on
	by   uint32 // the first item that needs it
}

// others is the group of the items without a stage.
const others = 0

// UnknownStageError is returned for a stage that no item has.
type UnknownStageError struct {
	Name  string
	Known []string // the stages of the input
}

// Error names the stages that there are.
func (e *UnknownStageError) Error() string {
	return fmt.Sprintf("no item has the stage %q: %s", e.Name, stagesAre(e.Known))
}

// Add adds the item with this number, which must be above those of all items before. An empty stage is none; its items must not
// have needs.
func (t *Stages) Add(number int, stage string, needs []string) {
	switch {
	case t.linked:
		panic("work: Add was called after Check")
	case number < len(t.of) || number >= math.MaxUint32:
		panic(fmt.Sprintf("work: item %d was added after item %d", number, len(t.of)-1))
	case t.groups == nil:
		t.groups = []group{others: {}}
		t.names = make(map[string]uint32)
	}
	i := t.groupOf(number, stage)
	for number >= len(t.of) {
		t.of = append(t.of, 0)
	}
	t.of[number] = i + 1
	g := &t.groups[i]
	g.left++
	for _, name := range needs {
		t.needy = true
		if !slices.ContainsFunc(g.needs, func(n need) bool { return n.name == name }) {
			g.needs = append(g.needs, need{name: strings.Clone(name), by: uint32(number)})
		}
	}
}

// Names returns the stages in the order in which they first appear.
func (t *Stages) Names() []string {
	var names []string
	for i := 1; i < len(t.groups); i++ {
		names = append(names, t.groups[i].name)
	}
	return names
}

// Stage returns the stage of the item with this number; "" for none.
func (t *Stages) Stage(number int) string {
	if i, ok := t.group(number); ok {
		return t.groups[i].name
	}
	return ""
}

// Only leaves out all items but those of the named stages. It returns an *UnknownStageError for a name that is none, and
// leaves nothing out then.
func (t *Stages) Only(names ...string) error {
	some := make(map[uint32]bool)
	for _, name := range names {
		i, err := t.named(name)
		if err != nil {
			return err
		}
		some[i] = true
	}
	t.leaveOut(func(i uint32) bool { return !some[i] })
	return nil
}

// From leaves out all items but those of the named stage and of the stages that need it, directly or not. If no stage of the
// input needs another, stages are taken to be in order: it leaves out all but those of that stage and of stages
// that first appear after it. It returns an *UnknownStageError for a name that is none, and leaves nothing out then.
func (t *Stages) From(name string) error {
	if !t.linked {
		panic("work: From was called before Check")
	}
	from, err := t.named(name)
	if err != nil {
		return err
	}
	if !t.needy {
		t.leaveOut(func(i uint32) bool { return i < from })
		return nil
	}
	reached := map[uint32]bool{from: true}
	for next := []uint32{from}; len(next) > 0; {
		i := next[0]
		next = next[1:]
		for _, d := range t.groups[i].dependents {
			if !reached[d] {
				reached[d] = true
				next = append(next, d)
			}
		}
	}
	t.leaveOut(func(i uint32) bool { return !reached[i] })
	return nil
}

// Selected says whether the item with this number is there and was not left out.
func (t *Stages) Selected(number int) bool {
	i, ok := t.group(number)
	return ok && !t.groups[i].leftOut
}

// groupOf returns the group of an item to be added, and puts it at the end of its stage.
func (t *Stages) groupOf(number int, stage string) uint32 {
	if stage == "" {
		return others
	}
	if known, ok := t.names[stage]; ok {
		g := &t.groups[known]
		for int(g.last) >= len(t.next) {
			t.next = append(t.next, 0)
		}
		t.next[g.last] = uint32(number) + 1
		g.last = uint32(number)
		return known
	}
	i := uint32(len(t.groups))
	stage = strings.Clone(stage) // which may be a piece of a long line
	t.groups = append(t.groups, group{name: stage, first: uint32(number), last: uint32(number)})
	t.names[stage] = i
	return i
}

// group returns the group of the item with this number, if there is one.
func (t *Stages) group(number int) (i uint32, ok bool) {
	if number < 0 || number >= len(t.of) || t.of[number] == 0 {
		return 0, false
	}
	return t.of[number] - 1, true
}

// named returns the group of a stage.
func (t *Stages) named(name string) (uint32, error) {
	i, ok := t.names[name]
	if !ok {
		return 0, &UnknownStageError{Name: name, Known: t.Names()}
	}
	return i, nil
}

// leaveOut leaves groups out.
func (t *Stages) leaveOut(out func(i uint32) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sorted = false
	for i := range t.groups {
		t.groups[i].leftOut = t.groups[i].leftOut || out(uint32(i))
	}
}
