package gate_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

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
		{9, 0, 600},                  // no reset bounds it
		{599, -time.Second, 599},
	} {
		t.Run(fmt.Sprintf("%d left, full in %v", tt.left, tt.reset), func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1000}})
			r.answer(r.acquire(limits.Call{}), limits.Reading{Limit: 600, Remaining: tt.left, Reset: tt.reset})
			if b := r.budget(limits.Requests); math.Abs(b.Cap-tt.want) > 1e-6 || b.Limit != 600 || b.Source != limits.SourceHeader {
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
			all := r.fill(limits.Call{}) // 100 calls, the level is 0
			r.sleep(time.Second)         // 9.9
			return all[99]
		}, 40, 40 + 10*0.9 - 99}, // less what the others in its last 100 ms may have taken
		{"raised after a quiet second", func(r *rig) *gate.Ticket {
			r.fill(limits.Call{})
			r.sleep(time.Second)
			h := r.acquire(limits.Call{})
			r.sleep(time.Second) // 9.9 - 1 + 9.9
			return h
		}, 60, 60 + 10*0.9},
		{"lowered to the upper bound", func(r *rig) *gate.Ticket {
			h := r.acquire(limits.Call{})
			r.sleep(100 * time.Millisecond)
			return h
		}, 20, 20 + 1 + 10*0.1},
		{"lowered by what was sent since, too", func(r *rig) *gate.Ticket {
			h := r.acquire(limits.Call{})
			r.sleep(100 * time.Millisecond) // later than 20 ms: the answer cannot know of these
			acquireN(r, 30)
			return h
		}, 60, 60 + 1 + 10*0.1 - 30},
		{"left alone inside", func(r *rig) *gate.Ticket {
			h := r.acquire(limits.Call{})
			r.sleep(50 * time.Millisecond)
			return h
		}, 99, 99 + 0.5},
		{"what was sent in the next 20 ms may be in it", func(r *rig) *gate.Ticket {
			h := r.acquire(limits.Call{})
			r.sleep(10 * time.Millisecond)
			acquireN(r, 30)
			r.sleep(40 * time.Millisecond)
			return h
		}, 50, 50 + 1 + 10*0.05}, // 50, and not 50 - 30
		{"never above what the bucket holds", func(r *rig) *gate.Ticket {
			h := r.acquire(limits.Call{})
			r.sleep(time.Minute)
			return h
		}, 99, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1000}}).show(limits.Requests, 600, 100)
			r.wantLevel(limits.Requests, 100, 1e-9)
			h := tt.setup(r)
			reset := time.Duration(float64(100-tt.left) / 10 * float64(time.Second))
			r.answer(h, limits.Reading{Limit: 600, Remaining: tt.left, Reset: reset})
			want := tt.want
			if want < 0 { // below what the mirror had: it is left alone
				want = 10
			}
			r.wantLevel(limits.Requests, want, 1e-6)
		})
	}
}

func TestARoundedReadingLeavesRoom(t *testing.T) {
	read := func(slack int64) float64 {
		r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1000}})
		r.answer(r.acquire(limits.Call{}), limits.Reading{Dimension: limits.InputTokens, Limit: 60_000, Remaining: 59_000, Reset: time.Second})
		r.sleep(time.Hour)
		h := r.acquire(limits.Call{})
		r.sleep(10 * time.Millisecond)
		r.answer(h, limits.Reading{Dimension: limits.InputTokens, Limit: 60_000, Remaining: 50_000, Reset: 10 * time.Second, Slack: slack})
		return r.budget(limits.InputTokens).Level
	}
	if got := read(1000) - read(0); math.Abs(got-500) > 1 {
		t.Fatalf("a remainder rounded to 1000 is an interval %.0f higher, want 500", got)
	}
}

func TestAChangedLimitIsBelievedOnlyFromTheNewestCalls(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1000}})
	old := r.acquire(limits.Call{})
	r.sleep(time.Second)
	newer := r.acquire(limits.Call{})
	r.sleep(time.Second)
	r.answer(newer, limits.Reading{Limit: 1200, Remaining: 1000, Reset: 10 * time.Second})
	r.answer(old, limits.Reading{Limit: 600, Remaining: 500, Reset: 10 * time.Second}) // from before the change
	if b := r.budget(limits.Requests); b.Limit != 1200 {
		t.Fatalf("an answer to an older call set the limit to %d", b.Limit)
	}
	last := r.acquire(limits.Call{})
	r.answer(last, limits.Reading{Limit: 300, Remaining: 200, Reset: 10 * time.Second})
	if b := r.budget(limits.Requests); b.Limit != 300 {
		t.Fatalf("the newest answer says 300, believed is %d", b.Limit)
	}
}

