package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// Of two tenants, one declares long answers: how many of so many turns are its.
func (r *rig) turnsOfLong(held *gate.Ticket, n int) (long int) {
	for _, t := range r.serveAll(held, time.Second, n) {
		if t.Call.Tenant == "long" {
			long++
		}
	}
	return long
}

func (r *rig) longAndShort(n int) {
	for range n {
		r.queue(limits.Call{Tenant: "long", Cost: limits.Cost{Input: 10, MaxOutput: 900}})
		r.queue(limits.Call{Tenant: "short", Cost: limits.Cost{Input: 10, MaxOutput: 100}})
	}
}

func TestTenantsShareWhatBinds(t *testing.T) {
	for name, tt := range map[string]struct {
		told limits.Limits
		long int // of 100 turns
	}{
		"requests":                   {limits.Limits{RPM: 6000}, 50},
		"tokens":                     {limits.Limits{TPM: 1e7}, 10},
		"requests, and tokens aside": {limits.Limits{RPM: 6000, TPM: 1e9}, 50},
		"tokens, and requests aside": {limits.Limits{RPM: 1e6, TPM: 1e7}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			tt.told.Concurrency = 1
			// A usage that is not what was charged: the provider charges what is declared.
			r := newRig(t, gate.Config{Limits: tt.told})
			held := r.acquire(limits.Call{Tenant: "first"})
			r.take()
			r.longAndShort(120)
			if long := r.turnsOfLong(held, 100); long < tt.long-1 || long > tt.long+1 {
				t.Errorf("long calls had %d of 100 turns: want %d", long, tt.long)
			}
		})
	}
}

// Turns go on as before when an answer tells a limit, though from then on they are counted otherwise.
func TestALimitThatBecomesKnownChangesNobodysTurn(t *testing.T) {
	r, held := oneSlot(t, nil)
	r.longAndShort(200)
	order := r.serveAll(held, time.Second, 100)
	last := order[len(order)-1]
	reading := limits.Reading{Dimension: limits.Requests, Limit: 6000, Remaining: 5999}
	r.sleep(time.Second)
	r.release(last, limits.Outcome{Readings: []limits.Reading{reading}})
	held = r.take()[0]
	if long := r.turnsOfLong(held, 40); long < 15 || long > 25 {
		t.Errorf("long calls had %d of 40 turns once the limit of requests was known: want half", long)
	}
}

// Nor does it when nobody tells the only limit any more that was known.
func TestALimitThatIsNoLongerToldChangesNobodysTurn(t *testing.T) {
	one, account := limits.Limits{Concurrency: 1}, limits.Limits{RPM: 6000}
	r := newRig(t, gate.Config{Limits: one, Account: account, Weights: map[string]float64{"long": 3}})
	held := r.acquire(limits.Call{Tenant: "first"})
	r.take()
	for range 200 {
		r.queue(limits.Call{Tenant: "long", Cost: limits.Cost{Input: 10, MaxOutput: 100}})
		r.queue(limits.Call{Tenant: "short", Cost: limits.Cost{Input: 10, MaxOutput: 100}})
	}
	for i := range 4 { // it is told, not told, told, and not told
		order := r.serveAll(held, time.Second, 40)
		held = order[len(order)-1]
		long := 0
		for _, ticket := range order {
			if ticket.Call.Tenant == "long" {
				long++
			}
		}
		if long < 28 || long > 32 {
			t.Errorf("after %d changes, the one of weight 3 had %d of 40 turns: want 30", i, long)
		}
		account.RPM = 6000 - account.RPM
		r.g.SetLimits(r.now, one, account)
		r.drain()
	}
}

// What a call was counted for is what is taken back when it counts for nothing, whatever the limits are then.
func TestCallsThatCountForNothingGainNothingByALimitThatFell(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 50}}).show(limits.Requests, 600_000, 60)
	var open []*gate.Ticket
	for range 50 {
		open = append(open, r.acquire(limits.Call{Tenant: "refused"}))
	}
	r.take()
	for range 100 {
		r.queue(limits.Call{Tenant: "refused"})
		r.queue(limits.Call{Tenant: "other"})
	}
	told := limits.Limits{RPM: 6000, Concurrency: 1}
	r.g.SetLimits(r.now, told, told)
	held := open[0]
	for _, ticket := range open[1:] {
		r.release(ticket, limits.Outcome{Unsent: true, Abandoned: true, Kind: limits.Network})
	}
	n := 0
	for _, ticket := range r.serveAll(held, time.Second, 40) {
		if ticket.Call.Tenant == "refused" {
			n++
		}
	}
	if n < 18 || n > 22 {
		t.Errorf("who had calls back had %d of 40 turns: want half", n)
	}
}
