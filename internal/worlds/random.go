package worlds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Optima of random worlds lie between these.
const (
	minOptimum Seconds = 8
	maxOptimum Seconds = 25
)

// Basic returns the world of a seed with the limits of providers only.
func Basic(seed uint64) *World {
	for try := range uint64(200) {
		d := &drafter{Rand: rand.New(rand.NewPCG(seed, try)), World: &World{Seed: seed}, longest: maxOptimum}
		if d.draft(); d.fit() {
			return d.World
		}
	}
	panic(fmt.Sprintf("worlds: seed %d makes no world", seed))
}

// drafter draws one world.
type drafter struct {
	*rand.Rand
	*World
	rate    float64 // requests per second that all lanes together are allowed
	optimum float64 // that is aimed at, in seconds
	longest Seconds // that the optimum may be
	account bool    // all lanes share the limits
}

func (d *drafter) chance(p float64) bool { return d.Float64() < p }

func (d *drafter) between(low, high float64) float64 { return low + (high-low)*d.Float64() }

// scaled draws from a range of magnitudes.
func (d *drafter) scaled(low, high float64) float64 {
	return low * math.Exp(d.Float64()*math.Log(high/low))
}

func (d *drafter) seconds(low, high float64) Seconds {
	return Seconds(math.Round(d.scaled(low, high)*1000) / 1000)
}

// one draws one of some values; each may be given several times.
func one[T any](d *drafter, values ...T) T { return values[d.IntN(len(values))] }

func (d *drafter) draft() {
	d.rate, d.optimum = d.scaled(1.5, 60), d.between(9.5, 23)
	d.Show.Dialect = one(d, "openai", "openai", "openai", "openai", "anthropic", "anthropic", "anthropic", "gemini", "bare", "bare")
	d.Serve = Serve{Latency: d.seconds(0.15, 5), Up: d.seconds(0.003, 0.06), Down: d.seconds(0.003, 0.06), Reject: d.seconds(0.005, 0.2)}
	d.Serve.Spread = one(d, 0.0, 0.2, 0.4, 0.6)
	d.Serve.Tail = one(d, 0.0, 0, 0, 0.01, 0.03)
	d.Serve.Jitter = one[Seconds](d, 0, 0, 0, 0.002, 0.01, 0.02)
	d.Serve.Stream = d.chance(0.3)
	if d.chance(0.08) {
		d.Serve.Reject = d.seconds(0.3, 1)
	}
	d.Load = Load{Input: int(d.scaled(50, 3000)), Max: int(d.scaled(50, 1500)), Output: math.Round(d.between(0.15, 0.8)*100) / 100, Spread: one(d, 0.0, 0, 0.3, 0.7)}
	if d.chance(0.25) {
		d.Load.Tenants = 2 + d.IntN(4)
	}
	if d.chance(0.25) {
		d.Load.Estimate = math.Round(d.between(0.7, 1.4)*100) / 100
	}
	if d.chance(0.08) {
		d.Load.Late = d.seconds(1, 5)
	}
	d.Config.Attempts = 4 + d.IntN(5)
	d.Lanes = one(d, 1, 1, 1, 1, 1, 2, 3)
	d.draftCharge()
	if !d.chance(0.4) {
		d.trouble()
	}
	for _, c := range d.Changes { // foreign clients still need room after a change
		d.Foreign.Share = min(d.Foreign.Share, math.Round(35*c.Factor)/100)
	}
	d.draftLimits()
	d.draftSpeech()
	d.draftConfig()
}

func (d *drafter) draftCharge() {
	d.Charge.Tokens = one(d, Declared, Declared, Declared, Actual, Sum, Reserved)
	if d.Show.Dialect == "anthropic" {
		d.Charge.Tokens = one(d, Actual, Actual, Actual, Actual, Declared)
	}
	d.Charge.Rejected = d.chance(0.25)
	d.Charge.Overload = d.chance(0.5)
}

