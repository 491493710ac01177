package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func TestACallThatIsSentLateIsStillProvenAfterAPause(t *testing.T) {
	r := newRig(t, gate.Config{})
	late, other := r.acquire(limits.Call{ID: "late"}), r.acquire(limits.Call{ID: "other"})
	r.sleep(time.Second)
	third := r.acquire(limits.Call{}) // the gate is looked at, and counts both as taken
	r.release(third, limits.Outcome{})
	r.release(other, limits.Outcome{Kind: limits.RateLimit, Wait: time.Second})
	r.sleep(2 * time.Second)
	r.sent(late) // only now: it is the pause's probe
	w := r.queue(limits.Call{ID: "waiter"})
	r.sleep(time.Minute)
	r.release(late, limits.Outcome{})
	r.sleep(time.Second)
	if !w.Granted() {
		t.Fatalf("the lane never opens again: %+v", r.lane())
	}
}

func TestAnAskThatIsNotAnsweredForMinutesDoesNotSpin(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true})
	r.ledger.delay = 5 * time.Minute
	for range 20 {
		r.queue(limits.Call{})
	}
	r.sleep(10 * time.Minute)
	if r.ticks > 100 {
		t.Fatalf("%d ticks in ten minutes", r.ticks)
	}
}

func TestALedgersGrantDuringAPauseIsNotSent(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true})
	r.queue(limits.Call{ID: "first"})
	r.sleep(10 * time.Millisecond)
	first := r.take()[0]
	r.queue(limits.Call{ID: "second"})
	r.release(first, limits.Outcome{Kind: limits.RateLimit, Wait: 10 * time.Second})
	r.sleep(200 * time.Millisecond)
	if n := len(r.take()); n > 0 {
		t.Fatalf("%d calls were granted while the lane pauses for %v", n, r.pause())
	}
}

func TestALedgersGrantAboveACutIsNotSent(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true, Limits: limits.Limits{RPM: 6000}})
	var held []*gate.Ticket
	for len(held) < 8 {
		r.queue(limits.Call{})
		r.sleep(20 * time.Millisecond)
		held = append(held, r.take()...)
	}
	for range 4 {
		r.release(held[0], limits.Outcome{})
		held = held[1:]
	}
	for range 4 {
		r.queue(limits.Call{})
	}
	r.release(held[0], crowd(3))
	r.sleep(20 * time.Millisecond)
	if l := r.lane(); l.InFlight != 3 || l.Slots != 3 {
		t.Fatalf("%d in flight on %d slots", l.InFlight, l.Slots)
	}
}

func TestARefusedSuffixGoesBackBeforeThoseThatCameAtTheSameInstant(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true, Limits: limits.Limits{Concurrency: 8}})
	r.ledger.refuse = func(n int) int { return 1 }
	var all []*gate.Ticket
	for range 20 {
		all = append(all, r.queue(limits.Call{}))
	}
	r.sleep(time.Second)
	for i, g := range r.granted {
		if g != all[i] {
			t.Fatalf("grant %d is not of the call that asked as number %d", i, i)
		}
	}
}

func TestReservesGrowOnceForRefusalsThatCrossed(t *testing.T) {
	r := newRig(t, gate.Config{}).show(limits.Tokens, 6000, 6000)
	var held []*gate.Ticket
	for range 3 {
		held = append(held, r.acquire(limits.Call{Cost: limits.Cost{Input: 1000}}))
	}
	for _, h := range held { // the provider counts twice as many
		r.release(h, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Limit: 6000, Used: 5000, Requested: 2000, Wait: 10 * time.Second})
	}
	r.sleep(2 * time.Minute)
	before := r.budget(limits.Tokens).Spent
	r.acquire(limits.Call{Cost: limits.Cost{Input: 1000}})
	if got := r.budget(limits.Tokens).Spent - before; math.Abs(got-2000) > 1 {
		t.Fatalf("a call that the provider counts as 2000 reserves %.0f", got)
	}
}

func TestABelievedLimitDoesNotRefuseACallForGood(t *testing.T) {
	g := gate.New(gate.Config{Start: limits.Limits{TPM: 1000}, Attempts: 6})
	if !g.Acquire(epoch0, &gate.Ticket{Call: limits.Call{Cost: limits.Cost{MaxOutput: 2000}}}) {
		t.Fatal("a limit remembered from another run, which nothing can correct as nothing is sent, refuses a call as too large")
	}
}

func TestAHeaderAtZeroExplainsARefusal(t *testing.T) {
	r := newRig(t, gate.Config{}).show(limits.Requests, 600, 10)
	held := acquireN(r, 2)
	slots := r.lane().Slots
	r.release(held[0], limits.Outcome{Kind: limits.RateLimit, Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 600, Remaining: 0, Reset: time.Second}}})
	r.wantEpochs(0)
	r.wantSlots(slots)
}

