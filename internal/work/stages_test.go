package work_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"pgregory.net/rapid"
)

// parseStages makes an input of words such as "T2:T1,T0": an item of stage T2 needs T1 and T0. The stage "-" is none.
func parseStages(text string) (in stageedInput) {
	for number, word := range strings.Fields(text) {
		stage, needs, _ := strings.Cut(word, ":")
		it := stageed{number: number, id: "i" + strconv.Itoa(number), stage: strings.TrimPrefix(stage, "-")}
		if needs != "" {
			it.needs = strings.Split(needs, ",")
		}
		in = append(in, it)
	}
	return in
}

// checked returns the Stages of such an input.
func checked(t testing.TB, text string) *work.Stages {
	t.Helper()
	stages, err := stagesOf(parseStages(text))
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

// bare makes an item of its number alone.
func bare(number int) (work.Item, error) { return work.Item{Seq: int64(number)}, nil }

// given returns the numbers of the items that a feed gives while each is settled before the next is asked for.
func given(stages *work.Stages, fails ...int) (numbers []int) {
	for item := range stages.Feed(context.Background(), bare) {
		numbers = append(numbers, int(item.Seq))
		stages.Settle(int(item.Seq), !slices.Contains(fails, int(item.Seq)))
	}
	return numbers
}

func TestStagesRefuseNeedsThatCannotBeMet(t *testing.T) {
	const never = ", which is part of a cycle: "
	long, round := "", "a0"
	for i := range 30 {
		long += fmt.Sprintf("a%d:a%d ", i, (i+1)%30)
	}
	round += " needs a1 needs a2 needs a3 needs a4 needs a5 needs ... needs a25 needs a26 needs a27 needs a28 needs a29 needs a0"
	for _, c := range []struct{ input, want string }{
		{"T0 T1:T9", `item 1 needs "T9", which is not a stage: the stages are T0, T1`},
		{"T1 T1:T1", `item 1 needs "T1"` + never + "T1 needs T1"},
		{"a b:a a:b", `item 2 needs "b"` + never + "a needs b needs a"},
		{"x:b a:b b:a", `item 1 needs "b"` + never + "a needs b needs a"},
		{"c:b,a a b:c", `item 0 needs "b"` + never + "c needs b needs c"},
		{long, `item 0 needs "a1"` + never + round},
	} {
		_, err := stagesOf(parseStages(c.input))
		needs, ok := errors.AsType[*work.NeedsError](err)
		if !ok || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.input, err, c.want)
			continue
		}
		cycle := needs.Cycle
		if (cycle != nil) != strings.Contains(c.want, never) || cycle != nil && cycle[0] != cycle[len(cycle)-1] {
			t.Errorf("%s: cycle %q", c.input, cycle)
		}
	}
}

// An input is refused if and only if some item waits for itself, which a plain search over items finds too.
func TestStagesFindEveryCycle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 9))
		var in stageedInput
		for number := range 1 + luck.IntN(12) {
			it := stageed{number: number, id: "i" + strconv.Itoa(number)}
			if luck.IntN(4) > 0 {
				it.stage = "T" + strconv.Itoa(luck.IntN(6))
			}
			in = append(in, it)
		}
		for range luck.IntN(10) {
			it, other := &in[luck.IntN(len(in))], in[luck.IntN(len(in))]
			if it.stage != "" && other.stage != "" {
				it.needs = append(it.needs, other.stage)
			}
		}
		all := make(map[string]bool)
		for _, it := range in {
			all[it.id] = true
		}
		cycle := len(in.blocked(nil, all)) > 0 // what can never run, although nothing fails
		_, err := stagesOf(in)
		if _, refused := errors.AsType[*work.NeedsError](err); refused != cycle {
			rt.Fatalf("cycle %t, error %v\n%v", cycle, err, in)
		}
	})
}

func TestStagesGiveItemsInOrder(t *testing.T) {
	for _, c := range []struct {
		name, input string
		fails, want []int
	}{
		{"without stages in that of the input", "- - -", nil, []int{0, 1, 2}},
		{"what lacks nothing comes first", "T1:T0 - T0 T1 T0", nil, []int{1, 2, 4, 0, 3}},
		{"what is ready sooner comes sooner", "a:y b:x x y c:x", nil, []int{2, 3, 1, 4, 0}},
		{"what needs the failed does not run, nor what needs that", "a b:a c:b d e:d", []int{0}, []int{0, 3, 4}},
		{"a stage needs what any of its items needs", "a b T T:b,b,a T:b", []int{0}, []int{0, 1}},
	} {
		if got := given(checked(t, c.input), c.fails...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s gave %v, want %v", c.name, c.input, got, c.want)
		}
	}
}

