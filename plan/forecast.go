package plan

import (
	"cmp"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// Forecast is the result of Simulate. The JSON form of a Forecast appears as forecast in the output of sluice plan --json.
type Forecast struct {
	Client     Client  `json:"client"`            // Limits known at the start.
	Time       Seconds `json:"time_s"`            // Duration, if known. The time ends with the last response or with the simulation.
	Stopped    string  `json:"stopped,omitempty"` // Reason for an early stop. The value is "" if all requests finished.
	Throughput float64 `json:"throughput_rpm"`    // Successful requests per minute.
	Tally
	Cost    *float64   `json:"cost_usd,omitempty"` // Cost, if known. The caller sets the value.
	Peak    int        `json:"peak_in_flight"`     // Maximum number of requests in flight.
	Quotas  []QuotaUse `json:"quotas"`             // Use by limit. The list starts with the most used limit.
	Wait    Spread     `json:"wait_ms"`            // Waits of requests. The values cover all attempts.
	Latency Spread     `json:"latency_ms"`         // Durations of requests. A duration ends with the last byte of the response.

	WithinDeadline *int `json:"requests_within_deadline,omitempty"` // Requests finished by the deadline. The caller sets the value, for example from Within.

	Jitter float64 `json:"jitter"`         // Variation of latencies.
	Seed   uint64  `json:"seed"`           // Seed of the simulation.
	Plot   string  `json:"plot,omitempty"` // Path of the chart. The caller sets the value.

	Timeline `json:"-"`
}

// Client contains the limits that the client knows at the start, which are configured limits and initial estimates.
type Client struct {
	Configured map[string]float64 `json:"configured"`  // Configured limits by name.
	BeginsWith map[string]float64 `json:"begins_with"` // Initial limits by name.
}

// Tally contains the numbers of requests and attempts in a simulated run.
type Tally struct {
	Completed int    `json:"completed"`             // Successful requests.
	Failed    int    `json:"failed"`                // Failed requests.
	Tries     int    `json:"tries"`                 // Attempts, including rate-limited attempts.
	Throttled int    `json:"throttled"`             // Rate-limited requests.
	Refused   Counts `json:"throttled_by,omitzero"` // Rate-limited requests by limit. AnyDimension counts storms and overloads.

	Input, Output int64 `json:"-"` // input and output tokens of the successful requests
}

// Timeline describes a simulated run over time in steps of equal duration.
type Timeline struct {
	Width time.Duration // duration of each step
	Steps []Step        // at most MaxSteps steps, in order
}

// Counts contains one number per dimension. The number at AnyDimension is for an unknown dimension.
type Counts [limits.NumDimensions]int

// ByName returns the numbers above zero by dimension name. The name for AnyDimension is "unstated".
func (c Counts) ByName() map[string]int {
	by := make(map[string]int)
	for d, n := range c {
		if n > 0 {
			by[cmp.Or(limits.Dimension(d).String(), "unstated")] = n
		}
	}
	return by
}

// MarshalJSON returns the result of ByName as JSON.
func (c Counts) MarshalJSON() ([]byte, error) { return json.Marshal(c.ByName()) }

// LimitMap returns the known limits, and the burst in seconds, by JSON name. Limits with a configured period are
// converted to limits per minute.
func LimitMap(l sluice.Limits) map[string]float64 {
	m := make(map[string]float64)
	l = l.PerMinute()
	for d, limit := range l.All() {
		if *limit > 0 {
			m[d.String()] = float64(*limit)
		}
	}
	if l.Burst > 0 {
		m["burst_seconds"] = l.Burst.Seconds()
	}
	return m
}

// Within returns the number of requests that succeed within d. The result is precise to the width of a Step.
func (f *Forecast) Within(d time.Duration) int {
	if d >= f.Time.Duration {
		return f.Completed
	}
	n := 0
	for i, s := range f.Steps {
		if time.Duration(i+1)*f.Width > d {
			break
		}
		n += s.Completed
	}
	return n
}

// QuotaUse contains the usage of one rate limit of the provider.
type QuotaUse struct {
	Dimension limits.Dimension `json:"dimension"`      // Name of the limit, such as `rpm`.
	Limit     int              `json:"limit"`          // Value of the limit. The value applies per minute or day.
	Spent     float64          `json:"used"`           // Used amount.
	Share     float64          `json:"share"`          // Used share of the allowed amount. The allowed amount includes the burst.
	Busiest   float64          `json:"busiest_minute"` // Largest amount used in one minute. Minutes count from the start.
}

// Step contains the numbers of events in one interval of the simulated time.
type Step struct {
	Sent, Completed, Failed, Throttled int           // numbers of sent attempts, successful calls, failed calls and rate-limited attempts
	Spent                              limits.Vector // amounts used of each limit of the provider
	InFlight, Waiting                  int           // maximum number of calls in flight, and of waiting calls
}

// MaxSteps is the maximum number of steps in a Forecast.
const MaxSteps = 512

// Spread contains the distribution of a duration over all requests. Percentiles are accurate to within 2 %.
type Spread struct {
	Mean limits.Millis `json:"mean"` // Mean.
	P50  limits.Millis `json:"p50"`  // Median, accurate to ± 2 %.
	P95  limits.Millis `json:"p95"`  // 95th percentile, accurate to ± 2 %.
	Max  limits.Millis `json:"max"`  // Maximum.
}

// spread counts times in buckets that grow with them: 64 for each doubling.
type spread struct {
	n       int
	sum     float64
	longest time.Duration
	buckets [40 * 64]int
}

// finest is the width of the first buckets; shorter times are not told apart.
const finest = time.Microsecond

func (s *spread) add(d time.Duration) {
	s.n++
	s.sum += float64(d)
	s.longest = max(s.longest, d)
	s.buckets[bucketOf(d)]++
}

// bucketOf is the bucket of d: below 64 units one each, above by the highest seven bits.
func bucketOf(d time.Duration) int {
	u := uint64(max(0, d) / finest)
	if u < 64 {
		return int(u)
	}
	shift := bits.Len64(u) - 7
	return min((shift+1)*64+int(u>>shift)-64, 40*64-1)
}

// upTo is the longest time of bucket i.
func upTo(i int) time.Duration {
	if i < 128 {
		return time.Duration(i) * finest
	}
	shift := i/64 - 1
	return time.Duration(((i%64+65)<<shift)-1) * finest
}

// percentile is the time below which that part of the times lie.
func (s *spread) percentile(part float64) time.Duration {
	rank := int(math.Ceil(part * float64(s.n)))
	for i, n := range s.buckets {
		if rank -= n; rank <= 0 {
			return min(upTo(i), s.longest)
		}
	}
	return s.longest
}

// result is what was counted.
func (s *spread) result() Spread {
	if s.n == 0 {
		return Spread{}
	}
	millis := func(d time.Duration) limits.Millis { return limits.Millis{Duration: d} }
	return Spread{millis(time.Duration(s.sum / float64(s.n))), millis(s.percentile(0.5)), millis(s.percentile(0.95)), millis(s.longest)}
}

// timeline keeps the steps. When there are too many, two become one.
type timeline struct {
	width time.Duration
	steps []Step
	begun time.Duration // of the present step
	spent limits.Vector // by its beginning

	open, waiting int // calls, now

	minute  int           // the present one
	atStart limits.Vector // spent by its beginning
	busiest limits.Vector // the maximum of any minute
}

func newTimeline() timeline {
	return timeline{width: 100 * time.Millisecond, steps: append(make([]Step, 0, MaxSteps), Step{})}
}

// have notes how many calls are open and waiting now. at was asked for the instant.
func (t *timeline) have(open, waiting int) {
	t.open, t.waiting = open, waiting
	s := &t.steps[len(t.steps)-1]
	s.InFlight, s.Waiting = max(s.InFlight, open), max(s.Waiting, waiting)
}

// at returns the step of the instant now, with what was spent before. It is asked before anything happens.
func (t *timeline) at(now time.Duration, spent func() limits.Vector) *Step {
	for now >= t.begun+t.width {
		t.next(spent())
	}
	if m := int(now / time.Minute); m > t.minute {
		t.endMinute(spent())
		t.minute = m
	}
	return &t.steps[len(t.steps)-1]
}

func (t *timeline) endMinute(spent limits.Vector) {
	for d, used := range spent.Minus(&t.atStart) {
		t.busiest[d] = max(t.busiest[d], used)
	}
	t.atStart = spent
}

// next ends the present step.
func (t *timeline) next(spent limits.Vector) {
	last := &t.steps[len(t.steps)-1]
	last.Spent = plus(last.Spent, spent.Minus(&t.spent))
	t.spent = spent
	if len(t.steps) == MaxSteps {
		for i := range MaxSteps / 2 {
			t.steps[i] = t.steps[2*i].with(t.steps[2*i+1])
		}
		t.steps = t.steps[:MaxSteps/2]
		t.width *= 2
	}
	t.begun = time.Duration(len(t.steps)) * t.width
	t.steps = append(t.steps, Step{InFlight: t.open, Waiting: t.waiting})
}

// with joins two steps.
func (s Step) with(o Step) Step {
	return Step{s.Sent + o.Sent, s.Completed + o.Completed, s.Failed + o.Failed, s.Throttled + o.Throttled,
		plus(s.Spent, o.Spent), max(s.InFlight, o.InFlight), max(s.Waiting, o.Waiting)}
}

func plus(a, b limits.Vector) limits.Vector {
	for d := range a {
		a[d] += b[d]
	}
	return a
}

// quotas says how much of each limit of c was used in all that time.
func quotas(c sim.Config, took time.Duration, spent, busiest limits.Vector) []QuotaUse {
	out := []QuotaUse{}
	for d := range c.Limits() {
		w, burst := c.In(d), c.Burst
		if w.N == 0 {
			continue
		}
		if w.Period != time.Minute {
			burst = w.Period
		}
		rate := float64(w.N) / w.Period.Seconds()
		through := max(1, rate*burst.Seconds()) + rate*took.Seconds()
		out = append(out, QuotaUse{d, w.Per(d.Window()), spent[d], spent[d] / through, busiest[d]})
	}
	slices.SortStableFunc(out, func(a, b QuotaUse) int { return cmp.Compare(b.Share, a.Share) })
	return out
}
