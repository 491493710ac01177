package cluster_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/gate"
)

// The figures of the ledger, on a real engine that nobody else uses meanwhile:
//
//	SLUICE_TEST_REDIS=redis://127.0.0.1:6379 go test ./cluster -run '^$' -bench Ledger
func realEngine(b *testing.B) (string, rueidis.Client) {
	url := os.Getenv("SLUICE_TEST_REDIS")
	if url == "" {
		b.Skip("figures need a real engine: set SLUICE_TEST_REDIS")
	}
	return url, client(b, cluster.SiteAt(url))
}

// evalshas is how many scripts the engine has run since its counters were reset, and the mean time of one.
func evalshas(tb testing.TB, client rueidis.Client) (calls, micros float64) {
	tb.Helper()
	info, err := client.Do(context.Background(), client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		tb.Fatal(err)
	}
	if m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=\d+,usec_per_call=([\d.]+)`).FindStringSubmatch(info); m != nil {
		calls, _ = strconv.ParseFloat(m[1], 64)
		micros, _ = strconv.ParseFloat(m[2], 64)
	}
	return calls, micros
}

func reset(tb testing.TB, client rueidis.Client) {
	if err := client.Do(context.Background(), client.B().ConfigResetstat().Build()).Error(); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkLedgerScript is the time that the engine takes for one ask and one settlement, beside members that wait.
func BenchmarkLedgerScript(b *testing.B) {
	url, client := realEngine(b)
	for _, waiting := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(waiting, " members wait"), func(b *testing.B) {
			l := connect(b, cluster.Config{URL: url}).Ledger(b.Name()+rand.Text(), cluster.LedgerConfig{})
			defer l.Close()
			cost := gate.Vector{gate.Requests: 1, gate.Tokens: 500}
			budget := func(d gate.Dimension, rate float64) gate.Correction {
				return gate.Correction{Lane: "m", Dimension: d, Lo: math.Inf(-1), Hi: math.Inf(1), Rate: rate, Cap: rate, Start: rate}
			}
			say := func(batch *gate.Batch) gate.Reply {
				r, _, _, err := l.Exchange(b.Context(), batch)
				if err != nil {
					b.Fatal(err)
				}
				return r
			}
			say(&gate.Batch{Lane: "m", Corrections: []gate.Correction{budget(gate.Requests, 1e-4), budget(gate.Tokens, 1e9),
				{Lane: "m", Dimension: gate.Concurrency, Slots: gate.SlotLimit{Limit: 1e6}}}})
			member := l.Member()
			for i := range waiting { // for a budget that does not come
				l.Speak(fmt.Sprintf("member-%04d", i))
				for range 2 {
					say(&gate.Batch{Lane: "m", Waiting: 1, Asks: []gate.Ask{{ID: 1, Cost: cost}, {ID: 2, Cost: cost}}})
				}
			}
			l.Speak(member)
			say(&gate.Batch{Lane: "m", Corrections: []gate.Correction{budget(gate.Requests, 1e7)}})
			reset(b, client)
			id, granted := uint64(10), 0
			for b.Loop() {
				id++
				granted += say(&gate.Batch{Lane: "m", Settlements: []gate.Settlement{{ID: id - 1, Lane: "m"}}, Waiting: 1,
					Asks: []gate.Ask{{ID: id, Cost: cost}}}).Granted
			}
			_, micros := evalshas(b, client)
			b.ReportMetric(micros, "script-µs")
			b.ReportMetric(float64(granted)/float64(b.N), "granted/op")
			reset(b, client)
			bare(b, client, 2000)
			_, micros = evalshas(b, client)
			b.ReportMetric(micros, "bare-µs")
		})
	}
}

// bare has the engine run a script that does nothing.
func bare(tb testing.TB, client rueidis.Client, n int) {
	nothing := rueidis.NewLuaScript("return 1")
	for range n {
		if err := nothing.Exec(context.Background(), client, []string{"{bare}"}, []string{"1"}).Error(); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkLedgerTake is how much later calls of four members start than they could, at 80 % of 30,000 requests a minute, beside
// bare scripts at the same load. An operation is a call.
func BenchmarkLedgerTake(b *testing.B) {
	url, client := realEngine(b)
	const members, perSecond = 4, 0.8 * 30_000 / 60
	account := b.Name() + rand.Text()
	var schedulers []*sluice.Scheduler
	for range members {
		l := connect(b, cluster.Config{URL: url}).Ledger(account, cluster.LedgerConfig{})
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 30_000, Concurrent: 1000, Burst: time.Second}, Ledger: l})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		defer s.Close()
		schedulers = append(schedulers, s)
	}
	arrivals(b, 4*perSecond, perSecond, func(i int) { oneStart(b, schedulers[i%members]) }) // until nothing is new any more
	bare(b, client, 1)
	reset(b, client)
	b.ResetTimer()
	var mu sync.Mutex
	var taken, bares []time.Duration
	arrivals(b, b.N, perSecond, func(i int) {
		took := oneStart(b, schedulers[i%members])
		mu.Lock()
		defer mu.Unlock()
		taken = append(taken, took)
	}, func(int) {
		began := time.Now()
		bare(b, client, 1)
		took := time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		bares = append(bares, took)
	})
	calls, _ := evalshas(b, client)
	b.ReportMetric((calls-float64(len(bares)))/float64(b.N), "engine-calls/start")
	for name, took := range map[string][]time.Duration{"take": taken, "bare": bares} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/1e6, name+"-p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, name+"-p99-ms")
	}
}

// start makes a call of 0.2 s and returns how long it waited to start.
func oneStart(b *testing.B, s *sluice.Scheduler) (waited time.Duration) {
	began := time.Now()
	_, err := s.Do(b.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
		waited = time.Since(began)
		time.Sleep(200 * time.Millisecond)
		return sluice.Outcome{}
	})
	if err != nil {
		b.Error(err)
	}
	return waited
}

// arrivals has things happen n times each, at random instants, so often a second. It returns when all are over.
func arrivals(b *testing.B, n int, perSecond float64, happen ...func(i int)) {
	var wg sync.WaitGroup
	luck := mathrand.New(mathrand.NewPCG(1, 2))
	next := time.Now()
	for i := range n {
		next = next.Add(time.Duration(luck.ExpFloat64() / perSecond * float64(time.Second)))
		time.Sleep(time.Until(next))
		for _, f := range happen {
			wg.Go(func() { f(i) })
		}
	}
	wg.Wait()
}
