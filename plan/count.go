package plan

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// usualBurst is what buckets are believed to hold of which nobody knows, as by the Scheduler.
const usualBurst = time.Second

// slots are the open calls of a paced client. By Little's law it has rate × latency of them on average; as calls last
// differently long, their number varies about as Poisson's, and three deviations more are seldom needed. What a bucket
// holds that is known to be large goes out at once, besides.
func (p *Plan) slots() int {
	open := p.Throughput * (p.Workload.Latency + p.Limits.Burst).Minutes()
	n := math.Ceil(open + 3*math.Sqrt(open))
	if limit := p.Limits.Concurrency; limit > 0 {
		n = min(n, float64(limit))
	}
	if p.Workload.Requests > 0 {
		n = min(n, float64(p.Workload.Requests))
	}
	return max(1, int(min(n, limits.MaxLimit)))
}

// workers are the loops that stay within all limits without a pace, and the limits that are not safe from even one.
func (p *Plan) workers() (n int, exceeded []limits.Dimension) {
	mean, worst := math.Inf(1), math.Inf(1)
	for _, b := range p.Bounds {
		m, w := p.workersWithin(b)
		mean, worst = min(mean, m), min(worst, w)
		if whole(min(m, w)) < 1 || !p.fit(1, b, 1) {
			exceeded = append(exceeded, b.Dimension)
		}
	}
	n = min(whole(min(mean*p.Safety, limits.MaxLimit)), whole(min(worst, limits.MaxLimit)))
	for _, b := range p.Bounds {
		if p.orders[b.Dimension] != nil {
			n = sort.Search(max(0, n), func(i int) bool { return !p.fit(i+1, b, p.Safety) })
		}
	}
	slices.Sort(exceeded)
	return max(1, n), exceeded
}

// workersWithin are the loops that one limit allows: on average, and in the worst minute. All begin at once, so that
// long calls go out in volleys, of which a minute holds more than its share; and a bucket that is known to hold less
// than a minute must hold a volley, and what calls use besides that end sooner.
func (p *Plan) workersWithin(b Bound) (mean, worst float64) {
	if b.Dimension == limits.Concurrency {
		return float64(b.Limit), math.Inf(1)
	}
	latency := p.Workload.Latency.Minutes()
	mean = b.PerMinute * latency
	worst = float64(b.Limit) / b.Charged / p.volleys(b)
	if burst := p.Limits.Burst; burst > 0 && burst < time.Minute && minutes(b.Dimension) == 1 {
		worst = min(worst, workersFor(b.PerMinute*burst.Minutes(), mean))
	}
	return mean, worst
}

// atOnce is what a bucket must hold, in calls, for n workers of which mean would use the limit whole: a call of each, and
// what chance adds, which grows as a queue does that is as busy as the limit is. Calls that vary by 30 % seldom use the
// half of that.
func atOnce(n, mean float64) float64 {
	if n >= mean {
		return math.Inf(1)
	}
	return n + n/(mean-n)
}

// workersFor are the workers for which a bucket of so many calls suffices: it solves atOnce(n, mean) = held for n.
func workersFor(held, mean float64) float64 {
	sum := held + mean + 1
	return 2 * held / (sum/mean + math.Sqrt(max(0, sum/mean*sum/mean-4*held/mean)))
}

// workersBurst is the refill that buckets must hold for the workers. Beyond a minute's nothing is asked: a limit counts
// minutes.
func (p *Plan) workersBurst() time.Duration {
	most := 0.0
	for _, b := range p.Bounds {
		if b.Dimension != limits.Concurrency && minutes(b.Dimension) == 1 {
			most = max(most, p.held(p.Workers, b)/float64(b.Limit))
		}
	}
	return time.Duration(min(1, most) * float64(time.Minute))
}

// held is what a bucket must hold for the workers.
func (p *Plan) held(workers int, b Bound) float64 {
	n, latency := float64(workers), p.Workload.Latency.Minutes()
	o := p.orders[b.Dimension]
	if o == nil {
		return atOnce(n, b.PerMinute*latency) * b.Charged
	}
	perMinute := max(1, n/latency)
	mean := float64(b.Limit) / (o.heaviest(perMinute) / perMinute) * latency
	calls := atOnce(n, mean)
	if math.IsInf(calls, 1) {
		return calls
	}
	return o.debt(float64(b.Limit)*latency/n) + o.heaviest(calls)
}

