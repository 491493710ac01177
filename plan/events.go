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
	"github.com/sluice-llm/sluice/limits"
)

// Observed takes in the events of earlier runs, as many as there are, and says what they show. The zero value has seen
// nothing. It is not safe for concurrent use.
type Observed struct {
	lanes map[string]*laneObserver
}

// ObservedLane is what events show of one lane, which is usually a model.
type ObservedLane struct {
	Traffic
	Limits sluice.Limits `json:"-"` // as headers and rejections stated them, or the Scheduler measured: the last value of each
	Measured

	// Calls are a fair sample of the answered calls, at most MaxSampled. What a call declared as max_tokens is not among
	// the events.
	Calls []Call `json:"-"`
}

// Traffic counts the calls of a lane.
type Traffic struct {
	From      string    `json:"from"` // the file, if the caller sets it
	Lane      string    `json:"lane"`
	First     time.Time `json:"first,omitzero"` // event,
	Last      time.Time `json:"last,omitzero"`
	Cut       bool      `json:"last_line_cut,omitempty"` // the last line of the file was incomplete, if the caller sets it
	Answered  int       `json:"answered"`
	Failed    int       `json:"failed"`
	Throttled Counts    `json:"throttled_by,omitzero"` // by the limit that was met
	Peak      int       `json:"peak_in_flight"`
}

// Measured is what the calls of a lane used and how long they took.
type Measured struct {
	PerMinute int          `json:"most_answers_per_minute"`
	Sustained sluice.Usage `json:"most_per_minute"` // maximum tokens of responses in one minute

	Latency  Spread  `json:"latency_ms"`                  // of good responses, from sending to the last byte
	Base     Millis  `json:"latency_base_ms"`             // the part of it that does not grow with the output,
	PerToken Millis  `json:"latency_per_output_token_ms"` // and what each token of output adds; 0 when the two cannot be told apart
	Jitter   float64 `json:"jitter"`                      // the sigma of a lognormal factor on both

	Sampled int     `json:"calls_sampled"` // calls with a usage, in a fair sample,
	Input   float64 `json:"input_tokens"`  // and their mean tokens
	Output  float64 `json:"output_tokens"`
}

const (
	// MaxSampled is how many calls a sample has at most.
	MaxSampled = 10_000

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
		l = &laneObserver{sample: newReservoir[sampled](MaxSampled), seen: ObservedLane{Traffic: Traffic{Lane: e.Lane, First: e.At}}}
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
func (l *ObservedLane) Scenario(charge limits.Charge) Scenario {
	bounds := l.Limits
	if throttled := l.Throttled[limits.AnyDimension] + l.Throttled[limits.Requests]; bounds == (sluice.Limits{Burst: bounds.Burst}) && throttled > 0 {
		bounds.RPM = l.PerMinute // something held calls back: what passed is as much as is known of it
	}
	s := Scenario{Provider: SimulatorConfig(bounds, charge, l.Base.Duration, l.PerToken.Duration), Start: bounds, Calls: l.Calls, Requests: l.Answered + l.Failed}
	s.Provider.Jitter = l.Jitter
	if len(l.Calls) == 0 {
		s.Requests = 0
	}
	return s
}

// ofLane reports whether events of that type show something of a lane.
func ofLane(t limits.EventType) bool {
	switch t {
	case limits.EventStarted, limits.EventClosed, limits.EventMemberRegistered, limits.EventMemberClosed,
		limits.EventCheckpointSaved, limits.EventCheckpointLoaded, limits.EventCheckpointDamaged,
		limits.EventPaused, limits.EventResumed, limits.EventItemDone:
		return false
	}
	return true
}

// laneObserver is what was seen of a lane.
type laneObserver struct {
	seen   ObservedLane
	times  spread
	line   fit
	sample reservoir[sampled]

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
	case limits.EventLimitsChanged:
		l.limit(e.Dimension, e.Limit)
	case limits.EventThrottled:
		s.Throttled[e.Outcome.Dimension]++
		if e.Outcome.Limit > 0 {
			l.limit(e.Outcome.Dimension, e.Outcome.Limit)
		}
	case limits.EventGaveUp:
		s.Failed++
	case limits.EventSlotReleased:
		if e.Outcome.Kind == sluice.OK {
			l.answer(e)
		}
	}
}

// limit notes a limit that was told.
func (l *laneObserver) limit(d limits.Dimension, limit int64) {
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
	l.sample.add(one)
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
	s.Base.Duration, s.PerToken.Duration = toDuration(base), toDuration(slope)
	if slope == 0 {
		s.Base = s.Latency.P50
	}
	var sum, squares, n float64
	for _, one := range l.sample.kept {
		if one.usage {
			s.Calls = append(s.Calls, one.call)
			s.Input += float64(one.call.Input)
			s.Output += float64(max(0, one.call.Output))
		}
		foreseen := s.Base.Duration + time.Duration(max(0, one.call.Output))*s.PerToken.Duration
		if one.latency > 0 && foreseen > 0 && (one.usage || slope == 0) {
			x := math.Log(one.latency.Seconds() / foreseen.Seconds())
			sum, squares, n = sum+x, squares+x*x, n+1
		}
	}
	s.Sampled = len(s.Calls)
	s.Input, s.Output = s.Input/float64(max(1, s.Sampled)), s.Output/float64(max(1, s.Sampled))
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

// reservoir is a fair sample of at most so many values, the same one each time.
type reservoir[T any] struct {
	most, seen int
	kept       []T
	random     *rand.Rand
}

func newReservoir[T any](most int) reservoir[T] {
	return reservoir[T]{most: most, random: rand.New(rand.NewPCG(1, 2))}
}

// add adds a value. Every one is as likely to be kept as any other.
func (r *reservoir[T]) add(v T) {
	if r.seen++; len(r.kept) < r.most {
		r.kept = append(r.kept, v)
	} else if i := r.random.IntN(r.seen); i < r.most {
		r.kept[i] = v
	}
}
