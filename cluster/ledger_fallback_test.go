package cluster_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/limits"
)

// gateways is members of one account, each with a network of its own, that have heard of each other.
func gateways(t *testing.T, at *cluster.Site, n int, fixes ...limits.Correction) (callers []*caller, wires []*cluster.Site) {
	t.Helper()
	account := rand.Text()
	for i := range n {
		w := at.Aside()
		c := &caller{t: t, l: ledger(t, w, account, cluster.LedgerConfig{Fallback: 0.5})}
		c.l.Wait(250 * time.Millisecond)
		if i == 0 {
			c.correct(fixes...)
		}
		callers, wires = append(callers, c), append(wires, w)
	}
	alike := func() bool { // whether all of them know of all
		for _, c := range callers {
			if c.l.Members() != n {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(patience); !alike() && time.Now().Before(end); {
		for _, c := range callers {
			_, id := c.take(1)
			c.settle(id)
			c.take(1) // carries the settlement, if nothing did
			c.settle(id + 1)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return callers, wires
}

// grants asks for calls one after the other, and counts those that are granted.
func (c *caller) grants(long time.Duration) (n int) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		r, id := c.take(1)
		if n += r.Granted; r.Granted == 1 {
			c.settle(id)
		} else {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return n
}

func TestGatewaysWithoutTheEngineUseAPartOfTheLimit(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		callers, wires := gateways(t, at, 2, told(limits.Requests, 100, 100, 100))
		for _, w := range wires {
			w.Down(true)
		}
		began := time.Now()
		var wg sync.WaitGroup
		counts := make([]int, len(callers))
		for i, c := range callers {
			wg.Go(func() { counts[i] = c.grants(2 * time.Second) })
		}
		wg.Wait()
		took := time.Since(began).Seconds()
		if at.Memory == nil {
			took++ // a bucket holds a second's worth, from an outage just before, perhaps
		}
		for i, n := range counts {
			known := callers[i].l.Members() // one that stood still was forgotten, perhaps
			if most := int(50*took/float64(known)) + 1; n > most || n == 0 {
				t.Errorf("member %d of %d granted itself %d calls: want at most %d, its share of half the limit", i, known, n, most)
			}
		}
	})
}

func TestGatewaysWithoutTheEngineShareSlotsByRank(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit int
		want  []int // by rank: of half the limit
	}{{10, []int{3, 2}}, {3, []int{1, 0}}, {1, []int{0, 0}}} {
		inMemory(t, func(t *testing.T, at *cluster.Site) {
			if got := shares(t, at, c.limit); !slices.Equal(got, c.want) {
				t.Errorf("of %d slots members took %v without the engine: want %v", c.limit, got, c.want)
			}
		})
	}
}

// shares has two members take slots without the engine, and returns what they get, by rank.
func shares(t *testing.T, at *cluster.Site, limit int) []int {
	t.Helper()
	got := make([]int, 2)
	callers, wires := gateways(t, at, 2, slots(limit, 0))
	for _, w := range wires {
		w.Down(true)
	}
	for _, caller := range callers {
		r, _ := caller.take(8)
		rank := 0
		for _, other := range callers {
			if other.l.Member() < caller.l.Member() {
				rank++
			}
		}
		got[rank] = r.Granted
	}
	return got
}

func TestCallsOfBeforeCountAmongTheSlotsOfAGatewayWithoutTheEngine(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		callers, wires := gateways(t, at, 1, slots(6, 0))
		callers[0].until(2)
		wires[0].Down(true)
		if r, _ := callers[0].take(4); r.Granted != 1 {
			t.Errorf("half of six slots, of which two are taken, had room for %d", r.Granted)
		}
	})
}

