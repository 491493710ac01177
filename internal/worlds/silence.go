package worlds

import "time"

// Clients probe a silent lane after 10 s, then at doubling distances of up to 10 minutes. A longer silence is stalled.
const (
	stalledAfter = 11 * time.Second
	maxStalled   = 11 * time.Minute
	maxStated    = 10 * time.Minute // of a stated wait
)

// silence checks that requests are sent while items wait and nothing is in flight. It judges from requests and responses only. A
// client that knows when there is room again, without a response that says so, may fail it.
type silence struct {
	waits, flying int
	since         time.Duration // the last event
	stated        time.Duration // the end of the waits that rejections stated
	probing       bool          // the request in flight ended a silence
	failed        int           // such requests in a row without a success
	stalled       time.Duration // the longest silence beyond its bound
}

// wait changes the number of items that wait.
func (s *silence) wait(now time.Duration, by int) { s.waits, s.since = s.waits+by, now }

// check judges the silence that lasts until now.
func (s *silence) check(now time.Duration) {
	if s.flying > 0 {
		return
	}
	silent, bound := now-s.since, min(stalledAfter<<min(s.failed, 6), maxStalled)
	if s.waits > 0 && now > max(s.since, s.stated)+bound {
		s.stalled = max(s.stalled, silent)
	}
	s.probing = silent >= stalledAfter/2
}

func (s *silence) send(now time.Duration) {
	s.check(now)
	s.flying, s.since = s.flying+1, now
}

func (s *silence) done(now time.Duration, r *Response) {
	s.flying, s.since = s.flying-1, now
	if r.Status == 200 {
		s.failed = 0
		return
	}
	if s.probing {
		s.failed++
	}
	s.stated = max(s.stated, now+min(maxStated, max(r.stated, retryAfter(r))))
}

// kill forgets the requests in flight, whose items wait again.
func (s *silence) kill() { s.flying = 0 }
