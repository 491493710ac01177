package gate_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// joined returns a rig whose lanes a and b share 600 requests per minute, as headers have shown.
func joined(t *testing.T) (r *rig, left float64) {
	r = newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 100}})
	left = 600
	for i := range 300 {
		r.sleep(50 * time.Millisecond)
		left = min(600, left+0.5)
		w := r.queue(limits.Call{Lane: []string{"a", "b"}[i%2]})
		if !w.Granted() {
			r.sleep(time.Second)
			left = min(600, left+10)
		}
		left--
		r.answer(w, limits.Reading{Limit: 600, Remaining: int64(left), Reset: time.Duration((600 - left) / 10 * 1e9)})
	}
	return r, left
}

// Lanes whose headers show that they use one limit wait for it together; a lane that comes later does, too.
func TestLanesThatShareALimitBecomeOne(t *testing.T) {
	r, left := joined(t)
	level := func(lane string) float64 { return r.laneNamed(lane).Budgets[0].Level }
	if a, b := level("a"), level("b"); a != b || a > left+1 || a < left-2 {
		t.Fatalf("lane a has %.1f and lane b %.1f, and headers show %.1f", a, b, left)
	}
	for range 90 {
		r.acquire(limits.Call{Lane: "a"})
	}
	if a, b := level("a"), level("b"); a != b || a > left-89 {
		t.Errorf("lane a has %.1f and lane b %.1f after 90 requests", a, b)
	}
	r.release(r.acquire(limits.Call{Lane: "c"}), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Limit: 600})
	if a, c := level("a"), level("c"); a != c || c < -1 || c > 1 {
		t.Errorf("lane a has %.1f and lane c %.1f after its rejection", a, c)
	}
}

// A lane that joins others continues their totals, also for the request whose response joined it.
func TestALaneThatJoinsHasTheSharedLevel(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 300 {
		r.answer(r.acquire(limits.Call{Lane: "a"}), limits.Reading{Limit: 600, Remaining: 500, Reset: 10 * time.Second})
		r.sleep(100 * time.Millisecond)
	}
	r.answer(r.acquire(limits.Call{Lane: "b"}), limits.Reading{Limit: 600, Remaining: 499, Reset: 10100 * time.Millisecond})
	if a, b := r.laneNamed("a").Budgets[0].Level, r.laneNamed("b").Budgets[0].Level; a != b || a < 490 {
		t.Errorf("lane a has %.0f and lane b %.0f after a header showed 499", a, b)
	}
}

// Requests that one lane does not send leave the totals before requests of lanes that share the limit.
func TestUnsentRequestsLeaveTheTotalsOfJoinedLanes(t *testing.T) {
	r, _ := joined(t)
	var unsent []*gate.Ticket
	for range 20 {
		unsent = append(unsent, r.acquire(limits.Call{Lane: "a"}))
	}
	w := r.acquire(limits.Call{Lane: "b"})
	for _, u := range unsent {
		r.release(u, limits.Outcome{Unsent: true})
	}
	r.answer(w, limits.Reading{Limit: 600, Remaining: 0, Reset: time.Minute})
	if b := r.laneNamed("b").Budgets[0].Level; b > 3 {
		t.Errorf("the level is %.1f after a header showed 0", b)
	}
}

// serve has each lane send 20 requests at once, to levels that refill at 600 per minute up to 100. It returns the accepted and rejected
// requests of the second half.
func serve(r *rig, span time.Duration, levels map[string]*float64) (accepted, rejected map[string]int) {
	accepted, rejected = map[string]int{}, map[string]int{}
	refill := map[*float64]bool{}
	for _, lane := range slices.Sorted(maps.Keys(levels)) {
		refill[levels[lane]] = true
		for range 20 {
			r.queue(limits.Call{Lane: lane})
		}
	}
	type response struct {
		at time.Time
		w  *gate.Ticket
		o  limits.Outcome
	}
	var responses []response
	for end := r.now.Add(span); r.now.Before(end); {
		if half := end.Add(-span / 2); r.now.Before(half) {
			clear(accepted)
			clear(rejected)
		}
		r.sleep(20 * time.Millisecond)
		for level := range refill {
			*level = min(100, *level+0.2)
		}
		for _, w := range r.take() {
			level := levels[w.Call.Lane]
			o := limits.Outcome{}
			if *level >= 1 {
				*level--
				accepted[w.Call.Lane]++
			} else {
				o = limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests}
				rejected[w.Call.Lane]++
			}
			o.Readings = []limits.Reading{{Dimension: limits.Requests, Limit: 600, Remaining: int64(*level), Reset: time.Duration((100 - *level) / 10 * 1e9)}}
			responses = append(responses, response{r.now.Add(500 * time.Millisecond), w, o})
		}
		for len(responses) > 0 && !responses[0].at.After(r.now) {
			r.release(responses[0].w, responses[0].o)
			r.queue(limits.Call{Lane: responses[0].w.Call.Lane})
			responses = responses[1:]
		}
	}
	return accepted, rejected
}

