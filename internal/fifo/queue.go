// Package fifo tells from latencies whether a server that refuses nobody lets calls wait in line, and how many it serves at
// once. It is arithmetic on what was measured, and takes some milliseconds.
package fifo

import (
	"math"
	"slices"
	"time"
)

// A self-hosted server often serves so many calls at once and lets the others wait, in order and without a word: it refuses
// nobody, and more workers only wait longer. A burst of calls sent at the same time shows it, but by its latencies alone, and
// these also differ where there is no queue. So the explanations compete, each by the likelihood of what was seen (of the
// instants at which calls ended; which call is which is not known, as a network shuffles a burst):
//
//	queue      n calls are served at once; the k-th call begins when the (k-n)-th ends
//	sharing    the server's power is shared: n calls are served at full speed, more slow each other down, or no call minds the
//	           others; one in five, at most, may take some times as long (cold starts, retries inside)
//	growth     every call that is open when one is sent, beyond the first m, makes that one slower
//
// In all of them a service time has a lognormal law of its own spread, and is something else altogether, such as a call that
// hung, one time in a hundred. Evidence for a queue is by how much its log-likelihood is above that of the best other one.
//
// Thresholds come from simulation, which the tests repeat on a smaller scale: servers without a queue (constant with sigma 0
// to 0.8, of two kinds, Pareto, shared, growing) and with one of 1 to 64 places (sigma 0 to 0.5), met by bursts of 4, 8, 16,
// 32, 64 and 100 calls.
const (
	// perhapsQueue is the evidence that makes two more bursts worth their price.
	perhapsQueue = 3
	// surelyQueue is the evidence that decides.
	surelyQueue = 6
	// waitingBursts is how many bursts must have been larger than the queue's places for a decision: in a single one, chance
	// may have made just so many calls slow.
	waitingBursts = 3
	waitingCalls  = 6 // in all of them
)

// Flight is one answered call of a burst.
type Flight struct {
	Sent time.Duration // since the burst began
	Took time.Duration
}

// Fit tells from the latencies of bursts whether the server serves so many calls at once and lets the others wait, in
// order and without a word. Bursts may differ in size; those of fewer calls than there are places show what a call takes
// when none waits, which makes the count exact: give all that were made with the same calls, also lone ones.
//
// No places: there is no sign of a queue. Places, but not sure: there may be one, and two more bursts of at least twice as
// many calls, and no fewer than the largest so far, would tell. Sure: a queue of so many places explains what was seen far
// better than latencies that do not depend on the load, and than latencies that grow with it.
func Fit(bursts [][]Flight) (places int, sure bool) {
	v := judge(bursts)
	if v.evidence < perhapsQueue {
		return 0, false
	}
	return v.places, v.evidence >= surelyQueue && v.bursts >= waitingBursts && v.calls >= waitingCalls
}

// verdict is how well a queue explains what was seen.
type verdict struct {
	places   int
	bursts   int     // with more calls than places
	calls    int     // that waited
	evidence float64 // log-likelihood above that of the best other explanation
}

// judge compares the explanations. The one that costs much time comes last, and only where there is evidence left.
func judge(bursts [][]Flight) verdict {
	r := newRecord(bursts)
	if r.widest < 2 {
		return verdict{evidence: math.Inf(-1)}
	}
	queue := r.queue()
	v := verdict{places: queue.places}
	for _, b := range r.volleys {
		if wait := len(b.ended) - v.places; wait > 0 {
			v.bursts++
			v.calls += wait
		}
	}
	best := math.Inf(-1)
	for detour := 0.0; detour <= mostDetour; detour += 0.1 {
		vs := r.without(detour * r.quickest)
		best = max(best, sharing(vs)-costOf(detour))
	}
	if v.evidence = queue.score - best; v.evidence >= perhapsQueue {
		v.evidence = min(v.evidence, queue.score-r.growth(queue.detour))
	}
	return v
}

// record is what was seen, ordered, in a unit of its own so that nothing depends on how long calls take.
type record struct {
	bursts   [][]Flight
	unit     float64
	volleys  []volley
	nearer   map[float64][]volley // without so much of a detour
	widest   int                  // calls of the largest burst
	quickest float64              // the least latency
	laws     laws
}

// volley is one burst.
type volley struct {
	came, ended []float64 // instants, each in order
	took        []float64 // logarithms of latencies
	// Logarithms of the time from came[j], or ended[j], until ended[i], once a replay needed them.
	sinceCame, sinceEnded [][]float64
}

// mostCalls is how many calls a burst may have that is looked at: replays take time and room by the square of it.
const mostCalls = 256

// newRecord orders bursts. Calls that took no time cannot have been made.
func newRecord(bursts [][]Flight) *record {
	bursts = slices.DeleteFunc(slices.Clone(bursts), func(b []Flight) bool { return len(b) > mostCalls })
	var all []float64
	for _, b := range bursts {
		for _, f := range b {
			if f.Took > 0 {
				all = append(all, float64(f.Took))
			}
		}
	}
	r := &record{nearer: make(map[float64][]volley)}
	if len(all) == 0 {
		return r
	}
	r.bursts, r.unit = bursts, median(all)
	r.quickest = slices.Min(all) / r.unit
	r.volleys = r.without(0)
	for _, v := range r.volleys {
		r.widest = max(r.widest, len(v.ended))
	}
	return r
}

