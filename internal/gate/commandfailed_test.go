package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestACommandThatFailedSaysNothingOfTheProvider(t *testing.T) {
	failed := gate.Outcome{Kind: gate.CommandFailed}
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
		r := newRig(t, gate.Config{Limits: told})
		for range 20 {
			r.release(r.acquire(gate.Call{}), failed)
		}
		if n := r.count(gate.EventBreaker); n != 0 {
			t.Fatal("it opens the breaker")
		}
		held := acquireN(r, 8)
		for i := range 4 {
			r.release(held[i], gate.Outcome{Kind: gate.ServerError})
			r.release(held[4+i], failed)
		}
		r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.ServerError})
		if n := r.count(gate.EventBreaker); n != 1 {
			t.Fatalf("%d breakers after five failures in a row, between which commands failed: it counts for an answer", n)
		}
	})
	t.Run("to slots", func(t *testing.T) {
		r := newRig(t, gate.Config{})
		held := r.fill(gate.Call{})
		for _, h := range held {
			r.release(h, failed)
		}
		r.wantSlots(len(held))
	})
	t.Run("to the retry budget", func(t *testing.T) {
		r := newRig(t, gate.Config{Limits: told})
		for range 100 {
			r.release(r.acquire(gate.Call{}), failed)
		}
		if d := r.release(r.acquire(gate.Call{}), gate.Outcome{Kind: gate.ServerError}); d.Wait > 200*time.Millisecond {
			t.Fatalf("after a hundred commands that failed, a retry waits for %v", d.Wait)
		}
	})
}
