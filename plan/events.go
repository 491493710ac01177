package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
)

// Observed takes in the events of earlier runs, as many as there are, and says what they show. The zero value has seen
// nothing. It is not safe for concurrent use.
type Observed struct {
	lanes map[string]*laneObserver
}

// ObservedLane is what events show of one lane, which is usually a model.
type ObservedLane struct {
	Lane        string
	First, Last time.Time // of its events

	Answered, Failed int                       // calls
	Throttled        [sluice.NumDimensions]int // by the limit that was met; AnyDimension is not stated
	Peak             int                       // most calls in flight

	Limits    sluice.Limits // as headers and refusals told them, or the Scheduler measured: the last word of each
	Sustained sluice.Usage  // most tokens of answers in one minute,
	PerMinute int           // and most answers

	Latency  Spread        // of good answers, from sending to the last byte
	Base     time.Duration // the part of it that does not grow with the answer,
	PerToken time.Duration // and what each token of output adds; 0 when the two cannot be told apart
	Jitter   float64       // the sigma of a lognormal factor on both

	// Calls are a fair sample of the answered calls, at most MostSampled. What a call declared as max_tokens is not among
	// the events.
	Calls []Call
}

const (
	// MostSampled is how many calls a sample has at most.
	MostSampled = 10_000

	mostLanes = 256 // that are told apart
)

// Add takes in an event. It fails, and leaves the event out, if that makes no sense or is of one lane too many.
func (o *Observed) Add(e *sluice.Event) error {
	switch u := &e.Outcome.Usage; {
	case e.Type == "":
		return errors.New("no event: it has no type")
	case e.Latency < 0 || e.Latency > mostLatency:
		return fmt.Errorf("the latency is %v", e.Latency)
	case e.InFlight < 0:
		return fmt.Errorf("%d calls are in flight", e.InFlight)
	case min(e.Limit, e.Outcome.Limit) < 0:
		return fmt.Errorf("the limit is %d", min(e.Limit, e.Outcome.Limit))
	case e.Outcome.HasUsage && (min(u.Input, u.CachedInput, u.Output) < 0 || max(u.Input, u.CachedInput, u.Output) > LargestCall):
		return fmt.Errorf("usage is %d tokens in (%d of them cached) and %d out", u.Input, u.CachedInput, u.Output)
	}
	if !ofLane(e.Type) {
		return nil
	}
	l := o.lanes[e.Lane]
	if l == nil {
		if len(o.lanes) == mostLanes {
			return fmt.Errorf("lane %.100q is one more than the %d that can be told apart", e.Lane, mostLanes)
		}
		if o.lanes == nil {
			o.lanes = make(map[string]*laneObserver)
		}
		l = &laneObserver{seen: ObservedLane{Lane: e.Lane, First: e.At}, random: rand.New(rand.NewPCG(1, 2))}
		o.lanes[e.Lane] = l
	}
	l.event(e)
	return nil
}

// Lanes returns what the events show of each lane, the one with most calls first. It comes after the last Add.
func (o *Observed) Lanes() []ObservedLane {
	var lanes []ObservedLane
	for _, l := range o.lanes {
		lanes = append(lanes, l.result())
	}
	slices.SortFunc(lanes, func(a, b ObservedLane) int {
		return cmp.Or(cmp.Compare(b.Answered, a.Answered), cmp.Compare(a.Lane, b.Lane))
	})
	return lanes
}

// Scenario is the run that does the same again: the calls that were observed, against a provider as it showed itself, of
// which the client knows the limits from the start. charge says how the provider counts.
func (l *ObservedLane) Scenario(charge sluice.Charge) Scenario {
	limits := l.Limits
	if throttled := l.Throttled[sluice.AnyDimension] + l.Throttled[sluice.Requests]; limits == (sluice.Limits{Burst: limits.Burst}) && throttled > 0 {
		limits.RPM = l.PerMinute // something held calls back: what passed is as much as is known of it
	}
	s := Scenario{Provider: Imitate(limits, charge, l.Base, l.PerToken), Start: limits, Calls: l.Calls, Requests: l.Answered + l.Failed}
	s.Provider.Jitter = l.Jitter
	if len(l.Calls) == 0 {
		s.Requests = 0
	}
	return s
}

// ofLane reports whether events of that type show something of a lane.
func ofLane(t sluice.EventType) bool {
	switch t {
	case sluice.EventStarted, sluice.EventClosed, sluice.EventMemberRegistered, sluice.EventMemberClosed,
		sluice.EventPaused, sluice.EventResumed, sluice.EventItemDone:
		return false
	}
	return true
}

// laneObserver is what was seen of a lane.
type laneObserver struct {
	seen    ObservedLane
	random  *rand.Rand
	times   spread
	line    fit
	sampled int // calls that the sample was drawn from
	sample  []sampled

	minute   int64 // the present one,
	inMinute int   // and the answers
	usedIn   sluice.Usage
}

