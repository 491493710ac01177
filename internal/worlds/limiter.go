package worlds

import (
	"math"
	"math/rand/v2"
)

// limiterShare is the share of random worlds that have a rate limiter in front of the provider.
const limiterShare = 0.5

// Random returns the world of a seed. In half of the worlds of Basic, a rate limiter of a proxy or of a library for servers
// replaces the provider's limits.
func Random(seed uint64) *World {
	r := rand.New(rand.NewPCG(seed, math.MaxUint64))
	if r.Float64() >= limiterShare {
		return Basic(seed)
	}
	kind := r.Float64()
	for range 50 {
		d := &drafter{Rand: r, World: Basic(seed), longest: maxOptimum}
		if d.draftLimiter(kind); d.fit() {
			return d.World
		}
	}
	return Basic(seed)
}

// draftLimiter puts a limiter in place of the provider's limits. Load, faults, storms and other clients remain. The kind, from
// 0 to 1, selects its law.
func (d *drafter) draftLimiter(kind float64) {
	d.optimum = d.between(9.5, 23)
	d.Show = Show{Dialect: "bare", Skew: d.Show.Skew}
	d.Charge = Charge{Overload: d.Charge.Overload}
	d.Config.Limits, d.Config.Burst, d.Config.Charge, d.Config.Account = nil, 0, "", false
	d.Serve.Workers, d.Serve.Reject = 0, d.seconds(0.001, 0.01)
	var l Limit
	switch {
	case kind < 0.5:
		l = d.draftWindow()
	case kind < 0.75: // Envoy's local rate limit, nginx limit_req, Go's x/time/rate, Traefik
		size, rate := one(d, 1.0, 5, 10, 20, 60), d.scaled(1.5, 60)
		l = Limit{Dim: RPM, N: math.Ceil(60 * rate)}
		l.Burst = Seconds(size / l.N * 60)
		d.Show.Headers = one(d, "", "seconds", "seconds")
		d.Show.RetryAfter, d.Show.Body = one(d, "", "right"), one(d, "", "page")
		if d.Show.Headers == "" && d.Show.Body == "page" {
			l.Status = one(d, 429, 503)
		}
	default: // Envoy's circuit breaker, nginx limit_conn: a slot is free just after its response
		l = Limit{Dim: Concurrency, N: math.Round(d.scaled(4, 40)), Late: one[Seconds](d, 0, 0.0005, 0.001), Status: one(d, 503, 503, 429)}
		d.Show.Body = one(d, "page", "overflow")
		if d.Show.Body == "overflow" {
			l.Status = 503
		}
		if d.chance(0.5) { // nearby
			d.Serve.Up, d.Serve.Down, d.Serve.Jitter = 0.0002, 0.0002, 0
		}
	}
	if len(d.Account) > 0 {
		d.Account = []Limit{l}
	} else {
		d.Lane = []Limit{l}
	}
	d.configureLimiter(l)
}

// draftWindow draws a limit of requests in a window, and how it is reported.
func (d *drafter) draftWindow() Limit {
	periods := []Seconds{1, 5, 10, 10, 15}
	if d.calm() {
		periods = []Seconds{10, 15, 60, 60, 300, 600}
	}
	l := Limit{Dim: RPM, Burst: one(d, periods...), Kind: one(d, Fixed, Opened, Opened, Sliding, Estimate, Estimate)}
	size := math.Round(d.scaled(max(5, 0.7*float64(l.Burst)), min(1500, 60*float64(l.Burst))))
	l.N = size * 60 / float64(l.Burst)
	if l.Kind == Fixed || l.Kind == Estimate {
		l.Phase = Seconds(math.Round(float64(l.Burst) * d.between(0, 0.95)))
	}
	if l.Burst > 20 { // one window ends while the world is played
		d.optimum = float64(l.Burst-l.Phase) * d.between(0.3, 0.9)
		d.longest = l.Burst*2 + maxOptimum
	}
	s := &d.Show
	s.RetryAfter, s.Body = one(d, "", "right", "right", "constant"), one(d, "", "", "law", "page")
	s.Constant = l.Burst
	switch counter := l.Kind == Estimate && d.chance(0.5); {
	case counter || l.Kind == Sliding && d.chance(0.3): // HAProxy's http_req_rate, and logs that record a request before its check
		d.Charge.Rejected = true
		s.RetryAfter, s.Body = "", ""
	case d.chance(0.95):
		s.Headers = one(d, "seconds", "seconds", "seconds", "unix", "unix", "unix", "unix", "unixms", "draft6", "draft7", "draft8")
	}
	return l
}

// calm reports whether a long window is fair: a request that is counted without a result may cost the rest of the window.
func (d *drafter) calm() bool {
	return d.Class() != "troubled" && d.Procs.N == 0
}

// configureLimiter configures the limit rightly, wrongly or, as a rule, not at all.
func (d *drafter) configureLimiter(l Limit) {
	draw := d.Float64()
	if draw > 0.4 {
		return
	}
	if l.Kind == Bucket && l.Dim == RPM && d.chance(0.5) {
		d.Config.Burst = l.Burst
	}
	d.configure()
	if draw > 0.18 {
		factor := one(d, d.scaled(0.5, 0.9), d.scaled(1.1, 2))
		d.Config.Limits[0].N = max(1, math.Round(l.N*factor))
	}
	d.Config.Account = len(d.Account) > 0
}
