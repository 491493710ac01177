package telemetry

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// paused is what holds calls back while somebody pauses the Scheduler: beside the dimensions, of which AnyDimension is a
// lane's own pause.
const (
	paused    = limits.NumDimensions
	numBounds = limits.NumDimensions + 1
)

// boundName is what holds calls back, as files spell it.
func boundName(i int) string {
	switch i {
	case int(limits.AnyDimension):
		return "cooldown"
	case int(paused):
		return "paused"
	}
	return limits.Dimension(i).String()
}

// laneSeen is what events show of one lane, of an account.
type laneSeen struct {
	account, name string

	acquired, waited, released, cancelled, errors int
	answered, failed, gaveUp                      int
	throttled                                     [limits.NumDimensions]int
	usage                                         sluice.Usage
	peak, peakSlots                               int // most in flight, and the slots that there were then
	limits                                        [limits.NumDimensions]known

	open    int // acquired and not released, of this process
	leaked  int // open when a Scheduler was closed
	cut     int // open when a process ended without saying so
	waiting int

	held  bool // Pause
	bind  int  // what holds calls back now, if any waits
	at    time.Time
	bound [numBounds]time.Duration

	cooling    bool
	until      time.Time // it pauses until then, at least
	lastThrown time.Time // when it was last throttled or paused
	episodes   int
	cooldowns  int

	minute    int64 // of the running time, and what was used in it
	inMinute  [limits.NumDimensions]int64
	busiest   [limits.NumDimensions]int64
	latencies times
	line      timeline
}

// known is a limit that is known.
type known struct {
	value  int64
	source limits.Source
	claims limits.Claims
}

// event takes in an event of the lane that happened after so much running time.
func (l *laneSeen) event(e *sluice.Event, x time.Duration) {
	l.pass(e)
	b := l.line.at(x)
	switch e.Type {
	case limits.EventSlotWaiting:
		l.bind = int(e.Dimension)
		l.waited++
	case limits.EventSlotAcquired:
		l.acquired++
		l.open++
		b.Sent++
		l.use(x, limits.Requests, 1)
	case limits.EventSlotReleased:
		l.release(e, b, x)
	case limits.EventSlotCancelled:
		l.cancelled++
	case limits.EventThrottled:
		l.throttle(e, b, x)
	case limits.EventAttemptFailed:
		l.failed++
		b.Failed++
	case limits.EventGaveUp:
		l.gaveUp++
	case limits.EventCooldownStarted:
		l.cool(e, x)
	case limits.EventCooldownEnded:
		l.cooling, l.lastThrown = false, e.At
		l.line.resume(x)
	case limits.EventBreaker:
		if l.until = e.Until; !l.until.IsZero() {
			l.bind = int(limits.AnyDimension)
			l.line.pause(x, x+max(0, e.Until.Sub(e.At)), sluice.ServerError)
		}
	case limits.EventLimitsChanged:
		l.limit(x, e.Dimension, known{value: e.Limit, source: e.Source})
	}
	if hasCounts(e.Type) {
		if e.InFlight > l.peak {
			l.peak, l.peakSlots = e.InFlight, e.Slots
		}
		l.line.see(x, e)
		l.waiting = e.Waiting
	}
}

// hasCounts reports whether events of that type say how many calls are open and wait.
func hasCounts(t limits.EventType) bool {
	switch t {
	case limits.EventSlotWaiting, limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventSlotCancelled,
		limits.EventThrottled, limits.EventAttemptFailed, limits.EventGaveUp:
		return true
	}
	return false
}

// pass accounts for the time since the last event, in which something held calls back if any waited: what did is told
// by the call that waited, as it begins to and when it no longer does.
func (l *laneSeen) pass(e *sluice.Event) {
	from := l.at
	if e.At.After(l.at) {
		l.at = e.At
	}
	if l.waiting == 0 || from.IsZero() || !e.At.After(from) {
		return
	}
	if until := earlier(l.until, e.At); until.After(from) { // whatever held calls back then
		l.hold(int(limits.AnyDimension), until.Sub(from))
		from = until
	}
	if e.Type == limits.EventSlotAcquired && e.Wait > 0 {
		l.bind = int(e.Dimension)
	}
	l.hold(l.bind, e.At.Sub(from))
}

