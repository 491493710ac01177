package proc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// stageItem is an item of a random input.
type stageItem struct {
	number    int
	id, stage string
	needs     []string
}

// stageInput is a random input. What it says of it is worked out by plain loops over all items.
type stageInput []stageItem

// randomStages returns an input whose needs make no cycle: stages are in a secret order, and need only those that come before.
func randomStages(luck *rand.Rand) stageInput {
	many := luck.IntN(9)
	rank := luck.Perm(9)
	var in stageInput
	number := -1
	for range luck.IntN(30) {
		number += 1 + luck.IntN(2)*luck.IntN(3) // with gaps
		it := stageItem{number: number, id: "i" + strconv.Itoa(number)}
		if k := luck.IntN(many + 1); k < many && luck.IntN(5) > 0 {
			it.stage = "T" + strconv.Itoa(k)
		}
		in = append(in, it)
	}
	for i := range in {
		for range luck.IntN(3) {
			if stage := in[luck.IntN(len(in))].stage; stage != "" && in[i].stage != "" && rank[stage[1]-'0'] < rank[in[i].stage[1]-'0'] {
				in[i].needs = append(in[i].needs, stage)
			}
		}
	}
	return in
}

// stagesOf makes Stages of an input.
func stagesOf(in stageInput) (*stages, error) {
	t := new(stages)
	for _, it := range in {
		t.add(it.number, it.stage, it.needs)
	}
	if number, problem := t.check(); problem != nil {
		return nil, fmt.Errorf("item %d %s", number, problem.Text)
	}
	return t, nil
}

// before returns the items that an item waits for.
func (in stageInput) before(it stageItem) (items []stageItem) {
	for _, like := range in {
		if it.stage == "" || like.stage != it.stage {
			continue
		}
		for _, other := range in {
			if slices.Contains(like.needs, other.stage) {
				items = append(items, other)
			}
		}
	}
	return items
}

// play returns what is recorded once nothing more can run, given what is, by a rule that says which items fail.
func (in stageInput) play(recorded map[string]bool, selected map[string]bool, fails func(id string) bool) map[string]bool {
	after := make(map[string]bool)
	for id, ok := range recorded {
		after[id] = ok
	}
	for changed := true; changed; {
		changed = false
		for _, it := range in {
			if _, is := after[it.id]; is || !selected[it.id] {
				continue
			}
			if !slices.ContainsFunc(in.before(it), func(other stageItem) bool { return !after[other.id] }) {
				after[it.id] = !fails(it.id)
				changed = true
			}
		}
	}
	return after
}

// blocked counts what can no more run by the name of its stage, whatever becomes of the rest.
func (in stageInput) blocked(recorded, selected map[string]bool) map[string]int {
	best := in.play(recorded, selected, func(string) bool { return false })
	names := make(map[string]int)
	for _, it := range in {
		if _, is := best[it.id]; is || !selected[it.id] {
			continue
		}
		names[it.stage]++
	}
	return names
}

// from returns what runs from a stage on.
func (in stageInput) from(stage string) map[string]bool {
	selected := make(map[string]bool)
	first := slices.IndexFunc(in, func(it stageItem) bool { return it.stage == stage })
	needless := !slices.ContainsFunc(in, func(it stageItem) bool { return len(it.needs) > 0 })
	for i, it := range in {
		started := slices.IndexFunc(in, func(like stageItem) bool { return like.stage == it.stage })
		selected[it.id] = it.stage == stage || needless && i >= first && it.stage != "" && started >= first
	}
	for changed := !needless; changed; {
		changed = false
		for _, it := range in {
			needsOne := slices.ContainsFunc(in.before(it), func(other stageItem) bool { return selected[other.id] })
			if !selected[it.id] && needsOne {
				selected[it.id], changed = true, true
			}
		}
	}
	return selected
}

// TestStagesRunWhatTheirNeedsAllow runs random inputs, of which items fail at random, in runs that are drained or cancelled at
// random instants, or are of a part of the stages. Each continues with what those before recorded. Nothing may start before what
// it needs is recorded as good; what is recorded and what is blocked at the end of each is as the plain model says.
func TestStagesRunWhatTheirNeedsAllow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 7))
		h := stageHistory{in: randomStages(luck), recorded: make(map[string]bool), bad: make(map[string]bool)}
		for _, it := range h.in {
			h.bad[it.id] = luck.IntN(8) == 0
		}
		var err error
		for run := range 6 {
			synctest.Test(t, func(t *testing.T) { err = h.oneRun(t, luck, run == 5) })
			if err != nil {
				rt.Fatalf("run %d: %v\n%v", run, err, h.in)
			}
		}
	})
}