func TestAGatewayWithoutTheEngineIsToldOfASlotThatItGaveBack(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		callers, wires := gateways(t, at, 1, slots(2, 0))
		wires[0].Down(true)
		c, told := callers[0], make(chan string, 10)
		defer c.l.Watch(func(lane string, _ limits.LaneState, awake bool) {
			if awake {
				told <- lane
			}
		})()
		r, id := c.take(2)
		if r.Granted != 1 {
			t.Fatalf("half of two slots: %+v", r)
		}
		c.settle(id)
		select {
		case <-told:
		case <-time.After(patience):
			t.Error("nobody was told")
		}
	})
}

func TestWhatAGatewayGrantedItselfIsChargedOnceWhenTheEngineIsBack(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		callers, wires := gateways(t, at, 1, told(limits.Requests, 100, 100, 100), slots(8, 0))
		c, w := callers[0], wires[0]
		r, _ := c.take(1)
		before := r.Marks[0][limits.Requests]
		w.Down(true)
		granted, open := 0, 1
		for granted < 4 { // of half the slots one is taken
			r, first := c.take(1)
			if granted += r.Granted; r.Granted == 0 {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			if mark := r.Marks[0][limits.Requests]; mark != before+float64(granted) {
				t.Fatalf("a mark of %v after %v and %d more", mark, before, granted)
			}
			if granted <= 2 {
				c.settle(first)
			} else {
				open++
			}
		}
		w.Down(false)
		w.LoseAfter(0) // what it says is heard, and it does not know
		time.Sleep(1500 * time.Millisecond)
		w.Restore()
		deadline := time.Now().Add(patience)
		var spent string
		for time.Now().Before(deadline) {
			if r, _ := c.take(1); r.Granted == 1 && r.State.Slots.Version > 0 { // by the engine: it alone says so
				if got, want := r.Marks[0][limits.Requests], before+float64(granted)+1; got < want {
					t.Errorf("the engine knows of %v requests: want %v", got, want)
				}
				if r.State.Open != open+1 {
					t.Errorf("%d calls are open by the engine: want %d, those of before among them", r.State.Open, open+1)
				}
				spent, _ = execute(t, at, "HGET", c.l.Account()+":account", "spent").ToString()
				break
			} else if r.Granted == 1 {
				granted++
				open++
			}
			time.Sleep(20 * time.Millisecond)
		}
		if want := before + float64(granted) + 1; !strings.HasPrefix(spent, strconv.FormatFloat(want, 'g', -1, 64)+" ") {
			t.Errorf("all lanes spent %q: want %v requests", spent, want)
		}
	})
}

func TestAGatewayGoesOnAloneWhenTheEngineIsGoneAgainAtOnce(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		callers, wires := gateways(t, at, 1, told(limits.Requests, 1000, 1000, 1000))
		c, w := callers[0], wires[0]
		w.Down(true)
		for range 5 {
			c.grants(20 * time.Millisecond)
			w.Down(false)
			w.LoseAfter(1) // it hears what is open, and not what was granted meanwhile
			if n := c.grants(700 * time.Millisecond); n == 0 {
				t.Fatal("nothing is granted, though the engine is gone")
			}
			w.Down(true)
		}
	})
}

func TestABatchWaitsForTheEngineAndSaysSoOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		var log linesOf
		c := openAs(t, at, cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l := c.Ledger("batch", cluster.LedgerConfig{})
		defer l.Close()
		a := &caller{t: t, l: l}
		a.take(1)
		at.Down(true)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if r, err := l.Take(ctx, limits.Asks{Lane: "m", Waiting: 1, Calls: []limits.Ask{{ID: 77}}}); err == nil {
			t.Errorf("granted without the engine: %+v", r)
		}
		if !c.Away() {
			t.Error("the Cluster does not report that Redis is away")
		}
		at.Down(false)
		a.until(1)
		synctest.Wait()
		if c.Away() {
			t.Error("the Cluster reports that Redis is away")
		}
		if text := log.String(); strings.Count(text, "Redis is unreachable") != 1 || strings.Count(text, "reachable again") != 1 {
			t.Errorf("what was logged, which is to be once that it is gone and once that it is back:\n%s", text)
		}
	})
}
