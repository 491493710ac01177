package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// hinted is a refusal that says how long to wait and nothing else.
func hinted(d time.Duration) limits.Outcome { return limits.Outcome{Kind: limits.RateLimit, Wait: d} }

// told are slots that are known, so that a refusal is about a rate.
var told = limits.Limits{Concurrency: 64}

func acquireN(r *rig, n int) (out []*gate.Ticket) {
	for range n {
		out = append(out, r.acquire(limits.Call{}))
	}
	return out
}

func TestALateRefusalFromAnOlderEpochStartsNoSecondOne(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told}).warm(40)
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
	r.release(r.acquire(limits.Call{}), hinted(time.Second))
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
	for _, hint := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second} { // what is longer is tested: see below
		for range 50 {
			r := newRig(t, gate.Config{Limits: told})
			r.release(r.acquire(limits.Call{}), hinted(hint))
			least := hint + min(hint/50, 100*time.Millisecond) + 2*time.Millisecond
			r.wantPause(least, hint+min(hint/25, 200*time.Millisecond)+3*time.Millisecond)
			w := r.queue(limits.Call{})
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
	r := newRig(t, gate.Config{Limits: told}).warm(10)
	held := acquireN(r, 4)
	r.release(held[0], hinted(800*time.Millisecond))
	until := r.lane().Until
	r.release(held[1], hinted(300*time.Millisecond))
	if got := r.lane().Until; !got.Equal(until) {
		t.Fatalf("a hint below the pause moved its end by %v", got.Sub(until))
	}
	r.sleep(500 * time.Millisecond)
	for _, o := range []limits.Outcome{hinted(time.Second), bare} {
		r.release(held[2], o)
		r.wantPause(time.Second, time.Second+50*time.Millisecond)
		held = held[1:]
	}
	r.wantEpochs(1)
}

// A stated wait above a second is tested, until one was found to be right; if it was too long, it is ignored.
func TestALongStatedWaitIsTested(t *testing.T) {
	for _, tt := range []struct {
		stated, late time.Duration
		kept         bool
	}{{10 * time.Second, 500 * time.Millisecond, true}, {time.Hour, 10 * time.Second, false}} {
		r := newRig(t, gate.Config{Limits: told})
		w := r.acquire(limits.Call{})
		end := r.now.Add(10 * time.Second) // the provider rejects until then
		var pauses []time.Duration
		for r.now.Before(end) {
			w = r.again(w, r.release(w, hinted(tt.stated-r.since())))
			pauses = append(pauses, r.pause().Truncate(time.Second))
			for !w.Granted() {
				r.sleep(10 * time.Millisecond)
			}
		}
		if diff := cmp.Diff([]time.Duration{0, 1e9}, pauses[:2]); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
		if late := r.now.Sub(end); late > tt.late {
			t.Errorf("a wait of %v: sent %v after the provider accepts", tt.stated, late)
		}
		r.release(w, limits.Outcome{})
		r.warm(50)
		r.sleep(time.Second)
		r.release(r.acquire(limits.Call{}), hinted(math.MaxInt64)) // a pause of centuries, believed or not
		if kept := r.pause() > time.Hour; kept != tt.kept {
			t.Errorf("after a wait of %v that ended after 10 s, another is kept: %v", tt.stated, kept)
		}
	}
}

func TestAPauseWithoutAHintGrowsWithTheAgeOfItsEpisode(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 64}})
	for range 7 { // the lane was busy for so long that no window can have begun with these calls
		r.release(r.acquire(limits.Call{}), limits.Outcome{})
		r.sleep(900 * time.Millisecond)
	}
	w := r.queue(limits.Call{})
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
		d := r.release(w, limits.Outcome{Kind: limits.RateLimit})
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
	r.release(w, limits.Outcome{})
	for range 3 {
		for _, h := range r.fill(limits.Call{}) {
			r.release(h, limits.Outcome{})
		}
	}
	if r.lane().Probing {
		t.Fatal("still probing after all was proven")
	}
	r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.RateLimit})
	r.wantPause(250*time.Millisecond, 250*time.Millisecond)
}