// hold counts a time in which calls were held back. What holds a call back and is no limit is a pause, of which not all
// have events of their own: a late refusal makes one longer.
func (l *laneSeen) hold(by int, d time.Duration) {
	if l.held && by == int(limits.AnyDimension) {
		by = int(paused)
	}
	l.bound[by] += d
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (l *laneSeen) release(e *sluice.Event, b *Bin, x time.Duration) {
	l.released++
	l.open = max(0, l.open-1)
	if u := e.Outcome.Usage; e.Outcome.HasUsage {
		l.usage = l.usage.Add(u)
		b.Input += u.Input
		b.Output += u.Output
		for d := limits.Tokens; d.Window() == time.Minute; d++ {
			l.use(x, d, int64(u.Amount(d)))
		}
	}
	if e.Outcome.Kind == sluice.OK {
		l.answered++
		b.Answered++
		l.latencies.add(e.Latency)
	} else {
		l.errors++
	}
}

// throttle notes a refusal. Those that are less than a second apart, and those of one pause, are of one episode.
func (l *laneSeen) throttle(e *sluice.Event, b *Bin, x time.Duration) {
	l.throttled[e.Outcome.Dimension]++
	b.Throttled++
	l.use(x, limits.Requests, -1) // it was refused, and cost nothing
	l.thrown(e.At)
	if d := e.Outcome.Dimension; e.Outcome.Limit > 0 && e.Outcome.Limit != l.limits[d].value { // else it was known before, from elsewhere
		l.limit(x, d, known{value: e.Outcome.Limit, source: limits.SourceRejection})
	}
}

func (l *laneSeen) thrown(at time.Time) {
	const apart = time.Second
	if !l.cooling && (l.episodes == 0 || at.Sub(l.lastThrown) > apart) {
		l.episodes++
	}
	l.lastThrown = at
}

func (l *laneSeen) cool(e *sluice.Event, x time.Duration) {
	l.thrown(e.At)
	l.cooling = true
	l.cooldowns++
	l.until = e.Until
	l.bind = int(limits.AnyDimension)
	l.line.pause(x, x+max(0, e.Until.Sub(e.At)), e.Outcome.Kind)
}

func (l *laneSeen) limit(x time.Duration, d limits.Dimension, k known) {
	k.claims = l.limits[d].claims
	if k.claims.Add(k.value, k.source); k.value <= 0 || l.limits[d] == k {
		return
	}
	l.limits[d] = k
	l.line.limit(x, d, k.value)
}

// use counts what was used of a limit, by minutes of the running time.
func (l *laneSeen) use(x time.Duration, d limits.Dimension, n int64) {
	if m := int64(x / time.Minute); m != l.minute {
		l.busiest = l.most()
		l.minute, l.inMinute = m, [limits.NumDimensions]int64{}
	}
	l.inMinute[d] += n
}

// most is what was used in the busiest minutes, the present one included: only at its end is it known what was refused.
func (l *laneSeen) most() (most [limits.NumDimensions]int64) {
	for d := range most {
		most[d] = max(l.busiest[d], l.inMinute[d])
	}
	return most
}

// used is what was used of a limit's dimension in all, and the most of it in one minute.
func (l *laneSeen) used(d limits.Dimension) (all, busiest int64) {
	minute := d.Per(time.Minute)
	busiest = l.most()[minute]
	if minute == limits.Requests {
		return int64(l.acquired - l.refused()), busiest
	}
	return int64(l.usage.Amount(d)), busiest
}

// refused is how many calls were throttled.
func (l *laneSeen) refused() (n int) {
	for _, of := range l.throttled {
		n += of
	}
	return n
}

// end ends what a process had open: orderly says that it closed its Scheduler.
func (l *laneSeen) end(orderly bool) {
	if orderly {
		l.leaked += l.open
	} else {
		l.cut += l.open
	}
	l.open, l.waiting, l.cooling, l.held = 0, 0, false, false
	l.at, l.until, l.line.state = time.Time{}, time.Time{}, Bin{}
}
