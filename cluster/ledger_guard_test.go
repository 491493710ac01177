package cluster_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/limits"
)

// configured is what a gate says of a configured limit of requests per minute, in a lane whose rate and bucket would let more pass.
func configured(perMinute float64) limits.Correction {
	c := told(limits.Requests, 1000, 1000, 1000)
	c.Limit = perMinute
	return c
}

// mostIn is the largest number of instants within a period.
func mostIn(at []time.Time, period time.Duration) (most int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= period {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func TestMembersKeepAConfiguredLimitInEveryPeriodWhileRejectionsCome(t *testing.T) {
	t.Parallel()
	for _, told := range []limits.Limits{{RPM: 120}, {Requests: limits.Window{N: 25, Period: 10 * time.Second}}} {
		t.Run(told.In(limits.Requests).String(), func(t *testing.T) { keepWhileRejectionsCome(t, told) })
	}
}

func keepWhileRejectionsCome(t *testing.T, told limits.Limits) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		const members, workers = 3, 10
		limit := told.In(limits.Requests)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
		defer cancel()
		account := rand.Text()
		var mu sync.Mutex
		var sent []time.Time
		var wg sync.WaitGroup
		for range members {
			l := ledger(t, at, account, cluster.LedgerConfig{})
			s, err := sluice.New(sluice.Config{Limits: told, Ledger: l, MaxThrottles: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			for range workers {
				wg.Go(func() {
					for ctx.Err() == nil {
						s.Do(ctx, sluice.Call{}, func(context.Context, *sluice.Permit) (o sluice.Outcome) {
							mu.Lock()
							defer mu.Unlock()
							if sent = append(sent, time.Now()); len(sent)%3 == 0 {
								o.Kind, o.Dimension = sluice.RateLimit, limits.Concurrency
							}
							return o
						})
					}
				})
			}
		}
		wg.Wait()
		most := mostIn(sent, limit.Period)
		t.Logf("%d requests, at most %d in a period", len(sent), most)
		if most > limit.N {
			t.Errorf("%d requests were sent within %v: want at most %d", most, limit.Period, limit.N)
		}
		if n := 2 * limit.Per(time.Minute); len(sent) < n {
			t.Errorf("%d requests were sent in 200 s: want %d at least", len(sent), n)
		}
	})
}

func TestAConfiguredLimitOutlivesWhatRedisForgets(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(t *testing.T, at *cluster.Site, a *caller) (forget func()){
		"everything": func(t *testing.T, at *cluster.Site, a *caller) func() {
			return func() { wipe(t, at, a.l.Account()) }
		},
		"the last grants": func(t *testing.T, at *cluster.Site, a *caller) func() {
			return remember(t, at, a.l.Account()+":lane:m:state")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, at *cluster.Site) {
				account := rand.Text()
				a, b := newCaller(t, at, account), newCaller(t, at, account)
				a.correct(configured(10))
				a.until(4)
				forgets := forget(t, at, a)
				time.Sleep(10 * time.Second)
				a.until(4)
				a.until(1) // within the second in which the content was told
				forgets()
				time.Sleep(5 * time.Second) // all that live are heard
				if r, _ := b.take(3); r.Granted != 1 {
					t.Errorf("nine of ten requests were sent before Redis forgot them, and %d more are granted: %+v", r.Granted, r)
				}
				time.Sleep(47 * time.Second) // the first four have left the minute
				if r, _ := b.take(8); r.Granted != 4 {
					t.Errorf("%d requests are granted when four have left the minute: want as many", r.Granted)
				}
			})
		})
	}
}

func TestMembersWithoutRedisKeepAConfiguredLimit(t *testing.T) {
	t.Parallel()
	for _, w := range []limits.Window{{N: 60, Period: time.Minute}, {N: 20, Period: 20 * time.Second}, {N: 120, Period: 2 * time.Minute}} {
		t.Run(w.String(), func(t *testing.T) { keepWithoutRedis(t, w) })
	}
}

func keepWithoutRedis(t *testing.T, limit limits.Window) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		c := configured(float64(limit.N))
		c.LimitPeriod = limit.Period
		callers, wires := gateways(t, at, 2, c)
		var mu sync.Mutex
		var sent []time.Time
		take := func(c *caller) {
			r, id := c.take(1)
			if r.Granted == 0 {
				time.Sleep(max(r.Wait, 10*time.Millisecond))
				return
			}
			c.settle(id)
			mu.Lock()
			sent = append(sent, time.Now())
			mu.Unlock()
		}
		for range limit.N * 5 / 6 { // nearly all at once
			take(callers[0])
		}
		time.Sleep(3 * time.Second) // all have heard of it
		for _, w := range wires {
			w.Down(true)
		}
		outage := limit.Period * 5 / 2
		time.AfterFunc(outage, func() {
			for _, w := range wires {
				w.Down(false)
			}
		})
		end := time.Now().Add(2 * outage)
		var wg sync.WaitGroup
		for _, c := range callers {
			wg.Go(func() {
				for time.Now().Before(end) {
					take(c)
				}
			})
		}
		wg.Wait()
		most := mostIn(sent, limit.Period)
		t.Logf("%d requests, at most %d in a period", len(sent), most)
		if most > limit.N {
			t.Errorf("%d requests were sent within %v: want at most %d", most, limit.Period, limit.N)
		}
		if len(sent) < limit.N*10/3 { // half the limit without Redis, and all of it after
			t.Errorf("%d requests were sent", len(sent))
		}
	})
}
