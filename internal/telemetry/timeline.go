package telemetry

import (
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

const (
	mostBins   = 360
	firstWidth = 250 * time.Millisecond
	mostMarks  = 300 // pauses, and changes of limits, of a lane
)

// Bin is what happened in one part of the running time, in a lane.
type Bin struct {
	Sent      int `json:"sent"`          // Requests that started.
	Answered  int `json:"answered"`      // Successful requests.
	Throttled int `json:"throttled"`     // Rate-limited requests.
	Failed    int `json:"failed"`        // Failed attempts.
	Input     int `json:"input_tokens"`  // Input tokens.
	Output    int `json:"output_tokens"` // Output tokens.
	InFlight  int `json:"in_flight"`     // Maximum number of requests in flight.
	Slots     int `json:"concurrency"`   // Allowed concurrency.
	Waiting   int `json:"waiting"`       // Maximum waiting requests.
}

// with is two bins in one.
func (b Bin) with(c Bin) Bin {
	return Bin{
		b.Sent + c.Sent, b.Answered + c.Answered, b.Throttled + c.Throttled, b.Failed + c.Failed, b.Input + c.Input, b.Output + c.Output,
		max(b.InFlight, c.InFlight), max(b.Slots, c.Slots), max(b.Waiting, c.Waiting),
	}
}

// timeline is what happened over the running time, in a bounded number of bins, which become wider as it grows.
type timeline struct {
	width  time.Duration
	bins   []Bin
	pauses []span
	limits []limitAt
	state  Bin // calls in flight, slots and waiting as they were last told
}

// span is a pause of a lane.
type span struct {
	from, to time.Duration
	kind     sluice.Kind
}

// limitAt is a limit that holds from then on.
type limitAt struct {
	x     time.Duration
	d     limits.Dimension
	limit int64
}

// at is the bin of an instant. It is good until the next call.
func (t *timeline) at(x time.Duration) *Bin {
	if t.width == 0 {
		t.width = firstWidth
	}
	x = max(0, x)
	for x/t.width >= mostBins {
		t.widen()
	}
	for i := int(x / t.width); i >= len(t.bins); {
		t.bins = append(t.bins, t.state)
	}
	return &t.bins[x/t.width]
}

// see keeps in the bin of an instant the most that an event tells of, and begins the next ones with that.
func (t *timeline) see(x time.Duration, e *sluice.Event) {
	t.state = Bin{InFlight: e.InFlight, Slots: e.Slots, Waiting: e.Waiting}
	b := t.at(x)
	*b = b.with(t.state)
}

func (t *timeline) widen() {
	n := 0
	for i := 0; i < len(t.bins); i += 2 {
		b := t.bins[i]
		if i+1 < len(t.bins) {
			b = b.with(t.bins[i+1])
		}
		t.bins[n] = b
		n++
	}
	t.bins = t.bins[:n]
	t.width *= 2
}

// pause marks a pause, which resume may end later than was foreseen.
func (t *timeline) pause(from, to time.Duration, kind sluice.Kind) {
	if n := len(t.pauses); n > 0 && t.pauses[n-1].to >= from || n == mostMarks {
		t.pauses[n-1].to = max(t.pauses[n-1].to, to)
		return
	}
	t.pauses = append(t.pauses, span{from, to, kind})
}

func (t *timeline) resume(x time.Duration) {
	if n := len(t.pauses); n > 0 {
		t.pauses[n-1].to = max(t.pauses[n-1].to, x)
	}
}

func (t *timeline) limit(x time.Duration, d limits.Dimension, limit int64) {
	if len(t.limits) == mostMarks { // it changes all the time: only the last word counts
		t.limits = t.limits[:mostMarks-1]
	}
	t.limits = append(t.limits, limitAt{x, d, limit})
}

// quota is what was used of a limit in each bin, and what was known then to be allowed in a bin's time; 0 is not known.
func (t *timeline) quota(d limits.Dimension) (used, allowed []int64) {
	limit, next := int64(0), 0
	for i := range t.bins {
		for end := time.Duration(i+1) * t.width; next < len(t.limits) && t.limits[next].x < end; next++ {
			if t.limits[next].d == d {
				limit = t.limits[next].limit
			}
		}
		used = append(used, t.bins[i].used(d))
		allowed = append(allowed, int64(float64(limit)*float64(t.width)/float64(d.Window())+0.5))
	}
	return used, allowed
}

// used is what was used of a limit.
func (b *Bin) used(d limits.Dimension) int64 {
	if d.Per(time.Minute) == limits.Requests {
		return int64(max(0, b.Sent-b.Throttled)) // who is refused pays nothing
	}
	return int64(sluice.Usage{Input: b.Input, Output: b.Output}.Amount(d))
}

// clone is a copy that stays as it is.
func (t *timeline) clone() *timeline {
	return &timeline{t.width, slices.Clone(t.bins), slices.Clone(t.pauses), slices.Clone(t.limits), t.state}
}
