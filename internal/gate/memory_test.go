package gate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// stray rejects a share of the requests for no reason, and has no limit.
func stray(share float64, seed uint64) limiter {
	random := rand.New(rand.NewPCG(seed, 0))
	return func(at time.Time) (bool, int64, time.Time) { return random.Float64() >= share, 0, at }
}

// resume starts a process with the memory of an earlier one.
func resume(t *testing.T, now time.Time, m gate.Memory, seed uint64) *rig {
	r := newRig(t, gate.Config{MaxThrottles: 1000, Random: rand.New(rand.NewPCG(seed, 1)).Int64N})
	r.now = now
	r.g.Recall(now, m)
	return r
}

// remember ends a process, and returns its memory and the instant at which the next one starts.
func (r *rig) remember() (gate.Memory, time.Time) {
	m, _ := r.g.Memory(r.now, "")
	m.Close()
	return m, r.now.Add(time.Second)
}

func TestStrayRejectionsDoNotSlowLaterRuns(t *testing.T) {
	for seed := range uint64(8) {
		r := resume(t, epoch0, gate.Memory{}, seed)
		r.meet(1000, 0, stray(0.3, seed), form{})
		m, now := r.remember()
		for n, ratio := range map[int]float64{2000: 1.2, 10: 2} {
			fresh, _ := resume(t, now, gate.Memory{}, seed).meet(n, 0, stray(0, seed), form{})
			next := resume(t, now, m, seed)
			took, _ := next.meet(n, 0, stray(0, seed), form{})
			if took.Seconds() > ratio*fresh.Seconds() {
				t.Errorf("seed %d: %d items took %v, and %v without the memory %+v", seed, n, took, fresh, m.Limits)
			}
			for _, l := range next.lane().Budgets {
				if n == 2000 && l.Limit < 2000 {
					t.Errorf("seed %d: %v %d is still believed", seed, l.Dimension, l.Limit)
				}
			}
		}
	}
}

func TestStrayRejectionsDoNotSlowEachRunFurther(t *testing.T) {
	const runs, seeds = 6, 8
	var took, fresh time.Duration
	for seed := range uint64(seeds) {
		m, now := gate.Memory{}, epoch0
		for i := range uint64(runs) {
			r := resume(t, now, m, seed)
			last, _ := r.meet(1000, 0, stray(0.05, seed*runs+i), form{})
			m, now = r.remember()
			if i == runs-1 {
				alone, _ := resume(t, now, gate.Memory{}, seed).meet(1000, 0, stray(0.05, seed*runs+i), form{})
				took, fresh = took+last, fresh+alone
			}
		}
	}
	if took.Seconds() > 1.1*fresh.Seconds() {
		t.Errorf("%v for the sixth runs, %v without memories", took/seeds, fresh/seeds)
	}
}

func TestALimitIsForgottenADayAfterItsLastEvidence(t *testing.T) {
	for _, l := range []limits.Limit{
		{Dimension: limits.Requests, Value: 600, Source: limits.SourceMeasured, Confidence: 0.99},
		{Dimension: limits.Tokens, Value: 6000, Source: limits.SourceHeader, Confidence: 1},
		{Dimension: limits.Concurrency, Value: 3, Source: limits.SourceRejection},
	} {
		l.At = epoch0
		m, now := gate.Memory{SavedAt: epoch0, Limits: []limits.Limit{l}}, epoch0.Add(time.Hour)
		for ; len(m.Limits) > 0; now = now.Add(time.Hour) {
			if m.Limits[0] != l {
				t.Fatalf("%+v became %+v", l, m.Limits[0])
			}
			r := resume(t, now, m, 0)
			r.release(r.acquire(limits.Call{}), limits.Outcome{})
			m, _ = r.remember()
		}
		if age := now.Sub(epoch0); age != 26*time.Hour { // the process of the 25th hour is the first that does not know it
			t.Errorf("%v is forgotten after %v", l.Dimension, age)
		}
	}
}

func TestALimitIsAsOldAsItsLastConfirmation(t *testing.T) {
	r := resume(t, epoch0, gate.Memory{}, 1)
	r.meet(300, 0, tokenBucket(20, 2, epoch0), form{})
	m, _ := r.remember()
	var measured time.Time
	for _, e := range r.events {
		if e.Type == limits.EventLimitsChanged && e.Dimension == limits.Requests {
			measured = e.At
		}
	}
	if len(m.Limits) == 0 || m.Limits[0].Source != limits.SourceMeasured || !m.Limits[0].At.After(measured) {
		t.Errorf("%+v, measured at %v and confirmed later", m.Limits, measured)
	}
}
