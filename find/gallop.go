package find

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fifo"
)

const (
	firstBurst  = 4
	mostRepeats = 5 // bursts of one size until a cap's count is believed
	mostStrays  = 3
	leastWait   = 0.6 // of the time that the last of a queue takes, if all calls take the least
)

// gallop doubles a burst of tiny calls until some are refused, or left to wait, or no more can be needed.
func (s *search) gallop(ctx context.Context) error {
	strays, small := 0, false
	for n := min(firstBurst, s.ceiling()); n > 1; {
		s.enter(PhaseGallop, "%d at once", n)
		v, err := s.volley(ctx, &s.tiny, n)
		if err != nil {
			return err
		}
		s.seen = max(s.seen, overlap(v.replies))
		if v.refused() == 0 {
			if found, err := s.silent(ctx, &v); err != nil || found {
				return err
			}
			if n >= s.ceiling() {
				return nil
			}
			n, strays, small = min(2*n, s.ceiling()), 0, false
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
			// Where nothing is refused afterwards it was a storm, or a bucket that is small, and refilled faster than needed.
			if done, err := s.emptied(ctx, &v); err != nil || done || small {
				return err
			}
			small = true
			continue
		}
		if strays++; strays > mostStrays {
			s.note("bursts of %d calls are refused now and then: others may be using the same limit", n)
			n, strays = min(2*n, s.ceiling()), 0
		}
		if n >= s.ceiling() && strays > 1 {
			return nil
		}
	}
	return nil
}

// emptied measures the bucket that refused, unless answers have told its limit. done says that there is one.
func (s *search) emptied(ctx context.Context, v *volley) (done bool, err error) {
	for i := range v.replies {
		if d := v.replies[i].outcome.Dimension; v.replies[i].refused() && d != sluice.AnyDimension && s.sure(d) {
			return true, nil
		}
	}
	if f := s.limits[sluice.Requests]; f.Known() && f.Source != sluice.SourceRegistry {
		return true, nil
	}
	return s.measure(ctx, sluice.Requests, &s.tiny, question{row: max(40, 5*s.seen)})
}

// silent tells whether calls of bursts wait without a word. If it looks so, two more bursts make sure.
func (s *search) silent(ctx context.Context, v *volley) (bool, error) {
	s.flights = append(s.flights, v.flights())
	places, _ := fifo.Fit(s.flights)
	if places == 0 || !s.waited(v, places) {
		return false, nil
	}
	for range 2 {
		n := min(max(2*places, len(v.replies)), s.cfg.MaxWorkers)
		s.enter(PhaseQueue, "do %d at once wait for %d places?", n, places)
		more, err := s.volley(ctx, &s.tiny, n)
		if err != nil {
			return false, err
		}
		if more.refused() == 0 {
			s.flights = append(s.flights, more.flights())
		}
	}
	places, sure := fifo.Fit(s.flights)
	if !sure || !s.waited(v, places) {
		return false, nil
	}
	s.slots = Finding{Value: float64(places), Source: sluice.SourceMeasured, At: time.Now()}
	s.queue = true
	return true, nil
}

// waited reports whether calls of a burst took as long as they have to if they wait for so many places: a network that lets
// one after the other through looks like a queue, too, but a short one.
func (s *search) waited(v *volley, places int) bool {
	longest := time.Duration(0)
	for _, f := range v.flights() {
		longest = max(longest, f.Took)
	}
	turns := (len(v.replies) + places - 1) / max(1, places)
	return longest.Seconds() > leastWait*float64(turns)*s.least.Seconds()
}

// reason is why calls of a burst were refused.
type reason int

const (
	byStray  reason = iota // for no reason that lasts
	bySlots                // too many open
	byBucket               // too many in too short a time
)

