package proc

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
)

// stages orders the items of an input. A stage needs what any of its items needs. It starts when all stages that it needs ended
// without a failure. A stage that needs one that failed or is blocked is itself blocked: it is neither run nor recorded.
//
// Order of calls: add for each item, check, then only and from for a part of the stages, settle for recorded results, and then
// feed, with settle for each new result. settle and blocked may be called during feed. An item takes 8 bytes.
type stages struct {
	all   []stage        // the first is of the items without a stage
	names map[string]int // indexes of all
	of    []int32        // the stage of each item, by its number; below zero is no item

	mu      sync.Mutex // protects the rest, and the counts of the stages
	settled work.Bits
	open    int           // items that feed gave and that have no result
	ready   []int         // stages that feed has to give, in the order in which they became ready
	changed chan struct{} // told when ready grows or open is 0; nil before feed
}

type stage struct {
	name       string
	size       int     // items
	items      []int32 // their numbers; none of the items without a stage, which nothing keeps waiting
	needs      []need
	dependents []int // stages that need this one
	out        bool  // left out by only or from

	left   int // items without a result
	failed int
	lacks  int  // needs that have not ended well; since feed
	begins bool // it lacked nothing when feed began
}

// need is a stage that another one needs.
type need struct {
	name string
	of   int // since check
	by   int // the first item that needs it
}

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

// add adds the item with this number, which must be above those of all items before.
func (t *stages) add(number int, name string, needs []string) {
	if t.names == nil {
		t.all, t.names = make([]stage, 1), map[string]int{"": 0}
	}
	i, known := t.names[name]
	if !known {
		name = strings.Clone(name) // which may be a piece of a long line
		i, t.names[name] = len(t.all), len(t.all)
		t.all = append(t.all, stage{name: name})
	}
	for len(t.of) < number {
		t.of = append(t.of, -1)
	}
	t.of = append(t.of, int32(i))
	s := &t.all[i]
	if i > 0 {
		s.items = append(s.items, int32(number))
	}
	s.size++
	s.left++
	for _, name := range needs {
		if !slices.ContainsFunc(s.needs, func(n need) bool { return n.name == name }) {
			s.needs = append(s.needs, need{name: strings.Clone(name), by: number})
		}
	}
}

// stageOf returns the stage of the item with this number; nil if there is no such item.
func (t *stages) stageOf(number int) *stage {
	if number < 0 || number >= len(t.of) || t.of[number] < 0 {
		return nil
	}
	return &t.all[t.of[number]]
}

// selected reports whether the item with this number is there and was not left out.
func (t *stages) selected(number int) bool {
	s := t.stageOf(number)
	return s != nil && !s.out
}

// list returns the names of the stages in the order in which they first appear.
func (t *stages) list() (names []string) {
	for i := 1; i < len(t.all); i++ {
		names = append(names, t.all[i].name)
	}
	return names
}

// check finds the stages that are needed. A need that cannot be met is a problem of the item with the returned number.
func (t *stages) check() (number int, _ *rows.Problem) {
	const hint = "list only stages of the same file in the field needs"
	for i := range t.all {
		for n := range t.all[i].needs {
			need := &t.all[i].needs[n]
			of, ok := t.names[need.name]
			if !ok {
				return need.by, &rows.Problem{Text: fmt.Sprintf("needs %q, which is not a stage: %s", need.name, t.known()), Hint: hint}
			}
			need.of = of
			t.all[of].dependents = append(t.all[of].dependents, i)
		}
	}
	if cycle := t.cycle(); cycle != nil {
		first, next := &t.all[cycle[0]], t.all[cycle[1]].name
		by := first.needs[slices.IndexFunc(first.needs, func(n need) bool { return n.name == next })].by
		return by, &rows.Problem{Text: fmt.Sprintf("needs %q, which is part of a cycle: %s", next, t.spell(cycle)), Hint: hint}
	}
	return 0, nil
}

// cycle returns stages each of which needs the next one, the last of which is the first again; nil if there are none. To find
// them it takes away, again and again, what needs nothing that is left.
func (t *stages) cycle() (path []int) {
	var gone []int
	lacks := make([]int, len(t.all))
	for i := range t.all {
		if lacks[i] = len(t.all[i].needs); lacks[i] == 0 {
			gone = append(gone, i)
		}
	}
	for n := 0; n < len(gone); n++ {
		for _, d := range t.all[gone[n]].dependents {
			if lacks[d]--; lacks[d] == 0 {
				gone = append(gone, d)
			}
		}
	}
	if len(gone) == len(t.all) {
		return nil
	}
	i := slices.IndexFunc(lacks, func(n int) bool { return n > 0 })
	for met := make(map[int]bool); !met[i]; { // each of them needs another one that is left
		met[i] = true
		path = append(path, i)
		needs := t.all[i].needs
		i = needs[slices.IndexFunc(needs, func(n need) bool { return lacks[n.of] > 0 })].of
	}
	path = path[slices.Index(path, i):]
	first := slices.Index(path, slices.Min(path)) // the one that comes first in the input
	return append(slices.Concat(path[first:], path[:first]), path[first])
}

