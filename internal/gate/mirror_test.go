package gate_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// answer releases t with one reading.
func (r *rig) answer(t *gate.Ticket, rd gate.Reading) {
	r.t.Helper()
	if rd.Dimension == gate.AnyDimension {
		rd.Dimension = gate.Requests
	}
	r.release(t, gate.Outcome{Readings: []gate.Reading{rd}})
}

// learned is a lane that knows 600 requests a minute, 10 a second, by a header; its bucket holds bucket of them.
func learned(t *testing.T, bucket int64) *rig {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1000}})
	h := r.acquire(gate.Call{})
	r.answer(h, gate.Reading{Limit: 600, Remaining: bucket - 1, Reset: 100 * time.Millisecond})
	r.sleep(time.Hour)
	return r
}

func TestABucketHoldsWhatIsLeftAndWhatRefillsUntilTheReset(t *testing.T) {
	for _, tt := range []struct {
		left  int64
		reset time.Duration
		want  float64
	}{
		{149, 100 * time.Millisecond, 150},
		{0, time.Second, 10},
		{0, 60 * time.Second, 600},
		{300, 60 * time.Second, 600}, // never above the limit
		{0, time.Millisecond, 1},     // nor below one call
		{9, 0, 10},                   // no reset: what was seen, and a second's worth at first
		{99, 0, 99},
		{599, -time.Second, 599},
	} {
		t.Run(fmt.Sprintf("%d left, full in %v", tt.left, tt.reset), func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1000}})
			r.answer(r.acquire(gate.Call{}), gate.Reading{Limit: 600, Remaining: tt.left, Reset: tt.reset})
			if b := r.budget(gate.Requests); math.Abs(b.Cap-tt.want) > 1e-6 || b.Limit != 600 || b.Source != gate.SourceHeader {
				t.Fatalf("%+v, want a cap of %v", b, tt.want)
			}
		})
	}
}

func TestAHeaderIsAnIntervalThatClampsTheLevelBothWays(t *testing.T) {
	// The bucket holds 100 and refills 10 a second, of which 9.9 are used.
	for _, tt := range []struct {
		name  string
		setup func(r *rig) *gate.Ticket // returns the call that is answered
		left  int64
		want  float64
	}{
		{"raised to the lower bound", func(r *rig) *gate.Ticket {
			all := r.fill(gate.Call{}) // 100 calls, the level is 0
			r.sleep(time.Second)       // 9.9
			return all[99]
		}, 40, 40 + 10*0.9 - 99}, // less what the others in its last 100 ms may have taken
		{"raised after a quiet second", func(r *rig) *gate.Ticket {
			r.fill(gate.Call{})
			r.sleep(time.Second)
			h := r.acquire(gate.Call{})
			r.sleep(time.Second) // 9.9 - 1 + 9.9
			return h
		}, 60, 60 + 10*0.9},
		{"lowered to the upper bound", func(r *rig) *gate.Ticket {
			h := r.acquire(gate.Call{})
			r.sleep(100 * time.Millisecond)
			return h
		}, 20, 20 + 1 + 10*0.1},
		{"lowered by what was sent since, too", func(r *rig) *gate.Ticket {
			h := r.acquire(gate.Call{})
			r.sleep(100 * time.Millisecond) // later than 20 ms: the answer cannot know of these
			acquireN(r, 30)
			return h
		}, 60, 60 + 1 + 10*0.1 - 30},
		{"left alone inside", func(r *rig) *gate.Ticket {
			h := r.acquire(gate.Call{})
			r.sleep(50 * time.Millisecond)
			return h
		}, 99, 99 + 0.495},
		{"what was sent in the next 20 ms may be in it", func(r *rig) *gate.Ticket {
			h := r.acquire(gate.Call{})
			r.sleep(10 * time.Millisecond)
			acquireN(r, 30)
			r.sleep(40 * time.Millisecond)
			return h
		}, 50, 50 + 1 + 10*0.05}, // 50, and not 50 - 30
		{"never above what the bucket holds", func(r *rig) *gate.Ticket {
			h := r.acquire(gate.Call{})
			r.sleep(time.Minute)
			return h
		}, 99, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := learned(t, 100)
			r.wantLevel(gate.Requests, 100, 1e-9)
			h := tt.setup(r)
			reset := time.Duration(float64(100-tt.left) / 10 * float64(time.Second))
			r.answer(h, gate.Reading{Limit: 600, Remaining: tt.left, Reset: reset})
			want := tt.want
			if want < 0 { // below what the mirror had: it is left alone
				want = 9.9
			}
			r.wantLevel(gate.Requests, want, 1e-6)
		})
	}
}