// separate finds out why some calls of a burst were refused, by more bursts of as many. A cap has its value then.
func (s *search) separate(ctx context.Context, v volley, n int) (reason, error) {
	var counts []int
	empty := false
	for len(counts) < mostRepeats {
		if said, ok := s.said(&v); ok {
			return said, nil
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
			if err := s.untilOnePasses(ctx); err != nil || s.none {
				return byStray, err
			}
		case k == 0, letIn > 0 && v.refused() > 1, len(counts) > 0 && k <= counts[0]/2:
			return byBucket, nil
		case slices.Contains(counts, k):
			s.wavering(n, append(counts, k))
			return s.capOf(ctx, k)
		default:
			counts = append(counts, k)
		}
		s.enter(PhaseGallop, "%d at once again: %d were accepted", n, k)
		var err error
		if v, err = s.volley(ctx, &s.tiny, n); err != nil {
			return byStray, err
		}
	}
	slices.Sort(counts)
	s.wavering(n, counts)
	return s.capOf(ctx, counts[len(counts)/2])
}

// wavering says so when bursts of as many calls were not let in alike.
func (s *search) wavering(n int, counts []int) {
	if least, most := slices.Min(counts), slices.Max(counts); least < most {
		s.note("of %d calls at once, now %d were accepted and now %d: others may be using the same limit", n, least, most)
	}
}

// said is the reason that refusals give themselves, in words or headers.
func (s *search) said(v *volley) (reason, bool) {
	for i := range v.replies {
		r := &v.replies[i]
		if !r.refused() {
			continue
		}
		switch o := &r.outcome; o.Dimension {
		case sluice.Concurrency:
			if o.Limit > 0 {
				s.slots = Finding{Value: float64(o.Limit), Source: sluice.SourceRefusal, At: r.done}
				return bySlots, true
			}
			s.slots = Finding{Value: float64(v.admitted()), Source: sluice.SourceMeasured, At: r.done}
			return bySlots, true
		case sluice.AnyDimension:
			for _, reading := range o.Readings {
				if reading.Remaining == 0 && reading.Limit > 0 {
					return byBucket, true
				}
			}
		default:
			return byBucket, true
		}
	}
	return byStray, false
}

// capOf believes in a cap whose bursts let so many in. As few could be a small bucket that is full again: then calls that
// stay open for longer make sure.
func (s *search) capOf(ctx context.Context, k int) (reason, error) {
	if k <= 2 {
		if bucket, err := s.holds(ctx, k); err != nil || bucket {
			return byBucket, err
		}
	}
	s.slots = Finding{Value: float64(k), Source: sluice.SourceMeasured, At: time.Now()}
	return bySlots, nil
}

// holds keeps real calls open and tries lone ones beside them all the time: if one passes, it was a bucket.
func (s *search) holds(ctx context.Context, k int) (bucket bool, err error) {
	s.enter(PhaseGallop, "one more beside %d long calls", k)
	type end struct {
		replies []reply
		err     error
	}
	ended := make(chan end, 1)
	began := time.Now()
	go func() {
		replies, err := s.p.burst(ctx, &s.real, k)
		ended <- end{replies, err}
	}()
	gap := min(max(seconds(s.latency.mean()/12), 10*time.Millisecond), 500*time.Millisecond)
	var lone []reply
	var e end
	for open := true; open; {
		timer := time.NewTimer(gap)
		select {
		case e = <-ended:
			open = false
		case <-timer.C:
			if time.Since(began) > seconds(0.95*s.latency.mean()) {
				continue
			}
			r, err := s.p.once(ctx, &s.tiny)
			if err != nil {
				e = <-ended
				return false, err
			}
			lone = append(lone, r)
		}
		timer.Stop()
	}
	if e.err != nil {
		return false, e.err
	}
	s.learn(&s.real, e.replies...)
	held := volley{replies: e.replies}
	first := held.firstEnd()
	if held.admitted() < k { // it is not as many even: a bucket that was empty
		return true, nil
	}
	for i := range lone {
		if lone[i].accepted() && lone[i].sent.Add(s.refusal).Before(first) {
			return true, nil
		}
	}
	return false, nil
}

// untilOnePasses waits for the end of a storm, or for a bucket to hold a call.
func (s *search) untilOnePasses(ctx context.Context) error {
	s.enter(PhaseGallop, "until one passes")
	_, err := s.passing(ctx, &s.tiny)
	return err
}