// draftLimits draws limits one of which allows the rate, and the others more.
func (d *drafter) draftLimits() {
	dims := d.dimensions()
	binding := d.IntN(len(dims))
	split := float64(d.Lanes)
	if d.account {
		split = 1
	}
	burst, kind := d.burst(), one(d, Bucket, Bucket, Bucket, Bucket, Fixed, Sliding)
	if d.Charge.Tokens == Reserved || d.Charge.Tokens == Actual { // a short window has forgotten the charge that is to be corrected
		kind = Bucket
	}
	if kind != Bucket { // how well unequal items fill a window is luck
		d.Load.Spread = 0
	}
	used := one(d, 0.0, 0, 0, d.between(0, 0.9))
	var limits []Limit
	for i, dim := range dims {
		l := Limit{Dim: dim, Burst: burst, Kind: kind, Used: math.Round(used*100) / 100}
		slack := d.between(1.2, 3)
		if i == binding {
			slack = 1
		}
		l.N = math.Ceil(60 * d.rate / split * slack * d.meanCost(dim))
		if kind == Fixed || kind == Sliding {
			l.Burst = one[Seconds](d, 1, 1, 5, 10)
		}
		if l.Kind == Fixed && d.minuteFits() && d.chance(0.4) { // a minute that ends during the run
			l.Burst, l.Used = 60, 0
			l.Phase = 60 - Seconds(math.Round(d.optimum*d.between(0.4, 0.9)))
		}
		if dim == Concurrency {
			l = Limit{Dim: dim, N: d.concurrency(split, i == binding), Late: one[Seconds](d, 0, 0, 0, 0.1, 0.3)}
		}
		if dim == RPD {
			l = Limit{Dim: dim, Burst: 24 * 60 * 60, N: 20000}
		}
		limits = append(limits, l)
	}
	if d.account {
		d.Account = limits
		return
	}
	d.Lane = limits
}

// minuteFits reports whether a fixed window of a minute makes a fair world: one wave of requests that are charged
// without a result must not cost a whole minute.
func (d *drafter) minuteFits() bool {
	return d.optimum < 20 && len(d.Changes) == 0 && !d.Charge.Rejected && !d.Charge.Overload
}

func (d *drafter) concurrency(split float64, binding bool) float64 {
	trip := float64(d.Serve.Latency + d.Serve.Up + d.Serve.Down)
	if binding {
		return max(1, math.Round(d.rate/split*trip*d.between(0.4, 1)))
	}
	return max(2, math.Round(d.rate/split*trip*d.between(1.5, 4)))
}

func (d *drafter) burst() Seconds {
	if d.chance(0.15) {
		return 60
	}
	return Seconds(math.Round(d.scaled(1, 60)))
}

func (d *drafter) dimensions() []Dimension {
	var dims []Dimension
	switch d.Show.Dialect {
	case "anthropic":
		dims = one(d, []Dimension{RPM, ITPM, OTPM}, []Dimension{RPM, ITPM, OTPM}, []Dimension{RPM, ITPM})
	case "bare":
		dims = one(d, []Dimension{RPM}, []Dimension{RPM, Concurrency}, []Dimension{Concurrency}, []Dimension{RPM, TPM})
	default:
		dims = one(d, []Dimension{RPM, TPM}, []Dimension{RPM, TPM}, []Dimension{RPM}, []Dimension{TPM}, []Dimension{RPM, ITPM})
	}
	if d.Show.Dialect != "bare" && d.chance(0.12) {
		dims = append(slices.Clone(dims), Concurrency)
	}
	if d.chance(0.05) {
		dims = append(slices.Clone(dims), RPD)
	}
	if d.Show.Dialect == "bare" && d.Config.Deadline == 0 && d.chance(0.15) { // waiting there must not time out
		d.Serve.Workers = int(max(1, d.rate*float64(d.Serve.Latency)))
	}
	return dims
}

// draftSpeech draws how the provider reports its limits.
func (d *drafter) draftSpeech() {
	s := &d.Show
	s.RetryAfter = one(d, "", "", "right", "right", "ms", "short", "constant", "date")
	if s.RetryAfter == "constant" {
		s.Constant = Seconds(math.Round(d.scaled(1, 20)))
	}
	s.Body = one(d, "", "named", "figures", "figures", "wait", "wrong", "contradictory")
	if d.chance(0.2) {
		s.Skew = Seconds(math.Round(d.between(-40, 40)))
	}
	s.Only = one(d, "", "", "", "", "ok", "429")
	s.Cached = d.seconds(0.2, 3)
}