func TestARoundedReadingLeavesRoom(t *testing.T) {
	read := func(slack int64) float64 {
		r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1000}})
		r.answer(r.acquire(gate.Call{}), gate.Reading{Dimension: gate.InputTokens, Limit: 60_000, Remaining: 59_000, Reset: time.Second})
		r.sleep(time.Hour)
		h := r.acquire(gate.Call{})
		r.sleep(10 * time.Millisecond)
		r.answer(h, gate.Reading{Dimension: gate.InputTokens, Limit: 60_000, Remaining: 50_000, Reset: 10 * time.Second, Slack: slack})
		return r.budget(gate.InputTokens).Level
	}
	if got := read(1000) - read(0); math.Abs(got-500) > 1 {
		t.Fatalf("a remainder rounded to 1000 is an interval %.0f higher, want 500", got)
	}
}

func TestAChangedLimitIsBelievedOnlyFromTheNewestCalls(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1000}})
	old := r.acquire(gate.Call{})
	r.sleep(time.Second)
	newer := r.acquire(gate.Call{})
	r.sleep(time.Second)
	r.answer(newer, gate.Reading{Limit: 1200, Remaining: 1000, Reset: 10 * time.Second})
	r.answer(old, gate.Reading{Limit: 600, Remaining: 500, Reset: 10 * time.Second}) // from before the change
	if b := r.budget(gate.Requests); b.Limit != 1200 {
		t.Fatalf("an answer to an older call set the limit to %d", b.Limit)
	}
	last := r.acquire(gate.Call{})
	r.answer(last, gate.Reading{Limit: 300, Remaining: 200, Reset: 10 * time.Second})
	if b := r.budget(gate.Requests); b.Limit != 300 {
		t.Fatalf("the newest answer says 300, believed is %d", b.Limit)
	}
}

func TestACeilingIsNeverExceeded(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 60, Concurrent: 1000, Burst: time.Second}})
	for range 200 {
		w := r.queue(gate.Call{})
		for !w.Granted() {
			r.sleep(50 * time.Millisecond)
		}
		r.answer(w, gate.Reading{Limit: 6000, Remaining: 5999, Reset: 10 * time.Millisecond})
	}
	if b := r.budget(gate.Requests); b.Limit != 60 || b.Source != gate.SourceTold {
		t.Fatalf("%+v", b)
	}
	if n, most := len(r.granted), 2+int(r.since().Seconds()); n > most {
		t.Fatalf("%d calls in %v at one a second", n, r.since())
	}
}

func TestAStartIsCorrectedBothWaysAndStaysBelowACeiling(t *testing.T) {
	for _, tt := range []struct {
		told, start int
		header      int64
		want        int64
		source      gate.Source
	}{
		{0, 600, 1200, 1200, gate.SourceHeader},
		{0, 600, 300, 300, gate.SourceHeader},
		{900, 600, 1200, 900, gate.SourceHeader},
		{500, 600, 1200, 500, gate.SourceTold},
		{500, 600, 100, 100, gate.SourceHeader},
	} {
		r := newRig(t, gate.Config{Limits: gate.Limits{RPM: tt.told}, Start: gate.Limits{RPM: tt.start}})
		r.answer(r.acquire(gate.Call{}), gate.Reading{Limit: tt.header, Remaining: tt.header - 1, Reset: time.Second})
		if b := r.budget(gate.Requests); b.Limit != tt.want {
			t.Errorf("told %d, start %d, header %d: limit %d by %v", tt.told, tt.start, tt.header, b.Limit, b.Source)
		}
	}
}

