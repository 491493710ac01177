package fifo

import (
	"cmp"
	"math"
	"slices"
)

// The law of a service time's logarithm, around its middle. Spreads are steps on a scale, so that what a law needs can be
// computed once.
const (
	leastSpread = 0.02 // of a scheduler and a network that are quick; what is computed has none, and no likelihood either
	spreadRatio = 1.06
	mostSpread  = 67 // the step of about 1

	wild       = 0.01 // of calls whose time has nothing to do with the others'
	wildMiddle = 0.7
	wildSpread = 1.2

	// brief is the part of a service's usual time that nothing is told below: two ends at once say no more than two that
	// nearly are.
	brief = 0.05

	lawReach = 4.0 // beyond 50 times more or less, nothing changes
)

// law holds, at even distances, the logarithm of the density of a service time's logarithm, that of the chance to take even
// longer, and the hazard: the density over that chance.
type law struct {
	step                 float64
	density, alive, fate []float64
}

// laws are those that were needed so far.
type laws [mostSpread + 1]*law

// spreadOf is the step of a standard deviation.
func spreadOf(sigma float64) int {
	return min(mostSpread, max(0, int(math.Round(math.Log(sigma/leastSpread)/math.Log(spreadRatio)))))
}

// sigmaOf is the standard deviation of a step.
func sigmaOf(spread int) float64 { return leastSpread * math.Pow(spreadRatio, float64(spread)) }

func (ls *laws) of(spread int) *law {
	spread = min(mostSpread, max(0, spread))
	if ls[spread] != nil {
		return ls[spread]
	}
	sigma := sigmaOf(spread)
	l := &law{step: min(sigma/8, 0.05)}
	n := int(2*lawReach/l.step) + 2
	l.density, l.alive, l.fate = make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		y := float64(i)*l.step - lawReach
		f := (1-wild)*normal(y, 0, sigma) + wild*normal(y, wildMiddle, wildSpread)
		s := ((1-wild)*math.Erfc(y/sigma/math.Sqrt2) + wild*math.Erfc((y-wildMiddle)/wildSpread/math.Sqrt2)) / 2
		l.density[i], l.alive[i], l.fate[i] = math.Log(f), math.Log(s), f/s
	}
	ls[spread] = l
	return l
}

// at finds where y lies: between which entry and the next, and how far.
func (l *law) at(y float64) (i int, part float64) {
	p := (y + lawReach) / l.step
	if !(p > 0) {
		return 0, 0
	}
	if i = int(p); i > len(l.density)-2 {
		return len(l.density) - 2, 1
	}
	return i, p - float64(i)
}

func (l *law) logDensity(y float64) float64 {
	i, part := l.at(y)
	return l.density[i] + part*(l.density[i+1]-l.density[i])
}

func normal(x, middle, sigma float64) float64 {
	z := (x - middle) / sigma
	return math.Exp(-z*z/2) / (sigma * math.Sqrt(2*math.Pi))
}

// alone is the log-likelihood of a burst whose calls do not mind each other.
func (v *volley) alone(l *law, mid float64) float64 {
	sum := 0.0
	for _, x := range v.took {
		sum += l.logDensity(x-mid) - x
	}
	return sum
}

// guesses is how many guesses a replay goes by. Their number moves a score of 100 calls by 0.1 to 0.3.
const guesses = 16

// call is one of a burst in a replay.
type call struct {
	slower float64 // logarithm of how much slower it is
	alive  float64 // logarithm of its chance to be open still
	lasted float64 // how much that fell since the last end
	fate   float64 // the rate at which it ends now, if it is open
}

// replay is the log-likelihood of a burst where so many calls are served at once, the others begin, in order, when one ends,
// and call k, if slower is given, takes that much longer.
//
// A call ends every now and then, but which of the open ones it was is not known, and decides how old those are that are
// left. So several guesses go through the burst side by side: each draws the call that ended, by the rates at which its
// open calls end at their age. Guesses under which what is seen next is unlikely give way to others (a particle filter). The
// mean of their weights is the likelihood, whatever the number of guesses is.
func (v *volley) replay(l *law, mid float64, places int, slower []float64) float64 {
	v.measure()
	n := len(v.ended)
	r := replay{volley: v, calls: make([]call, n), started: min(places, n), places: places}
	for k, s := range slower {
		r.calls[k].slower = s
	}
	for g := range r.open {
		r.open[g], r.spare[g] = make([]int32, r.started), make([]int32, r.started)
		for k := range r.open[g] {
			r.open[g][k] = int32(k)
		}
	}
	all, _ := math.Lgamma(float64(n) + 1) // orders in which the same instants can be told
	score := -all
	for i := range v.ended {
		r.age(l, mid, i)
		score += r.end()
		if math.IsInf(score, -1) {
			return score
		}
	}
	return score
}

// measure computes what every replay needs.
func (v *volley) measure() {
	if v.sinceCame != nil {
		return
	}
	for _, t := range v.ended {
		came, ended := make([]float64, len(v.came)), make([]float64, len(v.ended))
		for j := range v.came {
			came[j], ended[j] = math.Log(t-v.came[j]), math.Log(t-max(v.ended[j], v.came[j]))
		}
		v.sinceCame, v.sinceEnded = append(v.sinceCame, came), append(v.sinceEnded, ended)
	}
}

