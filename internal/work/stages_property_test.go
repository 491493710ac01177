package work_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"pgregory.net/rapid"
)

// stageed is an item of a random input.
type stageed struct {
	number    int
	id, stage string
	needs     []string
}

// stageedInput is a random input. What it says of it is worked out by plain loops over all items.
type stageedInput []stageed

// randomStages returns an input whose needs make no cycle: stages are in a secret order, and need only those that come before.
func randomStages(luck *rand.Rand) stageedInput {
	stages := luck.IntN(9)
	rank := luck.Perm(9)
	var in stageedInput
	number := -1
	for range luck.IntN(30) {
		number += 1 + luck.IntN(2)*luck.IntN(3) // with gaps
		it := stageed{number: number, id: "i" + strconv.Itoa(number)}
		if k := luck.IntN(stages + 1); k < stages && luck.IntN(5) > 0 {
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
func stagesOf(in stageedInput) (*work.Stages, error) {
	t := new(work.Stages)
	for _, it := range in {
		t.Add(it.number, it.stage, it.needs)
	}
	return t, t.Check()
}

// before returns the items that an item waits for.
func (in stageedInput) before(it stageed) (items []stageed) {
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
func (in stageedInput) play(recorded map[string]bool, selected map[string]bool, fails func(id string) bool) map[string]bool {
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
			if !slices.ContainsFunc(in.before(it), func(other stageed) bool { return !after[other.id] }) {
				after[it.id] = !fails(it.id)
				changed = true
			}
		}
	}
	return after
}

// blocked counts what can no more run by the name of its stage, whatever becomes of the rest.
func (in stageedInput) blocked(recorded, selected map[string]bool) map[string]int {
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
func (in stageedInput) from(stage string) map[string]bool {
	selected := make(map[string]bool)
	first := slices.IndexFunc(in, func(it stageed) bool { return it.stage == stage })
	needless := !slices.ContainsFunc(in, func(it stageed) bool { return len(it.needs) > 0 })
	for i, it := range in {
		started := slices.IndexFunc(in, func(like stageed) bool { return like.stage == it.stage })
		selected[it.id] = it.stage == stage || needless && i >= first && it.stage != "" && started >= first
	}
	for changed := !needless; changed; {
		changed = false
		for _, it := range in {
			needsOne := slices.ContainsFunc(in.before(it), func(other stageed) bool { return selected[other.id] })
			if !selected[it.id] && needsOne {
				selected[it.id], changed = true, true
			}
		}
	}
	return selected
}

// TestStagesRunWhatTheirNeedsAllow runs random inputs, of which items fail at random, in runs that are drained or cancelled at
// random instants, or are of a part of the stages. Each resumes from the journal of those before. Nothing may start before what
// it needs is recorded as good; what is recorded and what is blocked at the end of each is as the plain model says.
func TestStagesRunWhatTheirNeedsAllow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 7))
		h := stageedHistory{in: randomStages(luck), path: journalPath(t), recorded: make(map[string]bool), bad: make(map[string]bool)}
		for _, it := range h.in {
			h.bad[it.id] = luck.IntN(8) == 0
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = h.check(t, luck) })
		if err != nil {
			rt.Fatalf("%v\n%v", err, h.in)
		}
	})
}

// stageedHistory is runs over one input and one journal.
type stageedHistory struct {
	in   stageedInput
	path string
	bad  map[string]bool // items that fail

	mu       sync.Mutex
	recorded map[string]bool
	early    error
}

func (h *stageedHistory) check(t *testing.T, luck *rand.Rand) error {
	for run := range 6 {
		if err := h.oneRun(t, luck, run == 5); err != nil {
			return fmt.Errorf("run %d: %w", run, err)
		}
	}
	return nil
}

