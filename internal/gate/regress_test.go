package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestACallThatIsSentLateIsStillProvenAfterAPause(t *testing.T) {
	r := newRig(t, gate.Config{})
	late, other := r.acquire(gate.Call{ID: "late"}), r.acquire(gate.Call{ID: "other"})
	r.sleep(time.Second)
	r.acquire(gate.Call{}) // the gate is looked at, and counts both as taken
	r.release(other, gate.Outcome{Kind: gate.RateLimit, Wait: time.Second})
	r.sleep(2 * time.Second)
	r.sent(late) // only now: it is the pause's probe
	w := r.queue(gate.Call{ID: "waiter"})
	r.sleep(time.Minute)
	r.release(late, gate.Outcome{})
	r.sleep(10 * time.Minute)
	if !w.Granted() {
		t.Fatalf("the lane never opens again: %+v", r.lane())
	}
}

func TestAnAskThatIsNotAnsweredForMinutesDoesNotSpin(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true})
	r.ledger.delay = 5 * time.Minute
	for range 20 {
		r.queue(gate.Call{})
	}
	r.sleep(10 * time.Minute)
	if r.ticks > 100 {
		t.Fatalf("%d ticks in ten minutes", r.ticks)
	}
}

func TestALedgersGrantDuringAPauseIsNotSent(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true})
	r.queue(gate.Call{ID: "first"})
	r.sleep(10 * time.Millisecond)
	first := r.take()[0]
	r.queue(gate.Call{ID: "second"})
	r.release(first, gate.Outcome{Kind: gate.RateLimit, Wait: 10 * time.Second})
	r.sleep(time.Second)
	if n := len(r.take()); n > 0 {
		t.Fatalf("%d calls were granted while the lane pauses for %v", n, r.pause())
	}
}

func TestALedgersGrantAboveACutIsNotSent(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true})
	for range 8 {
		r.queue(gate.Call{})
	}
	r.sleep(20 * time.Millisecond)
	held := r.take()
	for range 4 {
		r.release(held[0], gate.Outcome{})
		held = held[1:]
	}
	for range 4 {
		r.queue(gate.Call{})
	}
	r.release(held[0], gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Concurrency, Limit: 3})
	r.sleep(20 * time.Millisecond)
	if l := r.lane(); l.InFlight > l.Slots {
		t.Fatalf("%d in flight on %d slots", l.InFlight, l.Slots)
	}
}

func TestARefusedSuffixGoesBackBeforeThoseThatCameAtTheSameInstant(t *testing.T) {
	r := newRig(t, gate.Config{Remote: true, Limits: gate.Limits{Concurrent: 8}})
	r.ledger.refuse = func(n int) int { return 1 }
	var all []*gate.Ticket
	for range 20 {
		all = append(all, r.queue(gate.Call{}))
	}
	r.sleep(time.Second)
	for i, g := range r.granted {
		if g != all[i] {
			t.Fatalf("grant %d is not of the call that asked as number %d", i, i)
		}
	}
}

func TestReservesGrowOnceForRefusalsThatCrossed(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 1_000_000, Burst: time.Minute}})
	var held []*gate.Ticket
	for range 3 {
		held = append(held, r.acquire(gate.Call{Cost: gate.Cost{Input: 1000}}))
	}
	for _, h := range held { // the provider counts twice as many
		r.release(h, gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Tokens, Limit: 1_000_000, Used: 999_000, Requested: 2000, Wait: 60 * time.Millisecond})
	}
	r.sleep(2 * time.Minute)
	before := r.budget(gate.Tokens).Spent
	r.acquire(gate.Call{Cost: gate.Cost{Input: 1000}})
	if got := r.budget(gate.Tokens).Spent - before; math.Abs(got-2000) > 1 {
		t.Fatalf("a call that the provider counts as 2000 reserves %.0f", got)
	}
}

