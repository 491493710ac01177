package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func TestACommandThatFailedSaysNothingOfTheProvider(t *testing.T) {
	failed := limits.Outcome{Kind: limits.CommandFailed}
	t.Run("to a probe", func(t *testing.T) {
		r := probing(t, 20)
		for range 3 {
			wave := r.take()
			if len(wave) != 1 {
				t.Fatalf("%d probes after a command that failed, want 1: it proved nothing and holds nobody up", len(wave))
			}
			r.release(wave[0], failed)
		}
	})
	t.Run("to the breaker", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: told}).warm(10)
		for range 20 {
			r.release(r.acquire(limits.Call{}), failed)
		}
		if n := r.count(limits.EventBreaker); n != 0 {
			t.Fatal("it opens the breaker")
		}
		held := acquireN(r, 8)
		for i := range 4 {
			r.release(held[i], limits.Outcome{Kind: limits.ServerError})
			r.release(held[4+i], failed)
		}
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.ServerError})
		if n := r.count(limits.EventBreaker); n != 1 {
			t.Fatalf("%d breakers after five failures in a row, between which commands failed: it counts for an answer", n)
		}
	})
	t.Run("to slots", func(t *testing.T) {
		r := newRig(t, gate.Config{}).warm(100)
		for _, h := range r.fill(limits.Call{}) {
			r.release(h, failed)
		}
		r.wantSlots(8)
	})
	t.Run("to the retry budget", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: told})
		for range 100 {
			r.release(r.acquire(limits.Call{}), failed)
		}
		if d := r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.ServerError}); d.Wait > 200*time.Millisecond {
			t.Fatalf("after a hundred commands that failed, a retry waits for %v", d.Wait)
		}
	})
}