func (h *stageedHistory) oneRun(t *testing.T, luck *rand.Rand, peaceful bool) error {
	stages, err := stagesOf(h.in)
	if err != nil {
		return err
	}
	selected, err := h.choose(stages, luck, peaceful)
	if err != nil {
		return err
	}
	j, err := work.OpenJournal(h.path, work.JournalConfig{})
	if err != nil {
		return err
	}
	defer j.Close()
	if err := h.resume(j, stages); err != nil {
		return err
	}
	had := h.in.play(h.recorded, nil, nil) // a copy
	cfg := h.config(t, luck, stages)
	cfg.Journal, cfg.Encode = j, encode
	r := newRunner(t, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour) // far more than it takes, unless the feed hangs
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
	for _, b := range stages.Blocked() {
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
func (h *stageedHistory) choose(stages *work.Stages, luck *rand.Rand, all bool) (map[string]bool, error) {
	selected := make(map[string]bool)
	names := stages.Names()
	how := luck.IntN(4)
	if all || len(names) == 0 {
		how = 3
	}
	var err error
	switch how {
	case 0:
		some := names[:1+luck.IntN(len(names))]
		err = stages.Only(some...)
		for _, it := range h.in {
			selected[it.id] = slices.Contains(some, it.stage)
		}
	case 1:
		name := names[luck.IntN(len(names))]
		err = stages.From(name)
		selected = h.in.from(name)
	default:
		for _, it := range h.in {
			selected[it.id] = true
		}
	}
	for _, it := range h.in {
		if stages.Selected(it.number) != selected[it.id] || stages.Stage(it.number) != it.stage {
			return nil, fmt.Errorf("%v: Selected %t, want %t; Stage %q", it, stages.Selected(it.number), selected[it.id], stages.Stage(it.number))
		}
	}
	return selected, err
}

// resume settles what the journal has.
func (h *stageedHistory) resume(j *work.Journal, stages *work.Stages) error {
	clear(h.recorded)
	for line, err := range j.Lines() {
		if err != nil {
			return err
		}
		id, kind, _ := strings.Cut(string(line.Bytes), " ")
		if _, twice := h.recorded[id]; twice {
			return fmt.Errorf("item %s is recorded twice", id)
		}
		h.recorded[id] = kind == sluice.OK.String()
		number, _ := strconv.Atoi(id[1:])
		stages.Settle(number, h.recorded[id])
	}
	return nil
}

// config is that of a Runner over Stages, which often puts items aside.
func (h *stageedHistory) config(t *testing.T, luck *rand.Rand, stages *work.Stages) work.Config {
	const lanes = 2
	item := func(number int) (work.Item, error) {
		n := int64(number)
		return work.Item{ID: "i" + strconv.Itoa(number), Seq: n, Ref: n, Lane: strconv.Itoa(number % lanes)}, nil
	}
	byID := make(map[string]stageed)
	for _, it := range h.in {
		byID[it.id] = it
	}
	kinds := []sluice.Kind{sluice.OK, sluice.OK, sluice.OK, sluice.ServerError, sluice.RateLimit}
	attempt := func(ctx context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, other := range h.in.before(byID[item.ID]) {
			if !h.recorded[other.id] && h.early == nil {
				h.early = fmt.Errorf("%s began before %s was recorded as good", item.ID, other.id)
			}
		}
		took := time.Duration(luck.IntN(2000)) * time.Millisecond
		kind := kinds[luck.IntN(len(kinds))]
		h.mu.Unlock()
		defer h.mu.Lock()
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return work.Result{}, sluice.Outcome{Kind: sluice.Network, Err: ctx.Err()}
		}
		switch {
		case kind != sluice.OK: // an attempt that is tried again
			return work.Result{}, sluice.Outcome{Kind: kind, Err: errors.New("x"), Wait: time.Second, Dimension: limits.Requests}
		case h.bad[item.ID]:
			return work.Result{}, sluice.Outcome{Kind: sluice.BadRequest, Err: errors.New("bad")}
		}
		return work.Result{}, sluice.Outcome{}
	}
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1 + luck.IntN(6)}, Attempts: 100, MaxThrottles: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	cfg := work.Config{
		Handler: work.Calls(s, attempt), Queue: 1 + luck.IntN(3), Workers: 1 + luck.IntN(4), Lanes: lanes,
		Feed: func(ctx context.Context) iter.Seq2[work.Item, error] { return stages.Feed(ctx, item) },
		OnResult: func(res *work.Result) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.recorded[res.ID] = res.Kind == sluice.OK
			stages.Settle(int(res.Seq), res.Kind == sluice.OK)
		},
	}
	if luck.IntN(2) == 0 {
		cfg.Reload = func(seq, _ int64) (work.Item, error) { return item(int(seq)) }
	}
	return cfg
}
