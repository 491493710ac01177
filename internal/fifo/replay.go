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

// replay is the log-likelihood of a burst where so many calls are served at once, the others begin, in order, when one ends,
// and call k, if slower is given, takes that much longer.
//
// Calls end one after the other, but which of the open ones ended is unknown. So each call has a chance to be still open. An end
// lowers the chances by one in all, each in proportion to the hazard of the call at its age.
func (v *volley) replay(l *law, mid float64, places int, slower []float64) float64 {
	v.measure()
	n, least := len(v.ended), brief*math.Exp(mid)
	open, alive, fate := slices.Repeat([]float64{1}, n), make([]float64, n), make([]float64, n)
	all, _ := math.Lgamma(float64(n) + 1) // orders in which the same instants can be told
	score := -all
	for i, t := range v.ended {
		rate := 0.0
		started := min(places+i, n)
		for k := range started {
			since, start := v.sinceCame[i][k], v.came[k]
			if k >= places {
				since, start = min(since, v.sinceEnded[i][k-places]), max(start, v.ended[k-places])
			}
			if fate[k] = 0; t <= start {
				continue
			}
			if slower != nil {
				since -= slower[k]
			}
			j, part := l.at(since - mid)
			was := alive[k]
			alive[k] = l.alive[j] + part*(l.alive[j+1]-l.alive[j])
			score += open[k] * (alive[k] - was)
			fate[k] = (l.fate[j] + part*(l.fate[j+1]-l.fate[j])) / max(t-start, least)
			rate += open[k] * fate[k]
		}
		if rate == 0 {
			return math.Inf(-1)
		}
		score += math.Log(rate)
		for k := range started {
			open[k] *= 1 - min(1, fate[k]/rate)
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