func TestHeadersCorrectALimitThatIsKnownBefore(t *testing.T) {
	for _, cfg := range []gate.Config{{Start: limits.Limits{RPM: 600}}, {Limits: limits.Limits{RPM: 600}}} {
		for _, header := range []int64{1200, 300} {
			for _, left := range []int64{header - 1, header} { // a full bucket shows its limit, too
				r := newRig(t, cfg)
				r.answer(r.acquire(limits.Call{}), limits.Reading{Limit: header, Remaining: left, Reset: time.Second})
				r.sleep(time.Hour)
				want, source := header, limits.SourceHeader
				if most := cfg.Limits.RPM; most > 0 && int64(most) < want { // the configured limit binds
					want, source = int64(most), limits.SourceConfigured
				}
				if b := r.budget(limits.Requests); b.Limit != want || b.Source != source || b.Level > float64(want) {
					t.Errorf("header %d: %+v", header, b)
				}
			}
		}
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
			r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 100}}).show(limits.Tokens, 30000, 30000)
			h := r.acquire(limits.Call{Cost: limits.Cost{MaxOutput: int(tt.requested)}})
			r.sleep(40 * time.Millisecond)
			for range bystanders {
				r.acquire(limits.Call{Cost: limits.Cost{MaxOutput: 100}})
			}
			d := r.release(h, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Wait: tt.wait,
				Limit: tt.limit, Used: tt.used, Requested: tt.requested})
			r.wantEpochs(0)
			r.wantLevel(limits.Tokens, float64(tt.limit-tt.used), 1) // whatever was sent since
			if r.count(limits.EventGaveUp) > 0 || d.Action != gate.Again || !d.Throttle || d.Wait != 0 {
				t.Fatalf("decision %+v", d)
			}
			w := r.again(h, d)
			r.sleep(tt.wait - 5*time.Millisecond)
			if w.Granted() {
				t.Fatalf("the call went out again before its %v", tt.wait)
			}
			extra := 10*time.Millisecond + tt.wait/50 + 300*time.Millisecond // as others use the limit
			r.sleep(extra)
			if !w.Granted() {
				t.Fatalf("the call still waits %v after its %v", extra, tt.wait)
			}
		}
	}
}

func TestReservesScaleWhenTheProviderCountsMore(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 600_000, Burst: time.Minute, Concurrency: 100}})
	reserve := func(c limits.Cost) float64 {
		before := r.budget(limits.Tokens).Spent
		r.release(r.acquire(limits.Call{Cost: c}), limits.Outcome{})
		return r.budget(limits.Tokens).Spent - before
	}
	h := r.acquire(limits.Call{Cost: limits.Cost{Input: 1000}})
	r.release(h, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Limit: 600_000, Used: 599_000, Requested: 1500})
	r.sleep(time.Minute)
	if got := reserve(limits.Cost{Input: 2000}); math.Abs(got-3000) > 1 {
		t.Fatalf("2000 tokens, of which the provider makes half again as many, reserve %.0f", got)
	}
	h = r.acquire(limits.Call{Cost: limits.Cost{Input: 1000}})
	r.release(h, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Limit: 600_000, Used: 599_000, Requested: 1200})
	r.sleep(time.Minute)
	if got := reserve(limits.Cost{Input: 2000}); math.Abs(got-3000) > 1 {
		t.Fatalf("a refusal that asks for less than was reserved changes reserves to %.0f", got)
	}
}

func TestExplanationsAreDoubtedAfterFiveInARow(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPM: 30, Concurrency: 100}})
	for n := range 6 {
		r.wantEpochs(0)
		w := r.queue(limits.Call{ID: fmt.Sprint(n)})
		for !w.Granted() {
			r.sleep(50 * time.Millisecond)
		}
		r.sleep(10 * time.Millisecond)
		r.release(w, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Limit: 30, Used: 30, Requested: 1})
	}
	r.wantEpochs(1)
	r.wantPause(3*time.Second, 3*time.Second) // one and a half refills of two seconds
}

func TestRejectionsSentBeforeACorrectionCountAsOne(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1000}}).show(limits.Requests, 600, 100)
	held := acquireN(r, 20)
	r.sleep(100 * time.Millisecond)
	for _, h := range held {
		r.release(h, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests})
	}
	r.wantEpochs(0)
	if b := r.budget(limits.Requests); b.Limit != 600 || b.Level < -1 || b.Level > 1.1 {
		t.Errorf("twenty rejections of one wave: %+v, want an empty bucket of the same limit", b)
	}
}

func TestALimitIsToldToObserversWhenItChanges(t *testing.T) {
	r := newRig(t, gate.Config{})
	for _, limit := range []int64{600, 600, 1200, 1200} {
		r.answer(r.acquire(limits.Call{}), limits.Reading{Limit: limit, Remaining: limit - 1, Reset: time.Second})
		r.sleep(time.Second)
	}
	if n := r.count(limits.EventLimitsChanged); n != 2 {
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
					r := newRig(t, gate.Config{Limits: limits.Limits{RPM: 600, Concurrency: 10}})
					h := r.acquire(limits.Call{})
					rd := limits.Reading{Limit: limit, Remaining: left, Reset: reset, Slack: slack}
					for d := limits.Dimension(0); d < limits.NumDimensions+2; d++ {
						rd.Dimension = d
						r.g.Release(r.now, h, &limits.Outcome{Readings: []limits.Reading{rd}})
						r.drain()
						if h = r.queue(limits.Call{}); !h.Granted() {
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
				for d := limits.Dimension(0); d < limits.NumDimensions; d++ {
					r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 10}})
					held := acquireN(r, 2)
					r.release(held[0], limits.Outcome{Kind: limits.RateLimit, Dimension: d, Limit: limit, Used: used, Requested: asked, Wait: -time.Hour})
					r.release(held[1], limits.Outcome{HasUsage: true, Usage: limits.Usage{Input: -5, Output: -7, CachedInput: 3}})
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
