package plan

import (
	"math"
	"math/bits"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sim"
)

// Forecast is what a Scenario comes to.
type Forecast struct {
	Time    time.Duration // from the start to the last answer, or to where the look ended
	Stopped string        // why it ended before all calls were done; "" when they were

	Answered, Failed int                       // calls
	Tries            int                       // how often calls were sent
	Throttled        int                       // tries that were refused for now,
	Refused          [sluice.NumDimensions]int // by the limit that was met; AnyDimension is a storm or an overload

	Input, Output int64 // tokens of the answered calls
	Peak          int   // most calls in flight at once
	Quotas        []QuotaUse
	Wait          Spread // of calls, from asking to be sent to being sent, all tries together
	Latency       Spread // of answers, from sending to the last byte

	// Width is how long each of the Steps is. There are at most MostSteps.
	Width time.Duration
	Steps []Step
}

// PerMinute is how many calls are answered in a minute.
func (f *Forecast) PerMinute() float64 {
	if f.Time <= 0 {
		return 0
	}
	return float64(f.Answered) / f.Time.Minutes()
}

// Within is how many calls are answered in a time, as exactly as the Steps tell.
func (f *Forecast) Within(d time.Duration) int {
	if d >= f.Time {
		return f.Answered
	}
	n := 0
	for i, s := range f.Steps {
		if time.Duration(i+1)*f.Width > d {
			break
		}
		n += s.Answered
	}
	return n
}

// QuotaUse is how much of one of the provider's limits was used.
type QuotaUse struct {
	Dimension sluice.Dimension
	Limit     int     // per minute, or per day
	Spent     float64 // over the whole time
	Share     float64 // that, of all the limit let through in the time, its burst included
	Busiest   float64 // most in one minute, counted from the start
}

// Step is what happened in one part of the time.
type Step struct {
	Sent, Answered, Failed, Throttled int       // tries sent, calls answered, calls given up, tries refused for now
	Spent                             sim.Spent // of the provider's limits
	InFlight, Waiting                 int       // most at once
}

// MostSteps is the most steps that a Forecast has.
const MostSteps = 512

// Spread is how a time was spread over calls. Percentiles are within 2 %.
type Spread struct{ Mean, P50, P95, Max time.Duration }

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
	return Spread{time.Duration(s.sum / float64(s.n)), s.percentile(0.5), s.percentile(0.95), s.longest}
}

// timeline keeps the steps. When there are too many, two become one.
type timeline struct {
	width time.Duration
	steps []Step
	begun time.Duration // of the present step
	spent sim.Spent     // by its beginning

	open, waiting int // calls, now

	minute  int       // the present one
	atStart sim.Spent // what was spent by its beginning
	busiest sim.Spent // most in any minute
}

func newTimeline() timeline {
	return timeline{width: 100 * time.Millisecond, steps: append(make([]Step, 0, MostSteps), Step{})}
}

// have notes how many calls are open and waiting now. at was asked for the instant.
func (t *timeline) have(open, waiting int) {
	t.open, t.waiting = open, waiting
	s := &t.steps[len(t.steps)-1]
	s.InFlight, s.Waiting = max(s.InFlight, open), max(s.Waiting, waiting)
}

// at returns the step of the instant now, with what was spent before. It is asked before anything happens.
func (t *timeline) at(now time.Duration, spent func() sim.Spent) *Step {
	for now >= t.begun+t.width {
		t.next(spent())
	}
	if m := int(now / time.Minute); m > t.minute {
		t.endMinute(spent())
		t.minute = m
	}
	return &t.steps[len(t.steps)-1]
}

func (t *timeline) endMinute(spent sim.Spent) {
	used := less(spent, t.atStart)
	t.busiest = sim.Spent{Requests: max(t.busiest.Requests, used.Requests), Tokens: max(t.busiest.Tokens, used.Tokens),
		Input: max(t.busiest.Input, used.Input), Output: max(t.busiest.Output, used.Output)}
	t.atStart = spent
}

// next ends the present step.
func (t *timeline) next(spent sim.Spent) {
	last := &t.steps[len(t.steps)-1]
	last.Spent = plus(last.Spent, less(spent, t.spent))
	t.spent = spent
	if len(t.steps) == MostSteps {
		for i := range MostSteps / 2 {
			t.steps[i] = t.steps[2*i].with(t.steps[2*i+1])
		}
		t.steps = t.steps[:MostSteps/2]
		t.width *= 2
	}
	t.begun = time.Duration(len(t.steps)) * t.width
	t.steps = append(t.steps, Step{InFlight: t.open, Waiting: t.waiting})
}

// with joins two steps.
func (s Step) with(o Step) Step {
	return Step{s.Sent + o.Sent, s.Answered + o.Answered, s.Failed + o.Failed, s.Throttled + o.Throttled,
		plus(s.Spent, o.Spent), max(s.InFlight, o.InFlight), max(s.Waiting, o.Waiting)}
}

func plus(a, b sim.Spent) sim.Spent {
	return sim.Spent{Requests: a.Requests + b.Requests, Tokens: a.Tokens + b.Tokens, Input: a.Input + b.Input, Output: a.Output + b.Output}
}

func less(a, b sim.Spent) sim.Spent {
	return sim.Spent{Requests: a.Requests - b.Requests, Tokens: a.Tokens - b.Tokens, Input: a.Input - b.Input, Output: a.Output - b.Output}
}

// quotas says how much of each limit of c was used in all that time.
func quotas(c sim.Config, took time.Duration, spent, busiest sim.Spent) []QuotaUse {
	var out []QuotaUse
	for _, q := range []struct {
		d              sluice.Dimension
		limit          int
		period, burst  time.Duration
		spent, busiest float64
	}{
		{sluice.Requests, c.RPM, time.Minute, c.Burst, spent.Requests, busiest.Requests},
		{sluice.RequestsPerDay, c.RPD, 24 * time.Hour, 24 * time.Hour, spent.Requests, busiest.Requests},
		{sluice.Tokens, c.TPM, time.Minute, c.Burst, spent.Tokens, busiest.Tokens},
		{sluice.InputTokens, c.ITPM, time.Minute, c.Burst, spent.Input, busiest.Input},
		{sluice.OutputTokens, c.OTPM, time.Minute, c.Burst, spent.Output, busiest.Output},
	} {
		if q.limit == 0 {
			continue
		}
		rate := float64(q.limit) / q.period.Seconds()
		through := max(1, rate*q.burst.Seconds()) + rate*took.Seconds()
		out = append(out, QuotaUse{q.d, q.limit, q.spent, q.spent / through, q.busiest})
	}
	return out
}
