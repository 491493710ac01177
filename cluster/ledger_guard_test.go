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

// mostInAMinute is the largest number of instants within a minute.
func mostInAMinute(at []time.Time) (most int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= time.Minute {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func TestMembersKeepAConfiguredLimitInEveryMinuteWhileRejectionsCome(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		const perMinute, members, workers = 120, 3, 10
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
		defer cancel()
		account := rand.Text()
		var mu sync.Mutex
		var sent []time.Time
		var wg sync.WaitGroup
		for range members {
			l := ledger(t, at, account, cluster.LedgerConfig{})
			s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: perMinute}, Ledger: l, MaxThrottles: 1 << 20})
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
		most := mostInAMinute(sent)
		t.Logf("%d requests, at most %d in a minute", len(sent), most)
		if most > perMinute {
			t.Errorf("%d requests were sent within a minute: want at most %d", most, perMinute)
		}
		if len(sent) < 2*perMinute {
			t.Errorf("%d requests were sent in 200 s: want %d at least", len(sent), 2*perMinute)
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
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		callers, wires := gateways(t, at, 2, configured(60))
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
		for range 50 { // nearly all at once
			take(callers[0])
		}
		time.Sleep(3 * time.Second) // all have heard of it
		for _, w := range wires {
			w.Down(true)
		}
		time.AfterFunc(150*time.Second, func() {
			for _, w := range wires {
				w.Down(false)
			}
		})
		end := time.Now().Add(300 * time.Second)
		var wg sync.WaitGroup
		for _, c := range callers {
			wg.Go(func() {
				for time.Now().Before(end) {
					take(c)
				}
			})
		}
		wg.Wait()
		most := mostInAMinute(sent)
		t.Logf("%d requests, at most %d in a minute", len(sent), most)
		if most > 60 {
			t.Errorf("%d requests were sent within a minute: want at most 60", most)
		}
		if len(sent) < 50+30+120 { // half the limit without Redis, and all of it after
			t.Errorf("%d requests were sent", len(sent))
		}
	})
}
