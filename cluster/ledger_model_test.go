package cluster_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
)

// twin is a ledger on an engine and its model, which are told the same.
type twin struct {
	t       *rapid.T
	advance func(µs int64)
	model   *gate.Shared
	members []*cluster.Ledger
	open    []map[uint64]string // calls of each member, and their lanes
	ids     uint64
	marks   map[string]limits.Vector // the last of each lane
}

// say tells both a batch and compares what they answer.
func (w *twin) say(i int, b *gate.Batch) limits.Reply {
	l := w.members[i]
	got, woken, at, err := l.Exchange(context.Background(), b)
	if err != nil {
		w.t.Fatal(err)
	}
	want, wantWoken := w.model.Exchange(at, l.Member(), b)
	if problem := differs(&got, &want); problem != "" {
		w.t.Fatalf("%s: the script says %+v, the model %+v, to %+v", problem, got, want, b)
	}
	if woken != wantWoken {
		w.t.Fatalf("the script wakes %q, the model %q", woken, wantWoken)
	}
	if want.Granted > 0 {
		w.marks[b.Lane] = want.Marks[want.Granted-1]
	}
	return want
}

// differs says how two replies do. Times of the engine are in microseconds.
func differs(a, b *limits.Reply) string {
	near := func(x, y time.Duration) bool { return (x - y).Abs() <= 2*time.Microsecond }
	switch {
	case a.Granted != b.Granted:
		return "grants"
	case !near(a.Wait, b.Wait):
		return "wait"
	case a.Bound != b.Bound && min(a.Bound, b.Bound) < limits.Requests:
		// Of two budgets that are there at once, rounding says which is later.
		return "bound"
	case len(a.Marks) != len(b.Marks):
		return "number of marks"
	case a.Granted > 0 && !sameAmounts(a.Before, b.Before):
		return "what was spent before"
	case (a.Levels == nil) != (b.Levels == nil), a.Levels != nil && !sameAmounts(*a.Levels, *b.Levels):
		return "levels"
	case a.State.Open != b.State.Open:
		return "calls that are open"
	case a.State.Slots.Version != b.State.Slots.Version, a.State.Slots.Limit != b.State.Slots.Limit, a.State.Slots.Bad != b.State.Slots.Bad,
		a.State.Slots.Refused != b.State.Slots.Refused, !near(a.State.Slots.Hold, b.State.Slots.Hold), !near(a.State.Slots.Left, b.State.Slots.Left):
		return "slots"
	case a.State.Pause.Epoch != b.State.Pause.Epoch, a.State.Pause.Probing != b.State.Pause.Probing, a.State.Pause.Ramp != b.State.Pause.Ramp,
		a.State.Pause.Cause != b.State.Pause.Cause, !near(a.State.Pause.Left, b.State.Pause.Left), !near(a.State.Pause.Age, b.State.Pause.Age):
		return "pause"
	}
	for i := range a.Marks {
		if !sameAmounts(a.Marks[i], b.Marks[i]) {
			return fmt.Sprint("mark ", i)
		}
	}
	return ""
}

func sameAmounts(a, b limits.Vector) bool {
	for d := range a {
		if math.Abs(a[d]-b[d]) > 1e-6 {
			return false
		}
	}
	return true
}

var lanesOfModel = []string{"small", "a model: with spaces"}

// step has one member say something.
func (w *twin) step() {
	w.advance(rapid.SampledFrom([]int64{0, 17, 1_003, 10_000, 49_999, 250_001, 1_000_003, 2_000_000, 7_000_001, 30_000_000}).Draw(w.t, "µs"))
	i := rapid.IntRange(0, len(w.members)-1).Draw(w.t, "member")
	b := &gate.Batch{Lane: rapid.SampledFrom(lanesOfModel).Draw(w.t, "lane")}
	for range rapid.IntRange(0, 1).Draw(w.t, "corrections") {
		b.Corrections = append(b.Corrections, w.correction(b.Lane))
	}
	for id, lane := range w.open[i] {
		if lane != b.Lane {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(w.t, "fate") {
		case 0, 1:
			b.Settlements = append(b.Settlements, limits.Settlement{ID: id, Lane: lane,
				Proven: rapid.Bool().Draw(w.t, "proven"), Refund: w.cost("refund"), Guarded: w.exchanged(), Age: w.age()})
			delete(w.open[i], id)
		case 2:
			b.Settlements = append(b.Settlements, limits.Settlement{ID: id, Lane: lane, Proven: true, Open: true})
		case 3, 4:
			b.Renewed = append(b.Renewed, id)
		}
	}
	for range rapid.IntRange(0, 4).Draw(w.t, "asks") {
		w.ids++
		id := w.ids
		if again := rapid.IntRange(0, 9).Draw(w.t, "again"); again == 0 && w.open[i][id-1] == b.Lane {
			id-- // its reply was lost
		}
		cost := w.cost("cost")
		guarded := cost
		guarded[limits.Tokens] += float64(rapid.SampledFrom([]int{0, 0, 50, 1000}).Draw(w.t, "reserved"))
		b.Asks = append(b.Asks, limits.Ask{ID: id, Cost: cost, Guarded: guarded})
	}
	b.Waiting = len(b.Asks) + rapid.IntRange(0, 10).Draw(w.t, "waiting")
	if len(b.Asks) == 1 {
		b.Test = rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Second}).Draw(w.t, "test")
	}
	r := w.say(i, b)
	for _, ask := range b.Asks[:r.Granted] {
		w.open[i][ask.ID] = b.Lane
	}
	if rapid.IntRange(0, 9).Draw(w.t, "twice") == 0 { // the reply was lost, and all of it is said again
		w.say(i, &gate.Batch{Lane: b.Lane, Settlements: b.Settlements, Renewed: b.Renewed, Waiting: b.Waiting, Asks: b.Asks, Test: b.Test})
	}
}

