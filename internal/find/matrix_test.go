package find_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkFindMatrix prints how both searches fare with every provider of rows, in virtual time. It takes minutes:
//
//	go test -run '^$' -bench FindMatrix -timeout 30m ./internal/find
//
// SLUICE_FIND=TEXT takes only the rows whose name holds the text, or one of several with commas between; SLUICE_SEEDS is
// how many searches of each kind there are per row, 15 if it does not say; SLUICE_LOG=1 shows every step of them.
func BenchmarkFindMatrix(b *testing.B) {
	seeds := 15
	if text := os.Getenv("SLUICE_SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("SLUICE_SEEDS=%s: want a number above zero", text)
		}
		seeds = n
	}
	for b.Loop() {
		fmt.Printf("\n%s\n", heading)
		for _, r := range rows() {
			if !chosen(r.name, os.Getenv("SLUICE_FIND")) {
				continue
			}
			trials, ok := r.trials(seeds)
			if !ok {
				b.FailNow() // it was said why
			}
			fmt.Println(r.line(trials))
			for _, text := range r.remarks(trials) {
				fmt.Println("      " + text)
			}
		}
	}
}

// chosen reports whether a row is asked for.
func chosen(name, filter string) bool {
	for part := range strings.SplitSeq(filter, ",") {
		if strings.Contains(name, strings.TrimSpace(part)) {
			return true
		}
	}
	return false
}

// trial is one search of each kind, and what its answer is worth.
type trial struct {
	seed        uint64
	auto, sweep searched
	found       *find.Result
	rateOff     float64 // of the limit that bounds the truth, relatively; NaN: there is none, or it was not found

	paced   refusals // of a Scheduler with what was found,
	used    float64  // and its calls a minute, relative to the most
	truly   refusals // of as many workers as are true,
	ideally refusals // and of a Scheduler that knows what is true; only where paced is too high
}

// searched is one search.
type searched struct {
	workers       int
	calls, tokens int
	took          time.Duration
	err           error
	unpaced       refusals // of as many workers
}

// trials makes so many searches of each kind, and puts them to the proof. A benchmark has no *testing.T, which bubbles
// want, so that it runs tests of its own.
func (r row) trials(seeds int) ([]trial, bool) {
	trials := make([]trial, seeds)
	tests := make([]testing.InternalTest, seeds)
	for i := range tests {
		seed := uint64(i + 1)
		tests[i] = testing.InternalTest{Name: fmt.Sprintf("%s/seed %d", r.name, seed), F: func(t *testing.T) {
			t.Parallel()
			trials[i] = r.trial(t, seed)
			r.prove(t, &trials[i])
		}}
	}
	all := func(string, string) (bool, error) { return true, nil }
	return trials, testing.RunTests(all, tests)
}

// trial makes an automatic search with the luck of seed.
func (r row) trial(t *testing.T, seed uint64) trial {
	got := trial{seed: seed, rateOff: math.NaN()}
	synctest.Test(t, func(t *testing.T) { got.auto, got.found = r.auto(t, seed) })
	_, bound, _ := r.truth()
	for _, one := range r.rates() {
		if f := got.found.Findings.Limits[one.dimension]; one.dimension == bound && f.Known() {
			got.rateOff = f.Value/one.limit - 1
		}
	}
	return got
}

// prove makes a sweep beside it, and sees what both answers are worth.
func (r row) prove(t *testing.T, got *trial) {
	synctest.Test(t, func(t *testing.T) { got.sweep = r.sweep(t, got.seed) })
	luck := got.seed + 1000 // of another day
	synctest.Test(t, func(t *testing.T) {
		_, _, most := r.truth()
		refused, perMinute := r.paced(t, got.found, luck)
		got.paced, got.used = refused, perMinute/most
	})
	if got.paced.all > mostPaced {
		synctest.Test(t, func(t *testing.T) { got.ideally, _ = r.paced(t, r.perfect(), luck) })
	}
	got.auto.unpaced = r.unpaced(t, got.auto.workers, luck)
	got.sweep.unpaced = r.unpaced(t, got.sweep.workers, luck)
	got.truly = r.unpaced(t, r.whole(), luck)
}

// search is a search's Config, and the server that it is made at.
func (r row) search(t *testing.T, seed uint64) (find.Config, *sim.Server) {
	server, err := sim.New(r.config(seed))
	if err != nil {
		t.Fatal(err)
	}
	p, target := r.provider()
	return find.Config{
		Provider: p, Target: target, Base: server.Transport(), Prompt: manuscript, MinOutputTokens: realTokens, Seed: seed,
	}, server
}

// auto makes an automatic search. It runs in a bubble.
func (r row) auto(t *testing.T, seed uint64) (searched, *find.Result) {
	c, server := r.search(t, seed)
	begun := time.Now()
	if os.Getenv("SLUICE_LOG") != "" {
		c.Log = func(line string) {
			fmt.Printf("%s, seed %d: %8.3f s  %s\n", r.name, seed, time.Since(begun).Seconds(), line)
		}
	}
	found, err := find.Auto(t.Context(), c)
	s := spent(server, begun, err)
	s.workers = found.Workers
	return s, found
}

// sweep makes a sweep. It runs in a bubble.
func (r row) sweep(t *testing.T, seed uint64) searched {
	c, server := r.search(t, seed)
	begun := time.Now()
	found, err := find.Sweep(t.Context(), c)
	s := spent(server, begun, err)
	data, err := json.Marshal(found)
	document := struct {
		Workers int `json:"recommended_workers"`
	}{}
	if err := errors.Join(err, json.Unmarshal(data, &document)); err != nil {
		t.Fatal(err)
	}
	s.workers = document.Workers
	return s
}

// spent is what a search that has ended cost, by the server's account.
func spent(server *sim.Server, begun time.Time, err error) searched {
	stats := server.Stats()
	return searched{calls: stats.Requests, tokens: stats.InputTokens + stats.OutputTokens, took: time.Since(begun), err: err}
}