func TestStagesRunInPart(t *testing.T) {
	const chain = "T0 T1:T0 T2:T1 T3:T0 - F:T3 T4"
	for _, c := range []struct {
		input, only, from string
		done              []int
		want              []int
		blocked           string
	}{
		{chain, "T1,T4", "", []int{0}, []int{1, 6}, ""},
		{chain, "T1", "", nil, nil, "T1 needs T0, of which 1 item is not done"},
		{chain, "T2,T3", "", []int{0}, []int{3}, "T2 needs T1, of which 1 item is not done"},
		{chain, "", "T0", nil, []int{0, 1, 3, 2, 5}, ""},
		{chain, "", "T1", []int{0}, []int{1, 2}, ""},
		{chain, "T1,T2", "T1", nil, nil, "T1 needs T0, of which 1 item is not done; T2 needs T1, of which 1 item is not done"},
		{"T0 - T1 T0 T2", "", "T1", nil, []int{2, 4}, ""},
		{"T0 T0 T1:T0", "T1", "", nil, nil, "T1 needs T0, of which 2 items are not done"},
	} {
		stages := checked(t, c.input)
		if c.only != "" {
			if err := stages.Only(strings.Split(c.only, ",")...); err != nil {
				t.Error(err)
			}
		}
		if c.from != "" {
			if err := stages.From(c.from); err != nil {
				t.Error(err)
			}
		}
		for _, number := range c.done {
			stages.Settle(number, true)
		}
		before := texts(stages.Blocked())
		got := given(stages)
		after := texts(stages.Blocked())
		if !slices.Equal(got, c.want) || before != c.blocked || after != c.blocked {
			t.Errorf("only %q, from %q: gave %v, want %v", c.only, c.from, got, c.want)
			t.Errorf("blocked %q and then %q, want %q", before, after, c.blocked)
		}
	}
}

// texts are those of what is blocked.
func texts(all []work.Blocked) string {
	var list []string
	for _, b := range all {
		list = append(list, b.String())
	}
	return strings.Join(list, "; ")
}

func TestStagesSayWhatIsBlockedByWhat(t *testing.T) {
	stages := checked(t, "T1 T1 - T2:T1 T2 T3:T2 -")
	if got := given(stages, 0, 1); !slices.Equal(got, []int{0, 1, 2, 6}) {
		t.Errorf("gave %v", got)
	}
	want := "T2 needs T1, of which 2 items failed; T3 needs T2, of which 2 items are not done"
	if got := texts(stages.Blocked()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b := stages.Blocked()[0]; b != (work.Blocked{Name: "T2", Items: 2, Need: "T1", Failed: 2}) {
		t.Errorf("%+v", b)
	}
}

func TestStagesNameTheirStages(t *testing.T) {
	stages := checked(t, "T2 - T0 T2 -")
	if got := stages.Names(); !slices.Equal(got, []string{"T2", "T0"}) {
		t.Errorf("Names() = %q", got)
	}
	for _, err := range []error{stages.Only("T0", "T1"), stages.From("T1")} {
		unknown, ok := errors.AsType[*work.UnknownStageError](err)
		if !ok || unknown.Name != "T1" || err.Error() != `no item has the stage "T1": the stages are T2, T0` {
			t.Errorf("error %v", err)
		}
	}
	if !stages.Selected(0) || !stages.Selected(1) || stages.Selected(5) || stages.Selected(-1) || stages.Stage(5) != "" {
		t.Error("something was left out, or is there that is not")
	}
}

// Part of a stage is done, and what it needs is to be done again, as after --redo failed.
func TestStagesGiveTheRestOfAStageThatWasBegun(t *testing.T) {
	stages := checked(t, "T0 T1:T0 T1 T1 T2:T1")
	stages.Settle(1, true)
	stages.Settle(3, false)
	stages.Settle(3, true) // changes nothing
	stages.Settle(7, true) // neither does this
	if got := given(stages); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("gave %v", got)
	}
	if got := texts(stages.Blocked()); got != "T2 needs T1, of which 1 item failed" {
		t.Error(got)
	}
}

// A feed that was stopped leaves what it did not give, and what it gave and has no result, to the next.
func TestStagesFeedAgainWhatAStopLeft(t *testing.T) {
	stages := checked(t, "T0 T0 T1:T0 T1 T2:T1")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var got []int
	for item := range stages.Feed(ctx, bare) {
		if got = append(got, int(item.Seq)); item.Seq < 3 {
			stages.Settle(int(item.Seq), true)
		} else {
			stop() // d is open and has no result
		}
	}
	if got = append(got, given(stages)...); !slices.Equal(got, []int{0, 1, 2, 3, 3, 4}) {
		t.Errorf("gave %v", got)
	}
	if got := given(stages); got != nil {
		t.Errorf("gave %v when all was done", got)
	}
}