func (w *twin) cost(name string) (v limits.Vector) {
	v[limits.Requests] = float64(rapid.IntRange(0, 1).Draw(w.t, name+" requests"))
	v[limits.Tokens] = float64(rapid.SampledFrom([]int{0, 10, 333, 5000}).Draw(w.t, name+" tokens"))
	v[limits.RequestsPerDay] = v[limits.Requests]
	return v
}

// exchanged are amounts that configured limits count in place of those that were reserved.
func (w *twin) exchanged() (v limits.Vector) {
	v[limits.Requests] = float64(rapid.SampledFrom([]int{0, 0, -1}).Draw(w.t, "uncounted requests"))
	v[limits.Tokens] = float64(rapid.SampledFrom([]int{0, -20, -1000, 70}).Draw(w.t, "uncounted tokens"))
	return v
}

// age is how long ago a request was sent.
func (w *twin) age() time.Duration {
	return time.Duration(rapid.SampledFrom([]int{0, 3, 250, 251, 700, 1999, 30_000, 70_000}).Draw(w.t, "age")) * time.Millisecond
}

func (w *twin) correction(lane string) limits.Correction {
	c := limits.Correction{Lane: lane, Account: rapid.IntRange(0, 3).Draw(w.t, "account") == 0}
	c.Dimension = rapid.SampledFrom([]limits.Dimension{limits.AnyDimension, limits.Concurrency, limits.Requests, limits.Requests, limits.Tokens,
		limits.RequestsPerDay}).Draw(w.t, "dimension")
	switch c.Dimension {
	case limits.AnyDimension:
		c.Account = false
		c.Pause = limits.Pause{Epoch: uint64(rapid.IntRange(0, 8).Draw(w.t, "epoch")), Left: w.short("left"), Cause: limits.Kind(1)}
	case limits.Concurrency:
		version := uint64(rapid.IntRange(0, 8).Draw(w.t, "version"))
		if c.Account { // as gates say it
			version = 0
		}
		limit := rapid.SampledFrom([]float64{0, 1, 2.5, 5, 20}).Draw(w.t, "limit")
		c.Slots = limits.SlotLimit{Version: version, Limit: limit, Bad: 7, Refused: true, Hold: time.Second, Left: w.short("left")}
	default:
		rate := rapid.SampledFrom([]float64{0.1, 2, 50, 1000}).Draw(w.t, "rate")
		c.Rate, c.Cap, c.Start = rate, rate*rapid.SampledFrom([]float64{0.5, 1, 10}).Draw(w.t, "cap"), rate/5
		c.Limit = rapid.SampledFrom([]float64{0, 3, 3, 3, 20, 20, 6000}).Draw(w.t, "configured limit")
		c.Burst = rapid.SampledFrom([]float64{0, 0, 0, 0, 30}).Draw(w.t, "configured burst")
		if c.Burst == 0 {
			c.LimitPeriod = rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, 7 * time.Second, 10 * time.Second, time.Hour}).Draw(w.t, "configured period")
		}
		if rapid.IntRange(0, 2).Draw(w.t, "window") == 0 {
			c.Period = time.Duration(c.Cap / c.Rate * float64(time.Second))
			c.Left = w.short("left") - time.Second
		}
		c.Lo, c.Hi = math.Inf(-1), math.Inf(1)
		if c.Mark = w.marks[lane][c.Dimension]; rapid.Bool().Draw(w.t, "read") {
			c.Lo = rapid.Float64Range(-10, 20).Draw(w.t, "lo")
			c.Hi = c.Lo + 1
		}
	}
	return c
}

func (w *twin) short(name string) time.Duration {
	return time.Duration(rapid.SampledFrom([]int64{-5, 0, 100, 2500}).Draw(w.t, name)) * time.Millisecond
}

// TestTheScriptDoesWhatItsModelDoes compares the engine with gate.Shared, reply by reply: at instants that are set where that is
// possible, and where it is not, at those that the engine had.
func TestTheScriptDoesWhatItsModelDoes(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		at, now := cluster.NewSite(t), time.Unix(1_790_000_000, 0)
		compare(t, at, func(µs int64) {
			now = now.Add(time.Duration(µs) * time.Microsecond)
			at.Memory.SetTime(now)
		})
	})
	if url := os.Getenv("SLUICE_TEST_REDIS"); url != "" {
		t.Run("redis", func(t *testing.T) {
			compare(t, cluster.SiteAt(url), func(µs int64) { time.Sleep(time.Duration(µs/500) * time.Microsecond) })
		})
	}
}

func compare(t *testing.T, at *cluster.Site, advance func(µs int64)) {
	c := open(t, at)
	checks := flag.Lookup("rapid.checks").Value
	was := checks.String()
	defer checks.Set(was)
	checks.Set(suite.Size("15", was))
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{t: t, advance: advance, model: new(gate.Shared), marks: make(map[string]limits.Vector)}
		account := rand.Text()
		for range 3 {
			l := c.Ledger(account, cluster.LedgerConfig{})
			defer l.Close()
			w.members, w.open = append(w.members, l), append(w.open, make(map[uint64]string))
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step()
		}
	})
}
