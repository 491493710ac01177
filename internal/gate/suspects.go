package gate

import "time"

const (
	ownWait      = 250 * time.Millisecond // wait of an item after its second rejection, doubled with each further one
	longestWait  = 2 * time.Second        // maximum of that wait
	longestOwn   = 15 * time.Second       // maximum of that wait for an item at fault
	maxAlone     = 1000                   // suspects that are remembered: some never come back
	manyStrays   = 3                      // rejections one by one, from which on an unnamed rejection is the item's fault
	manyTogether = 8                      // items rejected without an accepted request, above which none of them is at fault
	manyRejected = 0.4                    // share of rejections from which on a later accepted request shows no fault
	shareOf      = 32                     // responses over which that share is measured
	manyOwn      = 6                      // rejections of items at fault without an accepted request, from which on they count as others

	failuresDown = 5               // failing items with which a provider is down
	longestDown  = 8 * time.Second // maximum pause of a provider that is down
	tenantAlone  = time.Minute     // time after a success of another tenant in which the failures of one tenant pause nothing
)

// suspects distinguishes items at fault from a provider that rejects all requests. An item was rejected (or failed) alone if a request that
// was sent after it was accepted. Items are identified by Ticket.item.
type suspects struct {
	taken   time.Time             // departure of the newest accepted request
	passed  int                   // accepted requests
	share   float64               // of the last responses that are rejections, a moving average
	pending map[uint64]time.Time  // rejected items, and the departures of their requests; no later request was accepted yet
	alone   map[uint64]int        // items that were rejected alone, and passed before then: they are at fault
	stated  map[uint64]statedWait // of rejected items
	row     int                   // score for rejections that come one by one, while others are accepted
	begun   bool                  // there were manyStrays of them, and the score has not been 0 since
	owned   map[uint64]bool       // items at fault that were rejected since a request was accepted; if they are many, the provider may reject all
}

// add counts a rejection, and reports whether the item is at fault. others is whether other requests wait.
func (s *suspects) add(t *Ticket, others bool) (own bool) {
	if s.pending == nil {
		s.pending, s.alone, s.owned = make(map[uint64]time.Time), make(map[uint64]int), make(map[uint64]bool)
		s.stated = make(map[uint64]statedWait)
	}
	if len(s.alone) > maxAlone || len(s.stated) > maxAlone {
		clear(s.alone)
		clear(s.stated)
	}
	s.share += (1 - s.share) / shareOf
	switch {
	case s.own(t) && (len(s.owned) < manyOwn || !others):
		s.owned[t.item()] = true
		return true
	case s.passes(t):
		s.alone[t.item()] = s.passed - 1 // at least the newest one
		return false
	}
	if len(s.pending) > 0 {
		s.row = max(0, s.row-1)
	}
	if len(s.pending) < maxAlone {
		s.pending[t.item()] = t.sent
	}
	return false
}

// take notes an accepted request: items that were rejected before it were rejected alone.
func (s *suspects) take(t *Ticket) {
	clear(s.owned)
	s.passed++
	s.share -= s.share / shareOf
	if t.sent.After(s.taken) {
		s.taken = t.sent
	}
	if len(s.pending) == 0 {
		return
	}
	single, several := len(s.pending) == 1, len(s.pending) > manyTogether
	for order, sent := range s.pending {
		if sent.Before(t.sent) {
			delete(s.pending, order)
			if several { // all requests were rejected until now
				continue
			}
			s.alone[order] = s.passed - 1
			if single {
				s.row = min(s.row+1, 2*manyStrays)
			}
		}
	}
}

// passes reports whether a request that was sent after t was accepted, while few are rejected: the item of t is at fault. Where many are
// rejected, a bucket that refills accepts one here and there.
func (s *suspects) passes(t *Ticket) bool { return s.taken.After(t.sent) && s.share < manyRejected }

// own reports whether an item is at fault.
func (s *suspects) own(t *Ticket) bool { return s.others(t) > 0 }

// others returns the number of requests that were accepted after an item at fault was rejected; 0 if the item is not at fault.
func (s *suspects) others(t *Ticket) int {
	if before, ok := s.alone[t.item()]; ok {
		return s.passed - before
	}
	return 0
}

// cleared notes that an item succeeded. If it was at fault, the others may be as innocent.
func (s *suspects) cleared(t *Ticket) {
	if s.own(t) {
		clear(s.alone)
	}
}

// strays reports whether items are rejected one by one while others are accepted.
func (s *suspects) strays() bool { return s.row >= manyStrays }