// probing returns a lane that has just paused, with many calls waiting.
func probing(t *testing.T, waiting int) *rig {
	r := newRig(t, gate.Config{Limits: told})
	first := r.acquire(limits.Call{})
	r.release(first, hinted(time.Second))
	for range waiting {
		r.queue(limits.Call{})
	}
	r.take()
	r.sleep(1100 * time.Millisecond)
	return r
}

func TestTheRampDoublesWithEachProvenWave(t *testing.T) {
	r := probing(t, 200)
	var sizes []int
	for range 7 {
		wave := r.take()
		sizes = append(sizes, len(wave))
		for _, w := range wave {
			r.release(w, limits.Outcome{})
		}
	}
	if diff := cmp.Diff([]int{1, 2, 4, 8, 16, 32, 64}, sizes); diff != "" {
		t.Fatalf("waves (-want +got):\n%s", diff)
	}
	if n := r.count(limits.EventCooldownEnded); n != 1 || r.lane().Probing {
		t.Fatalf("resumed %d times, probing %v after 63 proofs on 64 slots", n, r.lane().Probing)
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
	r := newRig(t, gate.Config{Limits: told}).warm(40)
	held := acquireN(r, 40)
	for i, h := range held { // refusals take 300 ms
		if i == 0 {
			r.sleep(300 * time.Millisecond)
		}
		r.release(h, hinted(time.Second))
	}
	for range 10 {
		r.queue(limits.Call{})
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
	if n := len(r.take()); n != 2 {
		t.Fatalf("%d calls follow a proven probe, want 2", n)
	}
}

func TestAProbeIsChosenAmongTheLeastThrottled(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told}).warm(10)
	held := acquireN(r, 5)
	for i, h := range held {
		r.release(h, hinted(time.Second))
		r.queueTicket(&gate.Ticket{Call: h.Call, Throttles: 5 - i, Queued: h.Queued, Front: true})
	}
	r.sleep(time.Millisecond)
	fresh := r.queue(limits.Call{ID: "fresh"}) // the last in its queue
	r.sleep(1100 * time.Millisecond)
	if !fresh.Granted() {
		t.Fatal("the probe is not the call that was never throttled")
	}
}

func TestAFailedProbeLetsTheNextOneOut(t *testing.T) {
	r := probing(t, 20)
	r.release(r.take()[0], limits.Outcome{Kind: limits.ServerError})
	wave := r.take()
	if len(wave) != 1 {
		t.Fatalf("%d probes after one that failed, want 1: it proved nothing and holds nobody up", len(wave))
	}
	r.release(wave[0], limits.Outcome{Kind: limits.BadRequest}) // an answer is an answer
	if n := len(r.take()); n != 2 {
		t.Fatalf("%d calls after an answered probe, want 2", n)
	}
	r2 := probing(t, 20)
	r2.release(r2.take()[0], limits.Outcome{Kind: limits.Network, Unsent: true})
	if n := len(r2.take()); n != 1 {
		t.Fatalf("%d probes after one that was never sent, want 1", n)
	}
}

func TestOverloadAlonePausesNobody(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	for range 10 {
		for range 2 {
			d := r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Overloaded})
			if d.Action != gate.Again || !d.Throttle {
				t.Fatalf("decision %+v", d)
			}
		}
		r.release(r.acquire(limits.Call{}), limits.Outcome{})
	}
	r.wantEpochs(0)
	for range 3 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Overloaded})
	}
	r.wantEpochs(1)
	r.wantPause(250*time.Millisecond, 250*time.Millisecond)
}

func TestOverloadWithAHintPausesAtOnce(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Overloaded, Wait: time.Second})
	r.wantEpochs(1)
	r.wantPause(time.Second, 1050*time.Millisecond)
}