func TestStagesFeedEndsWithItsContextAndWithAnError(t *testing.T) {
	stages := checked(t, "- - -")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	n := 0
	for range stages.Feed(ctx, bare) {
		n++
		stop()
	}
	gone := errors.New("gone")
	for _, err := range stages.Feed(context.Background(), func(int) (work.Item, error) { return work.Item{}, gone }) {
		if n++; err != gone {
			t.Errorf("error %v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d were given after the end", n-2)
	}
}

func TestStagesFeedWaitsForResults(t *testing.T) {
	for _, good := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			start, stages := time.Now(), checked(t, "T0 T0 T1:T0")
			time.AfterFunc(time.Minute, func() { stages.Settle(0, true) })
			time.AfterFunc(time.Hour, func() { stages.Settle(1, good) })
			var got []int
			for item := range stages.Feed(context.Background(), bare) {
				if got = append(got, int(item.Seq)); item.Seq == 2 {
					stages.Settle(2, true)
				}
			}
			want := []int{0, 1, 2}
			if !good {
				want = want[:2]
			}
			if !slices.Equal(got, want) || time.Since(start) != time.Hour {
				t.Errorf("good %t: gave %v and ended after %v", good, got, time.Since(start))
			}
		})
	}
}

// Lane "slow" pauses for a day with more items than its queue takes. The stages of the other lane go on: a new one is given
// while items of the first are still put aside. In the end the feed waits for one of those.
func TestALaneThatPausesDoesNotStopTheStagesOfAnother(t *testing.T) {
	var input strings.Builder
	for range 20 {
		input.WriteString("slow ")
	}
	input.WriteString("T0 T1:T0 T2:T1 T3:slow")
	synctest.Test(t, func(t *testing.T) {
		start, stages := time.Now(), checked(t, input.String())
		item := func(number int) (work.Item, error) {
			lane := "slow"
			if number >= 20 {
				lane = "fast"
			}
			return work.Item{Seq: int64(number), Ref: int64(number), Lane: lane}, nil
		}
		var last time.Duration
		r := newRunner(t, work.Config{
			Feed:   func(ctx context.Context) iter.Seq2[work.Item, error] { return stages.Feed(ctx, item) },
			Reload: func(seq, _ int64) (work.Item, error) { return item(int(seq)) },
			Lanes:  2, Queue: 2, Workers: 1,
			Handler: work.HandlerFunc(func(_ context.Context, item work.Item) (work.Result, error) {
				if item.Lane == "slow" && item.Seq == 0 {
					time.Sleep(24 * time.Hour)
				}
				return work.Result{}, nil
			}),
			OnResult: func(res *work.Result) {
				if res.Seq == 22 {
					last = time.Since(start)
				}
				stages.Settle(int(res.Seq), res.Kind == sluice.OK)
			},
		})
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != 24 || last > time.Minute {
			t.Errorf("%d of 24 done, T2 after %v, error %v", rep.Done, last, err)
		}
	})
}

func TestStagesAreCheckedBeforeUse(t *testing.T) {
	stages := checked(t, "- -")
	for name, misuse := range map[string]func(){
		"Add after Check":     func() { stages.Add(2, "", nil) },
		"Check after Check":   func() { _ = stages.Check() },
		"Settle before Check": func() { new(work.Stages).Settle(0, true) },
		"a lower number":      func() { u := new(work.Stages); u.Add(1, "", nil); u.Add(1, "", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
}

func TestStagesOfManyItemsAreSmallAndQuick(t *testing.T) {
	const n = 300_000
	for _, c := range []struct {
		name   string
		stages int
		most   float64 // bytes for an item
	}{{"none", 0, 6}, {"in turn", 1000, 12}} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var stages work.Stages
		for number := range n {
			var stage string
			var needs []string
			if c.stages > 0 {
				k := number % c.stages // so that each stage is scattered over the whole input
				stage = "T" + strconv.Itoa(k)
				if k > 0 {
					needs = []string{"T" + strconv.Itoa(k-1)}
				}
			}
			stages.Add(number, stage, needs)
		}
		if err := stages.Check(); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := float64(int64(after.HeapAlloc-before.HeapAlloc)) / n; each > c.most {
			t.Errorf("%s: %.1f bytes an item, want at most %v", c.name, each, c.most)
		}
		start := time.Now()
		if got := given(&stages); len(got) != n {
			t.Errorf("%s: gave %d of %d", c.name, len(got), n)
		}
		if took := time.Since(start); suite.Full && took > time.Minute {
			t.Errorf("%s: took %v", c.name, took)
		}
	}
}
