package telemetry

import (
	"container/list"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// call is what is known of a call that is not over. Its spans are made when it is: until then it is only this.
type call struct {
	id, lane, account string

	start, last time.Time
	waits       time.Time // since when it waits for its turn; zero: it does not
	backs       time.Time // since when it waits for its own next try; zero: it does not
	sent        time.Time // when the try that is open was granted; zero: none is

	tries   int // that ended
	steps   []step
	omitted int // steps beyond mostSteps

	kind      sluice.Kind // of the last try
	cancelled bool        // it was cut short

	expires time.Time // nobody waits longer for what is still to be told; zero: it is not about to end
	ending  *list.Element
	item    *outcome // what became of it, where that was told before its last try was
}

// mostSteps bounds the steps of a call that are told: more than the attempts and throttles that one has usually.
const mostSteps = 64

// step is one thing that a call went through.
type step struct {
	what       stepKind
	start, end time.Time
	try        int
	kind       sluice.Kind
	dimension  limits.Dimension
	refused    bool // by a throttle
	unsent     bool
	unended    bool // by the time the run was over
}

// stepKind is what a call did for a time.
type stepKind uint8

const (
	stepWait stepKind = iota
	stepBackoff
	stepAttempt
)

func (k stepKind) String() string { return [...]string{"wait", "backoff", "attempt"}[k] }

// outcome is what an item came to.
type outcome struct {
	kind      sluice.Kind
	usage     sluice.Usage
	hasUsage  bool
	finish    string
	cost      float64
	estimated float64
	attempts  int
	throttles int
	reused    bool
}

func outcomeOf(e *sluice.Event) *outcome {
	return &outcome{
		kind: e.Outcome.Kind, usage: e.Outcome.Usage, hasUsage: e.Outcome.HasUsage, finish: e.Finish,
		cost: e.Cost, estimated: e.Estimated, attempts: e.Attempt, throttles: e.Throttles, reused: e.Reused,
	}
}

func (c *call) step(s step) {
	if len(c.steps) == mostSteps {
		c.omitted++
		return
	}
	if s.start.After(s.end) {
		s.start = s.end
	}
	c.steps = append(c.steps, s)
}

// endWaits ends what the call waited for, at that instant.
func (c *call) endWaits(at time.Time) {
	if !c.backs.IsZero() {
		c.step(step{what: stepBackoff, start: c.backs, end: at})
	}
	if !c.waits.IsZero() {
		c.step(step{what: stepWait, start: c.waits, end: at})
	}
	c.backs, c.waits = time.Time{}, time.Time{}
}

// waiting notes that the call has asked for its turn.
func (c *call) waiting(e *sluice.Event) {
	c.endWaits(e.At)
	c.waits, c.account = e.At, e.Account
}

// acquired notes that the call may be sent.
func (c *call) acquired(e *sluice.Event) {
	c.endWaits(e.At)
	c.sent, c.account = e.At, e.Account
}

// cutShort notes that the call ended without an answer, at that instant.
func (c *call) cutShort(at time.Time) {
	c.endWaits(at)
	if !c.sent.IsZero() {
		c.step(step{what: stepAttempt, start: c.sent, end: at, unended: true})
	}
	c.cancelled = true
}

// released notes that a try ended.
func (c *call) released(e *sluice.Event) {
	start := e.At.Add(-e.Latency) // when it left, which may be later than the grant
	if start.Before(c.sent) {
		start = c.sent
	}
	c.sent = time.Time{}
	c.tries++
	c.kind = e.Outcome.Kind
	c.step(step{
		what: stepAttempt, start: start, end: e.At, try: e.Attempt, kind: e.Outcome.Kind,
		dimension: e.Outcome.Dimension, refused: throttled(e), unsent: e.Outcome.Unsent,
	})
}

// whole reports whether everything was told that its item speaks of.
func (c *call) whole() bool { return c.item != nil && c.tries >= c.item.attempts+c.item.throttles }
