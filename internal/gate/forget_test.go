package gate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func (r *rig) lanes() (names []string) {
	for _, l := range r.g.Snapshot(r.now) {
		names = append(names, l.Lane)
	}
	return names
}

func TestALaneWithoutRequestsForADayIsForgotten(t *testing.T) {
	for _, remote := range []bool{false, true} {
		r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1}, Remote: remote})
		expect := func(names ...string) {
			t.Helper()
			if got := r.lanes(); !slices.Equal(got, names) {
				t.Errorf("remote %v, after %v: lanes %q, want %q", remote, r.since(), got, names)
			}
		}
		call := func(lane string) *gate.Ticket {
			t := r.queue(limits.Call{Lane: lane})
			r.sleep(time.Second)
			return t
		}
		r.release(call("idle"), limits.Outcome{})
		r.release(call("paused"), limits.Outcome{Kind: limits.UsageWindow, Wait: 72 * time.Hour})
		open := call("in flight")
		before, waiting := call("waiting"), call("waiting")
		r.release(call("used"), limits.Outcome{})
		r.sleep(23 * time.Hour)
		call("new")
		expect("idle", "in flight", "new", "paused", "used", "waiting")
		r.release(call("used"), limits.Outcome{})
		r.sleep(time.Hour)
		r.g.Earliest(r.now, &limits.Call{Lane: "idle"})
		expect("idle", "in flight", "new", "paused", "used", "waiting")
		call("newer")
		expect("in flight", "new", "newer", "paused", "used", "waiting")
		r.release(open, limits.Outcome{})
		r.release(before, limits.Outcome{})
		r.sleep(time.Minute)
		r.release(waiting, limits.Outcome{})
		if again := call("idle"); !again.Granted() {
			t.Errorf("remote %v: a request in a lane that was forgotten waits", remote)
		}
	}
}
