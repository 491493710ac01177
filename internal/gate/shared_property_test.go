package gate_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// throng is members that ask, end calls, repeat themselves and die as they like.
type throng struct {
	*company
	rate, full float64
	slots      int
	members    []*soul
	grants     []time.Time
}

type soul struct {
	name string
	dead bool
	open map[uint64]time.Time // when each was renewed last
	asks time.Time            // the next time that it asks: when it was told to
	fed  time.Time            // when it was granted something last, or began to wait
}

// step has a member ask for what waits there, and then again, as if the reply had been lost.
func (c *throng) step(s *soul, n, waiting int, twice bool) {
	b := gate.Batch{Lane: "m", Waiting: max(n, waiting)}
	for range n {
		c.ids++
		b.Asks = append(b.Asks, limits.Ask{ID: c.ids, Cost: limits.Vector{limits.Requests: 1}})
	}
	for id := range s.open {
		b.Renewed = append(b.Renewed, id)
	}
	r, _ := c.shared.Exchange(c.now, s.name, &b)
	if twice {
		again, _ := c.shared.Exchange(c.now, s.name, &b)
		if again.Granted < r.Granted {
			c.t.Fatalf("asked again, %s was granted %d, and %d before", s.name, again.Granted, r.Granted)
		}
		if again.State.Open != r.State.Open+again.Granted-r.Granted {
			c.t.Fatalf("asking twice took slots twice: %d open, then %d", r.State.Open, again.State.Open)
		}
		r = again
	}
	for i := range r.Granted {
		s.open[b.Asks[i].ID] = c.now
		c.grants = append(c.grants, c.now)
	}
	s.asks = c.now.Add(max(r.Wait, time.Millisecond))
	if r.Granted > 0 {
		s.fed = c.now
	}
	if c.slots > 0 && r.State.Open > c.slots {
		c.t.Fatalf("%d calls are open, and there are %d slots", r.State.Open, c.slots)
	}
}

// TestALedgerKeepsToItsLimitsAndStarvesNobody has members come and go at random. What was granted never exceeds the budget in any
// window, nor the slots; and who asks when it was told to is served, though others die.
func TestALedgerKeepsToItsLimitsAndStarvesNobody(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &throng{company: newCompany(rt), rate: rapid.SampledFrom([]float64{1, 10, 200}).Draw(rt, "rate"), slots: rapid.SampledFrom([]int{0, 3, 50}).Draw(rt, "slots")}
		c.full = max(1, c.rate)
		c.tell(c.rate, c.full, c.full, c.slots)
		n := rapid.IntRange(1, 8).Draw(rt, "members")
		for i := range n {
			c.members = append(c.members, &soul{name: fmt.Sprint(i), open: make(map[uint64]time.Time), asks: c.now, fed: c.now})
		}
		bound := 15*time.Second + time.Duration(float64(n)*20/c.rate*float64(time.Second))
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			s := rapid.SampledFrom(c.members).Draw(rt, "member")
			for _, other := range c.members { // who asks first
				if !other.dead && (s.dead || other.asks.Before(s.asks)) {
					s = other
				}
			}
			if s.dead {
				break
			}
			if s.asks.After(c.now) {
				c.now = s.asks
			}
			for id := range s.open { // its calls end
				delete(s.open, id)
				c.settle(s.name, id)
			}
			if rapid.IntRange(0, 40).Draw(rt, "fate") == 0 {
				s.dead = true
				continue
			}
			c.step(s, rapid.IntRange(1, 5).Draw(rt, "asks"), rapid.IntRange(1, 20).Draw(rt, "waiting"), rapid.Bool().Draw(rt, "twice"))
			if c.now.Sub(s.fed) > bound {
				rt.Fatalf("%s was granted nothing for %v", s.name, c.now.Sub(s.fed))
			}
		}
		for i := range c.grants {
			for j := i; j < len(c.grants); j++ {
				if most := c.rate*c.grants[j].Sub(c.grants[i]).Seconds() + c.full + 1e-6; float64(j-i+1) > most {
					rt.Fatalf("%d calls in %v, at most %.1f fit", j-i+1, c.grants[j].Sub(c.grants[i]), most)
				}
			}
		}
	})
}

// TestOnlyTheFirstRefusalOfAnEpochBeginsAPause has several members tell of the same episode.
func TestOnlyTheFirstRefusalOfAnEpochBeginsAPause(t *testing.T) {
	c := newCompany(t)
	c.tell(10, 10, 10, 0)
	for i, member := range []string{"a", "b", "c"} {
		c.shared.Exchange(c.now, member, &gate.Batch{Lane: "m", Corrections: []limits.Correction{{Lane: "m", Dimension: limits.AnyDimension,
			Pause: limits.Pause{Epoch: 1, Left: time.Duration(3-i) * time.Second, Probing: true, Ramp: 1, Cause: limits.RateLimit}}}})
	}
	if p := c.shared.State(c.now, "m").Pause; p.Epoch != 1 || p.Left != 3*time.Second {
		t.Errorf("three members tell of one pause, and it is %+v: want the first epoch, and the longest of the waits", p)
	}
}