func TestAUsageWindowPausesUntilItsInstantAndThenOneCallProbes(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(r *rig) limits.Outcome
		want time.Duration
	}{
		{"an instant", func(r *rig) limits.Outcome {
			return limits.Outcome{Kind: limits.UsageWindow, Until: r.now.Add(5 * time.Hour)}
		}, 5 * time.Hour},
		{"a wait", func(*rig) limits.Outcome { return limits.Outcome{Kind: limits.UsageWindow, Wait: 2 * time.Hour} }, 2 * time.Hour},
		{"the later of both", func(r *rig) limits.Outcome {
			return limits.Outcome{Kind: limits.UsageWindow, Wait: time.Hour, Until: r.now.Add(3 * time.Hour)}
		}, 3 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: told})
			first := r.acquire(limits.Call{})
			r.release(first, tt.say(r))
			for range 20 {
				r.queue(limits.Call{})
			}
			r.take()
			if l := r.lane(); l.Pause != limits.UsageWindow {
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
	w := r.acquire(limits.Call{})
	for range 20 {
		d := r.release(w, limits.Outcome{Kind: limits.UsageWindow, Until: r.now.Add(-time.Minute)}) // already over, they say
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

func TestAProviderWhoseRequestsAllFailIsProbedAfter1And2And4Seconds(t *testing.T) {
	for _, kind := range []limits.Kind{limits.Timeout, limits.Network, limits.ServerError} {
		t.Run(kind.String(), func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: told})
			fail := limits.Outcome{Kind: kind}
			for range 4 {
				r.release(r.acquire(limits.Call{}), fail)
			}
			r.sleep(time.Millisecond)
			r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.BadRequest}) // a host that says 400 is there
			r.sleep(time.Millisecond)
			for range 4 {
				r.release(r.acquire(limits.Call{}), fail)
			}
			if n := r.count(limits.EventBreaker); n != 0 {
				t.Fatal("four items pause the lane")
			}
			old := r.acquire(limits.Call{})
			r.release(r.acquire(limits.Call{}), fail)
			r.wantPause(time.Second, time.Second)
			r.release(old, fail) // sent before the pause
			r.wantPause(time.Second, time.Second)
			for range 10 {
				r.queue(limits.Call{})
			}
			r.take()
			for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
				r.sleep(wait - time.Millisecond)
				if n := len(r.take()); n != 0 {
					t.Fatalf("%d requests in a pause of %v", n, wait)
				}
				r.sleep(time.Millisecond)
				probe := r.take()
				if len(probe) != 1 {
					t.Fatalf("%d probes after %v", len(probe), wait)
				}
				r.release(probe[0], fail)
			}
			r.sleep(8 * time.Second)
			r.release(r.take()[0], limits.Outcome{})
			if n := len(r.take()); n != 4 || r.lane().Probing {
				t.Fatalf("%d requests after the probe succeeded, want 4", n)
			}
		})
	}
}

// Requests that hang are no reason to send no probe, although nothing proves them.
func TestAProviderThatIsDownIsProbedWhileRequestsHang(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 12 { // a wide lane
		for range 60 {
			r.queue(limits.Call{})
		}
		r.sleep(20 * time.Second)
		for _, held := range r.take() {
			r.release(held, limits.Outcome{})
		}
	}
	failing := acquireN(r, 6)
	r.sleep(10 * time.Second)
	r.take()
	for range 100 {
		r.queue(limits.Call{})
	}
	hanging := len(r.take())
	for _, held := range failing {
		r.release(held, limits.Outcome{Kind: limits.ServerError})
	}
	if n := r.count(limits.EventBreaker); n != 1 || r.lane().Waiting == 0 {
		t.Fatalf("%d breakers, %d requests hang and %d wait", n, hanging, r.lane().Waiting)
	}
	r.sleep(time.Second + 10*time.Millisecond)
	if n := len(r.take()); n != 1 {
		t.Fatalf("%d probes after the first pause, while %d requests hang", n, hanging)
	}
}

func TestFailuresOfSomeItemsPauseNobody(t *testing.T) {
	fail := limits.Outcome{Kind: limits.ServerError}
	t.Run("one item fails again and again", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: told, Attempts: 100})
		w := r.acquire(limits.Call{})
		for range 20 {
			w = r.again(w, r.release(w, fail))
		}
		if r.count(limits.EventBreaker) != 0 {
			t.Error("it pauses the lane")
		}
	})
	t.Run("others are being served", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: told}).warm(20)
		serving := acquireN(r, 20)
		r.sleep(10 * time.Millisecond)
		for range 10 {
			r.release(r.acquire(limits.Call{}), fail)
		}
		if r.count(limits.EventBreaker) != 0 {
			t.Error("the lane pauses, though 20 requests are open for longer than the failures took")
		}
		for _, w := range serving {
			r.release(w, limits.Outcome{})
		}
	})
	t.Run("a tenant fails, and another does not", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: told})
		r.release(r.acquire(limits.Call{Tenant: "good"}), limits.Outcome{})
		r.sleep(time.Millisecond)
		for range 10 {
			r.release(r.acquire(limits.Call{Tenant: "bad"}), fail)
		}
		if r.count(limits.EventBreaker) != 0 {
			t.Error("it pauses the lane for both")
		}
		r.release(r.acquire(limits.Call{Tenant: "good"}), fail)
		if r.count(limits.EventBreaker) != 1 {
			t.Error("both fail, and the lane does not pause")
		}
	})
}

