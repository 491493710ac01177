package gate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/gate"
)

// hinted is a refusal that says how long to wait and nothing else.
func hinted(d time.Duration) gate.Outcome { return gate.Outcome{Kind: gate.RateLimit, Wait: d} }

// told are slots that are known, so that a refusal is about a rate.
var told = gate.Limits{Concurrent: 64}

func acquireN(r *rig, n int) (out []*gate.Ticket) {
	for range n {
		out = append(out, r.acquire(gate.Call{}))
	}
	return out
}

func TestALateRefusalFromAnOlderEpochStartsNoSecondOne(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	held := acquireN(r, 10)
	r.sleep(100 * time.Millisecond)
	r.release(held[0], hinted(time.Second))
	r.wantEpochs(1)
	for _, h := range held[1:9] {
		r.sleep(300 * time.Millisecond) // some of them come after the pause
		r.release(h, hinted(100*time.Millisecond))
	}
	r.wantEpochs(1)
	// A call that leaves in the new epoch is judged by it.
	r.sleep(5 * time.Second)
	r.release(r.acquire(gate.Call{}), hinted(time.Second))
	r.wantEpochs(2)
	r.release(held[9], hinted(time.Second))
	r.wantEpochs(2)
}

func TestTheEpochIsStampedWhenTheRequestLeaves(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	held := acquireN(r, 2)
	r.release(held[0], hinted(10*time.Millisecond))
	r.wantEpochs(1)
	r.sleep(20 * time.Millisecond)
	r.sent(held[1]) // granted before the pause, sent after it
	r.release(held[1], hinted(10*time.Millisecond))
	r.wantEpochs(2)
}

func TestAHintIsAFloorAndIsExceededByLittle(t *testing.T) {
	for _, hint := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour, 10 * 365 * 24 * time.Hour} {
		for range 50 {
			r := newRig(t, gate.Config{Limits: told})
			r.release(r.acquire(gate.Call{}), hinted(hint))
			least := hint + min(hint/50, 100*time.Millisecond) + 2*time.Millisecond
			r.wantPause(least, hint+min(hint/25, 200*time.Millisecond)+3*time.Millisecond)
			w := r.queue(gate.Call{})
			if hint > time.Hour {
				continue
			}
			r.sleep(hint)
			if w.Granted() {
				t.Fatalf("a call went out %v before the hint of %v was over", -r.pause(), hint)
			}
			r.sleep(210 * time.Millisecond)
			if !w.Granted() {
				t.Fatalf("a call still waits %v after a hint of %v", 210*time.Millisecond, hint)
			}
		}
	}
}

func TestAPauseIsExtendedAndNeverShortened(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	held := acquireN(r, 4)
	r.release(held[0], hinted(10*time.Second))
	until := r.lane().Until
	r.release(held[1], hinted(3*time.Second))
	if got := r.lane().Until; !got.Equal(until) {
		t.Fatalf("a hint below the pause moved its end by %v", got.Sub(until))
	}
	r.sleep(time.Second)
	r.release(held[2], hinted(30*time.Second))
	r.wantPause(30*time.Second, 30*time.Second+210*time.Millisecond)
	r.release(held[3], gate.Outcome{Kind: gate.RateLimit}) // no hint at all
	r.wantPause(30*time.Second, 30*time.Second+210*time.Millisecond)
	r.wantEpochs(1)
}

func TestAPauseWithoutAHintGrowsWithTheAgeOfItsEpisode(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 64}})
	w := r.queue(gate.Call{})
	start := r.now
	var last time.Duration
	for n := 0; r.now.Sub(start) < 20*time.Minute; n++ {
		if !w.Granted() {
			t.Fatalf("at %v: no probe", r.since())
		}
		r.sleep(20 * time.Millisecond)
		age := r.now.Sub(start) - 20*time.Millisecond
		if n == 0 {
			age = 0
		}
		d := r.release(w, gate.Outcome{Kind: gate.RateLimit})
		want := min(max(age*15/100, 250*time.Millisecond), 15*time.Second)
		r.wantPause(want-5*time.Millisecond, want+5*time.Millisecond)
		if r.pause() < last {
			t.Fatalf("the pause shrank from %v to %v within an episode", last, r.pause())
		}
		last = r.pause()
		w = r.again(w, d)
		r.sleep(last)
	}
	if last != 15*time.Second {
		t.Fatalf("the longest pause is %v, want 15 s", last)
	}
	// The episode ends with proof, and with it its age.
	r.release(w, gate.Outcome{})
	for range 3 {
		for _, h := range r.fill(gate.Call{}) {
			r.release(h, gate.Outcome{})
		}
	}
	if r.lane().Probing {
		t.Fatal("still probing after all was proven")
	}
	r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.RateLimit})
	r.wantPause(250*time.Millisecond, 250*time.Millisecond)
}

