package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// Who waits for a slot is woken when it can have one, also by what it gives back itself, and not when another has it.
func TestOfMembersThatWaitForASlotOneIsWokenWhoCanHaveIt(t *testing.T) {
	var s gate.Shared
	now := time.Unix(1_790_000_000, 0)
	say := func(member string, b gate.Batch) (limits.Reply, string) {
		b.Lane = "m"
		return s.Exchange(now, member, &b)
	}
	ask := func(id uint64) gate.Batch { return gate.Batch{Waiting: 1, Asks: []limits.Ask{{ID: id}}} }
	say("a", gate.Batch{Corrections: []limits.Correction{{Lane: "m", Dimension: limits.Concurrency, Slots: limits.SlotLimit{Limit: 1}}}})
	if r, _ := say("a", ask(1)); r.Granted != 1 {
		t.Fatalf("the first of one slot: %+v", r)
	}
	if r, woken := say("a", ask(2)); r.Granted != 0 || r.Bound != limits.Concurrency || woken != "" {
		t.Fatalf("the second of one slot: %+v, and %q is woken", r, woken)
	}
	if _, woken := say("a", gate.Batch{Settlements: []limits.Settlement{{ID: 1, Lane: "m"}}}); woken != "a" {
		t.Errorf("%q is woken by what the one gives back that waits: want itself", woken)
	}
	say("a", ask(2))
	say("b", ask(3))
	say("a", ask(4))
	if _, woken := say("a", gate.Batch{Settlements: []limits.Settlement{{ID: 2, Lane: "m"}}}); woken != "b" {
		t.Errorf("%q is woken: want the one that was served least", woken)
	}
	if _, woken := say("c", gate.Batch{}); woken != "" {
		t.Errorf("%q is woken for a slot that another was woken for", woken)
	}
	if r, _ := say("a", ask(4)); r.Granted != 0 || r.Wait < 250*time.Millisecond || r.Wait > 300*time.Millisecond {
		t.Errorf("beside one that was woken and may not come: %+v", r)
	}
}

// A batch begins with one call that waits, and has many a moment later: it is not behind for that.
func TestAMemberWhoseFirstCallWasAllThatWaitedIsNotBehindForIt(t *testing.T) {
	var s gate.Shared
	now := time.Unix(1_790_000_000, 0)
	one := limits.Vector{limits.Requests: 1}
	say := func(member string, b gate.Batch) limits.Reply {
		b.Lane = "m"
		r, _ := s.Exchange(now, member, &b)
		return r
	}
	say("first", gate.Batch{Corrections: []limits.Correction{{Lane: "m", Dimension: limits.Requests, Lo: 1, Hi: 1, Rate: 1, Cap: 1}}})
	id, served := uint64(1), make(map[string]int)
	if r := say("first", gate.Batch{Waiting: 1, Asks: []limits.Ask{{ID: id, Cost: one}}}); r.Granted != 1 {
		t.Fatalf("a call beside no other: %+v", r)
	}
	for range 400 {
		for _, member := range []string{"first", "second"} {
			id++
			served[member] += say(member, gate.Batch{Waiting: 100, Asks: []limits.Ask{{ID: id, Cost: one}}}).Granted
		}
		now = now.Add(100 * time.Millisecond)
	}
	if served["first"] < 15 || served["second"] < 15 {
		t.Errorf("of forty calls: %v, want half each", served)
	}
}
