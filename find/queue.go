package find

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// flight is one answered call of a burst.
type flight struct {
	sent time.Duration // since the burst began
	took time.Duration
}

// Logs of likelihood ratios.
const (
	suspicion = 3 // is worth two more bursts
	certainty = 6 // is believed
)

type judgement struct {
	places   int
	evidence float64
	sigma    float64
	fifo     float64
	rivals   map[string]float64
}

// ordering is a burst in order: when its calls came and when they ended, in units of the median latency.
type ordering struct {
	came, ended           []float64
	took                  []float64   // logarithms
	sinceCame, sinceEnded [][]float64 // log
}

func orderings(bursts [][]flight) []ordering {
	var all []float64
	for _, b := range bursts {
		for _, f := range b {
			if f.took > 0 {
				all = append(all, float64(f.took))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	unit := median(all)
	var vs []ordering
	for _, b := range bursts {
		var v ordering
		for _, f := range b {
			if f.took <= 0 {
				continue
			}
			v.came = append(v.came, float64(f.sent)/unit)
			v.ended = append(v.ended, float64(f.sent+f.took)/unit)
			v.took = append(v.took, math.Log(float64(f.took)/unit))
		}
		slices.Sort(v.came)
		slices.Sort(v.ended)
		for _, t := range v.ended {
			a, b := make([]float64, len(v.ended)), make([]float64, len(v.ended))
			for j := range a {
				a[j], b[j] = math.Log(t-v.came[j]), math.Log(t-max(v.ended[j], v.came[j]))
			}
			v.sinceCame, v.sinceEnded = append(v.sinceCame, a), append(v.sinceEnded, b)
		}
		if len(v.took) > 0 {
			vs = append(vs, v)
		}
	}
	return vs
}

func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func judgeQueue(bursts [][]flight) judgement {
	vs := orderings(bursts)
	widest := 0
	for _, v := range vs {
		widest = max(widest, len(v.ended))
	}
	if widest < 2 {
		return judgement{}
	}
	laws := &laws{}
	constant := fitConstant(vs)
	best := fitPlaces(laws, vs, widest)
	v := judgement{places: best.places, sigma: best.sigma, fifo: best.score, rivals: map[string]float64{"constant": constant}}
	if best.score-constant < 2 {
		v.evidence = best.score - constant
		return v
	}
	v.rivals["own"] = fitOwn(vs)
	v.rivals["sharing"] = fitSharing(vs, widest)
	v.rivals["growth"] = fitGrowth(laws, vs, widest)
	v.evidence = math.Inf(1)
	for _, r := range v.rivals {
		v.evidence = min(v.evidence, best.score-r)
	}
	return v
}

// ---- law

const (
	wild      = 0.01
	wildShift = 0.7
	wildSigma = 1.2
	leastSig  = 0.02
	sigRatio  = 1.12
	mostLate  = 0.2
)

type law struct {
	sigma, step float64
	density     []float64 // log
	alive, fate []float64 // survival, hazard times d
}

type laws struct{ known [mostK]*law }

const mostK = 45

func (ls *laws) of(k int) *law {
	if ls.known[k] == nil {
		ls.known[k] = newLaw(leastSig * math.Pow(sigRatio, float64(k)))
	}
	return ls.known[k]
}

func index(sigma float64) int {
	return min(mostK-2, max(0, int(math.Round(math.Log(sigma/leastSig)/math.Log(sigRatio)))))
}

const reach = 5.0

func newLaw(sigma float64) *law {
	l := &law{sigma: sigma, step: min(sigma/10, 0.05)}
	n := int(2*reach/l.step) + 2
	for i := range n {
		y := float64(i)*l.step - reach
		f := (1-wild)*normal(y, 0, sigma) + wild*normal(y, wildShift, wildSigma)
		s := (1-wild)*0.5*math.Erfc(y/sigma/math.Sqrt2) + wild*0.5*math.Erfc((y-wildShift)/wildSigma/math.Sqrt2)
		l.density = append(l.density, math.Log(f))
		l.alive = append(l.alive, math.Log(s))
		l.fate = append(l.fate, f/s)
	}
	return l
}

func normal(x, m, s float64) float64 {
	z := (x - m) / s
	return math.Exp(-z*z/2) / (s * math.Sqrt(2*math.Pi))
}

func (l *law) place(y float64) (int, float64) {
	p := (y + reach) / l.step
	if !(p > 0) {
		return 0, 0
	}
	i := int(p)
	if i > len(l.density)-2 {
		return len(l.density) - 2, 1
	}
	return i, p - float64(i)
}

// ---- replay

// replay is the log-likelihood of a ordering where places calls are served at once. If slow is not nil, call k takes slow[k] (log) longer.
var guesses = 16

func replay(l *law, mu float64, v ordering, places int, slow []float64) float64 {
	b := len(v.ended)
	places = min(places, b)
	calls := make([]open, b)
	for i := range calls {
		if i < places {
			calls[i].start = v.came[i]
		}
		if slow != nil {
			calls[i].scale = slow[i]
		}
	}
	first, started := 0, places
	served, spare := make([][]int, guesses), make([][]int, guesses)
	for g := range served {
		served[g], spare[g] = make([]int, places), make([]int, places)
		for i := range served[g] {
			served[g][i] = i
		}
	}
	weight := make([]float64, guesses)
	seed := uint64(1)
	random := func() float64 {
		seed += 0x9e3779b97f4a7c15
		return float64(mix(seed)>>11) / (1 << 53)
	}
	_ = first
	score := 0.0
	for n, t := range v.ended {
		for i := range calls[:started] {
			o := &calls[i]
			o.fate, o.ratio = 0, 0
			if d := t - o.start; d > 0 {
				x := v.sinceCame[n][i]
				if i >= places {
					x = v.sinceEnded[n][i-places]
				}
				i, w := l.place(x - mu - o.scale)
				s := l.alive[i] + w*(l.alive[i+1]-l.alive[i])
				o.ratio, o.alive = s-o.alive, s
				o.fate = (l.fate[i] + w*(l.fate[i+1]-l.fate[i])) / d
			}
		}
		top := math.Inf(-1)
		shift := random()
		for g, in := range served {
			rate, lasted := 0.0, 0.0
			for _, i := range in {
				rate += calls[i].fate
				lasted += calls[i].ratio
			}
			weight[g] = lasted + math.Log(rate)
			top = max(top, weight[g])
			// who ended
			u := (float64((g*7+int(shift*16))%guesses) + random()) / float64(guesses) * rate
			k := 0
			for ; k < len(in)-1; k++ {
				if u -= calls[in[k]].fate; u < 0 {
					break
				}
			}
			if started < b {
				in[k] = started
			} else {
				in[k] = in[len(in)-1]
				served[g] = in[:len(in)-1]
			}
		}
		if math.IsInf(top, -1) {
			return top
		}
		sum := 0.0
		for g := range weight {
			weight[g] = math.Exp(weight[g] - top)
			sum += weight[g]
		}
		score += top + math.Log(sum/float64(guesses))
		if started < b {
			calls[started].start = max(t, v.came[started])
			started++
		}
		// keep
		mark, acc, from := random(), weight[0], 0
		for g := range spare {
			for at := (float64(g) + mark) / float64(guesses) * sum; acc < at && from < guesses-1; {
				from++
				acc += weight[from]
			}
			spare[g] = append(spare[g][:0], served[from]...)
		}
		served, spare = spare, served
	}
	lf, _ := math.Lgamma(float64(b) + 1)
	return score - lf
}

type open struct {
	start, scale float64 // log scale
	alive        float64
	ratio, fate  float64
}

// ---- fits

type fit struct {
	places int
	mu     float64
	k      int
	sigma  float64
	score  float64
}

func iid(l *law, mu float64, v ordering) float64 {
	s := 0.0
	for _, x := range v.took {
		i, w := l.place(x - mu)
		s += l.density[i] + w*(l.density[i+1]-l.density[i]) - x
	}
	return s
}

func scoreAt(ls *laws, vs []ordering, places, k int, mu float64) float64 {
	l := ls.of(k)
	s := 0.0
	for _, v := range vs {
		if places >= len(v.ended) {
			s += iid(l, mu, v)
		} else {
			s += replay(l, mu, v, places, nil)
		}
	}
	return s
}

// climb
func climb(mu float64, k int, score func(mu float64, k int) float64, sigma func(k int) float64) (float64, int, float64) {
	best := score(mu, k)
	for range 6 {
		was := best
		h := 0.25 * sigma(k)
		at, top := peak(best, score(mu-h, k), score(mu+h, k))
		mu += h * at
		if math.Abs(at) <= 1 {
			best = top
		} else {
			best = score(mu, k)
		}
		moved := false
		for step := 4; step > 0; step /= 4 {
			for _, d := range [...]int{-step, step} {
				for k+d >= 0 && k+d < mostK {
					s := score(mu, k+d)
					if s <= best {
						break
					}
					best, k, moved = s, k+d, true
				}
			}
		}
		if !moved && math.Abs(at) <= 1 || best < was+0.05 {
			break
		}
	}
	return mu, k, best
}

// peak of the parabola through values at -1, 0, 1: where, and its value.
func peak(mid, left, right float64) (float64, float64) {
	bend := left + right - 2*mid
	if !(bend < -1e-9) {
		if left > right {
			return -3, left
		}
		return 3, right
	}
	at := 0.5 * (left - right) / bend
	if at < -3 || at > 3 {
		return max(-3, min(3, at)), max(left, mid, right)
	}
	return at, mid - (left-right)*(left-right)/bend/8
}

func fitAt(ls *laws, vs []ordering, places int, from *fit) fit {
	var mu float64
	var k int
	if from != nil {
		mu, k = from.mu, from.k
	} else {
		x := served(vs, places)
		mu = median(x)
		k = index(max(spreadOf(x, mu), leastSig))
	}
	f := fit{places: places}
	f.mu, f.k, f.score = climb(mu, k, func(mu float64, k int) float64 { return scoreAt(ls, vs, places, k, mu) }, func(k int) float64 { return ls.of(k).sigma })
	f.sigma = ls.of(f.k).sigma
	return f
}

// served: log of service times if k-th to end is the k-th to start
func served(vs []ordering, places int) []float64 {
	var x []float64
	for _, v := range vs {
		for k, t := range v.ended {
			s := v.came[k]
			if k >= places {
				s = max(s, v.ended[k-places])
			}
			x = append(x, math.Log(max(t-s, 1e-3)))
		}
	}
	return x
}

func spreadOf(x []float64, mid float64) float64 {
	dev := make([]float64, len(x))
	for i := range x {
		dev[i] = math.Abs(x[i] - mid)
	}
	return 1.4826 * median(dev)
}

var medianMode = 1

func fitPlaces(ls *laws, vs []ordering, widest int) fit {
	// coarse: all places by geometric grid
	tried := map[int]fit{}
	try := func(n int, from *fit) fit {
		if f, ok := tried[n]; ok {
			return f
		}
		f := fitAt(ls, vs, n, from)
		tried[n] = f
		return f
	}
	best := fit{score: math.Inf(-1)}
	better := func(f fit) bool {
		if f.score > best.score {
			best = f
			return true
		}
		return false
	}
	type quick struct {
		n int
		s float64
	}
	var qs []quick
	for n := 1; n < widest; n++ {
		x := served(vs, n)
		mid := median(x)
		sd := max(spreadOf(x, mid), leastSig)
		q := quick{n: n}
		for _, y := range x {
			q.s += math.Log((1-wild)*normal(y, mid, sd)+wild*normal(y, mid+wildShift, wildSigma)) - y
		}
		qs = append(qs, q)
	}
	slices.SortFunc(qs, func(a, b quick) int { return cmp.Compare(b.s, a.s) })
	var some []int
	for _, q := range qs[:min(4, len(qs))] {
		some = append(some, q.n)
	}
	for n := 1; n < widest; n = max(n+1, n*6/5) {
		some = append(some, n)
	}
	slices.Sort(some)
	some = slices.Compact(some)
	var rough []quick
	for _, n := range some {
		x := served(vs, n)
		mid := median(x)
		k := index(max(spreadOf(x, mid), leastSig))
		rough = append(rough, quick{n, max(scoreAt(ls, vs, n, k, mid), scoreAt(ls, vs, n, min(k+4, mostK-1), mid))})
	}
	slices.SortFunc(rough, func(a, b quick) int { return cmp.Compare(b.s, a.s) })
	for _, q := range rough[:min(3, len(rough))] {
		better(try(q.n, nil))
	}
	for step := max(1, best.places/8); ; {
		moved := false
		for _, d := range []int{-step, step} {
			if n := best.places + d; n >= 1 && n < widest {
				from := best
				if better(try(n, &from)) {
					moved = true
				}
			}
		}
		if !moved {
			if step == 1 {
				break
			}
			step /= 2
		}
	}
	if medianMode > 0 {
		best.places = middle(best, widest, func(n int, from fit) fit { return try(n, &from) })
	}
	return best
}

func middle(best fit, widest int, try func(n int, from fit) fit) int {
	type point struct{ n, score float64 }
	pts := []point{{float64(best.places), best.score}}
	for _, dir := range []int{-1, 1} {
		from := best
		for _, d := range []int{1, 2, 3, 5, 8, 13, 21, 34} {
			n := best.places + dir*d
			if n < 1 || n >= widest {
				break
			}
			f := try(n, from)
			pts = append(pts, point{float64(n), f.score})
			if f.score < best.score-5 {
				break
			}
			from = f
		}
	}
	slices.SortFunc(pts, func(a, b point) int { return cmp.Compare(a.n, b.n) })
	var mass []float64
	first := int(pts[0].n)
	for i, p := range pts {
		if i > 0 {
			q := pts[i-1]
			for n := q.n + 1; n < p.n; n++ {
				w := (n - q.n) / (p.n - q.n)
				mass = append(mass, math.Exp(q.score+w*(p.score-q.score)-best.score))
			}
		}
		mass = append(mass, math.Exp(p.score-best.score))
	}
	sum := 0.0
	for _, m := range mass {
		sum += m
	}
	half := 0.0
	for i, m := range mass {
		half += m
		if half >= sum/2 {
			return first + i
		}
	}
	return best.places
}

// ---- rivals

type blend struct{ mu, sigma, late, gap float64 }

func (m blend) parts(x float64) (main, late, rest float64) {
	return (1 - m.late - wild) * normal(x, m.mu, m.sigma), m.late * normal(x, m.mu+m.gap, m.sigma), wild * normal(x, m.mu+wildShift, wildSigma)
}

// fitMix is the best log-likelihood of x under mix laws by EM.
func fitMix(x []float64, lates bool) float64 {
	mid := median(x)
	best := math.Inf(-1)
	m := blend{mu: mid, sigma: max(spreadOf(x, mid), leastSig), gap: math.Ln2}
	if lates {
		m.late = 0.1
	}
	for range 100 {
		var score, n1, n2, s1, s2, q float64
		for _, v := range x {
			a, b, c := m.parts(v)
			sum := a + b + c
			score += math.Log(sum)
			a, b = a/sum, b/sum
			n1 += a
			n2 += b
			s1 += a * v
			s2 += b * v
		}
		if score < best+1e-3 {
			break
		}
		best = score
		n := m
		if lates {
			n.late = min(mostLate, n2/float64(len(x)))
			if n1 > 1e-6 && n2 > 1e-6 {
				n.gap = min(max(s2/n2-s1/n1, 0.3), 2)
			}
		}
		n.mu = (s1 + s2 - n2*n.gap) / max(n1+n2, 1e-9)
		for _, v := range x {
			a, b, c := m.parts(v)
			sum := a + b + c
			q += a/sum*(v-n.mu)*(v-n.mu) + b/sum*(v-n.mu-n.gap)*(v-n.mu-n.gap)
		}
		n.sigma = math.Sqrt(max(q/max(n1+n2, 1e-9), leastSig*leastSig))
		m = n
	}
	return best
}

func mixed(x []float64) float64 { return max(fitMix(x, false), fitMix(x, true)) }

func fitConstant(vs []ordering) float64 {
	var x []float64
	base := 0.0
	for _, v := range vs {
		x = append(x, v.took...)
		for _, y := range v.took {
			base -= y
		}
	}
	return mixed(x) + base
}

func fitOwn(vs []ordering) float64 {
	var x []float64
	base := 0.0
	for _, v := range vs {
		m := median(v.took)
		for _, y := range v.took {
			base -= y
			x = append(x, y-m)
		}
	}
	return mixed(x) + base
}

func fitSharing(vs []ordering, widest int) float64 {
	best := math.Inf(-1)
	for n := 1; n < widest; n = max(n+1, n*6/5) {
		var x []float64
		base := 0.0
		for _, v := range vs {
			w, prev := 0.0, v.came[0]
			b := len(v.ended)
			for i, t := range v.ended {
				rate := min(1, float64(n)/float64(b-i))
				w += max(t-prev, 0) * rate
				prev = t
				y := math.Log(max(w, 1e-3))
				x = append(x, y)
				base += math.Log(rate) - y
			}
		}
		best = max(best, fitMix(x, false)+base)
	}
	return best
}

func ramp(b, m int, gamma float64) []float64 {
	g := make([]float64, b)
	for i := range g {
		g[i] = math.Log1p(gamma * float64(max(0, i+1-m)))
	}
	return g
}

type growth struct {
	m      int
	gamma  float64
	mu     float64
	k      int
	sorted float64 // log-likelihood of the one order in which calls end as they were slowed
}

// sortedGrowth
func sortedGrowth(vs []ordering, m int, gamma float64) growth {
	var x []float64
	base := 0.0
	for _, v := range vs {
		for i, g := range ramp(len(v.ended), m, gamma) {
			y := math.Log(max(v.ended[i]-v.came[0], 1e-3))
			x = append(x, y-g)
			base -= y
		}
		if len(v.ended) > m {
			lf, _ := math.Lgamma(float64(len(v.ended)-m) + 1) // the first m are all alike
			base -= lf
		}
	}
	mid := median(x)
	s := max(spreadOf(x, mid), 0.002)
	q := 0.0
	for _, y := range x {
		q += math.Log((1-wild)*normal(y, mid, s) + wild*normal(y, mid+wildShift, wildSigma))
	}
	return growth{m, gamma, mid, index(max(s, leastSig)), q + base}
}

// quickGrowth is the growth beyond m calls that leaves the least spread, if calls end in the order of their latency.
func quickGrowth(vs []ordering, m int) growth {
	best := growth{sorted: math.Inf(-1)}
	try := func(gamma float64) bool {
		if gamma > 0.8 {
			return false
		}
		g := sortedGrowth(vs, m, gamma)
		if g.sorted <= best.sorted {
			return false
		}
		best = g
		return true
	}
	for gamma := 0.8; gamma > 0.004; gamma /= 1.3 {
		try(gamma)
	}
	for step := 1.1; step > 1.0001; step = math.Sqrt(step) {
		_ = try(best.gamma*step) || try(best.gamma/step)
	}
	return best
}

func fitGrowth(ls *laws, vs []ordering, widest int) float64 {
	var all []growth
	for m := 1; m < widest; m = max(m+1, m*5/4) {
		all = append(all, quickGrowth(vs, m))
	}
	slices.SortFunc(all, func(a, b growth) int { return cmp.Compare(b.sorted, a.sorted) })
	best := all[0].sorted
	for _, d := range []int{-1, 1} {
		for m := all[0].m + d; m >= 1 && m < widest && m < all[0].m*5/4; m += d {
			g := quickGrowth(vs, m)
			all = append(all, g)
			best = max(best, g.sorted)
		}
	}
	slices.SortFunc(all, func(a, b growth) int { return cmp.Compare(b.sorted, a.sorted) })
	score := func(g growth, mu float64, k int) float64 {
		s := 0.0
		for _, v := range vs {
			if len(v.ended) <= g.m {
				s += iid(ls.of(k), mu, v)
			} else {
				s += replay(ls.of(k), mu, v, len(v.ended), ramp(len(v.ended), g.m, g.gamma))
			}
		}
		return s
	}
	for _, g := range all[:min(3, len(all))] {
		s := math.Inf(-1)
		for range 3 {
			var t float64
			g.mu, g.k, t = climb(g.mu, g.k, func(mu float64, k int) float64 { return score(g, mu, k) }, func(k int) float64 { return ls.of(k).sigma })
			moved := t > s+0.5
			s = max(s, t)
			for _, f := range []float64{0.8, 0.9, 0.97, 1.03, 1.1, 1.25} {
				h := g
				h.gamma *= f
				if h.gamma > 0.8 {
					continue
				}
				if t := score(h, g.mu, g.k); t > s {
					s, g, moved = t, h, true
				}
			}
			for _, m := range []int{g.m * 3 / 4, g.m - 1, g.m + 1, g.m * 5 / 4} {
				h := g
				h.m = m
				if m >= 1 && m < widest && m != g.m {
					if t := score(h, g.mu, g.k); t > s {
						s, g, moved = t, h, true
					}
				}
			}
			if !moved {
				break
			}
		}
		best = max(best, s)
	}
	return best
}
