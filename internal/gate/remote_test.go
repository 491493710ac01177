package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// A remote ledger wakes a lane by another way than it answers: the refusal that came before may arrive after.
func TestALaneThatIsWokenBeforeItsAnswerArrivesAsksAgain(t *testing.T) {
	for _, woken := range []bool{true, false} {
		now := time.Unix(1_790_000_000, 0)
		g := gate.New(gate.Config{Remote: true})
		g.Acquire(now, &gate.Ticket{Call: limits.Call{Lane: "m"}})
		if _, _, asks := g.Outbox(); len(asks) != 1 {
			t.Fatalf("%d asks for one call", len(asks))
		}
		if woken {
			g.Told(now, "m", &limits.LaneState{}, true)
		}
		g.Reply(now, "m", limits.Reply{Wait: time.Second, Bound: limits.Concurrency})
		if _, _, asks := g.Outbox(); len(asks) == 1 != woken {
			t.Errorf("woken %v before it was refused: %d asks at once", woken, len(asks))
		}
	}
}

// afar is a gate whose ledger is asked by the test.
type afar struct {
	t    *testing.T
	g    *gate.Gate
	now  time.Time
	sent []*gate.Ticket
}

func newAfar(t *testing.T, slots, calls int) *afar {
	a := &afar{t: t, now: epoch0, g: gate.New(gate.Config{Limits: limits.Limits{Concurrency: slots, RPM: 1e8}, Attempts: 6, MaxThrottles: 20, Remote: true})}
	for range calls {
		a.g.Acquire(a.now, &gate.Ticket{Call: limits.Call{Lane: "m"}})
	}
	return a
}

// asks is how many calls the gate asks for now; 0: it asks for none.
func (a *afar) asks() int {
	_, _, asks := a.g.Outbox()
	if len(asks) == 0 {
		return 0
	}
	return len(asks[0].Calls)
}

// reply answers the outstanding ask, some time after it.
func (a *afar) reply(after time.Duration, granted int, wait time.Duration, bound limits.Dimension) {
	a.now = a.now.Add(after)
	a.g.Reply(a.now, "m", limits.Reply{Granted: granted, Marks: make([]limits.Vector, granted), Wait: wait, Bound: bound})
	a.sent = append(a.sent, a.g.Granted()...)
}

// tick goes to the next instant that the gate names.
func (a *afar) tick() {
	a.now = a.g.Next()
	a.g.Tick(a.now)
}

func (a *afar) wantAsks(want int) {
	a.t.Helper()
	if n := a.asks(); n != want {
		a.t.Fatalf("at %v: asks for %d calls, want %d", a.now.Sub(epoch0), n, want)
	}
}

func TestAnAskIsAsLargeAsWhatMayBeGranted(t *testing.T) {
	a := newAfar(t, 1000, 1)
	a.wantAsks(1)
	for range 600 {
		a.g.Acquire(a.now, &gate.Ticket{Call: limits.Call{Lane: "m"}})
	}
	a.reply(time.Millisecond, 1, 0, limits.AnyDimension)
	a.wantAsks(256)
	a.reply(time.Millisecond, 3, 10*time.Millisecond, limits.Requests)
	a.tick()
	a.wantAsks(8)
	a.reply(time.Millisecond, 8, 0, limits.AnyDimension)
	a.wantAsks(16)
}

func TestNoMoreIsAskedForThanMayBeTried(t *testing.T) {
	a := &afar{t: t, now: epoch0, g: gate.New(gate.Config{Remote: true, Attempts: 6})}
	asked := 0
	for range 20 {
		a.g.Acquire(a.now, &gate.Ticket{Call: limits.Call{Lane: "m"}})
	}
	for n := a.asks(); n > 0; n = a.asks() {
		asked += n
		a.reply(time.Millisecond, n, 0, limits.AnyDimension)
	}
	if asked != 2 || len(a.sent) != 2 {
		t.Errorf("%d calls were asked for and %d sent, and two may be tried", asked, len(a.sent))
	}
}