func TestABreakersProbeIsAlone(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 5 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Timeout})
	}
	for range 50 {
		r.queue(limits.Call{})
	}
	r.take()
	r.sleep(75 * time.Second) // the probe hangs, as those before it did
	if n := len(r.take()); n != 1 {
		t.Fatalf("%d calls were let out to a host that answers nothing", n)
	}
}

func TestRefusedConnectionsOpenTheBreaker(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 5 {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.Network, Unsent: true})
	}
	if n := r.count(limits.EventBreaker); n != 1 {
		t.Fatalf("the breaker opened %d times after five connections in a row were refused", n)
	}
}

func TestAUsageWindowIsAnnouncedOnce(t *testing.T) {
	r := newRig(t, gate.Config{})
	held := r.fill(limits.Call{})
	until := r.now.Add(3 * time.Hour)
	for _, h := range held {
		r.release(h, limits.Outcome{Kind: limits.UsageWindow, Until: until})
	}
	r.wantEpochs(1)
}

func TestAbsurdUsageDoesNotSpin(t *testing.T) {
	r := newRig(t, gate.Config{Charge: limits.ChargeActual, Limits: limits.Limits{ITPM: 60}})
	h := r.acquire(limits.Call{Cost: limits.Cost{Input: 1}})
	r.release(h, limits.Outcome{HasUsage: true, Usage: limits.Usage{Input: math.MaxInt64, Output: 1}})
	r.queue(limits.Call{Cost: limits.Cost{Input: 1}})
	r.sleep(time.Minute)
}

func TestWaitingCallsAreLookedAtEveryMinute(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{RPD: 24, Concurrency: 100}})
	r.fill(limits.Call{})
	r.queue(limits.Call{})
	if d := r.g.Next().Sub(r.now); d > time.Minute {
		t.Fatalf("the next look is in %v: a laptop that sleeps meanwhile wakes too late", d)
	}
}

func TestAClockThatStepsBackDoesNotCrash(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1}})
	held := r.acquire(limits.Call{})
	w := r.queue(limits.Call{})
	r.queue(limits.Call{Tenant: "b", Priority: limits.Low})
	r.now = r.now.Add(-time.Hour)
	r.release(held, limits.Outcome{})
	if !w.Granted() {
		t.Fatal("the slot is free and nobody has it")
	}
}

func TestABudgetFillsAfterAClockStepsBack(t *testing.T) {
	for _, told := range []limits.Limits{{}, {RPM: 60}, {RPM: 60, Burst: time.Minute}} {
		told.Concurrency = 1000
		r := newRig(t, gate.Config{Limits: told}).show(limits.Requests, 60, 60)
		r.fill(limits.Call{})
		w := r.queue(limits.Call{})
		r.now = r.now.Add(-time.Hour)
		r.g.Tick(r.now)
		r.sleep(time.Minute + time.Second)
		if !w.Granted() {
			t.Errorf("%+v: a clock that stepped back an hour stops a limit for that hour", told)
		}
	}
}

func TestNegativeCostsMakeNoBudget(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 60, Burst: time.Second, Concurrency: 1000}})
	r.acquire(limits.Call{Cost: limits.Cost{Input: -1_000_000, MaxOutput: -1_000_000}})
	if b := r.budget(limits.Tokens); b.Level > b.Cap {
		t.Fatalf("the level is %.0f of %.0f", b.Level, b.Cap)
	}
}

func TestATooLargeCallPausesNobody(t *testing.T) {
	r := newRig(t, gate.Config{})
	h := r.acquire(limits.Call{})
	r.acquire(limits.Call{})
	d := r.release(h, limits.Outcome{Kind: limits.RateLimit, TooLarge: true})
	if d.Action != gate.GiveUp {
		t.Errorf("decision %+v, want to give up", d)
	}
	if l := r.lane(); r.count(limits.EventCooldownStarted) > 0 || l.Slots != 8 {
		t.Fatalf("a call that can never fit made the lane pause or lose slots: %+v", l)
	}
}

func TestAPlansWindowOutlivesADay(t *testing.T) {
	until := epoch0.Add(6 * 24 * time.Hour)
	g := gate.New(gate.Config{Attempts: 6})
	now := epoch0.Add(30 * time.Hour)
	g.Recall(now, gate.Memory{Lane: "m", SavedAt: epoch0, Until: until, Cause: limits.UsageWindow})
	w := &gate.Ticket{Call: limits.Call{Lane: "m"}}
	g.Acquire(now, w)
	if w.Granted() {
		t.Fatal("a weekly window that has five days to go is forgotten after one")
	}
}

