package gate

import "time"

const (
	leastLate  = 20 * time.Millisecond  // margin that is added to an observed time
	mostLate   = 400 * time.Millisecond // maximum time for which an ended request counts
	manyPrompt = 3                      // value of linger.prompt that shows that ended requests do not count
)

// linger is the evidence that requests which have ended count for some time. It is about a configured concurrency.
type linger struct {
	time   time.Duration // time for which an ended request counts; below 0: ended requests do not count
	found  time.Time     // when that time was found
	prompt int           // requests in a row that were accepted in the place of one that had just ended
	ended  []time.Time   // when requests ended, in order
}

// end notes that a request has ended. As many ends as the configured concurrency are kept at least.
func (l *linger) end(now time.Time, ceiling int) {
	if ceiling == 0 || l.time < 0 {
		return
	}
	if len(l.ended) >= 2*ceiling {
		l.ended = append(l.ended[:0], l.ended[len(l.ended)-ceiling:]...)
	}
	l.ended = append(l.ended, now)
}

// count returns the number of ended requests that may still count, and until when the first of them does.
func (l *linger) count(now time.Time) (n int, until time.Time) {
	if l.time <= 0 {
		return 0, until
	}
	for i := len(l.ended) - 1; i >= 0 && now.Sub(l.ended[i]) < l.time; i-- {
		n, until = n+1, l.ended[i].Add(l.time)
	}
	return n, until
}

// before returns the number of kept ends that are not later than an instant.
func (l *linger) before(sent time.Time) int {
	n := len(l.ended)
	for n > 0 && l.ended[n-1].After(sent) {
		n--
	}
	return n
}

// explain reports whether a rejection shows that ended requests still counted: fewer requests than the configured number were in flight.
// named is whether the rejection names the concurrency. One that does not is explained so only once, until a request is accepted again.
func (l *linger) explain(now time.Time, t *Ticket, ceiling int, named bool, accepted time.Time) bool {
	ends, missing := l.before(t.sent), ceiling+1-t.inFlight
	switch {
	case l.time < 0 || missing <= 0 || missing > ends:
		return false
	case t.sent.Before(l.found):
		return true
	case !named && l.time > 0 && !accepted.After(l.found):
		l.time = 0
		return false
	case l.time >= mostLate: // ended requests are not the cause
		l.time = -1
		return false
	}
	age := t.sent.Sub(l.ended[ends-missing])
	if age >= mostLate {
		return false
	}
	l.time, l.found = min(max(l.time*3/2, age+leastLate), mostLate), now
	return true
}

// accepted notes an accepted request. If manyPrompt requests were accepted in the place of one that had just ended, ended requests do not
// count.
func (l *linger) accepted(t *Ticket, ceiling int) {
	if l.time != 0 || t.inFlight != ceiling {
		return
	}
	if ends := l.before(t.sent); ends > 0 && t.sent.Sub(l.ended[ends-1]) < leastLate {
		l.prompt++
	} else if ends > 0 {
		l.prompt = 0
	}
	if l.prompt >= manyPrompt {
		l.time = -1
	}
}