// A lane that states the limit of others and has its own leaves them, and they go on sharing theirs.
func TestALaneLeavesTheLanesThatShare(t *testing.T) {
	r := newRig(t, gate.Config{})
	shared, own := 100.0, 100.0
	levels := map[string]*float64{"a": &shared, "b": &shared, "c": &shared, "d": &shared, "e": &own}
	accepted, rejected := serve(r, 2*time.Minute, levels)
	if n := accepted["e"]; n < 590 {
		t.Errorf("lane e: %d accepted in a minute with a limit of its own of 600", n)
	}
	for _, lane := range []string{"a", "b", "c", "d"} {
		if accepted[lane] < 140 || rejected[lane] > 2 {
			t.Errorf("lane %s: %d accepted and %d rejected in a minute with a quarter of 600", lane, accepted[lane], rejected[lane])
		}
	}
}

// A lane joins those that share its limit also if the limit has changed, and a lane of another limit does not count for them.
func TestALaneJoinsLanesWhoseLimitChanged(t *testing.T) {
	r := newRig(t, gate.Config{})
	for i := range 4 { // lanes a and b share 6,000
		r.answer(r.acquire(limits.Call{Lane: []string{"a", "b"}[i%2]}), limits.Reading{Limit: 6000, Remaining: 99, Reset: 10 * time.Millisecond})
	}
	r.sleep(time.Second)
	r.answer(r.acquire(limits.Call{Lane: "a"}), limits.Reading{Limit: 600, Remaining: 50, Reset: 5 * time.Second})
	r.answer(r.acquire(limits.Call{Lane: "c"}), limits.Reading{Limit: 600, Remaining: 49, Reset: 5100 * time.Millisecond})
	r.acquire(limits.Call{Lane: "c"})
	if a, c := r.laneNamed("a").Budgets[0].Level, r.laneNamed("c").Budgets[0].Level; a != c {
		t.Errorf("lane a has %.0f and lane c %.0f", a, c)
	}
}

// Lanes whose rejections alone have headers share nothing by the limit that these state: once they shared it, no header would separate
// them.
func TestRejectionsJoinNoLanes(t *testing.T) {
	r := newRig(t, gate.Config{})
	for _, lane := range []string{"a", "b"} {
		r.release(r.acquire(limits.Call{Lane: lane}), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens,
			Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 600, Remaining: 50, Reset: 5 * time.Second}}})
	}
	r.sleep(time.Second)
	r.acquire(limits.Call{Lane: "a"})
	if a, b := r.laneNamed("a").Budgets[0].Level, r.laneNamed("b").Budgets[0].Level; a == b {
		t.Errorf("both lanes have %.0f after a request of lane a", a)
	}
}

// A limit that a lane of unknown limit gets from elsewhere does not change the level that it used until then.
func TestALaneOfUnknownLimitLeavesTheSharedLevel(t *testing.T) {
	recall := func(r *rig, limit int) {
		r.g.Recall(r.now, gate.Memory{Lane: "c", SavedAt: r.now, Limits: []limits.Limit{
			{Dimension: limits.Requests, Value: float64(limit), Source: limits.SourceHeader, At: r.now, Confidence: 1}}})
	}
	configure := func(r *rig, limit int) {
		r.acquire(limits.Call{Lane: "c"})
		r.g.SetLimits(r.now, limits.Limits{RPM: limit}, limits.Limits{})
	}
	for name, learn := range map[string]func(*rig, int){"recalled": recall, "configured": configure} {
		for _, limit := range []int{60, 600, 6000} {
			r, left := joined(t)
			learn(r, limit)
			a, c := r.laneNamed("a").Budgets[0], r.laneNamed("c").Budgets[0]
			if a.Level > left+1 || limit >= 600 && a.Level < left-3 {
				t.Errorf("%s limit of %d: lane a has %.0f, and headers showed %.0f", name, limit, a.Level, left)
			}
			if shared := a.Level == c.Level; shared != (limit == 600) && !(name == "configured" && limit == 60) {
				t.Errorf("%s limit of %d: lane a has %.0f and lane c %.0f", name, limit, a.Level, c.Level)
			}
		}
	}
}

// A weight that headers raised falls again if the provider sends no more headers.
func TestAWeightFadesWithoutHeaders(t *testing.T) {
	r := newRig(t, gate.Config{})
	reading := []limits.Reading{{Dimension: limits.Requests, Limit: 600, Remaining: 50, Reset: 55 * time.Second}}
	for range 20 { // others take the rest
		r.sleep(time.Second)
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Readings: reading})
		r.sleep(15 * time.Second)
		r.release(r.acquire(limits.Call{}), limits.Outcome{Readings: reading})
	}
	sent := 0
	for range 12000 {
		r.sleep(10 * time.Millisecond)
		for w := r.queue(limits.Call{}); w.Granted(); w = r.queue(limits.Call{}) {
			r.release(w, limits.Outcome{})
			sent++
		}
		for _, w := range r.take() {
			if w.Granted() {
				r.release(w, limits.Outcome{})
				sent++
			}
		}
	}
	if sent < 1000 {
		t.Errorf("%d requests in two minutes at 600 per minute", sent)
	}
}
