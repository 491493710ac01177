package work

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NeedsError is returned by Stages.Check for a need that cannot be met: of a stage that is not there, or, with a Cycle, of
// a stage that needs this one in turn.
type NeedsError struct {
	Number int      // the item that has the need
	Need   string   // the name
	Known  []string // the stages of the input
	Cycle  []string // the stages, each of which needs the next; the last is the first again
}

// Error names the item by its number.
func (e *NeedsError) Error() string { return fmt.Sprintf("item %d %s", e.Number, e.Problem()) }

// Problem is what Error says after the item.
func (e *NeedsError) Problem() string {
	if e.Cycle == nil {
		return fmt.Sprintf("needs %q, which is not a stage: %s", e.Need, stagesAre(e.Known))
	}
	return fmt.Sprintf("needs %q, which is part of a cycle: %s", e.Need, spell(e.Cycle))
}

// Check finds the stages that are needed. It returns a *NeedsError for a name that is not a stage, and for a stage that needs
// itself, directly or not. Only Add may be called before it returned nil.
func (t *Stages) Check() error {
	if t.linked {
		panic("work: Check was called twice")
	}
	for i := range t.groups {
		for n := range t.groups[i].needs {
			need := &t.groups[i].needs[n]
			of, ok := t.names[need.name]
			if !ok {
				return &NeedsError{Number: int(need.by), Need: need.name, Known: t.Names()}
			}
			need.of = of
			t.groups[of].dependents = append(t.groups[of].dependents, uint32(i))
		}
	}
	if err := t.refuseCycles(); err != nil {
		return err
	}
	t.linked = true
	return nil
}

// refuseCycles takes away, again and again, what needs nothing that is left. If something stays, there is a cycle in it.
func (t *Stages) refuseCycles() error {
	var ready []uint32
	lacks := make([]uint32, len(t.groups))
	for i := range t.groups {
		lacks[i] = uint32(len(t.groups[i].needs))
		if lacks[i] == 0 {
			ready = append(ready, uint32(i))
		}
	}
	for n := 0; n < len(ready); n++ {
		for _, d := range t.groups[ready[n]].dependents {
			if lacks[d]--; lacks[d] == 0 {
				ready = append(ready, d)
			}
		}
	}
	if len(ready) == len(t.groups) {
		return nil
	}
	first := slices.IndexFunc(lacks, func(n uint32) bool { return n > 0 })
	return t.cycle(uint32(first), func(i uint32) bool { return lacks[i] > 0 })
}

// cycle describes the cycle that one comes to from a group, always by the first need that is left.
func (t *Stages) cycle(from uint32, left func(i uint32) bool) *NeedsError {
	var path []uint32
	met := make(map[uint32]bool)
	for i := from; !met[i]; {
		met[i] = true
		path = append(path, i)
		needs := t.groups[i].needs
		i = needs[slices.IndexFunc(needs, func(n need) bool { return left(n.of) })].of
		if met[i] {
			path = path[slices.Index(path, i):]
		}
	}
	// It starts with the stage that comes first in the input.
	at := slices.Index(path, slices.Min(path))
	path = append(path[at:], path[:at]...)
	path = append(path, path[0])

	needs := t.groups[path[0]].needs
	of := needs[slices.IndexFunc(needs, func(n need) bool { return n.of == path[1] })]
	e := &NeedsError{Number: int(of.by), Need: of.name, Known: t.Names()}
	for _, i := range path {
		e.Cycle = append(e.Cycle, t.groups[i].name)
	}
	return e
}

// spell writes a cycle: "a needs b needs a", the middle left out if it is long.
func spell(cycle []string) string {
	const most = 12
	var names []string
	for n, name := range cycle {
		switch {
		case len(cycle) > most && n > most/2 && n < len(cycle)-most/2:
		case len(cycle) > most && n == most/2:
			names = append(names, "...")
		default:
			names = append(names, plainName(name))
		}
	}
	return strings.Join(names, " needs ")
}

// plainName quotes a name only if it would be hard to tell from the text around it.
func plainName(name string) string {
	if quoted := strconv.Quote(name); name == "" || quoted[1:len(quoted)-1] != name || strings.ContainsAny(name, " ,:") {
		return quoted
	}
	return name
}

// stagesAre names the stages of an input for a message.
func stagesAre(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "the input has no stages"
	}
	var list []string
	for _, name := range names[:min(most, len(names))] {
		list = append(list, plainName(name))
	}
	if more := len(names) - most; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return "the stages are " + strings.Join(list, ", ")
}