// spell writes a cycle: "a needs b needs a", the middle left out if it is long.
func (t *stages) spell(cycle []int) string {
	const most = 12
	names := make([]string, len(cycle))
	for n, i := range cycle {
		names[n] = plainName(t.all[i].name)
	}
	if len(names) > most {
		names = slices.Replace(names, most/2, len(names)-most/2, "...")
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

// known names the stages for a message.
func (t *stages) known() string {
	const most = 20
	names := t.list()
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

// named returns the stage of that name.
func (t *stages) named(name string) (int, error) {
	i, ok := t.names[name]
	if !ok || i == 0 {
		return 0, fmt.Errorf("no item has the stage %q: %s", name, t.known())
	}
	return i, nil
}

// only leaves out all items but those of the named stages.
func (t *stages) only(names ...string) error {
	some := make(map[int]bool)
	for _, name := range names {
		i, err := t.named(name)
		if err != nil {
			return err
		}
		some[i] = true
	}
	t.leaveOut(func(i int) bool { return !some[i] })
	return nil
}

// from leaves out all items but those of the named stage and of the stages that need it, directly or not. If no stage needs
// another one, it leaves out all but those of that stage and of stages that first appear after it.
func (t *stages) from(name string) error {
	from, err := t.named(name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(t.all, func(s stage) bool { return len(s.needs) > 0 }) {
		t.leaveOut(func(i int) bool { return i < from })
		return nil
	}
	reached := map[int]bool{from: true}
	for next := []int{from}; len(next) > 0; next = next[1:] {
		for _, d := range t.all[next[0]].dependents {
			if !reached[d] {
				reached[d] = true
				next = append(next, d)
			}
		}
	}
	t.leaveOut(func(i int) bool { return !reached[i] })
	return nil
}

func (t *stages) leaveOut(out func(i int) bool) {
	for i := range t.all {
		t.all[i].out = t.all[i].out || out(i)
	}
}

// settle says that an item has its result, and whether it succeeded. What is said of an item again, or of a number that has none,
// changes nothing.
func (t *stages) settle(number int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stageOf(number)
	if s == nil || !t.settled.Set(number) {
		return
	}
	s.left--
	if !ok {
		s.failed++
	}
	if t.changed == nil {
		return
	}
	if s.well() {
		for _, d := range s.dependents {
			if t.all[d].lacks--; t.all[d].lacks == 0 {
				t.ready = append(t.ready, d)
			}
		}
	}
	if t.open--; t.open == 0 || len(t.ready) > 0 {
		wake.Up(t.changed)
	}
}

// well says that all of a stage is done well.
func (s *stage) well() bool { return s.left == 0 && s.failed == 0 }

// feed gives the selected items that are not settled, each once what it needs is done well: first all those that lack nothing, in
// their order, and then the stages that became ready, in the order in which they did. Read makes an item of its number; its error
// is given and ends the feed. The feed ends when nothing more can become ready, and when ctx ends. It is called once.
//
// A need that was left out counts by what earlier runs did.
func (t *stages) feed(ctx context.Context, read func(number int) (work.Item, error)) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		give := func(number int) bool {
			if ctx.Err() != nil {
				return false
			}
			item, err := read(number)
			return yield(item, err) && err == nil
		}
		t.begin()
		for number := range t.of {
			if s := t.stageOf(number); s != nil && s.begins && t.take(number) && !give(number) {
				return
			}
		}
		for {
			i, more := t.next()
			switch {
			case i > 0:
				for _, number := range t.all[i].items {
					if t.take(int(number)) && !give(int(number)) {
						return
					}
				}
				continue
			case !more:
				return
			}
			select {
			case <-t.changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// begin finds what lacks nothing.
func (t *stages) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = make(chan struct{}, 1)
	for i := range t.all {
		s := &t.all[i]
		for _, n := range s.needs {
			if !t.all[n.of].well() {
				s.lacks++
			}
		}
		s.begins = s.lacks == 0
	}
}

// take reports whether an item is to be given now.
func (t *stages) take(number int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stageOf(number).out || t.settled.Has(number) {
		return false
	}
	t.open++
	return true
}

// next returns the next stage to be given. Zero is none: then more says whether one may come.
func (t *stages) next() (i int, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) == 0 {
		return 0, t.open > 0
	}
	i = t.ready[0]
	t.ready = t.ready[1:]
	return i, true
}

// blocked returns what is blocked, in the order of the input: before a run by what earlier ones did, and after it by all results.
func (t *stages) blocked() (all []Blocked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := make([]int, len(t.all)) // what blocks each, plus 1; 0: not known yet, -1: nothing
	for i := range t.all {
		s := &t.all[i]
		if n := t.blockedByLocked(i, by); n >= 0 && !s.out {
			of := &t.all[n]
			all = append(all, Blocked{Name: s.name, Items: s.left, Need: of.name, Failed: of.failed, Left: of.left})
		}
	}
	return all
}

// blockedByLocked returns the first need of a stage that will not end well; below zero is none.
func (t *stages) blockedByLocked(i int, by []int) int {
	if by[i] == 0 {
		by[i] = -1
		for _, n := range t.all[i].needs {
			of := &t.all[n.of]
			if t.all[i].left > 0 && (of.failed > 0 || of.left > 0 && (of.out || t.blockedByLocked(n.of, by) >= 0)) {
				by[i] = n.of + 1
				break
			}
		}
	}
	return by[i] - 1
}