// began reports, once until the score is 0, whether items are rejected one by one. A limit that is tested too often is met one by one as well.
func (s *suspects) began() bool {
	before := s.begun
	s.begun = s.strays() || before && s.row > 0
	return s.begun && !before
}

// item identifies the item of a request.
func (t *Ticket) item() uint64 {
	if t.Call.Item > 0 {
		return t.Call.Item | 1<<63
	}
	return t.Order
}

// over forgets an item.
func (s *suspects) over(t *Ticket) {
	if len(s.pending)+len(s.alone)+len(s.stated) > 0 {
		delete(s.pending, t.item())
		delete(s.alone, t.item())
		delete(s.stated, t.item())
	}
}

// statedWait is a wait that a rejection stated, and its end.
type statedWait struct {
	time  time.Duration
	until time.Time
}

// due returns the end of the wait that a rejected item keeps: the longest stated one, and after that once more one of at most half of it, as
// of a bucket that refills. A long wait does not count.
func (s *suspects) due(now time.Time, t *Ticket, stated time.Duration) time.Time {
	kept := s.stated[t.item()]
	if stated <= longWait && s.stated != nil && (stated > kept.time || stated > 0 && stated <= kept.time/2 && !t.sent.Before(kept.until)) {
		kept = statedWait{stated, now.Add(stated)}
		s.stated[t.item()] = kept
	}
	return kept.until
}

// wait returns how long an item waits after a rejection, so that other items are sent meanwhile. The first rejection costs no wait.
func (s *suspects) wait(t *Ticket) time.Duration {
	if t.Throttles == 0 {
		return 0
	}
	longest := longestWait
	if s.own(t) {
		longest = longestOwn
	}
	return min(ownWait<<min(t.Throttles-1, 10), longest)
}

// failures finds a provider that is down: requests of several items fail, and no request that was sent after them succeeds. An item or a
// tenant that fails while others succeed shows nothing about the provider.
type failures struct {
	suspects
	passedBy string        // tenant of the last request that was neither rejected nor failed
	passedAt time.Time     // arrival of the response to that request
	tenant   string        // tenant of the first pending failure
	several  bool          // requests of other tenants failed as well
	first    time.Time     // arrival of the first pending failure
	slowest  time.Duration // longest time that a pending failure took
	pauses   int           // pauses in a row; above 0 the provider is down
}

// over forgets an item. Up to failuresDown failures are remembered until a request succeeds, so that a client which sends one request at a
// time detects a provider that is down.
func (f *failures) over(t *Ticket) {
	if len(f.alone) > 0 { // deleting costs time even if there is nothing
		delete(f.alone, t.item())
	}
	if len(f.pending) > failuresDown {
		delete(f.pending, t.item())
	}
}

// add counts a failure, and reports whether it shows that the provider is down. alive returns the number of requests in flight that were
// sent before an instant. Requests that are in flight for as long as the failures took do not fail alike.
func (f *failures) add(now time.Time, t *Ticket, alive func(before time.Time) int) bool {
	if len(f.pending) == 0 {
		f.first, f.tenant, f.several, f.slowest = now, t.Call.Tenant, false, 0
	}
	if f.own(t) {
		return false
	}
	if f.suspects.add(t, true); f.taken.After(t.sent) {
		return false
	}
	f.several = f.several || t.Call.Tenant != f.tenant
	f.slowest = max(f.slowest, now.Sub(t.sent))
	switch {
	case f.pauses > 0:
		return true
	case !f.several && f.tenant != f.passedBy && now.Sub(f.passedAt) < tenantAlone:
		return false
	}
	return len(f.pending) >= failuresDown && len(f.pending) >= alive(now.Add(1-f.slowest))
}

// answered notes a response to a request, and reports whether the provider was down until then.
func (f *failures) answered(now time.Time, t *Ticket, throttled bool) (up bool) {
	if f.take(t); !throttled {
		f.passedBy, f.passedAt = t.Call.Tenant, now
	}
	if len(f.pending) > 0 && !t.sent.Before(f.first) { // failures come fast, so the response also speaks for requests that were sent a little later
		for order := range f.pending {
			f.alone[order] = f.passed - 1
		}
		clear(f.pending)
	}
	if len(f.pending) > 0 {
		return false
	}
	up = f.pauses > 0
	f.pauses = 0
	return up
}

// pause counts a pause of a provider that is down, and returns its length: 1, 2, 4, 8 s.
func (f *failures) pause() time.Duration {
	f.pauses++
	return min(time.Second<<min(f.pauses-1, 10), longestDown)
}