// replay is a burst that is being replayed.
type replay struct {
	*volley
	places  int
	calls   []call // as they begin
	started int
	open    [guesses][]int32 // the open calls of each guess
	spare   [guesses][]int32
	lasted  [guesses]float64
	weight  [guesses]float64
	luck    uint64
}

// age moves the calls on to the i-th end.
func (r *replay) age(l *law, mid float64, i int) {
	t, least := r.ended[i], brief*math.Exp(mid)
	for k := range r.calls[:r.started] {
		c := &r.calls[k]
		since, start := r.sinceCame[i][k], r.came[k]
		if k >= r.places {
			since, start = min(since, r.sinceEnded[i][k-r.places]), max(start, r.ended[k-r.places])
		}
		if c.fate, c.lasted = 0, 0; t <= start {
			continue
		}
		j, part := l.at(since - mid - c.slower)
		alive := l.alive[j] + part*(l.alive[j+1]-l.alive[j])
		c.lasted, c.alive = alive-c.alive, alive
		c.fate = (l.fate[j] + part*(l.fate[j+1]-l.fate[j])) / max(t-start, least)
	}
}

// end has each guess draw the call that ended, begins the next one, and returns the logarithm of how likely that end was.
func (r *replay) end() float64 {
	most, turn := math.Inf(-1), int(r.random()*guesses)
	for g, open := range r.open {
		rate, lasted := 0.0, 0.0
		for _, k := range open {
			rate += r.calls[k].fate
			lasted += r.calls[k].lasted
		}
		r.lasted[g], r.weight[g] = lasted, rate
		most = max(most, lasted)
		// Draws are spread evenly, as long as guesses are alike.
		left := (float64((7*g+turn)%guesses) + r.random()) / guesses * rate
		at := 0
		for ; at < len(open)-1; at++ {
			if left -= r.calls[open[at]].fate; left < 0 {
				break
			}
		}
		if r.started < len(r.calls) {
			open[at] = int32(r.started)
		} else {
			open[at] = open[len(open)-1]
			r.open[g] = open[:len(open)-1]
		}
	}
	r.started = min(r.started+1, len(r.calls))
	sum := 0.0
	for g := range r.weight {
		r.weight[g] *= math.Exp(r.lasted[g] - most)
		sum += r.weight[g]
	}
	r.choose(sum)
	return most + math.Log(sum/guesses)
}

// choose lets each guess go on as often as its weight deserves.
func (r *replay) choose(sum float64) {
	mark, from, reached := r.random(), 0, r.weight[0]
	for g := range r.spare {
		for from < guesses-1 && reached < (float64(g)+mark)/guesses*sum {
			from++
			reached += r.weight[from]
		}
		r.spare[g] = append(r.spare[g][:0], r.open[from]...)
	}
	r.open, r.spare = r.spare, r.open
}

// random is even between 0 and 1, and the same in every replay.
func (r *replay) random() float64 {
	r.luck++
	return float64(mix(r.luck)>>11) / (1 << 53)
}

// fit is an explanation with its law.
type fit struct {
	places int     // of a queue
	detour float64 // of the quickest call's time, that part which it spends elsewhere, such as on its way
	first  int     // of growth: so many calls do not slow each other
	growth float64

	mid    float64 // of the law
	spread int
	score  float64
}

// bestFirst orders the indices of fits by their score.
func bestFirst(fits []fit) []int {
	order := make([]int, len(fits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fits[b].score, fits[a].score) })
	return order
}

// climb improves the law of a fit, as long as that is worth it.
func climb(f fit, score func(fit) float64) fit {
	if f.score = score(f); math.IsInf(f.score, -1) {
		return f
	}
	try := func(g fit) float64 {
		if g.spread < 0 || g.spread > mostSpread {
			return math.Inf(-1)
		}
		if g.score = score(g); g.score > f.score {
			f = g
		}
		return g.score
	}
	for range 6 {
		from := f
		step := sigmaOf(from.spread) / 4
		low, high := from, from
		low.mid, high.mid = low.mid-step, high.mid+step
		if at := peak(try(low), from.score, try(high)); at != 0 {
			from.mid += step * at
			try(from)
		}
		middle := f
		low, high = middle, middle
		low.spread, high.spread = low.spread-3, high.spread+3
		if at := int(math.Round(3 * peak(try(low), middle.score, try(high)))); at != 0 {
			middle.spread = min(mostSpread, max(0, middle.spread+at))
			try(middle)
		}
		if f.score < from.score+0.1 {
			break
		}
	}
	return f
}

// peak is where the parabola through values at -1, 0 and 1 is highest, no further than 4 steps away.
func peak(low, mid, high float64) float64 {
	bend := low + high - 2*mid
	switch {
	case math.IsInf(low, -1) && high <= mid:
		return -1.0 / 3
	case !(bend < 0) || math.IsInf(bend, 0):
		if high > low {
			return 3
		}
		return -3
	}
	return max(-4, min(4, (low-high)/bend/2))
}

// guess is the middle and the spread of x, whatever a few of it are.
func guess(x []float64) (mid float64, spread int) {
	mid, sigma := centre(x)
	return mid, spreadOf(max(sigma, leastSpread))
}

func centre(x []float64) (mid, sigma float64) {
	mid = median(x)
	off := make([]float64, len(x))
	for i, y := range x {
		off[i] = math.Abs(y - mid)
	}
	return mid, 1.4826 * median(off)
}

func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
