package work

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Tiers orders the items of an input: some run only after others are done well. An item may be of a tier, and then it may need
// other tiers. A tier needs what any of its items needs, and starts as a whole when that is done. A tier that needs one that
// failed or is blocked is itself blocked: it is neither run nor recorded, and Blocked returns it.
//
// Use: Add all items, Check, then Only and From for a part of them, Settle for what earlier runs recorded, and give Feed
// to Config.Feed and each result to Settle, from Config.OnResult. The zero value is ready. Settle and Blocked are safe for
// concurrent use with a feed; the others come before it.
//
// An item takes 4 bytes, one of a tier 8.
type Tiers struct {
	groups []group
	names  map[string]uint32 // of tiers, to their groups
	needy  bool              // some tier needs another
	linked bool              // by Check

	of   []uint32 // the group of each item, by number, plus 1; 0 is no item
	next []uint32 // the next item of the same tier, plus 1; no longer than there are any

	mu      sync.Mutex
	settled Bits
	sorted  bool          // the states of the groups are up to date
	queue   []uint32      // groups that became ready, in that order
	waiting int           // groups that may become ready
	wake    chan struct{} // of the feed: the queue grew, or nothing waits any more
}

// group is what starts at once: the items of a tier. The first of all groups is of the items without one, and needs nothing.
type group struct {
	name       string // of the tier
	first      uint32 // the number of the first item; the others are in Tiers.next
	last       uint32 // likewise
	needs      []need
	dependents []uint32 // groups that need this one
	leftOut    bool     // by Only or From

	left   int   // items that have no result
	failed int   // items that failed
	lacks  int   // needs that are not done well
	state  state // if Tiers.sorted
}

// need is a tier that a group needs.
type need struct {
	name string
	of   uint32 // its group, from Check on
	by   uint32 // the first item that needs it
}

// others is the group of the items without a tier.
const others = 0

// UnknownTierError is returned for a tier that no item has.
type UnknownTierError struct {
	Name  string
	Known []string // the tiers of the input
}

// Error names the tiers that there are.
func (e *UnknownTierError) Error() string {
	return fmt.Sprintf("no item is of tier %q: %s", e.Name, tiersAre(e.Known))
}

// Add adds the item with this number, which must be above those of all items before. An empty tier is none; its items must not
// have needs.
func (t *Tiers) Add(number int, tier string, needs []string) {
	switch {
	case t.linked:
		panic("work: Add after Check")
	case number < len(t.of) || number >= math.MaxUint32:
		panic(fmt.Sprintf("work: Add of item %d after %d", number, len(t.of)-1))
	case t.groups == nil:
		t.groups = []group{others: {}}
		t.names = make(map[string]uint32)
	}
	i := t.groupOf(number, tier)
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

// Names returns the tiers in the order in which they first appear.
func (t *Tiers) Names() []string {
	var names []string
	for i := 1; i < len(t.groups); i++ {
		names = append(names, t.groups[i].name)
	}
	return names
}

// Tier returns the tier of the item with this number; "" for none.
func (t *Tiers) Tier(number int) string {
	if i, ok := t.group(number); ok {
		return t.groups[i].name
	}
	return ""
}

// Only leaves out all items but those of the named tiers. It returns an *UnknownTierError for a name that is none, and
// leaves nothing out then.
func (t *Tiers) Only(names ...string) error {
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

// From leaves out all items but those of the named tier and of the tiers that need it, directly or not. If no tier of the
// input needs another, tiers are taken to be in order: it leaves out all but those of that tier and of tiers
// that first appear after it. It returns an *UnknownTierError for a name that is none, and leaves nothing out then.
func (t *Tiers) From(name string) error {
	if !t.linked {
		panic("work: From before Check")
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
func (t *Tiers) Selected(number int) bool {
	i, ok := t.group(number)
	return ok && !t.groups[i].leftOut
}

// groupOf returns the group of an item to be added, and puts it at the end of its tier.
func (t *Tiers) groupOf(number int, tier string) uint32 {
	if tier == "" {
		return others
	}
	if known, ok := t.names[tier]; ok {
		g := &t.groups[known]
		for int(g.last) >= len(t.next) {
			t.next = append(t.next, 0)
		}
		t.next[g.last] = uint32(number) + 1
		g.last = uint32(number)
		return known
	}
	i := uint32(len(t.groups))
	tier = strings.Clone(tier) // which may be a piece of a long line
	t.groups = append(t.groups, group{name: tier, first: uint32(number), last: uint32(number)})
	t.names[tier] = i
	return i
}

// group returns the group of the item with this number, if there is one.
func (t *Tiers) group(number int) (i uint32, ok bool) {
	if number < 0 || number >= len(t.of) || t.of[number] == 0 {
		return 0, false
	}
	return t.of[number] - 1, true
}

// named returns the group of a tier.
func (t *Tiers) named(name string) (uint32, error) {
	i, ok := t.names[name]
	if !ok {
		return 0, &UnknownTierError{Name: name, Known: t.Names()}
	}
	return i, nil
}

// leaveOut leaves groups out.
func (t *Tiers) leaveOut(out func(i uint32) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sorted = false
	for i := range t.groups {
		t.groups[i].leftOut = t.groups[i].leftOut || out(uint32(i))
	}
}
