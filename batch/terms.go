package batch

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// terms are what an item's tries are held to.
type terms struct {
	timeout  time.Duration
	check    func(id string, e provider.Endpoint, body []byte) error // nil accepts all
	feedback bool

	// attempts and throttles are how many tries may fail, and how many may be throttled. Without attempts the Scheduler
	// counts both, as it does for a run whose items are all held to the same.
	attempts, throttles int
	patience            time.Duration // after its first throttle, in which an item is not given up for throttles
}

// tries counts those of one call. The zero value is none.
type tries struct {
	attempts, throttles int
	throttled           time.Time // the first of those throttles
	unmetered           int       // attempts that may be billed, and whose tokens nobody said
}

// count counts a try, with the status of its answer, and says in its outcome if that was the last one.
func (c *call) count(status int, o *sluice.Outcome) {
	if c.terms.attempts == 0 {
		return
	}
	n := &c.tries
	switch {
	case o.Kind.Throttle() && !o.TooLarge:
		if n.throttles++; n.throttles == 1 {
			n.throttled = time.Now()
		}
		o.Alone = c.terms.patience > 0
		o.Final = o.Final || n.throttles > c.terms.throttles && time.Since(n.throttled) >= c.terms.patience
	case o.Kind.Transient():
		n.attempts++
		o.Final = o.Final || n.attempts >= c.terms.attempts
	}
	if !o.HasUsage && mayCost(status, o) {
		n.unmetered++
	}
}

// mayCost says of a try whose tokens nobody said whether it may be billed all the same: a refusal is not, and a call that timed
// out may well be.
func mayCost(status int, o *sluice.Outcome) bool {
	return !o.Unsent && !o.Kind.Throttle() && status < 300
}