func TestAPauseWithoutAHintLastsAtLeastOneAndAHalfRefills(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 30, Concurrent: 4}})
	r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.RateLimit})
	r.wantPause(3*time.Second, 3*time.Second) // 1.5 / (0.5 per second)
}

// probing returns a lane that has just paused, with many calls waiting.
func probing(t *testing.T, waiting int) *rig {
	r := newRig(t, gate.Config{Limits: told})
	first := r.acquire(gate.Call{})
	r.release(first, hinted(time.Second))
	for range waiting {
		r.queue(gate.Call{})
	}
	r.take()
	r.sleep(1100 * time.Millisecond)
	return r
}

func TestTheRampIsOneThenFourThenSixteen(t *testing.T) {
	r := probing(t, 200)
	var sizes []int
	for range 4 {
		wave := r.take()
		sizes = append(sizes, len(wave))
		r.release(wave[0], gate.Outcome{}) // one proof is enough
	}
	// 1; then 4; then 16 less the 3 that are still unproven; then 64 less those that are open.
	if diff := cmp.Diff([]int{1, 4, 13}, sizes[:3]); diff != "" {
		t.Fatalf("waves (-want +got):\n%s", diff)
	}
	if n := r.count(gate.EventCooldownEnded); n != 1 || r.lane().Probing {
		t.Fatalf("resumed %d times, probing %v: four proofs in a row are 256, above 64 slots", n, r.lane().Probing)
	}
}

func TestCallsThatAreAliveProveWithoutAnAnswer(t *testing.T) {
	r := probing(t, 200) // and nothing is ever answered
	var sizes []int
	for range 60 {
		if n := len(r.take()); n > 0 {
			sizes = append(sizes, n)
		}
		r.sleep(100 * time.Millisecond)
	}
	total := 0
	for _, n := range sizes {
		total += n
	}
	if sizes[0] != 1 || total != 64 || r.lane().Probing {
		t.Fatalf("waves %v, probing %v: calls that live longer than refusals take are taken", sizes, r.lane().Probing)
	}
}

func TestACallIsNotProvenBeforeRefusalsWouldHaveCome(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	held := acquireN(r, 40)
	for i, h := range held { // refusals take 300 ms
		if i == 0 {
			r.sleep(300 * time.Millisecond)
		}
		r.release(h, hinted(time.Second))
	}
	for range 10 {
		r.queue(gate.Call{})
	}
	r.take()
	r.sleep(r.pause() + time.Millisecond)
	if n := len(r.take()); n != 1 {
		t.Fatalf("%d probes", n)
	}
	r.sleep(590 * time.Millisecond)
	if n := len(r.take()); n != 0 {
		t.Fatalf("%d calls follow a probe that is younger than two refusals", n)
	}
	r.sleep(30 * time.Millisecond)
	if n := len(r.take()); n != 4 {
		t.Fatalf("%d calls follow a proven probe, want 4", n)
	}
}

func TestAProbeIsChosenAmongTheLeastThrottled(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	held := acquireN(r, 5)
	for i, h := range held {
		r.release(h, hinted(time.Second))
		r.queueTicket(&gate.Ticket{Call: h.Call, Throttles: 5 - i, Queued: h.Queued, Front: true})
	}
	r.sleep(time.Millisecond)
	fresh := r.queue(gate.Call{ID: "fresh"}) // the last in its queue
	r.sleep(1100 * time.Millisecond)
	if !fresh.Granted() {
		t.Fatal("the probe is not the call that was never throttled")
	}
}

func TestAFailedProbeLetsTheNextOneOut(t *testing.T) {
	r := probing(t, 20)
	r.release(r.take()[0], gate.Outcome{Kind: gate.ServerError})
	wave := r.take()
	if len(wave) != 1 {
		t.Fatalf("%d probes after one that failed, want 1: it proved nothing and holds nobody up", len(wave))
	}
	r.release(wave[0], gate.Outcome{Kind: gate.BadRequest}) // an answer is an answer
	if n := len(r.take()); n != 4 {
		t.Fatalf("%d calls after an answered probe, want 4", n)
	}
	r2 := probing(t, 20)
	r2.release(r2.take()[0], gate.Outcome{Kind: gate.Network, Unsent: true})
	if n := len(r2.take()); n != 1 {
		t.Fatalf("%d probes after one that was never sent, want 1", n)
	}
}

