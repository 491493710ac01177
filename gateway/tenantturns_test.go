package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

func TestTurnsEndWellWhateverHappens(t *testing.T) {
	for seed := range suite.Size[uint64](5, 30) {
		synctest.Test(t, func(t *testing.T) {
			luck := rand.New(rand.NewPCG(seed, 1))
			var (
				turns gateway.Turns
				calls sync.WaitGroup
				mu    sync.Mutex
				ahead = make(map[string]int)
				ends  = make(map[string]int)
			)
			const step = 100 * time.Millisecond // so that much happens at the same instant
			for range 400 {
				model, session := fmt.Sprint("m", luck.IntN(2)), fmt.Sprint("s", luck.IntN(20))
				work, at := 1+luck.Float64()*100, time.Duration(luck.IntN(20))*step
				took, wait := time.Duration(luck.IntN(30))*step, time.Duration(1+luck.IntN(60))*time.Second
				leaves := time.Hour
				if luck.IntN(3) == 0 {
					leaves = time.Duration(luck.IntN(50)) * step
				}
				calls.Go(func() {
					time.Sleep(at)
					ctx, cancel := context.WithTimeout(t.Context(), leaves)
					defer cancel()
					err := turns.Enter(ctx, model, session, work, wait)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, sluice.ErrSlotTimeout):
						ends["late"]++
						return
					case err != nil:
						ends["left"]++
						return
					}
					ends["went"]++
					if ahead[model]++; ahead[model] > gateway.MostAhead {
						t.Errorf("%d calls of %s are ahead", ahead[model], model)
					}
					mu.Unlock()
					time.Sleep(took)
					mu.Lock()
					ahead[model]--
					turns.Leave(model, took)
				})
			}
			calls.Wait()
			if !turns.Idle() {
				t.Errorf("seed %d: something is kept of calls that are over", seed)
			}
			if ends["late"] == 0 || ends["left"] == 0 || ends["went"] == 0 {
				t.Errorf("seed %d: the calls ended alike: %v", seed, ends)
			}
		})
	}
}

func TestSessionsAreServedByWorkAndNotByCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			turns gateway.Turns
			calls sync.WaitGroup
			mu    sync.Mutex
			done  = make(map[string]float64)
		)
		ctx, cancel := context.WithCancel(t.Context())
		for session, work := range map[string]float64{"large": 100, "small": 10, "other": 25} {
			for range 2000 {
				calls.Go(func() {
					if turns.Enter(ctx, "m", session, work, time.Hour) != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					done[session] += work
					mu.Unlock()
					turns.Leave("m", 100*time.Millisecond)
				})
			}
		}
		time.Sleep(20*time.Second + 50*time.Millisecond)
		mu.Lock()
		all := done["large"] + done["small"] + done["other"]
		for session, work := range done {
			if share := work / all; share < 0.3 || share > 0.37 {
				t.Errorf("%s had %.3f of the work: want a third", session, share)
			}
		}
		mu.Unlock()
		cancel()
		calls.Wait()
	})
}

func TestTheWaitsOfACallAreBoundTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			sim: sim.Config{Latency: 6 * time.Second}, limits: sluice.Limits{Concurrency: 100},
			tenants: []gateway.Tenant{{Name: "one", Concurrency: 1, MaxWait: 10 * time.Second}, {Name: "many", Concurrency: 20, MaxWait: 10 * time.Second}},
		})
		var calls sync.WaitGroup
		for range 2 { // until some calls were taken, few are sent at once
			calls.Go(func() { r.call("many", "") })
		}
		calls.Wait()
		for _, tenant := range []string{"one", "many"} {
			n := map[string]int{"one": 1, "many": 20}[tenant]
			for range n {
				calls.Go(func() { r.call(tenant, "") }) // they hold all that the tenant may have for 6 s
			}
			synctest.Wait()
			for range n {
				calls.Go(func() { // these wait for that first, and then for the end of the pause, the last of many for its turn
					begun := time.Now()
					w := r.do(r.request(t.Context(), tenant))
					if took := time.Since(begun); w.Code != http.StatusTooManyRequests || took > 10100*time.Millisecond || took < 9*time.Second {
						t.Errorf("%s: after %v: %s", tenant, took, text(w))
					}
				})
			}
		}
		synctest.Wait()
		if err := r.scheduler.Pause(); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
	})
}

func TestATurnThatComesAsItsCallEndsGoesToTheNext(t *testing.T) {
	for range suite.Size(50, 1000) { // which comes first is up to the runtime
		var turns gateway.Turns
		enter := func(ctx context.Context) error { return turns.Enter(ctx, "m", "s", 1, time.Hour) }
		for range gateway.MostAhead {
			if err := enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- enter(ctx) }()
		for turns.Waiting("m") == 0 {
			runtime.Gosched()
		}
		cancel()
		turns.Leave("m", 0)
		if err := <-ended; err == nil {
			turns.Leave("m", 0)
		}
		for range gateway.MostAhead - 1 {
			turns.Leave("m", 0)
		}
		if !turns.Idle() {
			t.Fatal("a turn was lost")
		}
	}
}
