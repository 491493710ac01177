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

	"github.com/redis/rueidis"

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