// draftConfig draws the configuration and the headers, so that both together make the knowledge that was drawn.
func (d *drafter) draftConfig() {
	s := &d.Show
	if d.chance(0.35) {
		if all := d.limits(); all[0].Dim != Concurrency {
			d.Config.Burst = all[0].Burst
		}
	}
	any := func() string {
		return one(d, "", "", "right", "right", "rounded", "early", "end", "cached", "constant", "other", "units")
	}
	switch draw := d.Float64(); {
	case draw < 0.13: // configured rightly
		s.Headers = any()
		d.configure()
		d.Config.Charge = d.Charge.Tokens
	case draw < 0.23: // shown
		s.Headers, s.Only = one(d, "right", "right", "right", "rounded"), ""
		if s.Dialect == "bare" || s.Dialect == "gemini" {
			s.Dialect = "openai"
		}
		d.configure()
		d.Config.Limits = slices.DeleteFunc(d.Config.Limits, func(l Limit) bool {
			_, named := headerNames[s.Dialect][l.Dim]
			return named
		})
	case draw < 0.49: // known in part
		s.Headers = one(d, "", "", "early", "end", "cached", "units", "other")
		d.configure()
		if n := len(d.Config.Limits); n > 1 {
			d.Config.Limits = slices.Delete(d.Config.Limits, 0, 1+d.IntN(n-1))
		} else if s.Headers == "" {
			d.Config.Limits = nil
			s.Dialect, s.Headers = "openai", one(d, "early", "end", "cached", "units")
		}
	case draw < 0.77: // configured wrongly
		s.Headers = any()
		d.configure()
		if d.chance(0.5) {
			d.Config.Charge = d.Charge.Tokens
		}
		factor := one(d, d.scaled(0.3, 0.9), d.scaled(1.1, 3))
		for i := range d.Config.Limits {
			if i == 0 || d.chance(0.5) {
				d.Config.Limits[i].N = max(1, math.Round(d.Config.Limits[i].N*factor))
			}
		}
	default: // unknown
		s.Headers = one(d, "", "", "constant")
	}
}

// configure configures all limits.
func (d *drafter) configure() {
	for _, l := range d.limits() {
		if l.Dim != RPD {
			d.Config.Limits = append(d.Config.Limits, Limit{Dim: l.Dim, N: math.Round(l.N)})
		}
	}
	d.Shuffle(len(d.Config.Limits), func(i, j int) {
		d.Config.Limits[i], d.Config.Limits[j] = d.Config.Limits[j], d.Config.Limits[i]
	})
}

// trouble draws changes, storms, faults and other users of the limits: at least one of them.
func (d *drafter) trouble() {
	drawn := false
	for !drawn {
		if d.chance(0.72) {
			d.draftFaults()
			drawn = true
		}
		if d.chance(0.29) {
			d.draftStorms()
			drawn = true
		}
		if d.chance(0.29) {
			d.draftChange()
			drawn = true
		}
		if d.chance(0.29) {
			d.draftOthers()
			drawn = true
		}
	}
}

func (d *drafter) draftFaults() {
	f := &d.Faults
	*f = Faults{}
	shares := []*float64{&f.Fast, &f.Slow, &f.Reset, &f.Hang, &f.Stray, &f.Overloaded}
	most := []float64{0.1, 0.1, 0.05, 0.01, 0.05, 0.08}
	for range 1 + d.IntN(3) {
		i := d.IntN(len(shares))
		*shares[i] = math.Round(d.scaled(0.1, 1)*most[i]*1000) / 1000
	}
	if f.Overloaded > 0 {
		f.Status = one(d, 503, 529)
	}
	d.Odd = nil
	if d.chance(0.3) {
		kind := one(d, "500", "500", "429", "words", "hang", "large")
		d.Odd = []Odd{{Kind: kind, Count: 1 + d.IntN(6), Spread: d.chance(0.6)}}
		if kind == "hang" {
			d.Odd[0].Count = 1 + d.IntN(2)
		}
	}
	if f.Hang > 0 || len(d.Odd) > 0 && d.Odd[0].Kind == "hang" {
		d.Serve.Latency = min(d.Serve.Latency, 1)
		d.Config.Deadline = Seconds(math.Round(d.between(5, 10)))
	}
}

