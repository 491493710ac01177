package batch

import "time"

const (
	// liveMargin is the factor by which live requests may take longer than LiveTime says.
	liveMargin = 1.1

	// longestCancel is the time that a cancelled batch may take to end: up to 10 minutes
	// (https://platform.openai.com/docs/api-reference/batch/cancel; the other providers state no time).
	longestCancel = 10 * time.Minute

	// leastWindow is the shortest time that batches get. No provider promises less than a day, and most batches end within an hour
	// (https://platform.claude.com/docs/en/build-with-claude/batch-processing).
	leastWindow = 15 * time.Minute

	// lookEvery is the time between two checks whether live requests must start.
	lookEvery = time.Second
)

// outlook has the requests without a result, and the time for them.
type outlook struct {
	left             time.Duration // until the deadline
	requests, tokens int
	live             func(requests, tokens int) time.Duration
}

// liveTime returns the time of live requests, with a margin.
func (o outlook) liveTime() time.Duration {
	if o.requests == 0 {
		return 0
	}
	return time.Duration(liveMargin * float64(o.live(o.requests, o.tokens)))
}

// window returns the time that batches have if all requests can be sent live after it.
func (o outlook) window() time.Duration { return o.left - longestCancel - o.liveTime() }

// Split returns how a run with Batches and a deadline divides its time.
type Split struct {
	Wait time.Duration // batches have this time, and then the remaining requests are sent live; 0: all are sent live at once
	Time time.Duration // of all requests if they are sent live, with a margin
}

// SplitOf returns the Split of a number of requests, with their input tokens together, that must finish within left. live estimates as
// Batches.LiveTime does.
func SplitOf(left time.Duration, requests, tokens int, live func(requests, tokens int) time.Duration) Split {
	o := outlook{left: left, requests: requests, tokens: tokens, live: live}
	s := Split{Time: o.liveTime()}
	if window := o.window(); window >= leastWindow {
		s.Wait = window
	}
	return s
}
