package worlds

import (
	"math"
	"time"
)

// Epoch is the instant at which every world starts.
var Epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// never is an instant that does not come.
const never = time.Duration(math.MaxInt64)

// Seconds is a span or an instant of a world, in seconds since Epoch.
type Seconds float64

// span returns s as a Duration.
func (s Seconds) span() time.Duration { return time.Duration(float64(s) * 1e9) }

// clock is virtual time: it runs events in the order of their instants, and of their scheduling.
type clock struct {
	now    time.Duration
	events []event // a binary heap
	count  int
}

type event struct {
	at    time.Duration
	order int
	run   func()
}

func (e event) before(other event) bool {
	return e.at < other.at || e.at == other.at && e.order < other.order
}

// at schedules run for an instant, at the earliest now. An event that never comes is dropped.
func (c *clock) at(at time.Duration, run func()) {
	if at == never {
		return
	}
	c.count++
	c.events = append(c.events, event{max(at, c.now), c.count, run})
	for i := len(c.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !c.events[i].before(c.events[parent]) {
			break
		}
		c.events[i], c.events[parent] = c.events[parent], c.events[i]
		i = parent
	}
}

// step runs the next event. It returns false if there is none.
func (c *clock) step() bool {
	if len(c.events) == 0 {
		return false
	}
	next := c.events[0]
	last := len(c.events) - 1
	c.events[0] = c.events[last]
	c.events[last] = event{}
	c.events = c.events[:last]
	c.sink()
	c.now = next.at
	next.run()
	return true
}

func (c *clock) sink() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(c.events); child++ {
			if c.events[child].before(c.events[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		c.events[i], c.events[least] = c.events[least], c.events[i]
		i = least
	}
}

// draw returns a number in [0, 1) that depends on its arguments only: the draw of number i of a stream of a seed.
func draw(seed uint64, stream uint64, i int) float64 {
	x := seed*0x9e3779b97f4a7c15 ^ stream*0xd1342543de82ef95 ^ (uint64(i)+1)*0xbf58476d1ce4e5b9
	for range 2 {
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		x ^= x >> 31
	}
	return float64(x>>11) / (1 << 53)
}

// normal returns a draw of the standard normal distribution.
func normal(seed uint64, stream uint64, i int) float64 {
	radius := math.Sqrt(-2 * math.Log(1-draw(seed, stream, i)))
	return radius * math.Cos(2*math.Pi*draw(seed, stream+1, i))
}
