package find

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/fifo"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

const (
	firstBurst  = 4
	mostRepeats = 5 // bursts of one size until a cap's count is believed
	mostStrays  = 3
	leastWait   = 0.6 // of the time that the last of a queue takes, if all requests take the least
)

// volley is a burst of tiny requests, with lone ones that are sent while all accepted ones are open for certain.
type volley struct {
	replies []reply
	lone    []reply // those that met every accepted request of the burst still open
}

// volley sends n requests at once. If some are rejected, lone ones follow while the others are open: a cap rejects all of
// them, a bucket accepts some.
func (s *search) volley(ctx context.Context, n int) (v volley, err error) {
	s.p.warm(ctx, n)
	began := time.Now()
	l := s.burst(ctx, &tiny, n)
	lone, err := s.lone(ctx, began, l)
	replies, ended := l.wait()
	v.replies = replies
	if err := cmp.Or(ended, err, failing(replies)); err != nil {
		return v, err
	}
	s.learn(&tiny, v.replies...)
	end := firstEnd(v.replies)
	for _, r := range lone {
		if r.sent.Add(s.m.refusal).Before(end) && (r.accepted() || r.refused()) {
			v.lone = append(v.lone, r)
		}
	}
	return v, nil
}

// loneAt are the instants of lone requests, as shares of the least time that a tiny request takes.
var loneAt = [...]float64{0.35, 0.6, 0.85}

// lone sends lone requests beside an open burst, if one of the burst is rejected.
func (s *search) lone(ctx context.Context, began time.Time, l *loop) (lone []reply, err error) {
	for _, share := range loneAt {
		at := began.Add(seconds(share * s.m.of[tinyCall].took.least))
		if wake.In(ctx, time.Until(at), nil) != nil {
			return lone, nil // the burst says why
		}
		if l.refused(0, len(l.calls)) == 0 {
			continue
		}
		r, err := s.p.once(ctx, &tiny)
		if err != nil {
			return lone, err
		}
		lone = append(lone, r)
	}
	return lone, nil
}

// firstEnd returns the instant at which the first accepted request ended.
func firstEnd(replies []reply) (t time.Time) {
	for i := range replies {
		if r := &replies[i]; r.accepted() && (t.IsZero() || r.done.Before(t)) {
			t = r.done
		}
	}
	return t
}

func (v *volley) accepted() int { return count(v.replies, (*reply).accepted) }
func (v *volley) refused() int  { return count(v.replies, (*reply).refused) }

// admitted returns the number of requests of the burst that were not rejected: one that failed later had a place too.
func (v *volley) admitted() int { return len(v.replies) - v.refused() }

func count(replies []reply, is func(*reply) bool) (n int) {
	for i := range replies {
		if is(&replies[i]) {
			n++
		}
	}
	return n
}

// flights returns the accepted requests, whose latencies show a queue.
func (v *volley) flights() (f []fifo.Flight) {
	if len(v.replies) == 0 {
		return nil
	}
	began := slices.MinFunc(v.replies, func(a, b reply) int { return a.sent.Compare(b.sent) }).sent
	for i := range v.replies {
		if r := &v.replies[i]; r.accepted() {
			f = append(f, fifo.Flight{Sent: r.sent.Sub(began), Took: r.took()})
		}
	}
	return f
}

