package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// company is members on a shared ledger, without gates.
type company struct {
	t      fataler
	shared gate.Shared
	now    time.Time
	ids    uint64
}

func newCompany(t fataler) *company { return &company{t: t, now: epoch0} }

// tell has the ledger know a lane's budget of requests, and its slots where there are some.
func (c *company) tell(perSecond, full, level float64, slots int) {
	c.ids++
	b := gate.Batch{Lane: "m", Corrections: []limits.Correction{{ID: c.ids, Lane: "m", Dimension: limits.Requests, Lo: math.Inf(-1), Hi: math.Inf(1),
		Rate: perSecond, Cap: full, Start: level}}}
	if slots > 0 {
		b.Corrections = append(b.Corrections, limits.Correction{Lane: "m", Dimension: limits.Concurrency, Slots: limits.SlotLimit{Limit: float64(slots)}})
	}
	c.shared.Exchange(c.now, "tells", &b)
}

// ask has a member ask for n of the calls that wait there.
func (c *company) ask(member string, n, waiting int) (limits.Reply, string) {
	b := gate.Batch{Lane: "m", Waiting: waiting}
	for range n {
		c.ids++
		b.Asks = append(b.Asks, limits.Ask{ID: c.ids, Cost: limits.Vector{limits.Requests: 1}})
	}
	return c.shared.Exchange(c.now, member, &b)
}

// settle ends a call of a member.
func (c *company) settle(member string, id uint64) (wake string) {
	_, wake = c.shared.Exchange(c.now, member, &gate.Batch{Lane: "m", Settlements: []limits.Settlement{{ID: id, Lane: "m"}}})
	return wake
}

func (c *company) wantGranted(member string, n, waiting, want int) limits.Reply {
	c.t.Helper()
	r, _ := c.ask(member, n, waiting)
	if r.Granted != want {
		c.t.Fatalf("at %v: %s was granted %d of %d calls, want %d: %+v", c.now.Sub(epoch0), member, r.Granted, n, want, r)
	}
	return r
}

func TestNobodyIsWokenForASlotThatOthersHaveABudgetFor(t *testing.T) {
	c := newCompany(t)
	c.tell(1, 1, 1, 3)
	c.wantGranted("a", 1, 1, 1)
	for _, member := range []string{"b", "c", "d"} { // there are two slots, and no budget: all wait for that
		if r := c.wantGranted(member, 1, 1, 0); r.Bound != limits.Requests {
			t.Errorf("%s waits for %v, want rpm", member, r.Bound)
		}
	}
	for range 10 {
		if _, wake := c.ask("d", 1, 1); wake != "" {
			t.Fatalf("%s was woken, and there is nothing for it", wake)
		}
	}
}

func TestMembersThatWereServedAlikeWaitOneAfterTheOther(t *testing.T) {
	c := newCompany(t)
	c.tell(10, 10, 0, 0)
	told := make(map[time.Duration]bool)
	for _, member := range []string{"a", "b", "c", "d", "e"} {
		told[c.wantGranted(member, 1, 1, 0).Wait.Round(time.Millisecond)] = true
	}
	if len(told) != 5 {
		t.Errorf("five members were told to wait for %v: they would ask at the same time, and all but one in vain", told)
	}
}

func TestWhoIsWokenIsGranted(t *testing.T) {
	c := newCompany(t)
	c.tell(1000, 1000, 1000, 1)
	c.wantGranted("a", 1, 1, 1)
	first := c.ids
	c.wantGranted("b", 1, 1, 0)
	c.wantGranted("c", 1, 1, 0)
	wake := c.settle("a", first)
	if wake == "" {
		t.Fatal("nobody was woken when the slot was free again")
	}
	other := map[string]string{"b": "c", "c": "b"}[wake]
	if _, again := c.ask(other, 1, 1); again != "" {
		t.Errorf("%s was woken beside %s, and there is one slot", again, wake)
	}
	c.wantGranted(wake, 1, 1, 1)
}

func TestWhoIsBehindIsLeftWhatItTakesToCatchUp(t *testing.T) {
	c := newCompany(t)
	c.tell(100, 100, 0, 0)
	c.wantGranted("a", 1, 100, 0)
	c.wantGranted("b", 1, 100, 0)
	c.now = c.now.Add(200 * time.Millisecond) // 20 calls
	c.wantGranted("a", 15, 100, 10)
	c.wantGranted("b", 15, 100, 10)
}