func (d *drafter) draftStorms() {
	d.Storms = nil
	for range one(d, 1, 1, 1, 2) {
		s := Storm{At: Seconds(math.Round(d.optimum*d.between(0.1, 0.7)*10) / 10), For: d.seconds(0.4, 4), Status: one(d, 429, 429, 503, 529)}
		s.RetryAfter = one[Seconds](d, 0, 0, 0, 0, -1, -1, -1, 1, 2, 3)
		d.Storms = append(d.Storms, s)
	}
}

func (d *drafter) draftChange() {
	d.Changes = []Change{{At: Seconds(math.Round(d.optimum*d.between(0.15, 0.6)*10) / 10), Factor: math.Round(d.scaled(0.3, 0.8)*100) / 100}}
	if d.chance(0.4) {
		d.Changes[0].Factor = math.Round(d.scaled(1.3, 3)*100) / 100
	}
}

func (d *drafter) draftOthers() {
	switch d.IntN(4) {
	case 0, 1:
		d.Foreign = Foreign{Share: math.Round(d.between(0.1, 0.6)*100) / 100, Burst: one(d, 1, 1, 1, 4, 10)}
		d.Lanes = 1
	case 2:
		d.Lanes = 2 + d.IntN(5)
		d.account = true
	default:
		d.Procs = Processes{N: 2 + d.IntN(2)}
	}
}

// fit sizes the number of items so that the optimum lies in its range. It returns false if no number does.
func (d *drafter) fit() bool {
	if d.Procs.N == 0 && d.chance(0.06) {
		d.Procs = Processes{N: 2, Ledger: true}
	}
	rate := d.capacity()
	start := math.Inf(1)
	for _, l := range d.limits() {
		if l.Dim == Concurrency {
			if d.Foreign.Share > 0 && l.N < 10 { // too few to share
				return false
			}
			d.Foreign.Burst = min(d.Foreign.Burst, 1)
		} else if l.Dim != RPD {
			start = min(start, newMeter(l).left(0)/max(d.meanCost(l.Dim), 1))
		}
	}
	if math.IsInf(start, 1) {
		start = 0
	}
	if start > 0 { // a foreign client that takes most of a bucket at once would be the only thing that counts
		d.Foreign.Burst = min(d.Foreign.Burst, int(0.2*start)+1)
	}
	if len(d.Account) == 0 {
		rate, start = rate*float64(d.Lanes), start*float64(d.Lanes)
	}
	rate *= 1 - d.Foreign.Share
	items := start + rate*max(1, d.optimum-float64(d.Serve.Latency))
	for _, s := range d.Storms {
		items -= rate * float64(s.For)
	}
	for range 6 {
		if d.Load.Items = int(items); d.Load.Items < 20 || d.Load.Items > 3000 {
			return false
		}
		t, ok := Optimum(d.World)
		seconds := Seconds(t.Seconds())
		if ok && seconds >= minOptimum && seconds <= d.longest {
			return d.guaranteeSuffices()
		}
		if !ok {
			seconds = 100
		}
		items = min(items*2, max(items*0.6, items+(d.optimum-float64(seconds))*rate))
	}
	return false
}

// guaranteeSuffices reports whether a guarantee that is not configured wide leaves room for the requests that fail. A
// sliding minute that lacks room for one item costs the rest of the minute, which says nothing about a client.
func (d *drafter) guaranteeSuffices() bool {
	f := d.Faults
	requests := float64(d.Load.Items) * (1 + 1.5*(f.Fast+f.Slow+f.Reset+f.Hang+f.Stray+f.Overloaded))
	requests *= 1 + 0.25*float64(len(d.Storms))
	for _, odd := range d.Odd {
		requests += float64(odd.Count * d.Config.attempts())
	}
	if !d.Config.Account {
		requests /= float64(d.Lanes)
	}
	item := d.meanItem()
	for _, g := range d.guarantees() {
		if g.Kind == Sliding && g.Dim != RPD && g.Dim != Concurrency && (1.1*requests+6)*d.guarded(g.Dim, item) > g.N {
			return false
		}
	}
	return true
}