func TestABudgetThatRefillsOverHoursIsADays(t *testing.T) {
	for _, tt := range []struct {
		name string
		rd   gate.Reading
		want gate.Dimension
	}{
		{"14400 requests of which one is back in 6 s", gate.Reading{Dimension: gate.Requests, Limit: 14400, Remaining: 14300, Reset: 600 * time.Second}, gate.RequestsPerDay},
		{"500000 tokens, a tenth used, full in 2 h", gate.Reading{Dimension: gate.Tokens, Limit: 500_000, Remaining: 450_000, Reset: 2*time.Hour + 24*time.Minute}, gate.TokensPerDay},
		{"a minute's", gate.Reading{Dimension: gate.Requests, Limit: 600, Remaining: 590, Reset: time.Second}, gate.Requests},
		{"a minute's whose reset is rounded up to a second", gate.Reading{Dimension: gate.Requests, Limit: 6000, Remaining: 5999, Reset: time.Second}, gate.Requests},
		{"one that is full", gate.Reading{Dimension: gate.Requests, Limit: 600, Remaining: 600, Reset: 0}, gate.Requests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{})
			r.release(r.acquire(gate.Call{}), gate.Outcome{Readings: []gate.Reading{tt.rd}})
			bs := r.lane().Budgets
			if len(bs) != 1 || bs[0].Dimension != tt.want || bs[0].Limit != tt.rd.Limit {
				t.Fatalf("%+v, want one of %v", bs, tt.want)
			}
		})
	}
}

func TestAnExactRefusalStatesTheLevelAndStartsNoEpoch(t *testing.T) {
	// Real refusals, with the wait that they state.
	for _, tt := range []struct {
		limit, used, requested int64
		wait                   time.Duration
	}{
		{30000, 18928, 11159, 174 * time.Millisecond},
		{30000, 29937, 385, 644 * time.Millisecond},
		{30000, 21818, 11159, 5954 * time.Millisecond},
	} {
		wait := float64(tt.used+tt.requested-tt.limit) / float64(tt.limit) * 60
		if math.Abs(wait-tt.wait.Seconds()) > 0.001 {
			t.Fatalf("(%d + %d - %d) / %d of a minute is %.3f s and not %v", tt.used, tt.requested, tt.limit, tt.limit, wait, tt.wait)
		}
		for _, bystanders := range []int{0, 3} {
			r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 30000, Burst: time.Minute, Concurrent: 100}})
			h := r.acquire(gate.Call{Cost: gate.Cost{MaxOutput: int(tt.requested)}})
			r.sleep(40 * time.Millisecond)
			for range bystanders {
				r.acquire(gate.Call{Cost: gate.Cost{MaxOutput: 100}})
			}
			d := r.release(h, gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Tokens, Wait: tt.wait,
				Limit: tt.limit, Used: tt.used, Requested: tt.requested})
			r.wantEpochs(0)
			r.wantLevel(gate.Tokens, float64(tt.limit-tt.used)-100*float64(bystanders), 1)
			if !r.count0(gate.EventGaveUp) || d.Action != gate.Again || !d.Throttle || d.Wait != 0 {
				t.Fatalf("decision %+v", d)
			}
			w := r.again(h, d)
			r.sleep(tt.wait - 5*time.Millisecond)
			if w.Granted() {
				t.Fatalf("the call went out again before its %v", tt.wait)
			}
			extra := time.Duration(float64(100*bystanders)/500*1e9) + 250*time.Millisecond + tt.wait/20
			r.sleep(extra)
			if !w.Granted() {
				t.Fatalf("the call still waits %v after its %v", extra, tt.wait)
			}
		}
	}
}

func (r *rig) count0(typ gate.EventType) bool { return r.count(typ) == 0 }

func TestARefusedCallIsRefunded(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 60_000, Burst: time.Minute, Concurrent: 100}})
	h := r.acquire(gate.Call{Cost: gate.Cost{MaxOutput: 5000}})
	r.wantLevel(gate.Tokens, 55_000, 1)
	r.release(h, gate.Outcome{Kind: gate.Overloaded})
	r.wantLevel(gate.Tokens, 60_000, 1)
}