func TestOutputIsReservedAsSoonAsThereAreSamples(t *testing.T) {
	r := newRig(t, gate.Config{Charge: gate.ChargeActual, Limits: gate.Limits{OTPM: 6_000_000, Burst: time.Minute}})
	r.release(r.acquire(gate.Call{}), gate.Outcome{})
	for i := range 40 {
		before := r.budget(gate.OutputTokens).Spent
		h := r.acquire(gate.Call{Cost: gate.Cost{Input: 10, MaxOutput: 4000}})
		if got := r.budget(gate.OutputTokens).Spent - before; got < 500 {
			t.Errorf("after %d answers of 500 tokens a call reserves %.0f of output", i, got)
		}
		r.release(h, gate.Outcome{HasUsage: true, Usage: gate.Usage{Input: 10, Output: 500}})
	}
}

func TestABelievedLimitDoesNotRefuseACallForGood(t *testing.T) {
	g := gate.New(gate.Config{Start: gate.Limits{TPM: 1000}, Attempts: 6})
	if !g.Acquire(epoch0, &gate.Ticket{Call: gate.Call{Cost: gate.Cost{MaxOutput: 2000}}}) {
		t.Fatal("a limit remembered from another run, which nothing can correct as nothing is sent, refuses a call as too large")
	}
}

func TestAHeaderAtZeroExplainsARefusal(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 600, Burst: time.Second}})
	h := r.acquire(gate.Call{})
	r.acquire(gate.Call{})
	r.release(h, gate.Outcome{Kind: gate.RateLimit, Readings: []gate.Reading{{Dimension: gate.Requests, Limit: 600, Remaining: 0, Reset: time.Second}}})
	if n := r.count(gate.EventCooldownStarted); n != 0 || r.lane().Slots != 8 {
		t.Fatalf("%d cooldowns, %d slots: a header at zero is taken for an unexplained refusal", n, r.lane().Slots)
	}
}

func TestAnUnsentCallCountsNothingForItsTenant(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1}})
	for range 10 { // granted, never sent
		h := r.acquire(gate.Call{Tenant: "a", Cost: gate.Cost{Input: 1000}})
		r.cancel(h)
	}
	held := r.acquire(gate.Call{Tenant: "b", Cost: gate.Cost{Input: 1000}})
	b := r.queue(gate.Call{Tenant: "b", Cost: gate.Cost{Input: 1000}})
	a := r.queue(gate.Call{Tenant: "a", Cost: gate.Cost{Input: 1000}})
	r.release(held, gate.Outcome{})
	if !a.Granted() || b.Granted() {
		t.Fatal("a tenant whose calls were cancelled pays for them with its turn")
	}
}

func TestAThrottledCallCountsNothingForItsTenant(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1}})
	call := func(tenant string, input int) *gate.Ticket {
		return r.queue(gate.Call{Tenant: tenant, Cost: gate.Cost{Input: input}})
	}
	a, b := call("a", 1500), call("b", 1000)
	b2 := call("b", 1000)
	a2 := r.again(a, r.release(a, gate.Outcome{Kind: gate.Overloaded}))
	r.release(b, gate.Outcome{})
	if !a2.Granted() || b2.Granted() {
		t.Fatal("a tenant pays with its turn for a call that the provider refused")
	}
}

func TestABreakersProbeIsAlone(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 5 {
		r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Timeout})
	}
	for range 50 {
		r.queue(gate.Call{})
	}
	r.take()
	r.sleep(75 * time.Second) // the probe hangs, as those before it did
	if n := len(r.take()); n != 1 {
		t.Fatalf("%d calls were let out to a host that answers nothing", n)
	}
}

func TestAnAnswerOfAnyKindClosesTheRowOfFailures(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 3 {
		for range 4 {
			r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Network})
		}
		r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.BadRequest})
	}
	if n := r.count(gate.EventBreaker); n != 0 {
		t.Fatal("the breaker opened though no five failures came in a row: a host that says 400 is there")
	}
}

func TestRefusedConnectionsOpenTheBreaker(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 5 {
		r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.Network, Unsent: true})
	}
	if n := r.count(gate.EventBreaker); n != 1 {
		t.Fatalf("the breaker opened %d times after five connections in a row were refused", n)
	}
}

func TestAUsageWindowIsAnnouncedOnce(t *testing.T) {
	r := newRig(t, gate.Config{})
	held := r.fill(gate.Call{})
	until := r.now.Add(3 * time.Hour)
	for _, h := range held {
		r.release(h, gate.Outcome{Kind: gate.UsageWindow, Until: until})
	}
	r.wantEpochs(1)
}

