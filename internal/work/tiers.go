package work

import (
	"fmt"
	"math"
	"strings"
	"sync"
)

// Tiers orders the items of an input: some run only once others are done well. An item may be of a tier and may need tiers
// and other items, by their names and ids. A tier needs what any of its items needs, and starts, all of it, when that is
// done. What needs something that failed, or that is blocked in turn, is blocked: it is neither run nor recorded, and
// Blocked tells of it.
//
// Use: Add all items, Check, then Only and From for a part of them, Settle for what earlier runs recorded, and give Feed
// to Config.Feed and each result to Settle, from Config.OnResult. The zero value is ready. Settle and Blocked are safe for
// concurrent use with a feed; the others come before it.
//
// An item takes 4 bytes, one of a tier 8.
type Tiers struct {
	groups []group
	names  map[string]uint32 // of tiers, to their groups
	needy  bool              // some item needs something
	linked bool              // by Check

	of    []uint32            // the group of each item, by number, plus 1; 0 is no item
	next  []uint32            // the next item of the same tier, plus 1; no longer than there are any
	alone map[uint32]uint32   // groups of items that are waited for alone, although they are of a group with others
	parts map[uint32][]uint32 // the same, by the groups that they are of
	said  saidNeeds

	mu      sync.Mutex
	settled Bits
	sorted  bool          // the states of the groups are up to date
	queue   []uint32      // groups that became ready, in that order
	waiting int           // groups that may become ready
	wake    chan struct{} // of the feed: the queue grew, or nothing waits any more
}

// group is what starts at once: the items of a tier, or an item without one. The first of all groups is of the items that
// have neither tier nor needs.
type group struct {
	name       string // of the tier, or the item's id
	tier       bool
	first      uint32 // the number of the first item; the others are in Tiers.next
	last       uint32 // likewise, of a tier
	needs      []need
	dependents []uint32 // groups that need this one

	// owner is the group that an item belongs to which is waited for alone. Other groups are their own.
	owner   uint32
	leftOut bool // by Only or From

	left   int   // items that have no result
	failed int   // items that failed
	lacks  int   // needs that are not done well
	state  state // if Tiers.sorted
}

// need is something that a group needs.
type need struct {
	of uint32 // a group; until Check, the number of a name
	by uint32 // the item that needs it, the first of its tier
}

// saidNeeds is what was said of needs until Check finds what is meant. Tiers say the same again and again.
type saidNeeds struct {
	numbers map[string]uint32 // of the names
	names   []string
	tiers   map[[2]uint32]struct{} // tiers, and the numbers of names that they need
}

// others is the group of the items that have neither tier nor needs.
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

// Add adds the item with this number, which must be above those of all items before. An empty tier is none. An item of a
// tier needs its id only to be needed by it.
func (t *Tiers) Add(number int, id, tier string, needs []string) {
	switch {
	case t.linked:
		panic("work: Add after Check")
	case number < len(t.of) || number >= math.MaxUint32:
		panic(fmt.Sprintf("work: Add of item %d after %d", number, len(t.of)-1))
	case t.groups == nil:
		t.groups = []group{others: {}}
		t.names = make(map[string]uint32)
		t.said = saidNeeds{numbers: make(map[string]uint32), tiers: make(map[[2]uint32]struct{})}
	}
	g := t.groupOf(number, id, tier, len(needs) > 0)
	for number >= len(t.of) {
		t.of = append(t.of, 0)
	}
	t.of[number] = g + 1
	t.groups[g].left++
	for _, name := range needs {
		t.need(g, uint32(number), name)
	}
}

// Names returns the tiers in the order in which they first appear.
func (t *Tiers) Names() []string {
	var names []string
	for i := range t.groups {
		if t.groups[i].tier {
			names = append(names, t.groups[i].name)
		}
	}
	return names
}

// Tier returns the tier of the item with this number; "" for none.
func (t *Tiers) Tier(number int) string {
	if i, ok := t.group(number); ok && t.groups[i].tier {
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

// From leaves out all items but those of the named tier and of what needs it, or one of its items, directly or not. Where no
// item of the input needs anything, tiers are taken to be in order: it leaves out all but those of that tier and of tiers
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
		for _, part := range append([]uint32{i}, t.parts[i]...) {
			for _, d := range t.groups[part].dependents {
				if !reached[d] {
					reached[d] = true
					next = append(next, d)
				}
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
func (t *Tiers) groupOf(number int, id, tier string, needy bool) uint32 {
	i := uint32(len(t.groups))
	if tier == "" {
		if !needy {
			return others
		}
		t.groups = append(t.groups, group{name: strings.Clone(id), owner: i, first: uint32(number)})
		return i
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
	tier = strings.Clone(tier) // which may be a piece of a long line
	t.groups = append(t.groups, group{name: tier, tier: true, first: uint32(number), last: uint32(number), owner: i})
	t.names[tier] = i
	return i
}

// need enters that a group needs what has that name, for Check to find.
func (t *Tiers) need(i, number uint32, name string) {
	t.needy = true
	said, ok := t.said.numbers[name]
	if !ok {
		said = uint32(len(t.said.names))
		name = strings.Clone(name)
		t.said.numbers[name] = said
		t.said.names = append(t.said.names, name)
	}
	if t.groups[i].tier {
		key := [2]uint32{i, said}
		if _, again := t.said.tiers[key]; again {
			return
		}
		t.said.tiers[key] = struct{}{}
	}
	t.groups[i].needs = append(t.groups[i].needs, need{of: said, by: number})
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
		if g := &t.groups[i]; out(g.owner) {
			g.leftOut = true
		}
	}
}