// stageHistory is runs over one input. What is recorded stays for the next run.
type stageHistory struct {
	in  stageInput
	bad map[string]bool // items that fail

	mu       sync.Mutex
	recorded map[string]bool
	early    error
}

func (h *stageHistory) oneRun(t *testing.T, luck *rand.Rand, peaceful bool) error {
	order, err := stagesOf(h.in)
	if err != nil {
		return err
	}
	selected, err := h.choose(order, luck, peaceful)
	if err != nil {
		return err
	}
	for id, ok := range h.recorded {
		number, _ := strconv.Atoi(id[1:])
		order.settle(number, ok)
	}
	had := h.in.play(h.recorded, nil, nil) // a copy
	r, err := work.New(h.config(luck, order))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour) // far more than it takes, unless the feed hangs
	defer cancel()
	if end := luck.IntN(3); end > 0 && !peaceful {
		defer time.AfterFunc(time.Duration(luck.IntN(15_000))*time.Millisecond, []func(){r.Drain, cancel}[end-1]).Stop()
	}
	_, err = r.Run(ctx)
	switch {
	case h.early != nil:
		return h.early
	case err == nil:
		want := h.in.play(had, selected, func(id string) bool { return h.bad[id] })
		if fmt.Sprint(want) != fmt.Sprint(h.recorded) {
			return fmt.Errorf("recorded %v, want %v", h.recorded, want)
		}
	case !errors.Is(err, work.ErrDrained) && !errors.Is(err, context.Canceled):
		return err
	}
	got := make(map[string]int)
	for _, b := range order.blocked() {
		got[b.Name] = b.Items
		if b.Failed+b.Left == 0 {
			return fmt.Errorf("%+v by nothing", b)
		}
	}
	if want := h.in.blocked(h.recorded, selected); fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("error %v, recorded %v: blocked %v, want %v", err, h.recorded, got, want)
	}
	return nil
}

// choose leaves some stages out and returns the items that are to run.
func (h *stageHistory) choose(order *stages, luck *rand.Rand, all bool) (map[string]bool, error) {
	selected := make(map[string]bool)
	names := order.list()
	how := luck.IntN(4)
	if all || len(names) == 0 {
		how = 3
	}
	var err error
	switch how {
	case 0:
		some := names[:1+luck.IntN(len(names))]
		err = order.only(some...)
		for _, it := range h.in {
			selected[it.id] = slices.Contains(some, it.stage)
		}
	case 1:
		name := names[luck.IntN(len(names))]
		err = order.from(name)
		selected = h.in.from(name)
	default:
		for _, it := range h.in {
			selected[it.id] = true
		}
	}
	for _, it := range h.in {
		if order.selected(it.number) != selected[it.id] || order.stageOf(it.number).name != it.stage {
			return nil, fmt.Errorf("%v: selected %t, want %t", it, order.selected(it.number), selected[it.id])
		}
	}
	return selected, err
}

// config is that of a Runner over an input.
func (h *stageHistory) config(luck *rand.Rand, order *stages) work.Config {
	byID := make(map[string]stageItem)
	for _, it := range h.in {
		byID[it.id] = it
	}
	return work.Config{
		Queue: 1 + luck.IntN(3), Workers: 1 + luck.IntN(4),
		Feed: func(ctx context.Context) iter.Seq2[work.Item, error] { return order.feed(ctx, bare) },
		Handler: work.HandlerFunc(func(ctx context.Context, item work.Item) (work.Result, error) {
			h.mu.Lock()
			for _, other := range h.in.before(byID[item.ID]) {
				if !h.recorded[other.id] && h.early == nil {
					h.early = fmt.Errorf("%s began before %s was recorded as good", item.ID, other.id)
				}
			}
			took := time.Duration(luck.IntN(2000)) * time.Millisecond
			h.mu.Unlock()
			select {
			case <-time.After(took):
			case <-ctx.Done():
				return work.Result{}, context.Cause(ctx)
			}
			if h.bad[item.ID] {
				return work.Result{}, errors.New("bad")
			}
			return work.Result{}, nil
		}),
		OnResult: func(res *work.Result) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.recorded[res.ID] = res.Kind == sluice.OK
			order.settle(int(res.Seq), res.Kind == sluice.OK)
		},
	}
}