func TestNobodyWaitsLongForOthersThatAreGone(t *testing.T) {
	c := newCompany(t)
	c.tell(10, 10, 1, 0)
	c.wantGranted("few", 1, 1, 1)
	c.wantGranted("many", 1, 10_000, 0) // it is gone then
	r := c.wantGranted("few", 1, 1, 0)  // and has 10,000 calls before the next of these
	if r.Wait > 5*time.Second {
		t.Errorf("a member was told to wait for %v, for others that may be gone", r.Wait)
	}
	c.now = c.now.Add(r.Wait)
	c.wantGranted("few", 1, 1, 1)
}

func TestWhoAsksForPartOfWhatWaitsKeepsItsPlace(t *testing.T) {
	c := newCompany(t)
	c.tell(1000, 1, 1, 0)
	c.wantGranted("a", 1, 100, 1) // all that it asked for, and 99 calls more wait there
	c.now = c.now.Add(time.Millisecond)
	c.wantGranted("b", 1, 1, 1)
	c.now = c.now.Add(time.Millisecond)
	c.wantGranted("b", 1, 1, 0) // it had a whole turn, and a the hundredth of one
	c.wantGranted("a", 1, 99, 1)
}

func TestWhoIsFarBehindForASlotAsksLater(t *testing.T) {
	c := newCompany(t)
	c.tell(1e6, 1e6, 1e6, 1)
	c.wantGranted("holder", 1, 1, 1)
	first := c.wantGranted("000", 1, 1, 0).Wait
	for i := range 200 {
		c.ask(string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), 'a' + byte(i%10)}), 1, 1)
	}
	last := c.wantGranted("zzz", 1, 1, 0)
	if last.Bound != limits.Concurrency || last.Wait < first+time.Second {
		t.Errorf("the first of 200 asks again after %v, the last after %v", first, last.Wait)
	}
}

func TestOneMemberTestsABeliefThatHoldsAllBack(t *testing.T) {
	c := newCompany(t)
	c.tell(1.0/3600, 1, 0, 0)
	test := func(member string, wait time.Duration, want int) limits.Reply {
		t.Helper()
		c.now = c.now.Add(wait)
		c.ids++
		r, _ := c.shared.Exchange(c.now, member, &gate.Batch{Lane: "m", Waiting: 1, Test: 10 * time.Second,
			Asks: []limits.Ask{{ID: c.ids, Cost: limits.Vector{limits.Requests: 1}, Guarded: limits.Vector{limits.Requests: 1}}}})
		if r.Granted != want || r.Wait == 0 {
			t.Fatalf("at %v: %s was granted %d, want %d: %+v", c.now.Sub(epoch0), member, r.Granted, want, r)
		}
		return r
	}
	say := func(b gate.Batch) { c.shared.Exchange(c.now, "a", &b) }
	proven := func() {
		say(gate.Batch{Lane: "m", Settlements: []limits.Settlement{{ID: c.ids, Lane: "m", Proven: true}}})
	}
	test("a", 0, 1)
	if r := test("b", 19*time.Second, 0); r.Wait != time.Second { // twice the silence after a test
		t.Errorf("b was told to wait for %v, want the rest of 20 s", r.Wait)
	}
	test("a", time.Second, 1)
	proven()
	test("b", 9*time.Second, 0)
	test("a", time.Second, 1)
	proven()
	say(gate.Batch{Lane: "m", Corrections: []limits.Correction{{Lane: "m", Dimension: limits.AnyDimension, Pause: limits.Pause{Epoch: 1, Left: time.Hour}}}})
	test("a", 10*time.Second, 1)
	if r := c.shared.State(c.now, "m"); r.Pause.Left == 0 {
		t.Error("a test that is not proven ended a pause")
	}
	proven()
	if r := c.shared.State(c.now, "m"); r.Pause.Left != 0 {
		t.Errorf("a pause lasts %v more after a request was accepted", r.Pause.Left)
	}
	say(gate.Batch{Lane: "m", Corrections: []limits.Correction{{Lane: "m", Dimension: limits.Requests, Lo: math.Inf(-1), Hi: math.Inf(1),
		Rate: 1.0 / 3600, Cap: 1, Limit: 1, LimitPeriod: time.Hour}}})
	test("a", 10*time.Second, 1)
	proven()
	test("a", time.Minute, 0) // a configured limit is not tested
}
