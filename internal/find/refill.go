package find

import (
	"math"
	"slices"
	"time"
)

// shot is one request of a loop, in the order of sending.
type shot struct {
	at      time.Time
	granted bool
	failed  bool // it is unknown whether it was counted
}

// refilled is the refill of the bucket that rejects requests of a loop.
type refilled struct {
	perSecond float64
	grants    int
	failed    int
	margin    float64 // relative error of the rate
	clumped   bool    // refilled now and then, not continuously
}

// oddInterval is the factor by which the rate of an interval differs from the usual one if something else happened in it.
const oddInterval = 3

// interval is the time between two marks. A mark is a grant right after a rejection: the instant at which the bucket held a
// request again, to within the gap between the two.
type interval struct {
	grants int // the first mark included
	took   float64
	blur   float64 // of the second mark
	quiet  float64 // from the grant before it
}

// intervals returns those of a loop without failed requests, and the blur of the first mark.
func intervals(shots []shot) (all []interval, blur float64) {
	var mark, last time.Time // the last mark, and the last grant
	grants := 0              // since that mark
	for i, s := range shots {
		if !s.granted {
			continue
		}
		if i > 0 && !shots[i-1].granted {
			gap := s.at.Sub(shots[i-1].at).Seconds()
			if mark.IsZero() {
				blur = gap
			} else {
				all = append(all, interval{grants, s.at.Sub(mark).Seconds(), gap, s.at.Sub(last).Seconds()})
			}
			mark, grants = s.at, 0
		}
		grants++
		last = s.at
	}
	return all, blur
}

// refill computes the refill of a bucket from a loop that asks more often: the grants between two marks are what flowed in.
// Intervals that are far from the usual are left out: a storm, which ends in a full bucket, or a stray rejection.
func refill(shots []shot) refilled {
	known := slices.DeleteFunc(slices.Clone(shots), func(s shot) bool { return s.failed })
	all, blur := intervals(known)
	if len(all) == 0 {
		return refilled{}
	}
	byRate := slices.Clone(all)
	slices.SortFunc(byRate, func(a, b interval) int {
		return int(math.Copysign(1, float64(a.grants)*b.took-float64(b.grants)*a.took))
	})
	// Not weighted by grants: after a stray rejection a bucket that is still full grants more than all later intervals.
	middle := byRate[(len(byRate)-1)/2]
	usual := float64(middle.grants) / middle.took
	r := refilled{failed: len(shots) - len(known)}
	took := 0.0
	for _, i := range all {
		rate := float64(i.grants) / i.took
		if (rate < usual/oddInterval && i.took > 2) || (rate > usual*oddInterval && i.grants > 3) {
			continue
		}
		r.grants += i.grants
		took += i.took
		r.clumped = r.clumped || i.grants >= 10 && i.quiet > 0.3*i.took
	}
	if took <= 0 {
		return refilled{}
	}
	blur = max(blur, all[len(all)-1].blur)
	r.perSecond = float64(r.grants) / took
	r.margin = max(blur/took, 0.25/float64(r.grants))
	return r
}

// refusedSince returns the share of rejected requests since the first grant after a rejection.
func refusedSince(shots []shot) float64 {
	n, refused, met := 0, 0, false
	for _, one := range shots {
		no := !one.granted && !one.failed
		met = met || no
		if one.granted && met || n > 0 {
			n++
		}
		if no && n > 0 {
			refused++
		}
	}
	return float64(refused) / float64(max(1, n))
}