// sampled is an answered call.
type sampled struct {
	call    Call
	latency time.Duration
	usage   bool
}

func (l *laneObserver) event(e *sluice.Event) {
	s := &l.seen
	if e.At.Before(s.First) {
		s.First = e.At
	}
	if e.At.After(s.Last) {
		s.Last = e.At
	}
	s.Peak = max(s.Peak, e.InFlight)
	switch e.Type {
	case sluice.EventLimitsChanged:
		l.limit(e.Dimension, e.Limit)
	case sluice.EventThrottled:
		s.Throttled[e.Outcome.Dimension]++
		if e.Outcome.Limit > 0 {
			l.limit(e.Outcome.Dimension, e.Outcome.Limit)
		}
	case sluice.EventGaveUp:
		s.Failed++
	case sluice.EventSlotReleased:
		if e.Outcome.Kind == sluice.OK {
			l.answer(e)
		}
	}
}

// limit notes a limit that was told.
func (l *laneObserver) limit(d sluice.Dimension, limit int64) {
	if to := l.seen.Limits.At(d); to != nil {
		*to = int(min(limit, mostLimit))
	}
}

// answer notes a good answer.
func (l *laneObserver) answer(e *sluice.Event) {
	l.seen.Answered++
	l.times.add(e.Latency)
	if m := e.At.Unix() / 60; m != l.minute {
		l.endMinute()
		l.minute = m
	}
	l.inMinute++
	one := sampled{latency: e.Latency}
	if u := e.Outcome.Usage; e.Outcome.HasUsage {
		l.usedIn = l.usedIn.Add(u)
		l.line.add(float64(u.Output), e.Latency.Seconds())
		one.call, one.usage = Call{Input: u.Input, Output: u.Output}, true
		if one.call.Output == 0 {
			one.call.Output = NoOutput // to a Scenario, zero is whatever the provider likes
		}
	}
	// A reservoir: every call is as likely to be in it as any other.
	l.sampled++
	if len(l.sample) < MostSampled {
		l.sample = append(l.sample, one)
	} else if i := l.random.IntN(l.sampled); i < MostSampled {
		l.sample[i] = one
	}
}

func (l *laneObserver) endMinute() {
	s := &l.seen
	s.PerMinute = max(s.PerMinute, l.inMinute)
	s.Sustained = sluice.Usage{Input: max(s.Sustained.Input, l.usedIn.Input), CachedInput: max(s.Sustained.CachedInput, l.usedIn.CachedInput),
		Output: max(s.Sustained.Output, l.usedIn.Output)}
	l.inMinute, l.usedIn = 0, sluice.Usage{}
}

// result is what all of it shows.
func (l *laneObserver) result() ObservedLane {
	l.endMinute()
	s := l.seen
	s.Latency = l.times.result()
	base, slope := l.line.result()
	s.Base, s.PerToken = toDuration(base), toDuration(slope)
	if slope == 0 {
		s.Base = s.Latency.P50
	}
	var sum, squares, n float64
	for _, one := range l.sample {
		if one.usage {
			s.Calls = append(s.Calls, one.call)
		}
		foreseen := s.Base + time.Duration(max(0, one.call.Output))*s.PerToken
		if one.latency > 0 && foreseen > 0 && (one.usage || slope == 0) {
			x := math.Log(one.latency.Seconds() / foreseen.Seconds())
			sum, squares, n = sum+x, squares+x*x, n+1
		}
	}
	if n > 1 {
		s.Jitter = math.Sqrt(max(0, squares/n-sum/n*sum/n))
	}
	return s
}

func toDuration(seconds float64) time.Duration {
	return time.Duration(min(seconds*1e9, math.MaxInt64/2))
}

// fit is a straight line through points, by least squares.
type fit struct{ n, x, y, xx, xy, yy float64 }

func (f *fit) add(x, y float64) {
	f.n++
	f.x += x
	f.y += y
	f.xx += x * x
	f.xy += x * y
	f.yy += y * y
}

// result is the line's height at 0 and its slope. The slope is 0 where nothing certain can be said of it.
func (f *fit) result() (base, slope float64) {
	const (
		enough    = 20  // points
		certainty = 0.5 // of the correlation
	)
	covariance, spreadX, spreadY := f.n*f.xy-f.x*f.y, f.n*f.xx-f.x*f.x, f.n*f.yy-f.y*f.y
	if f.n < enough || spreadX <= 1e-9*f.n*f.xx || spreadY <= 0 || covariance < certainty*math.Sqrt(spreadX)*math.Sqrt(spreadY) {
		return 0, 0
	}
	slope = covariance / spreadX
	if base = (f.y - slope*f.x) / f.n; base < 0 { // all of it grows with the answer
		return 0, f.xy / f.xx
	}
	return base, slope
}
