package work

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NeedsError is returned by Tiers.Check for a need that cannot be met: of something that is not there, or, with a Cycle, of
// something that needs this in turn.
type NeedsError struct {
	Number int      // the item that has the need
	Need   string   // the name
	Known  []string // the tiers of the input
	Cycle  []string // what needs what, the last of them the first again: tiers and ids of items
	text   string
}

// Error names the item by its number.
func (e *NeedsError) Error() string { return fmt.Sprintf("item %d %s", e.Number, e.Problem()) }

// Problem is what Error says after the item.
func (e *NeedsError) Problem() string {
	if e.Cycle == nil {
		return fmt.Sprintf("needs %q, which is neither a tier nor the id of an item: %s", e.Need, tiersAre(e.Known))
	}
	return fmt.Sprintf("needs %q, which can never be done first: %s", e.Need, e.text)
}

// Check finds what the needs of all items mean: find returns the number of the item with an id, as Index.Find does. A name
// that is both a tier and an id is the tier. It returns a *NeedsError for a name that is neither, and for what needs itself,
// directly or not. Nothing else but Add may be called before it returned nil.
func (t *Tiers) Check(find func(id []byte) (number int, ok bool)) error {
	if t.linked {
		panic("work: Check was called before")
	}
	meant, err := t.meanings(find)
	if err != nil {
		return err
	}
	for i := range t.groups {
		g := &t.groups[i]
		for n := range g.needs {
			of := meant[g.needs[n].of]
			g.needs[n].of = of
			t.groups[of].dependents = append(t.groups[of].dependents, uint32(i))
		}
	}
	if err := t.refuseCycles(); err != nil {
		return err
	}
	t.said = saidNeeds{}
	t.linked = true
	return nil
}

// meanings returns the groups that the names in needs mean.
func (t *Tiers) meanings(find func(id []byte) (number int, ok bool)) ([]uint32, error) {
	const unknown = 1<<32 - 1
	meant := make([]uint32, len(t.said.names))
	for i, name := range t.said.names {
		if tier, ok := t.names[name]; ok {
			meant[i] = tier
			continue
		}
		meant[i] = unknown
		if number, ok := find([]byte(name)); ok {
			if item, ok := t.item(number, name); ok {
				meant[i] = item
			}
		}
	}
	for i := range t.groups {
		for _, n := range t.groups[i].needs {
			if meant[n.of] == unknown {
				return nil, &NeedsError{Number: int(n.by), Need: t.said.names[n.of], Known: t.Names()}
			}
		}
	}
	return meant, nil
}

// item returns the group of an item that is waited for alone, and makes it if the item is in one with others.
func (t *Tiers) item(number int, id string) (uint32, bool) {
	owner, ok := t.group(number)
	if !ok || owner != others && !t.groups[owner].tier {
		return owner, ok
	}
	if t.alone == nil {
		t.alone, t.parts = make(map[uint32]uint32), make(map[uint32][]uint32)
	}
	i := uint32(len(t.groups))
	t.groups = append(t.groups, group{name: id, owner: owner, left: 1})
	t.alone[uint32(number)] = i
	t.parts[owner] = append(t.parts[owner], i)
	return i, true
}

// refuseCycles takes away, again and again, what needs nothing that is left. If something stays, there is a cycle in it.
func (t *Tiers) refuseCycles() error {
	var ready []uint32
	lacks := make([]uint32, len(t.groups))
	for i := range t.groups {
		lacks[i] = uint32(len(t.needsOf(uint32(i))))
		if lacks[i] == 0 {
			ready = append(ready, uint32(i))
		}
	}
	meet := func(groups []uint32) {
		for _, d := range groups {
			if lacks[d]--; lacks[d] == 0 {
				ready = append(ready, d)
			}
		}
	}
	for n := 0; n < len(ready); n++ {
		meet(t.groups[ready[n]].dependents)
		meet(t.parts[ready[n]])
	}
	if len(ready) == len(t.groups) {
		return nil
	}
	first := slices.IndexFunc(lacks, func(n uint32) bool { return n > 0 })
	return t.cycle(uint32(first), func(i uint32) bool { return lacks[i] > 0 })
}

// needsOf returns what must be done before a group can be. An item that is waited for alone starts with its tier.
func (t *Tiers) needsOf(i uint32) []need {
	if g := &t.groups[i]; g.owner != i {
		return []need{{of: g.owner}}
	}
	return t.groups[i].needs
}

// cycle describes the cycle that one comes to from a group, always by the first need that is left.
func (t *Tiers) cycle(from uint32, left func(i uint32) bool) *NeedsError {
	var path []uint32
	met := make(map[uint32]bool)
	for i := from; !met[i]; {
		met[i] = true
		path = append(path, i)
		needs := t.needsOf(i)
		i = needs[slices.IndexFunc(needs, func(n need) bool { return left(n.of) })].of
		if met[i] {
			path = path[slices.Index(path, i):]
		}
	}
	// It is told from what comes first in the input, which is never an item waited for alone.
	at := slices.Index(path, slices.Min(path))
	path = append(path[at:], path[:at]...)
	path = append(path, path[0])

	var by uint32
	for _, n := range t.groups[path[0]].needs {
		if n.of == path[1] {
			by = n.by
			break
		}
	}
	e := &NeedsError{Number: int(by), Need: t.groups[path[1]].name, Known: t.Names(), text: t.spell(path)}
	for _, i := range path {
		e.Cycle = append(e.Cycle, t.groups[i].name)
	}
	return e
}

// spell writes what needs what: "a needs b of T1 needs a", the middle left out if there is much.
func (t *Tiers) spell(path []uint32) string {
	const most = 12
	var b strings.Builder
	for n, i := range path {
		switch {
		case len(path) > most && n > most/2 && n < len(path)-most/2:
			continue
		case len(path) > most && n == most/2:
			b.WriteString(" needs ...")
			continue
		case n > 0 && t.groups[path[n-1]].owner != path[n-1]:
			b.WriteString(" of ")
		case n > 0:
			b.WriteString(" needs ")
		}
		b.WriteString(plainName(t.groups[i].name))
	}
	return b.String()
}

// plainName quotes a name only if it would be hard to tell from the text around it.
func plainName(name string) string {
	if quoted := strconv.Quote(name); name == "" || quoted[1:len(quoted)-1] != name || strings.ContainsAny(name, " ,:") {
		return quoted
	}
	return name
}

// tiersAre names the tiers of an input for a message.
func tiersAre(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "the input has no tiers"
	}
	var list []string
	for _, name := range names[:min(most, len(names))] {
		list = append(list, plainName(name))
	}
	if more := len(names) - most; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return "the tiers are " + strings.Join(list, ", ")
}
