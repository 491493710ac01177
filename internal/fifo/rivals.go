package fifo

import "math"

// mostLate is how many calls may take some times as long as the others for no reason.
const mostLate = 0.2

func total(x []float64) float64 {
	sum := 0.0
	for _, y := range x {
		sum += y
	}
	return sum
}

// blend is the greatest log-likelihood of x under a law in which a share of calls, late at first, takes some times as long.
func blend(x []float64, late float64) float64 {
	mid, sigma := centre(x)
	sigma = max(sigma, leastSpread)
	gap, best := math.Ln2, math.Inf(-1)
	for range 100 { // expectation and maximization, in turn
		var score, n, m, sumN, sumM, square float64
		usual, slow := make([]float64, len(x)), make([]float64, len(x))
		for i, y := range x {
			a, b := (1-late-wild)*normal(y, mid, sigma), late*normal(y, mid+gap, sigma)
			all := a + b + wild*normal(y, mid+wildMiddle, wildSpread)
			score += math.Log(all)
			usual[i], slow[i] = a/all, b/all
			n, m, sumN, sumM = n+usual[i], m+slow[i], sumN+usual[i]*y, sumM+slow[i]*y
		}
		if score < best+1e-3 {
			break
		}
		best = score
		if late = min(mostLate, m/float64(len(x))); n > 1e-6 && m > 1e-6 {
			gap = min(max(sumM/m-sumN/n, 0.3), 2)
		}
		mid = (sumN + sumM - m*gap) / max(n+m, 1e-9)
		for i, y := range x {
			square += usual[i]*(y-mid)*(y-mid) + slow[i]*(y-mid-gap)*(y-mid-gap)
		}
		sigma = max(leastSpread, math.Sqrt(square/max(n+m, 1e-9)))
	}
	return best
}

// sharing is the log-likelihood if the server's power, enough for some calls at full speed, is shared by all: enough for all of
// them, no call minds the others, and a share may be late. What each call needed can be computed then, as those still open have all had the same share.
func sharing(vs []volley) float64 {
	best, widest := math.Inf(-1), 0
	for _, v := range vs {
		widest = max(widest, len(v.ended))
	}
	for full := 1; ; full = min(widest, max(full+1, full*6/5)) {
		var needs []float64
		score := 0.0
		for _, v := range vs {
			need, at := 0.0, v.came[0]
			for i, t := range v.ended {
				share := min(1, float64(full)/float64(len(v.ended)-i))
				need, at = need+max(t-at, 0)*share, t
				needs = append(needs, math.Log(max(need, 1e-3)))
				score += math.Log(share)
			}
		}
		score -= total(needs)
		best = max(best, score+blend(needs, 0))
		if full == widest {
			return max(best, score+blend(needs, 0.1))
		}
	}
}

// mostGrowth is by how much of a lone call's time each open one may slow another. Of about 1, it is a queue of one.
const mostGrowth = 0.8

// growth is the log-likelihood if calls are slower by how many were open when they were sent, beyond the first few.
func (r *record) growth(detour float64) float64 {
	best := r.growthWith(0)
	if detour > 0 {
		best = max(best, r.growthWith(detour)-costOf(detour))
	}
	return best
}

func (r *record) growthWith(detour float64) float64 {
	g := grower{vs: r.without(detour * r.quickest), laws: &r.laws}
	var all []fit
	best := math.Inf(-1)
	for first := 1; first < r.widest; first = max(first+1, first*5/4) {
		f := g.guess(first)
		all, best = append(all, f), max(best, g.exact(f))
	}
	for _, i := range bestFirst(all)[:min(2, len(all))] {
		for _, by := range []float64{0.7, 1, 1.4} {
			f := all[i]
			f.growth = min(f.growth*by, mostGrowth)
			best = max(best, climb(f, g.score).score)
		}
	}
	return best
}

// grower fits growth.
type grower struct {
	vs   []volley
	laws *laws
}

// slower are the logarithms of how much slower the calls of a burst are, as they come.
func (f fit) slower(calls int) []float64 {
	s := make([]float64, calls)
	for i := range s {
		s[i] = math.Log1p(f.growth * float64(max(0, i+1-f.first)))
	}
	return s
}

func (g *grower) score(f fit) float64 {
	l := g.laws.of(f.spread)
	sum := 0.0
	for i := range g.vs {
		if v := &g.vs[i]; f.first >= len(v.ended) {
			sum += v.alone(l, f.mid)
		} else {
			sum += v.replay(l, f.mid, len(v.ended), f.slower(len(v.ended)))
		}
	}
	return sum
}

// guess is the growth beyond the first calls by which ends in order leave the least spread.
func (g *grower) guess(first int) fit {
	best := fit{score: math.Inf(-1)}
	try := func(growth float64) bool {
		f := fit{first: first, growth: growth}
		if growth > mostGrowth {
			return false
		}
		if f.score = g.exact(f); f.score <= best.score {
			return false
		}
		best = f
		return true
	}
	for growth := mostGrowth; growth > 0.004; growth /= 1.3 {
		try(growth)
	}
	for step := 1.1; step > 1.0001; step = math.Sqrt(step) {
		_ = try(best.growth*step) || try(best.growth/step)
	}
	x, _ := g.grown(best)
	best.mid, best.spread = guess(x)
	l := g.laws.of(best.spread)
	best.score = 0
	for _, y := range x {
		best.score += l.logDensity(y - best.mid)
	}
	return best
}

// exactSpread is that of latencies that somebody computed: growth by a rule has no noise that a queue's could be told from.
const exactSpread = 0.0002

// grown are the logarithms of what calls would take alone, if they end in the order in which they were slowed, and of in how
// many orders those that were slowed could have ended.
func (g *grower) grown(f fit) (alone []float64, orders float64) {
	for _, v := range g.vs {
		for i, s := range f.slower(len(v.ended)) {
			alone = append(alone, math.Log(max(v.ended[i]-v.came[0], 1e-3))-s)
		}
		if len(v.ended) > f.first {
			all, _ := math.Lgamma(float64(len(v.ended)-f.first) + 1)
			orders += all
		}
	}
	return alone, orders
}

// exact is the log-likelihood of growth if calls end in the order in which they were slowed: less than that of any
// order, but all of it where there is no jitter.
func (g *grower) exact(f fit) float64 {
	x, orders := g.grown(f)
	n := float64(len(x))
	mid, square := total(x)/n, 0.0
	for _, y := range x {
		square += (y - mid) * (y - mid)
	}
	sigma := max(math.Sqrt(square/n), exactSpread)
	score := -orders - square/(2*sigma*sigma) - n*math.Log(sigma*math.Sqrt(2*math.Pi))
	for _, v := range g.vs {
		score -= total(v.took)
	}
	return score
}