func TestAnItemThatIsRejectedAlonePausesNobody(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told}).warm(40)
	own := r.acquire(limits.Call{})
	var d gate.Decision
	for range 12 {
		other := r.acquire(limits.Call{})
		d = r.release(own, bare)
		r.release(other, limits.Outcome{})
		r.sleep(max(d.Wait, time.Second))
		r.release(r.acquire(limits.Call{}), limits.Outcome{}) // others are accepted
		r.sleep(time.Second)
		own = r.again(own, d)
	}
	r.wantEpochs(1) // the first, of which nobody could know
	r.wantSlots(64)
	if d.Wait != 15*time.Second {
		t.Errorf("the item waits for %v, want 15 s", d.Wait)
	}
}

func TestASuccessOfARequestSentAfterTheFailuresEndsThePause(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	for range 3 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.ServerError})
	}
	r.sleep(time.Millisecond)
	late := r.acquire(limits.Call{})
	for range 2 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.ServerError})
	}
	r.wantPause(time.Second, time.Second)
	r.release(late, limits.Outcome{})
	if r.pause() > 0 || r.lane().Probing {
		t.Error("it lasts")
	}
}

func TestEachKindIsDecidedByTheTable(t *testing.T) {
	for _, tt := range []struct {
		o        limits.Outcome
		attempt  int
		refused  int
		want     gate.Action
		throttle bool
	}{
		{limits.Outcome{}, 1, 0, gate.Done, false},
		{limits.Outcome{Kind: limits.RateLimit}, 1, 0, gate.Again, true},
		{limits.Outcome{Kind: limits.RateLimit}, 6, 19, gate.Again, true},
		{limits.Outcome{Kind: limits.RateLimit}, 1, 20, gate.GiveUp, true},
		{limits.Outcome{Kind: limits.RateLimit, TooLarge: true}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.Overloaded}, 6, 0, gate.Again, true},
		{limits.Outcome{Kind: limits.UsageWindow, Wait: time.Hour}, 6, 0, gate.Again, true},
		{limits.Outcome{Kind: limits.QuotaExhausted}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.Auth}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.BadRequest}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.ContextLength}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.ContentFilter}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.Internal}, 1, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.Timeout}, 5, 0, gate.Again, false},
		{limits.Outcome{Kind: limits.Timeout}, 6, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.Network}, 5, 0, gate.Again, false},
		{limits.Outcome{Kind: limits.ServerError}, 5, 0, gate.Again, false},
		{limits.Outcome{Kind: limits.ServerError}, 6, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.InvalidOutput}, 5, 0, gate.Again, false},
		{limits.Outcome{Kind: limits.InvalidOutput}, 6, 0, gate.GiveUp, false},
		{limits.Outcome{Kind: limits.CommandFailed}, 5, 0, gate.Again, false},
		{limits.Outcome{Kind: limits.CommandFailed}, 6, 0, gate.GiveUp, false},
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
	for attempt, most := range map[int]time.Duration{0: 200 * time.Millisecond, 1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 4: 1600 * time.Millisecond,
		9: 30 * time.Second, 60: 30 * time.Second} {
		longest := time.Duration(0)
		for range 300 {
			r := newRig(t, gate.Config{Limits: told, Attempts: 100})
			kind := limits.Timeout
			if attempt == 0 {
				kind = limits.Overloaded
			}
			d := r.release(r.queueTicket(&gate.Ticket{Attempt: max(attempt, 1)}), limits.Outcome{Kind: kind})
			longest = max(longest, d.Wait)
		}
		if longest > most || longest < most*9/10 {
			t.Errorf("attempt %d backs off for up to %v, want %v", attempt, longest, most)
		}
	}
}