func TestOverloadAlonePausesNobody(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	for range 10 {
		for range 2 {
			d := r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Overloaded})
			if d.Action != gate.Again || !d.Throttle {
				t.Fatalf("decision %+v", d)
			}
		}
		r.release(r.acquire(gate.Call{}), gate.Outcome{})
	}
	r.wantEpochs(0)
	for range 3 {
		r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Overloaded})
	}
	r.wantEpochs(1)
	r.wantPause(250*time.Millisecond, 250*time.Millisecond)
}

func TestOverloadWithAHintPausesAtOnce(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Overloaded, Wait: 2 * time.Second})
	r.wantEpochs(1)
	r.wantPause(2*time.Second, 2100*time.Millisecond)
}

func TestOverloadBacksTheCallOffByItself(t *testing.T) {
	longest := time.Duration(0)
	for range 300 {
		r := newRig(t, gate.Config{Limits: told})
		d := r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Overloaded})
		longest = max(longest, d.Wait)
	}
	if longest < 100*time.Millisecond || longest > 200*time.Millisecond {
		t.Fatalf("the longest of 300 first backoffs is %v, want nearly 200 ms", longest)
	}
}

func TestAUsageWindowPausesUntilItsInstantAndThenOneCallProbes(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(r *rig) gate.Outcome
		want time.Duration
	}{
		{"an instant", func(r *rig) gate.Outcome {
			return gate.Outcome{Kind: gate.UsageWindow, Until: r.now.Add(5 * time.Hour)}
		}, 5 * time.Hour},
		{"a wait", func(*rig) gate.Outcome { return gate.Outcome{Kind: gate.UsageWindow, Wait: 2 * time.Hour} }, 2 * time.Hour},
		{"the later of both", func(r *rig) gate.Outcome {
			return gate.Outcome{Kind: gate.UsageWindow, Wait: time.Hour, Until: r.now.Add(3 * time.Hour)}
		}, 3 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: told})
			first := r.acquire(gate.Call{})
			r.release(first, tt.say(r))
			for range 20 {
				r.queue(gate.Call{})
			}
			r.take()
			if l := r.lane(); l.Pause != gate.UsageWindow {
				t.Fatalf("the lane pauses for %v", l.Pause)
			}
			ticks := r.ticks
			r.sleep(tt.want - time.Second)
			if n := len(r.take()); n != 0 {
				t.Fatalf("%d calls went out in the window", n)
			}
			if least := int(tt.want/time.Minute) - 1; r.ticks-ticks < least {
				t.Fatalf("%d looks at the clock in %v: one a minute, since laptops sleep", r.ticks-ticks, tt.want)
			}
			r.sleep(1250 * time.Millisecond)
			if n := len(r.take()); n != 1 {
				t.Fatalf("%d calls probe, want 1", n)
			}
		})
	}
}

func TestAWindowThatIsStillShutAfterItsInstantKeepsProbingByOne(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	w := r.acquire(gate.Call{})
	for range 20 {
		d := r.release(w, gate.Outcome{Kind: gate.UsageWindow, Until: r.now.Add(-time.Minute)}) // already over, they say
		if d.Action != gate.Again {
			break
		}
		w = r.again(w, d)
		if w.Granted() {
			t.Fatal("a shut window is hammered")
		}
		r.sleep(20 * time.Second)
		if !w.Granted() {
			t.Fatal("no probe")
		}
	}
}

func TestTheBreakerOpensAfterFiveFailuresForAMinuteAndThenOneProbes(t *testing.T) {
	for _, kind := range []gate.Kind{gate.Timeout, gate.Network, gate.ServerError} {
		t.Run(kind.String(), func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: told})
			fail := gate.Outcome{Kind: kind}
			for range 4 {
				r.release(r.acquire(gate.Call{}), fail)
			}
			r.release(r.acquire(gate.Call{}), gate.Outcome{}) // resets the row
			for range 4 {
				r.release(r.acquire(gate.Call{}), fail)
			}
			if n := r.count(gate.EventBreaker); n != 0 {
				t.Fatal("open after four in a row")
			}
			inFlight := acquireN(r, 3)
			r.release(r.acquire(gate.Call{}), fail)
			r.wantPause(time.Minute, time.Minute)
			for _, h := range inFlight { // what was under way tells nothing new
				r.sleep(time.Second)
				r.release(h, fail)
			}
			r.wantPause(57*time.Second, 57*time.Second)
			for range 10 {
				r.queue(gate.Call{})
			}
			r.take()
			r.sleep(57*time.Second - time.Millisecond)
			if n := len(r.take()); n != 0 {
				t.Fatalf("%d calls while the breaker is open", n)
			}
			r.sleep(2 * time.Millisecond)
			probe := r.take()
			if len(probe) != 1 {
				t.Fatalf("%d probes", len(probe))
			}
			r.release(probe[0], fail)
			r.wantPause(time.Minute, time.Minute)
			r.sleep(time.Minute)
			probe = r.take()
			if len(probe) != 1 {
				t.Fatalf("%d probes after another minute", len(probe))
			}
			r.release(probe[0], gate.Outcome{})
			if n := len(r.take()); n != 4 {
				t.Fatalf("%d calls after the probe came back, want 4", n)
			}
			if last := r.events[len(r.events)-1]; r.lane().Pause == gate.ServerError && r.pause() > 0 {
				t.Fatalf("still open: %+v", last)
			}
		})
	}
}