func TestALimitlessHintStillPauses(t *testing.T) {
	r := newRig(t, gate.Config{})
	h := r.acquire(gate.Call{})
	r.release(h, gate.Outcome{Kind: gate.RateLimit, Wait: math.MaxInt64})
	if r.pause() < time.Hour {
		t.Fatalf("a hint of centuries pauses for %v", r.pause())
	}
}

func TestAbsurdUsageDoesNotSpin(t *testing.T) {
	r := newRig(t, gate.Config{Charge: gate.ChargeActual, Limits: gate.Limits{ITPM: 60}})
	h := r.acquire(gate.Call{Cost: gate.Cost{Input: 1}})
	r.release(h, gate.Outcome{HasUsage: true, Usage: gate.Usage{Input: math.MaxInt64, Output: 1}})
	r.queue(gate.Call{Cost: gate.Cost{Input: 1}})
	r.sleep(time.Minute)
}

func TestWaitingCallsAreLookedAtEveryMinute(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPD: 24, Concurrent: 100}})
	r.fill(gate.Call{})
	r.queue(gate.Call{})
	if d := r.g.Next().Sub(r.now); d > time.Minute {
		t.Fatalf("the next look is in %v: a laptop that sleeps meanwhile wakes too late", d)
	}
}

func TestAClockThatStepsBackDoesNotCrash(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1}})
	held := r.acquire(gate.Call{})
	w := r.queue(gate.Call{})
	r.queue(gate.Call{Tenant: "b", Priority: gate.Low})
	r.now = r.now.Add(-time.Hour)
	r.release(held, gate.Outcome{})
	if !w.Granted() {
		t.Fatal("the slot is free and nobody has it")
	}
}

func TestABudgetFillsAfterAClockStepsBack(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 60, Burst: time.Second}})
	r.acquire(gate.Call{})
	r.now = r.now.Add(-time.Hour)
	w := r.queue(gate.Call{})
	r.sleep(time.Minute)
	if !w.Granted() {
		t.Fatal("a clock that stepped back an hour stops a budget for that hour")
	}
}

func TestNegativeCostsMakeNoBudget(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 60, Burst: time.Second, Concurrent: 1000}})
	r.acquire(gate.Call{Cost: gate.Cost{Input: -1_000_000, MaxOutput: -1_000_000}})
	if b := r.budget(gate.Tokens); b.Level > b.Cap {
		t.Fatalf("the level is %.0f of %.0f", b.Level, b.Cap)
	}
}

func TestTheFirstSecondsBurstIsGivenOutOnce(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 6000, Concurrent: 100_000}})
	for range 4000 {
		r.queue(gate.Call{})
	}
	for at := time.Duration(0); at < 20*time.Second; at += 100 * time.Millisecond {
		r.sleep(100 * time.Millisecond)
		if most := 100*r.since().Seconds() + 100 + 1; float64(len(r.granted)) > most {
			t.Fatalf("at %v: %d calls went out of a bucket that holds one second of 100/s: at most %.0f", r.since(), len(r.granted), most)
		}
	}
}

func TestATooLargeCallPausesNobody(t *testing.T) {
	r := newRig(t, gate.Config{})
	h := r.acquire(gate.Call{})
	r.acquire(gate.Call{})
	d := r.release(h, gate.Outcome{Kind: gate.RateLimit, TooLarge: true})
	if d.Action != gate.GiveUp {
		t.Errorf("decision %+v, want to give up", d)
	}
	if l := r.lane(); r.count(gate.EventCooldownStarted) > 0 || l.Slots != 8 {
		t.Fatalf("a call that can never fit made the lane pause or lose slots: %+v", l)
	}
}

func TestAPlansWindowOutlivesADay(t *testing.T) {
	until := epoch0.Add(6 * 24 * time.Hour)
	g := gate.New(gate.Config{Attempts: 6})
	now := epoch0.Add(30 * time.Hour)
	g.Recall(now, gate.Memory{Lane: "m", SavedAt: epoch0, Until: until, Cause: gate.UsageWindow})
	w := &gate.Ticket{Call: gate.Call{Lane: "m"}}
	g.Acquire(now, w)
	if w.Granted() {
		t.Fatal("a weekly window that has five days to go is forgotten after one")
	}
}