func TestReservesScaleWhenTheProviderCountsMore(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 600_000, Burst: time.Minute, Concurrent: 100}})
	reserve := func(c gate.Cost) float64 {
		before := r.budget(gate.Tokens).Spent
		r.release(r.acquire(gate.Call{Cost: c}), gate.Outcome{})
		return r.budget(gate.Tokens).Spent - before
	}
	h := r.acquire(gate.Call{Cost: gate.Cost{Input: 1000}})
	r.release(h, gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Tokens, Limit: 600_000, Used: 599_000, Requested: 1500})
	r.sleep(time.Minute)
	if got := reserve(gate.Cost{Input: 2000}); math.Abs(got-3000) > 1 {
		t.Fatalf("2000 tokens, of which the provider makes half again as many, reserve %.0f", got)
	}
	h = r.acquire(gate.Call{Cost: gate.Cost{Input: 1000}})
	r.release(h, gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Tokens, Limit: 600_000, Used: 599_000, Requested: 1200})
	r.sleep(time.Minute)
	if got := reserve(gate.Cost{Input: 2000}); math.Abs(got-3000) > 1 {
		t.Fatalf("a refusal that asks for less than was reserved changes reserves to %.0f", got)
	}
}

func TestExplanationsAreDoubtedAfterThreeInARow(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 6000, Burst: time.Minute, Concurrent: 100}})
	for range 4 {
		w := r.queue(gate.Call{})
		for !w.Granted() {
			r.sleep(50 * time.Millisecond)
		}
		r.sleep(10 * time.Millisecond)
		r.release(w, gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Requests, Limit: 6000, Used: 5990, Requested: 1})
	}
	r.wantEpochs(1)
}

func TestALimitIsToldToObserversWhenItChanges(t *testing.T) {
	r := newRig(t, gate.Config{})
	for _, limit := range []int64{600, 600, 1200, 1200} {
		r.answer(r.acquire(gate.Call{}), gate.Reading{Limit: limit, Remaining: limit - 1, Reset: time.Second})
		r.sleep(time.Second)
	}
	if n := r.count(gate.EventLimitsChanged); n != 2 {
		t.Fatalf("%d events of two changes", n)
	}
}

func TestHostileReadingsAreLeftAlone(t *testing.T) {
	big := []int64{math.MinInt64, -1, 0, 1, 600, math.MaxInt64}
	resets := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, math.MaxInt64}
	for _, limit := range big {
		for _, left := range big {
			for _, reset := range resets {
				for _, slack := range []int64{0, math.MinInt64, math.MaxInt64} {
					r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 600, Concurrent: 10}})
					h := r.acquire(gate.Call{})
					rd := gate.Reading{Limit: limit, Remaining: left, Reset: reset, Slack: slack}
					for d := gate.Dimension(0); d < gate.NumDimensions+2; d++ {
						rd.Dimension = d
						r.g.Release(r.now, h, &gate.Outcome{Readings: []gate.Reading{rd}})
						r.drain()
						if h = r.queue(gate.Call{}); !h.Granted() {
							r.cancel(h)
							break
						}
					}
					for _, b := range r.lane().Budgets {
						if math.IsNaN(b.Level) || math.IsNaN(b.Cap) || math.IsInf(b.Cap, 0) || math.IsInf(b.Level, 0) || b.Cap < 1 || b.Level > b.Cap {
							t.Fatalf("limit %d, left %d, reset %d, slack %d: %+v", limit, left, reset, slack, b)
						}
					}
				}
			}
		}
	}
}

func TestHostileRefusalsAreSurvived(t *testing.T) {
	big := []int64{math.MinInt64, -1, 0, 1, 600, math.MaxInt64}
	for _, limit := range big {
		for _, used := range big {
			for _, asked := range big {
				for d := gate.Dimension(0); d < gate.NumDimensions; d++ {
					r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 10}})
					held := acquireN(r, 3)
					r.release(held[0], gate.Outcome{Kind: gate.RateLimit, Dimension: d, Limit: limit, Used: used, Requested: asked, Wait: -time.Hour})
					r.release(held[1], gate.Outcome{HasUsage: true, Usage: gate.Usage{Input: -5, Output: -7, CachedInput: 3}})
					for _, b := range r.lane().Budgets {
						if math.IsNaN(b.Level) || math.IsNaN(b.Cap) || b.Cap < 1 {
							t.Fatalf("%v: limit %d, used %d, requested %d: %+v", d, limit, used, asked, b)
						}
					}
					if l := r.lane(); l.Slots < 1 {
						t.Fatalf("%v: limit %d, used %d, requested %d: %d slots", d, limit, used, asked, l.Slots)
					}
				}
			}
		}
	}
}
