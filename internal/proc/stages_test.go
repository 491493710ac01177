package proc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// parseStages makes an input of words such as "T2:T1,T0": an item of stage T2 needs T1 and T0. The stage "-" is none.
func parseStages(text string) (in stageInput) {
	for number, word := range strings.Fields(text) {
		stage, needs, _ := strings.Cut(word, ":")
		it := stageItem{number: number, id: "i" + strconv.Itoa(number), stage: strings.TrimPrefix(stage, "-")}
		if needs != "" {
			it.needs = strings.Split(needs, ",")
		}
		in = append(in, it)
	}
	return in
}

// checked returns the Stages of such an input.
func checked(t testing.TB, text string) *stages {
	t.Helper()
	order, err := stagesOf(parseStages(text))
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// bare makes an item of its number alone.
func bare(number int) (work.Item, error) {
	return work.Item{ID: "i" + strconv.Itoa(number), Seq: int64(number)}, nil
}

// given returns the numbers of the items that a feed gives while each is settled before the next is asked for.
func given(order *stages, fails ...int) (numbers []int) {
	for item := range order.feed(context.Background(), bare) {
		numbers = append(numbers, int(item.Seq))
		order.settle(int(item.Seq), !slices.Contains(fails, int(item.Seq)))
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
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.input, err, c.want)
		}
	}
}

// An input is refused if and only if some item waits for itself, which a plain search over items finds too.
func TestStagesFindEveryCycle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 9))
		var in stageInput
		for number := range 1 + luck.IntN(12) {
			it := stageItem{number: number, id: "i" + strconv.Itoa(number)}
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
		if refused := err != nil; refused != cycle {
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
		order := checked(t, c.input)
		if c.only != "" {
			if err := order.only(strings.Split(c.only, ",")...); err != nil {
				t.Error(err)
			}
		}
		if c.from != "" {
			if err := order.from(c.from); err != nil {
				t.Error(err)
			}
		}
		for _, number := range c.done {
			order.settle(number, true)
		}
		before := texts(order.blocked())
		got := given(order)
		after := texts(order.blocked())
		if !slices.Equal(got, c.want) || before != c.blocked || after != c.blocked {
			t.Errorf("only %q, from %q: gave %v, want %v", c.only, c.from, got, c.want)
			t.Errorf("blocked %q and then %q, want %q", before, after, c.blocked)
		}
	}
}

// texts are those of what is blocked.
func texts(all []Blocked) string {
	var list []string
	for _, b := range all {
		list = append(list, b.String())
	}
	return strings.Join(list, "; ")
}

func TestStagesSayWhatIsBlockedByWhat(t *testing.T) {
	order := checked(t, "T1 T1 - T2:T1 T2 T3:T2 -")
	if got := given(order, 0, 1); !slices.Equal(got, []int{0, 1, 2, 6}) {
		t.Errorf("gave %v", got)
	}
	want := "T2 needs T1, of which 2 items failed; T3 needs T2, of which 2 items are not done"
	if got := texts(order.blocked()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b := order.blocked()[0]; b != (Blocked{Name: "T2", Items: 2, Need: "T1", Failed: 2}) {
		t.Errorf("%+v", b)
	}
}

func TestStagesNameTheirStages(t *testing.T) {
	order := checked(t, "T2 - T0 T2 -")
	if got := order.list(); !slices.Equal(got, []string{"T2", "T0"}) {
		t.Errorf("Names() = %q", got)
	}
	for _, err := range []error{order.only("T0", "T1"), order.from("T1")} {
		if err == nil || err.Error() != `no item has the stage "T1": the stages are T2, T0` {
			t.Errorf("error %v", err)
		}
	}
	if !order.selected(0) || !order.selected(1) || order.selected(5) || order.selected(-1) {
		t.Error("something was left out, or is there that is not")
	}
}

// Part of a stage is done, and what it needs is to be done again, as after --redo failed.
func TestStagesGiveTheRestOfAStageThatWasBegun(t *testing.T) {
	order := checked(t, "T0 T1:T0 T1 T1 T2:T1")
	order.settle(1, true)
	order.settle(3, false)
	order.settle(3, true) // changes nothing
	order.settle(7, true) // neither does this
	if got := given(order); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("gave %v", got)
	}
	if got := texts(order.blocked()); got != "T2 needs T1, of which 1 item failed" {
		t.Error(got)
	}
}

func TestStagesFeedEndsWithItsContextAndWithAnError(t *testing.T) {
	order := checked(t, "- - -")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	n := 0
	for range order.feed(ctx, bare) {
		n++
		stop()
	}
	gone := errors.New("gone")
	for _, err := range order.feed(context.Background(), func(int) (work.Item, error) { return work.Item{}, gone }) {
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
			start, order := time.Now(), checked(t, "T0 T0 T1:T0")
			time.AfterFunc(time.Minute, func() { order.settle(0, true) })
			time.AfterFunc(time.Hour, func() { order.settle(1, good) })
			var got []int
			for item := range order.feed(context.Background(), bare) {
				if got = append(got, int(item.Seq)); item.Seq == 2 {
					order.settle(2, true)
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

func TestStagesOfManyItemsAreSmallAndQuick(t *testing.T) {
	const n = 300_000
	for _, c := range []struct {
		name   string
		stages int
		most   float64 // bytes for an item
	}{{"none", 0, 6}, {"in turn", 1000, 13}} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var order stages
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
			order.add(number, stage, needs)
		}
		if _, problem := order.check(); problem != nil {
			t.Fatal(problem.Text)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := float64(int64(after.HeapAlloc-before.HeapAlloc)) / n; each > c.most {
			t.Errorf("%s: %.1f bytes an item, want at most %v", c.name, each, c.most)
		}
		start := time.Now()
		if got := given(&order); len(got) != n {
			t.Errorf("%s: gave %d of %d", c.name, len(got), n)
		}
		if took := time.Since(start); suite.Full && took > time.Minute {
			t.Errorf("%s: took %v", c.name, took)
		}
	}
}