func TestAPauseThatAWrongClockDatedIsNotBelieved(t *testing.T) {
	for ahead, held := range map[time.Duration]bool{time.Second: true, 10 * 365 * 24 * time.Hour: false} {
		g := gate.New(gate.Config{Attempts: 6})
		saved := epoch0.Add(ahead)
		g.Recall(epoch0, gate.Memory{Lane: "m", SavedAt: saved, Until: saved.Add(time.Hour), Cause: limits.UsageWindow})
		w := &gate.Ticket{Call: limits.Call{Lane: "m"}}
		g.Acquire(epoch0, w)
		if w.Granted() == held {
			t.Errorf("a pause that was saved %v ahead: granted %v", ahead, w.Granted())
		}
	}
}

func TestABucketHoldsNoMoreThanALimitThatFell(t *testing.T) {
	r := newRig(t, gate.Config{})
	read := func(limit, left int64) {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Readings: []limits.Reading{{Dimension: limits.Requests, Limit: limit, Remaining: left}}})
		r.sleep(time.Second)
	}
	read(6000, 5999)
	read(600, 599)
	r.sleep(time.Hour)
	if b := r.budget(limits.Requests); b.Cap > 600 {
		t.Fatalf("a bucket of 600 is believed to hold %.0f, and lets so many go at once", b.Cap)
	}
}

func TestAnEndlessWeightDoesNotStarveOthers(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 1}, Weights: map[string]float64{"inf": math.Inf(1), "tiny": 5e-324}})
	held := r.acquire(limits.Call{})
	for range 200 {
		r.queue(limits.Call{Tenant: "inf", Cost: limits.Cost{Input: 10}})
	}
	for range 5 {
		r.queue(limits.Call{Tenant: "tiny", Cost: limits.Cost{Input: 10}})
	}
	other := r.queue(limits.Call{Tenant: "other", Cost: limits.Cost{Input: 10}})
	r.take()
	r.serveAll(held, time.Millisecond, 150)
	if !other.Granted() && !other.Released() {
		t.Fatal("a tenant of endless weight starves the others")
	}
}

func TestAMeasuredRateDoesNotGrowWithoutEnd(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	one := func(every time.Duration, o limits.Outcome) {
		w := r.queue(limits.Call{})
		r.sleep(every)
		for !w.Granted() {
			r.sleep(time.Second)
		}
		r.release(w, o)
	}
	one(10*time.Millisecond, bare)
	for range 40 { // ten a second, until a refusal comes again
		one(100*time.Millisecond, limits.Outcome{})
	}
	one(10*time.Millisecond, bare)
	measured := r.budget(limits.Requests)
	if measured.Source != limits.SourceMeasured {
		t.Fatalf("%+v: nothing was measured", measured)
	}
	for range 8 * 3600 { // one call a second puts no such rate to the test
		one(time.Second, limits.Outcome{})
	}
	if b := r.budget(limits.Requests); b.Limit < 0 || b.Limit > 100*measured.Limit {
		t.Fatalf("measured were %d a minute; after eight quiet hours %d are believed", measured.Limit, b.Limit)
	}
}

func TestALedgersStrangeRepliesAreSurvived(t *testing.T) {
	for _, reply := range []limits.Reply{
		{Wait: math.MaxInt64, Bound: limits.Requests}, {Wait: -1, Bound: limits.Tokens}, {Wait: time.Second, Bound: 200}, {Granted: -5}, {Granted: 500},
	} {
		g := gate.New(gate.Config{Remote: true, Attempts: 6})
		now := epoch0
		g.Acquire(now, &gate.Ticket{})
		for range 100 {
			if _, _, asks := g.Outbox(); len(asks) > 0 {
				now = now.Add(time.Microsecond)
				g.Reply(now, "", reply)
			}
			g.Snapshot(now)
			if n := g.Next(); !n.IsZero() && n.After(now) {
				now = n
			}
			g.Tick(now)
		}
		if now.Sub(epoch0) < 100*time.Millisecond {
			t.Errorf("%+v: the ledger is asked a hundred times within %v", reply, now.Sub(epoch0))
		}
	}
}

func TestAShortCallsOverheadDoesNotScaleEveryReserve(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 600_000, Burst: time.Minute, Concurrency: 100}})
	// Two tokens of text; the provider adds what every message costs beside its text.
	h := r.acquire(limits.Call{Cost: limits.Cost{Input: 2}})
	r.release(h, limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Tokens, Limit: 600_000, Used: 599_995, Requested: 12})
	r.sleep(time.Minute)
	before := r.budget(limits.Tokens).Spent
	r.acquire(limits.Call{Cost: limits.Cost{Input: 10_000}})
	if got := r.budget(limits.Tokens).Spent - before; got > 11_000 {
		t.Fatalf("a call of 10000 tokens reserves %.0f, for ever, since one of 2 was counted as 12", got)
	}
}
