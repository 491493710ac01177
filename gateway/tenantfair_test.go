package gateway_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// load is what a tenant offers: so many clients that each make one call after the other.
type load struct {
	tenant  string
	clients int
	fresh   bool // each call is of a session of its own
}

// shares has tenants offer their loads for a while, and returns how many calls of each were sent once they all did.
func (r *tenantRig) shares(d time.Duration, loads ...load) map[string]int {
	var clients sync.WaitGroup
	begun, n := time.Now(), 0
	var mu sync.Mutex
	session := func(l load) string {
		if !l.fresh {
			return ""
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprint("session-", n)
	}
	for _, l := range loads {
		for range l.clients {
			clients.Go(func() {
				for time.Since(begun) < d {
					r.call(l.tenant, session(l))
				}
			})
		}
	}
	time.Sleep(d / 10)
	first := len(r.upstream.sent())
	time.Sleep(d - d/10)
	sent := make(map[string]int)
	for _, whose := range r.upstream.sent()[first:] {
		sent[whose]++
	}
	clients.Wait()
	return sent
}

func jain[N int | float64](shares map[string]N) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / squares / float64(len(shares))
}

func TestEqualTenantsGetEqualSharesWhateverTheyOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := rigConfig{sim: sim.Config{Concurrency: 8, Jitter: 0.3}, limits: sluice.Limits{Concurrency: 8}}
		var loads []load
		tenants := suite.Size(4, 6)
		for i := range tenants {
			name := fmt.Sprint("tenant-", i)
			cfg.tenants = append(cfg.tenants, gateway.Tenant{Name: name})
			loads = append(loads, load{tenant: name, clients: 10 << i, fresh: i%2 == 0})
		}
		sent := newTenantRig(t, cfg).shares(suite.Size(time.Minute, 2*time.Minute), loads...)
		if index := jain(sent); index < 0.95 || len(sent) != tenants {
			t.Errorf("the shares %v have Jain's index %.3f: want 0.95", sent, index)
		}
	})
}

func TestAnInteractiveCallPassesFiveHundredThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			sim: sim.Config{Concurrency: 4, Latency: time.Second, Jitter: 0.3}, limits: sluice.Limits{Concurrency: 4},
			tenants: []gateway.Tenant{{Name: "batch"}, {Name: "person", Priority: "high", Weight: 0.1}},
		})
		var calls sync.WaitGroup
		for range 500 {
			calls.Go(func() { r.call("batch", "") })
		}
		time.Sleep(3 * time.Second)
		for range 5 {
			time.Sleep(1700 * time.Millisecond)
			before := len(r.upstream.sent())
			var own sync.WaitGroup
			for range 3 {
				own.Go(func() { r.call("person", "") })
			}
			own.Wait()
			sent := r.upstream.sent()[before:]
			last := slices.Index(sent, "person") + 2
			if last < 2 || last > 4 || !slices.Equal(sent[last-2:last+1], []string{"person", "person", "person"}) {
				t.Errorf("batch calls went before the interactive ones: %v", sent)
			}
		}
		calls.Wait()
	})
}

func TestASessionDoesNotWaitForAnotherOnesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keyed := range []bool{true, false} {
			cfg := rigConfig{sim: sim.Config{Concurrency: 4, Latency: time.Second, Jitter: 0.3}, limits: sluice.Limits{Concurrency: 4}}
			if keyed {
				cfg.tenants = []gateway.Tenant{{Name: "t"}}
			}
			r := newTenantRig(t, cfg)
			var calls sync.WaitGroup
			for range 300 {
				calls.Go(func() { r.call("t", "busy") })
			}
			time.Sleep(5 * time.Second)
			req := r.request(t.Context(), "t")
			req.Header.Set("X-Whose", "other")
			req.Header.Set("X-Claude-Code-Session-Id", "other")
			before := len(r.upstream.sent())
			w := r.do(req)
			if place := slices.Index(r.upstream.sent()[before:], "other"); place < 0 || place > gateway.MostAhead+4 { // four are sent in one instant, in any order
				t.Errorf("keyed %v: %d calls of another session went before", keyed, place)
			}
			if ms, _ := strconv.Atoi(w.Header().Get("X-Sluice-Wait-Ms")); ms < 500 || ms > 5000 {
				t.Errorf("keyed %v: it says that it waited %d ms", keyed, ms)
			}
			calls.Wait()
		}
	})
}

func TestAChangedFileChangesSharesAndLimitsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			sim: sim.Config{Concurrency: 8, Jitter: 0.3}, limits: sluice.Limits{Concurrency: 8},
			tenants: []gateway.Tenant{{Name: "one"}, {Name: "other"}, {Name: "narrow", Concurrency: 1}},
		})
		loads := []load{{"one", 20, false}, {"other", 20, false}}
		if sent := r.shares(time.Minute, loads...); jain(sent) < 0.99 {
			t.Errorf("equal tenants had %v", sent)
		}
		r.list[1].Weight = 3
		r.set(r.list...)
		sent := r.shares(time.Minute, loads...)
		if ratio := float64(sent["other"]) / float64(sent["one"]); math.Abs(ratio-3) > 0.15 {
			t.Errorf("with weights of 1 and 3 they had %v", sent)
		}

		var calls sync.WaitGroup
		for range 12 { // each takes 0.2 s: one after the other, then six at once
			calls.Go(func() { r.call("narrow", "") })
		}
		time.Sleep(100 * time.Millisecond)
		r.list[2].Concurrency = 6
		r.set(r.list...)
		begun := time.Now()
		calls.Wait()
		if took := time.Since(begun); took > 1200*time.Millisecond {
			t.Errorf("eleven calls took %v, six at once", took)
		}
	})
}
