package stress_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

func TestAWatchTellsADeadlockFromATimeThatNobodyRan(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	lane := func(l limits.LaneSnapshot) []limits.LaneSnapshot {
		l.Slots, l.Waiting = 1, 1
		return []limits.LaneSnapshot{l}
	}
	byBudget := lane(limits.LaneSnapshot{Blocked: true, Binding: limits.Requests})
	for _, tt := range []struct {
		name    string
		looks   int
		every   time.Duration
		backoff time.Duration
		lanes   []limits.LaneSnapshot
		timer   time.Duration // from each look; 0: none
		m       pool.Metrics
		stuck   bool
	}{
		{name: "nothing will end it", looks: 25, every: 100 * time.Millisecond, stuck: true},
		{name: "too early to say", looks: 15, every: 100 * time.Millisecond},
		{name: "the process stood still", looks: 3, every: time.Minute},
		{name: "it stood still as a backoff ended", looks: 5, every: 3 * time.Second, backoff: 10 * time.Second},
		{name: "a backoff as long as it was told", looks: 900, every: 100 * time.Millisecond, backoff: 2 * time.Minute},
		{name: "members at work think", looks: 90, every: 100 * time.Millisecond, m: pool.Metrics{Queued: 3, Running: 12}},
		{name: "a place is free, and nobody goes", looks: 25, every: 100 * time.Millisecond, m: pool.Metrics{Queued: 3}, stuck: true},
		{name: "a slot is free", looks: 310, every: 100 * time.Millisecond, timer: time.Second, lanes: lane(limits.LaneSnapshot{}), stuck: true},
		{name: "a budget is empty", looks: 900, every: 100 * time.Millisecond, timer: time.Second, lanes: byBudget},
		{name: "a budget is full again, and nobody is told", looks: 310, every: 100 * time.Millisecond, timer: -time.Second, lanes: byBudget, stuck: true},
	} {
		if tt.m.Queued == 0 {
			tt.m.Waiting = 1
		}
		l, what := stress.NewLooker(start.Add(tt.backoff)), ""
		for i := range tt.looks {
			snap := sluice.Snapshot{At: start.Add(time.Duration(i) * tt.every), Lanes: tt.lanes}
			if tt.timer != 0 {
				snap.Timer = snap.At.Add(tt.timer)
			}
			if said := l.Look(snap, tt.m); said != "" {
				what = said
			}
		}
		if (what != "") != tt.stuck {
			t.Errorf("%s: it says %q", tt.name, what)
		}
	}
}