func TestAnAskIsThereWhenTheWaitIsOver(t *testing.T) {
	a := newAfar(t, 10, 1)
	a.wantAsks(1)
	a.reply(80*time.Millisecond, 0, time.Second, limits.Requests)
	a.tick()
	if waited := a.now.Sub(epoch0); waited < time.Second || waited > time.Second+time.Millisecond {
		t.Errorf("asks again %v after the first time, want a second: it is as long on its way as that", waited)
	}
	a.wantAsks(1)
}

func TestAMemberWithLargeCallsHasItsTurnBesideOnesWithSmallCalls(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	var shared gate.Shared
	shared.Exchange(now, "large", &gate.Batch{Lane: "m", Corrections: []limits.Correction{
		{Lane: "m", Dimension: limits.Tokens, Lo: math.Inf(-1), Hi: math.Inf(1), Rate: 100, Cap: 1000},
	}})
	spent := map[string]float64{}
	next := map[string]time.Time{}
	id := uint64(0)
	for end := now.Add(time.Minute); now.Before(end); now = now.Add(5 * time.Millisecond) {
		for member, cost := range map[string]float64{"large": 800, "small 1": 10, "small 2": 10} {
			if now.Before(next[member]) {
				continue
			}
			id++
			r, _ := shared.Exchange(now, member, &gate.Batch{Lane: "m", Waiting: 4, Asks: []limits.Ask{{ID: id, Cost: limits.Vector{limits.Tokens: cost}}}})
			if next[member] = now.Add(r.Wait); r.Granted == 1 {
				spent[member] += cost
			}
		}
	}
	if spent["large"] < 3000 || spent["small 1"] < 30 || spent["small 2"] < 30 {
		t.Errorf("of 6,000 tokens were spent %v", spent)
	}
}

// weighed is a gate afar with tenants of weights 1, 2 and 4, who have so many calls each.
func weighed(t *testing.T, slots, calls int) *afar {
	a := newAfar(t, slots, 0)
	a.g.SetWeights(map[string]float64{"one": 1, "two": 2, "four": 4})
	for range calls {
		for _, name := range []string{"one", "two", "four"} {
			a.g.Acquire(a.now, &gate.Ticket{Call: limits.Call{Lane: "m", Tenant: name}})
		}
	}
	return a
}

// tenants are how many calls of each were granted.
func (a *afar) tenants() map[string]int {
	got := make(map[string]int)
	for _, s := range a.sent {
		got[s.Call.Tenant]++
	}
	return got
}

func TestTenantsTakeTurnsByTheirWeightsWithinAnAsk(t *testing.T) {
	a := weighed(t, 1000, 20)
	a.asks()
	a.reply(time.Millisecond, 1, 0, limits.AnyDimension) // an ask of the call that came first
	a.wantAsks(59)
	a.reply(time.Millisecond, 20, time.Second, limits.Requests)
	if got := a.tenants(); got["one"] != 3 || got["two"] != 6 || got["four"] != 12 {
		t.Errorf("of 21 calls were granted %v", got)
	}
}

// All that a tenant has may be in the ask that is refused: it waited all the time, and what it has coming is not forgotten.
func TestTenantsHaveTheirWeightsWhereMostAsksAreRefused(t *testing.T) {
	a := weighed(t, 40, 5)
	for i, ended := 0, 0; len(a.sent) < 700; i++ {
		if a.asks() > 0 {
			a.reply(time.Millisecond, i%3, 10*time.Millisecond, limits.Requests)
		} else {
			a.tick()
		}
		for ; ended < len(a.sent); ended++ {
			done := a.sent[ended]
			a.g.Release(a.now, done, &limits.Outcome{})
			a.g.Acquire(a.now, &gate.Ticket{Call: done.Call})
		}
	}
	if got := a.tenants(); got["one"] < 97 || got["one"] > 103 || got["two"] < 194 || got["two"] > 206 {
		t.Errorf("of 700 calls were granted %v, and weights are 1, 2 and 4", got)
	}
}
