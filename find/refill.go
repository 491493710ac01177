package find

import (
	"math"
	"slices"
	"time"
)

// shot is one call of an open loop, in the order of sending.
type shot struct {
	at      time.Time
	granted bool
	failed  bool // nobody knows whether it was counted
}

// refilled is what an open loop tells of the bucket that refused.
type refilled struct {
	perSecond float64
	grants    int
	failed    int
	margin    float64 // the rate may be so much off, relatively
	clumped   bool    // filled now and then rather than continuously
}

// oddInterval is by how much an interval's own rate differs from the usual one when something else happened in it.
const oddInterval = 3

// refill tells how fast a bucket is refilled, from a loop that asks more often. A grant right after a refusal marks the
// instant at which the bucket held a call again, to within the gap between the two: what was granted from one such mark to
// another is what flowed in between them. Intervals that are far from the usual are left out: a storm, which ends in a
// full bucket, or a stray refusal.
func refill(shots []shot) refilled {
	told := make([]shot, 0, len(shots))
	for _, s := range shots {
		if !s.failed {
			told = append(told, s)
		}
	}
	marks := marksOf(told)
	if len(marks) < 2 {
		return refilled{}
	}
	type interval struct {
		grants int
		took   float64
		blur   float64
		quiet  float64 // from its last grant to its end
	}
	var all []interval
	for i, m := range marks[1:] {
		all = append(all, interval{m.grants - marks[i].grants, m.at.Sub(marks[i].at).Seconds(), m.blur.Seconds(), m.quiet.Seconds()})
	}
	byRate := slices.Clone(all)
	slices.SortFunc(byRate, func(a, b interval) int {
		return int(math.Copysign(1, float64(a.grants)*b.took-float64(b.grants)*a.took))
	})
	// Not weighted by grants: after a stray refusal a bucket that is still full grants more than all that follows.
	middle := byRate[(len(byRate)-1)/2]
	usual := float64(middle.grants) / middle.took
	r := refilled{failed: len(shots) - len(told)}
	took, blur, clumps := 0.0, marks[0].blur.Seconds(), 0
	for _, i := range all {
		rate := float64(i.grants) / i.took
		if (rate < usual/oddInterval && i.took > 2) || (rate > usual*oddInterval && i.grants > 3) {
			continue
		}
		r.grants += i.grants
		took += i.took
		if i.grants >= 10 && i.quiet > 0.3*i.took {
			clumps++
		}
	}
	if took <= 0 {
		return refilled{}
	}
	blur = max(blur, all[len(all)-1].blur)
	r.perSecond = float64(r.grants) / took
	r.margin = max(blur/took, 0.25/float64(r.grants))
	r.clumped = clumps > 0
	return r
}

// mark is a grant right after a refusal.
type mark struct {
	at     time.Time
	grants int           // before it
	blur   time.Duration // since the refusal
	quiet  time.Duration // since the grant before
}

func marksOf(shots []shot) (marks []mark) {
	grants, last := 0, time.Time{}
	for i, s := range shots {
		if !s.granted {
			continue
		}
		if i > 0 && !shots[i-1].granted {
			marks = append(marks, mark{s.at, grants, s.at.Sub(shots[i-1].at), s.at.Sub(last)})
		}
		grants++
		last = s.at
	}
	return marks
}