// without are the bursts as if calls came later by a detour.
func (r *record) without(detour float64) []volley {
	if vs, ok := r.nearer[detour]; ok {
		return vs
	}
	var vs []volley
	for _, b := range r.bursts {
		if v := newVolley(b, r.unit, detour); len(v.ended) > 0 {
			vs = append(vs, v)
		}
	}
	r.nearer[detour] = vs
	return vs
}

func newVolley(burst []Flight, unit, detour float64) volley {
	var v volley
	for _, f := range burst {
		if f.Took > 0 {
			v.came = append(v.came, float64(f.Sent)/unit+detour)
			v.ended = append(v.ended, float64(f.Sent+f.Took)/unit)
			v.took = append(v.took, math.Log(float64(f.Took)/unit-detour))
		}
	}
	slices.Sort(v.came)
	slices.Sort(v.ended)
	slices.Sort(v.took)
	return v
}

// inOrder are the logarithms of service times if calls end in the order in which they begin, which they nearly do.
func (v *volley) inOrder(places int) []float64 {
	x := make([]float64, len(v.ended))
	for k, t := range v.ended {
		began := v.came[k]
		if k >= places {
			began = max(began, v.ended[k-places])
		}
		x[k] = math.Log(max(t-began, 1e-3))
	}
	return x
}

// queue finds the number of places by which a queue explains the record best.
func (r *record) queue() fit {
	best := fit{score: math.Inf(-1)}
	tried := make(map[[2]float64]bool)
	try := func(f fit) bool {
		key := [2]float64{float64(f.places), f.detour}
		if tried[key] || f.places < 1 || f.places >= r.widest || f.detour < 0 || f.detour > mostDetour {
			return false
		}
		tried[key] = true
		if best.places > 0 && r.queueScore(f) < best.score-farBelow {
			return false
		}
		if f = climb(f, r.queueScore); f.score <= best.score {
			return false
		}
		best = f
		return true
	}
	for _, f := range r.queueGuesses() {
		if f = climb(f, r.queueScore); f.score > best.score {
			best = f
		}
	}
	for step, turn := max(1, best.places/8), 0.1; ; {
		moved := false
		for _, by := range []int{-step, step} {
			f := best
			f.places += by
			moved = try(f) || moved
		}
		for _, by := range []float64{-turn, turn} {
			f := best
			f.detour = math.Round(100*(f.detour+by)) / 100
			moved = try(f) || moved
		}
		switch {
		case moved:
		case step == 1 && turn < 0.05:
			return best
		default:
			step, turn = max(1, step/2), max(turn/2, 0.025)
		}
	}
}

// farBelow is a score below the best that a better law will not make up for.
const farBelow = 10

// queueGuesses are the few fits, of many numbers of places looked at in passing, that are worth a closer look.
func (r *record) queueGuesses() []fit {
	var rough []fit
	top := math.Inf(-1)
	for _, detour := range []float64{0, 0.2, 0.4, 0.6} {
		var all []fit
		for places := 1; places < r.widest; places++ {
			all = append(all, r.glance(places, detour))
		}
		// Where spreads are small, ends are in order and the best stand out here; where they are large, neighbours are alike
		// and one in some is enough.
		order, next, ratio := bestFirst(all), 1, 1.2
		if detour > 0 {
			ratio = 1.5
		}
		for i, f := range all {
			if f.places < next && !slices.Contains(order[:min(4, len(order))], i) {
				continue
			}
			next = max(f.places+1, int(ratio*float64(f.places)))
			f.score = r.queueScore(f)
			rough = append(rough, f)
			if top = max(top, f.score); f.score > top-3*farBelow {
				f.spread += 8 // it seems less than it is
				f.score = r.queueScore(f)
				rough = append(rough, f)
			}
		}
	}
	var few []fit
	for _, i := range bestFirst(rough) {
		if !slices.ContainsFunc(few, func(f fit) bool { return f.places == rough[i].places && f.detour == rough[i].detour }) {
			few = append(few, rough[i])
		}
	}
	return few[:min(4, len(few))]
}

// glance is the fit if calls end in the order in which they begin.
func (r *record) glance(places int, detour float64) fit {
	f := fit{places: places, detour: detour}
	var x []float64
	for _, v := range r.without(detour * r.quickest) {
		x = append(x, v.inOrder(places)...)
	}
	f.mid, f.spread = guess(x)
	l := r.laws.of(f.spread)
	for _, y := range x {
		f.score += l.logDensity(y-f.mid) - y
	}
	return f
}

const (
	mostDetour = 0.7
	// leastService is the least part of the quickest call's time that a service takes. Otherwise any calls that end at about
	// the same time would look like services of next to nothing, one after the other.
	leastService = 0.2
)

// costOf is by how much more likely a detour must make a record, as it could explain a little of any.
func costOf(detour float64) float64 {
	if detour > 0 {
		return 2
	}
	return 0
}

// queueScore is the log-likelihood of the record in a queue.
func (r *record) queueScore(f fit) float64 {
	if f.mid < math.Log(leastService*r.quickest) {
		return math.Inf(-1)
	}
	// A service that is shorter than the quickest call cannot be more regular than the network is for that call.
	l := r.laws.of(max(f.spread, spreadOf(leastSpread*max(1, r.quickest*math.Exp(-f.mid)))))
	sum := -costOf(f.detour)
	vs := r.without(f.detour * r.quickest)
	for i := range vs {
		if v := &vs[i]; f.places >= len(v.ended) {
			sum += v.alone(l, f.mid)
		} else {
			sum += v.replay(l, f.mid, f.places, nil)
		}
	}
	return sum
}