// fit reports whether that many workers stay within that share of a limit, whichever calls of Workload.Calls are at hand.
func (p *Plan) fit(workers int, b Bound, share float64) bool {
	o := p.orders[b.Dimension]
	if o == nil {
		return true
	}
	limit := float64(b.Limit) * (1 + 1e-9)
	if p.Offered(workers, b) > limit*share || p.Busiest(workers, b) > limit {
		return false
	}
	burst := p.Limits.Burst
	return burst <= 0 || burst >= time.Minute || minutes(b.Dimension) > 1 || p.held(workers, b) <= limit*burst.Minutes()
}

// Offered returns the amount of a limit that workers without pacing would use in one period of the limit. The result
// assumes the most expensive sequence of calls.
func (p Plan) Offered(workers int, b Bound) float64 {
	return p.use(float64(workers)/p.Workload.Latency.Minutes()*minutes(b.Dimension), workers, b)
}

// Busiest returns the amount of a limit that workers without pacing use in the worst period if all workers send at the same times.
func (p Plan) Busiest(workers int, b Bound) float64 {
	return p.use(float64(workers)*p.volleys(b), workers, b)
}

// volleys are how often workers that begin at once call in the time of a limit.
func (p *Plan) volleys(b Bound) float64 {
	return math.Ceil(minutes(b.Dimension)/p.Workload.Latency.Minutes() - 1e-9)
}

func (p *Plan) use(calls float64, workers int, b Bound) float64 {
	if b.Dimension == limits.Concurrency {
		return float64(workers)
	}
	if o := p.orders[b.Dimension]; o != nil {
		return o.heaviest(calls)
	}
	return calls * b.Charged
}

// seconds is how long n requests take: each limit has a shortest time for them, and the longest of these counts.
func (p *Plan) seconds(n int) float64 {
	latency := p.Workload.Latency.Seconds()
	longest := latency
	for _, b := range p.Bounds {
		if b.Dimension == limits.Concurrency {
			longest = max(longest, math.Ceil(float64(n)/float64(b.Limit))*latency)
			continue
		}
		level, rate := p.bucket(b)
		longest = max(longest, (float64(n)*b.Charged-level)/rate+latency)
	}
	return longest
}

// bucket is what a limit's bucket holds, at least one request, and its refill a second.
func (p *Plan) bucket(b Bound) (level, rate float64) {
	rate = float64(b.Limit) / minutes(b.Dimension) / 60
	burst := usualBurst.Seconds()
	switch {
	case minutes(b.Dimension) > 1:
		burst = minutes(b.Dimension) * 60
	case p.Limits.Burst > 0:
		burst = p.Limits.Burst.Seconds()
	}
	return max(b.Charged, rate*burst), rate
}

// Within returns the number of requests that receive a response within d (at most 10,000,000,000 for an endless workload).
func (p Plan) Within(d time.Duration) int {
	latency := p.Workload.Latency
	if d < latency {
		return 0
	}
	most := float64(mostRequests)
	if n := p.Workload.Requests; n > 0 {
		most = float64(n)
	}
	for _, b := range p.Bounds {
		if b.Dimension == limits.Concurrency {
			most = min(most, float64(b.Limit)*math.Floor(d.Seconds()/latency.Seconds()+1e-9))
			continue
		}
		level, rate := p.bucket(b)
		most = min(most, ((d-latency).Seconds()*rate+level)/b.Charged)
	}
	return whole(most)
}

// Affordable returns the number of requests that a sum in USD pays for, at most 10,000,000,000. If a price is unknown, Affordable returns false.
func (p Plan) Affordable(usd float64) (int, bool) {
	switch {
	case p.CostPerRequest == nil:
		return 0, false
	case !(usd > 0):
		return 0, true
	case *p.CostPerRequest == 0:
		return mostRequests, true
	}
	return whole(min(usd / *p.CostPerRequest, mostRequests)), true
}
