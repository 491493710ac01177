package cluster_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
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

// BenchmarkLedgerScript is the time that Redis takes for one ask and one settlement, beside members that wait.
func BenchmarkLedgerScript(b *testing.B) {
	url, client := realEngine(b)
	for _, c := range []struct {
		waiting    int
		configured float64 // limit of requests, and of tokens
	}{{1, 0}, {100, 0}, {1000, 0}, {100, 1e12}} {
		waiting := c.waiting
		b.Run(fmt.Sprint(waiting, " members wait, configured ", c.configured > 0), func(b *testing.B) {
			l := connect(b, cluster.Config{URL: url}).Ledger(b.Name()+rand.Text(), cluster.LedgerConfig{})
			defer l.Close()
			cost := limits.Vector{limits.Requests: 1, limits.Tokens: 500}
			budget := func(d limits.Dimension, rate float64) limits.Correction {
				return limits.Correction{Lane: "m", Dimension: d, Lo: math.Inf(-1), Hi: math.Inf(1), Rate: rate, Cap: rate, Start: rate, Limit: c.configured}
			}
			say := func(batch *gate.Batch) limits.Reply {
				r, _, _, err := l.Exchange(b.Context(), batch)
				if err != nil {
					b.Fatal(err)
				}
				return r
			}
			say(&gate.Batch{Lane: "m", Corrections: []limits.Correction{budget(limits.Requests, 1e-4), budget(limits.Tokens, 1e9),
				{Lane: "m", Dimension: limits.Concurrency, Slots: limits.SlotLimit{Limit: 1e6}}}})
			member := l.Member()
			for i := range waiting { // for a budget that does not come
				l.Speak(fmt.Sprintf("member-%04d", i))
				for range 2 {
					say(&gate.Batch{Lane: "m", Waiting: 1, Asks: []limits.Ask{{ID: 1, Cost: cost}, {ID: 2, Cost: cost}}})
				}
			}
			l.Speak(member)
			say(&gate.Batch{Lane: "m", Corrections: []limits.Correction{budget(limits.Requests, 1e7)}})
			guarded, settled := cost, limits.Settlement{Lane: "m"}
			if c.configured > 0 {
				guarded[limits.Tokens] += 1000
				settled.Guarded, settled.Age = limits.Vector{limits.Tokens: -1200}, 5*time.Second
				for age := range 241 { // requests in all parts of the minute
					s := limits.Settlement{ID: 1, Lane: "m", Guarded: limits.Vector{limits.Requests: 1e5, limits.Tokens: 1e9}, Age: time.Duration(age) * 250 * time.Millisecond}
					say(&gate.Batch{Lane: "m", Renewed: []uint64{1}, Settlements: []limits.Settlement{s}})
				}
			}
			reset(b, client)
			id, granted := uint64(10), 0
			for b.Loop() {
				id++
				settled.ID = id - 1
				granted += say(&gate.Batch{Lane: "m", Settlements: []limits.Settlement{settled}, Waiting: 1,
					Asks: []limits.Ask{{ID: id, Cost: cost, Guarded: guarded}}}).Granted
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