func TestASpentRetryBudgetDelaysAndNeverEndsACall(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told, Attempts: 1000})
	var longest time.Duration
	for n := range 200 {
		w := r.queue(gate.Call{})
		for !w.Granted() {
			r.sleep(time.Second)
		}
		d := r.release(w, gate.Outcome{Kind: gate.ServerError})
		if d.Action != gate.Again {
			t.Fatalf("failure %d ends a call that has attempts left", n)
		}
		if n < 9 && d.Wait > 200*time.Millisecond {
			t.Fatalf("failure %d waits for %v with a budget of ten", n, d.Wait)
		}
		longest = max(longest, d.Wait)
	}
	if longest < 15*time.Second || longest > 21*time.Second {
		t.Fatalf("an exhausted budget delays a retry by %v at most, want about 20 s", longest)
	}
	for range 400 {
		w := r.queue(gate.Call{})
		for !w.Granted() {
			r.sleep(time.Second)
		}
		r.release(w, gate.Outcome{})
	}
	if d := r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.ServerError}); d.Wait > 200*time.Millisecond {
		t.Fatalf("after 400 successes a retry waits for %v", d.Wait)
	}
}

func TestEachKindIsDecidedByTheTable(t *testing.T) {
	for _, tt := range []struct {
		o        gate.Outcome
		attempt  int
		refused  int
		want     gate.Action
		throttle bool
	}{
		{gate.Outcome{}, 1, 0, gate.Done, false},
		{gate.Outcome{Kind: gate.RateLimit}, 1, 0, gate.Again, true},
		{gate.Outcome{Kind: gate.RateLimit}, 6, 19, gate.Again, true},
		{gate.Outcome{Kind: gate.RateLimit}, 1, 20, gate.GiveUp, true},
		{gate.Outcome{Kind: gate.RateLimit, TooLarge: true}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.Overloaded}, 6, 0, gate.Again, true},
		{gate.Outcome{Kind: gate.UsageWindow, Wait: time.Hour}, 6, 0, gate.Again, true},
		{gate.Outcome{Kind: gate.QuotaExhausted}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.Auth}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.BadRequest}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.ContextLength}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.ContentFilter}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.Internal}, 1, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.Timeout}, 5, 0, gate.Again, false},
		{gate.Outcome{Kind: gate.Timeout}, 6, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.Network}, 5, 0, gate.Again, false},
		{gate.Outcome{Kind: gate.ServerError}, 5, 0, gate.Again, false},
		{gate.Outcome{Kind: gate.ServerError}, 6, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.InvalidOutput}, 5, 0, gate.Again, false},
		{gate.Outcome{Kind: gate.InvalidOutput}, 6, 0, gate.GiveUp, false},
		{gate.Outcome{Kind: gate.CommandFailed}, 5, 0, gate.Again, false},
		{gate.Outcome{Kind: gate.CommandFailed}, 6, 0, gate.GiveUp, false},
	} {
		r := newRig(t, gate.Config{Limits: told})
		w := r.queueTicket(&gate.Ticket{Attempt: tt.attempt, Throttles: tt.refused})
		d := r.release(w, tt.o)
		if d.Action != tt.want || d.Throttle != tt.throttle {
			t.Errorf("%v, too large %v, attempt %d, throttled %d times before: decided %+v", tt.o.Kind, tt.o.TooLarge, tt.attempt, tt.refused, d)
		}
	}
}

func TestBackoffDoublesUpToHalfAMinute(t *testing.T) {
	for attempt, most := range map[int]time.Duration{1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 4: 1600 * time.Millisecond,
		9: 30 * time.Second, 60: 30 * time.Second} {
		longest := time.Duration(0)
		for range 300 {
			r := newRig(t, gate.Config{Limits: told, Attempts: 100})
			d := r.release(r.queueTicket(&gate.Ticket{Attempt: attempt}), gate.Outcome{Kind: gate.Timeout})
			longest = max(longest, d.Wait)
		}
		if longest > most || longest < most*9/10 {
			t.Errorf("attempt %d backs off for up to %v, want %v", attempt, longest, most)
		}
	}
}
