package route_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/route"
)

// chaos is what many calls over several upstreams meet, by a seed.
type chaos struct {
	luck *rand.Rand
	mu   sync.Mutex // luck's
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.luck.IntN(n)
}

func (c *chaos) ms(most int) time.Duration { return time.Duration(c.n(most)) * time.Millisecond }

// outcome is any that an attempt may have; rarely one that leaves its upstream out.
func (c *chaos) outcome() sluice.Outcome {
	switch c.n(40) {
	case 0, 1, 2:
		return sluice.Outcome{Kind: sluice.RateLimit, Wait: c.ms(3000)}
	case 3, 4:
		return sluice.Outcome{Kind: sluice.ServerError, Err: errRefused}
	case 5:
		return sluice.Outcome{Kind: sluice.Network, Unsent: true, Err: errRefused}
	case 6:
		return sluice.Outcome{Kind: sluice.InvalidOutput}
	case 7:
		return sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}
	case 8:
		if c.n(8) == 0 {
			return sluice.Outcome{Kind: []sluice.Kind{sluice.Auth, sluice.QuotaExhausted}[c.n(2)], Err: errRefused}
		}
	}
	return sluice.Outcome{}
}

// TestNoInterleavingLosesAPermit has many calls come, wait, move, fail, be cancelled and be cut off by Close, at upstreams two
// of which share an account. No call is open at two, and nothing is left in a queue or in flight.
func TestNoInterleavingLosesAPermit(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			c := &chaos{luck: rand.New(rand.NewPCG(seed, 1))}
			one := upstream(t, sluice.Config{Limits: sluice.Limits{Concurrency: 3}})
			one.Account, one.Keys = "acme", 2
			two := one
			two.Keys = 1
			cfg := route.Config{
				Cheapest:  seed%2 == 1,
				Upstreams: []route.Upstream{one, two, upstream(t, sluice.Config{Limits: sluice.Limits{RPM: 600, Concurrency: 2}})},
				Excluded:  func(route.Exclusion) { time.Sleep(c.ms(50)) },
			}
			u := router(t, cfg, 1)
			var calls sync.WaitGroup
			for i := range 150 {
				calls.Go(func() {
					time.Sleep(c.ms(4000))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if c.n(4) == 0 {
						time.AfterFunc(c.ms(5000), cancel)
					}
					var open atomic.Int32
					tries := 0
					tally, err := do(ctx, u, func(string) sluice.Outcome {
						if open.Add(1) > 1 {
							t.Errorf("seed %d: call %d is open twice", seed, i)
						}
						defer open.Add(-1)
						tries++
						time.Sleep(c.ms(200))
						return c.outcome()
					})
					if tally.Tries() != tries {
						t.Errorf("seed %d: call %d tells of %+v, and made %d tries", seed, i, tally, tries)
					}
					failure, failed := errors.AsType[*sluice.CallError](err)
					if err != nil && !errors.Is(err, sluice.ErrClosed) && ctx.Err() == nil && !failed || failed && failure.Tally != tally {
						t.Errorf("seed %d: call %d: %+v, %v", seed, i, tally, err)
					}
				})
			}
			if seed%4 == 0 { // a run that ends while calls wait
				time.Sleep(c.ms(6000))
				var closing sync.WaitGroup
				for _, up := range u.all {
					closing.Go(func() { up.Scheduler.Close() })
				}
				closing.Wait()
			}
			calls.Wait()
		})
	}
}

// An upstream that kept failing gets calls again after the breaker's pause, also when the other one is busy only then.
func TestAnUpstreamComesBackAfterThePauseOfItsBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := router(t, route.Config{}, 2)
		start := time.Now()
		var mu sync.Mutex
		at := make(map[string]int) // answers, by upstream and part of the time
		var calls sync.WaitGroup
		for i := range 300 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 500 * time.Millisecond)
				_, err := do(t.Context(), u, func(name string) sluice.Outcome {
					now := time.Since(start)
					if name == "a" && now < 20*time.Second {
						return sluice.Outcome{Kind: sluice.ServerError, Err: errRefused}
					}
					time.Sleep(900 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					at[fmt.Sprint(name, " ", now > 100*time.Second)]++
					return sluice.Outcome{}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if at["a true"] < 40 || at["b true"] < 40 {
			t.Errorf("answers after the pause: %v", at)
		}
	})
}