// overlap returns the maximum of accepted requests that were open at the same time, as far as the client can tell.
func overlap(replies []reply) (most int) {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for i := range replies {
		if r := &replies[i]; r.accepted() {
			edges = append(edges, edge{r.sent, 1}, edge{r.done, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) }) // an end makes room at once
	open := 0
	for _, e := range edges {
		open += e.by
		most = max(most, open)
	}
	return most
}

// gallop doubles a burst of tiny requests until some are rejected, or wait, or no more can be needed.
func (s *search) gallop(ctx context.Context) error {
	strays, small := 0, false
	for n := min(firstBurst, s.h.ceiling()); n > 1; {
		s.enter(PhaseGallop, "%d requests at once", n)
		v, err := s.volley(ctx, n)
		if err != nil {
			return err
		}
		s.m.seen = max(s.m.seen, overlap(v.replies))
		if v.refused() == 0 {
			if found, err := s.silent(ctx, &v); err != nil || found {
				return err
			}
			if n >= s.h.ceiling() {
				return nil
			}
			n, strays, small = min(2*n, s.h.ceiling()), 0, false
			continue
		}
		why, err := s.separate(ctx, v, n)
		if err != nil {
			return err
		}
		s.absorb()
		switch why {
		case bySlots:
			return nil
		case byBucket:
			// If nothing is rejected afterwards it was a storm, or a small bucket that refills faster than needed.
			if done, err := s.emptied(ctx, &v); err != nil || done || small {
				return err
			}
			small = true
			continue
		}
		if strays++; strays > mostStrays {
			s.note("bursts of %d requests are sometimes rejected: other processes may use the same limit", n)
			n, strays = min(2*n, s.h.ceiling()), 0
		}
		if n >= s.h.ceiling() && strays > 1 {
			return nil
		}
	}
	return nil
}

// emptied measures the bucket that rejected requests, unless its limit is stated. done reports that there is one.
func (s *search) emptied(ctx context.Context, v *volley) (done bool, err error) {
	for i := range v.replies {
		if d := v.replies[i].outcome.Dimension; v.replies[i].refused() && d != limits.AnyDimension && s.h.sure(d) {
			return true, nil
		}
	}
	if s.h.limits[limits.Requests].Known() {
		return true, nil
	}
	return s.measure(ctx, limits.Requests, &tiny, question{row: max(40, 5*s.m.seen)})
}

// silent finds out whether requests of bursts wait without a word. If it looks so, two more bursts make sure.
func (s *search) silent(ctx context.Context, v *volley) (bool, error) {
	s.m.flights = append(s.m.flights, v.flights())
	places, _ := fifo.Fit(s.m.flights)
	if places == 0 || !s.waited(v, places) {
		return false, nil
	}
	for range 2 {
		n := min(max(2*places, len(v.replies)), s.cfg.MaxWorkers)
		s.enter(PhaseQueue, "testing whether the server queues %d simultaneous requests for %d places", n, places)
		more, err := s.volley(ctx, n)
		if err != nil {
			return false, err
		}
		if more.refused() == 0 {
			s.m.flights = append(s.m.flights, more.flights())
		}
	}
	places, sure := fifo.Fit(s.m.flights)
	if !sure || !s.waited(v, places) {
		return false, nil
	}
	s.h.cap(float64(places), limits.SourceMeasured)
	s.h.queue = true
	return true, nil
}

// waited reports whether requests of a burst took as long as a queue with these places takes: a network that lets one after
// the other through looks like a queue too, but a short one.
func (s *search) waited(v *volley, places int) bool {
	longest := time.Duration(0)
	for _, f := range v.flights() {
		longest = max(longest, f.Took)
	}
	turns := (len(v.replies) + places - 1) / max(1, places)
	return longest.Seconds() > leastWait*float64(turns)*s.m.of[tinyCall].took.least
}

// reason is why requests of a burst were rejected.
type reason int

const (
	byStray  reason = iota // for no lasting reason
	bySlots                // too many were open
	byBucket               // too many came in too short a time
)

// separate finds out why some requests of a burst were rejected, by more bursts of the same size. A cap has its value then.
func (s *search) separate(ctx context.Context, v volley, n int) (reason, error) {
	var counts []int
	empty := false
	for len(counts) < mostRepeats {
		if why, ok := s.said(&v); ok {
			return why, nil
		}
		k := v.admitted()
		letIn := count(v.lone, (*reply).accepted)
		if v.admitted() > v.accepted() {
			letIn = 0 // one that failed early made room
		}
		switch {
		case v.refused() == 0, letIn > 0 && v.refused() <= 1+n/50:
			return byStray, nil
		case k == 0 && !empty && len(counts) == 0: // a storm, or a bucket that was empty already
			empty = true
			if err := s.untilOnePasses(ctx); err != nil || s.m.none {
				return byStray, err
			}
		case k == 0, letIn > 0 && v.refused() > 1, len(counts) > 0 && k <= counts[0]/2:
			return byBucket, nil
		case slices.Contains(counts, k):
			return s.capOf(ctx, n, append(counts, k), k)
		default:
			counts = append(counts, k)
		}
		s.enter(PhaseGallop, "sending %d simultaneous requests again, because %d were accepted", n, k)
		var err error
		if v, err = s.volley(ctx, n); err != nil {
			return byStray, err
		}
	}
	slices.Sort(counts)
	return s.capOf(ctx, n, counts, counts[len(counts)/2])
}

// said returns the reason that rejections state themselves, in words or headers.
func (s *search) said(v *volley) (reason, bool) {
	for i := range v.replies {
		o := &v.replies[i].outcome
		switch {
		case !v.replies[i].refused():
		case o.Dimension == limits.Concurrency && o.Limit > 0:
			s.h.cap(float64(o.Limit), limits.SourceRejection)
			return bySlots, true
		case o.Dimension == limits.Concurrency:
			s.h.cap(float64(v.admitted()), limits.SourceMeasured)
			return bySlots, true
		case o.Dimension != limits.AnyDimension,
			slices.ContainsFunc(o.Readings, func(r limits.Reading) bool { return r.Remaining == 0 && r.Limit > 0 }):
			return byBucket, true
		}
	}
	return byStray, false
}

// capOf believes in a cap whose bursts had these counts of accepted requests. One or two could also be a small bucket that is
// full again: then requests that stay open for longer make sure.
func (s *search) capOf(ctx context.Context, n int, counts []int, k int) (reason, error) {
	if least, most := slices.Min(counts), slices.Max(counts); least < most {
		s.note("of %d simultaneous requests, sometimes %d and sometimes %d were accepted: other processes may use the same limit", n, least, most)
	}
	if k <= 2 {
		if bucket, err := s.holds(ctx, k); err != nil || bucket {
			return byBucket, err
		}
	}
	s.h.cap(float64(k), limits.SourceMeasured)
	return bySlots, nil
}

// holds keeps real requests open and tries lone ones beside them all the time: if one is accepted, it was a bucket.
func (s *search) holds(ctx context.Context, k int) (bucket bool, err error) {
	s.enter(PhaseGallop, "sending one more request during %d long requests", k)
	began, mean := time.Now(), s.h.latency()
	gap := min(max(seconds(mean/12), 10*time.Millisecond), 500*time.Millisecond)
	l := s.burst(ctx, &s.h.real, k)
	var lone []reply
	for err == nil {
		if err = wake.In(ctx, gap, nil); err != nil || l.pending() == 0 || time.Since(began) > seconds(0.95*mean) {
			break
		}
		var r reply
		if r, err = s.p.once(ctx, &tiny); err == nil {
			lone = append(lone, r)
		}
	}
	replies, ended := l.wait()
	if err = cmp.Or(err, ended); err != nil {
		return false, err
	}
	s.learn(&s.h.real, replies...)
	if count(replies, (*reply).refused) > 0 { // it is not as many even: a bucket that was empty
		return true, nil
	}
	end := firstEnd(replies)
	return slices.ContainsFunc(lone, func(r reply) bool { return r.accepted() && r.sent.Add(s.m.refusal).Before(end) }), nil
}

// untilOnePasses waits for the end of a storm, or for a bucket to hold a request.
func (s *search) untilOnePasses(ctx context.Context) error {
	s.enter(PhaseGallop, "waiting until one request succeeds")
	_, err := s.passing(ctx, &tiny)
	return err
}