func TestAPauseThatAWrongClockDatedIsNotBelieved(t *testing.T) {
	for ahead, held := range map[time.Duration]bool{time.Second: true, 10 * 365 * 24 * time.Hour: false} {
		g := gate.New(gate.Config{Attempts: 6})
		saved := epoch0.Add(ahead)
		g.Recall(epoch0, gate.Memory{Lane: "m", SavedAt: saved, Until: saved.Add(time.Hour), Cause: gate.UsageWindow})
		w := &gate.Ticket{Call: gate.Call{Lane: "m"}}
		g.Acquire(epoch0, w)
		if w.Granted() == held {
			t.Errorf("a pause that was saved %v ahead: granted %v", ahead, w.Granted())
		}
	}
}

func TestABucketHoldsNoMoreThanALimitThatFell(t *testing.T) {
	r := newRig(t, gate.Config{})
	read := func(limit, left int64) {
		r.release(r.acquire(gate.Call{}), gate.Outcome{Readings: []gate.Reading{{Dimension: gate.Requests, Limit: limit, Remaining: left}}})
		r.sleep(time.Second)
	}
	read(6000, 5999)
	read(600, 599)
	r.sleep(time.Hour)
	if b := r.budget(gate.Requests); b.Cap > 600 {
		t.Fatalf("a bucket of 600 is believed to hold %.0f, and lets so many go at once", b.Cap)
	}
}

func TestAnEndlessWeightDoesNotStarveOthers(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 1}, Weights: map[string]float64{"inf": math.Inf(1), "tiny": 5e-324}})
	held := r.acquire(gate.Call{})
	for range 200 {
		r.queue(gate.Call{Tenant: "inf", Cost: gate.Cost{Input: 10}})
	}
	for range 5 {
		r.queue(gate.Call{Tenant: "tiny", Cost: gate.Cost{Input: 10}})
	}
	other := r.queue(gate.Call{Tenant: "other", Cost: gate.Cost{Input: 10}})
	r.take()
	r.serveAll(held, time.Millisecond, 150)
	if !other.Granted() && !other.Released() {
		t.Fatal("a tenant of endless weight starves the others")
	}
}

func TestAMeasuredRateDoesNotGrowWithoutEnd(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	one := func(every time.Duration, o gate.Outcome) {
		w := r.queue(gate.Call{})
		r.sleep(every)
		for !w.Granted() {
			r.sleep(time.Second)
		}
		r.release(w, o)
	}
	one(10*time.Millisecond, bare)
	for range 40 { // ten a second, until a refusal comes again
		one(100*time.Millisecond, gate.Outcome{})
	}
	one(10*time.Millisecond, bare)
	measured := r.budget(gate.Requests)
	if measured.Source != gate.SourceMeasured {
		t.Fatalf("%+v: nothing was measured", measured)
	}
	for range 8 * 3600 { // one call a second puts no such rate to the test
		one(time.Second, gate.Outcome{})
	}
	if b := r.budget(gate.Requests); b.Limit < 0 || b.Limit > 100*measured.Limit {
		t.Fatalf("measured were %d a minute; after eight quiet hours %d are believed", measured.Limit, b.Limit)
	}
}

func TestALedgersStrangeRepliesAreSurvived(t *testing.T) {
	for _, reply := range []gate.Reply{
		{Wait: math.MaxInt64, Bound: gate.Requests}, {Wait: -1, Bound: gate.Tokens}, {Wait: time.Second, Bound: 200}, {Granted: -5}, {Granted: 500},
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
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 600_000, Burst: time.Minute, Concurrent: 100}})
	// Two tokens of text; the provider adds what every message costs beside its text.
	h := r.acquire(gate.Call{Cost: gate.Cost{Input: 2}})
	r.release(h, gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Tokens, Limit: 600_000, Used: 599_995, Requested: 12})
	r.sleep(time.Minute)
	before := r.budget(gate.Tokens).Spent
	r.acquire(gate.Call{Cost: gate.Cost{Input: 10_000}})
	if got := r.budget(gate.Tokens).Spent - before; got > 11_000 {
		t.Fatalf("a call of 10000 tokens reserves %.0f, for ever, since one of 2 was counted as 12", got)
	}
}
