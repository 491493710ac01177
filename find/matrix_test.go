package find_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/find"
	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkFindMatrix prints how both searches fare with every provider of rows, in virtual time:
//
//	go test -run '^$' -bench FindMatrix ./find
//
// SLUICE_FIND=TEXT takes the rows alone whose name holds the text (or one of several, with commas between), SLUICE_SEEDS
// says how many searches of each kind there are per row (15 if it does not), and SLUICE_LOG=1 prints every step of the
// searches.
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
		fmt.Printf("\n%s\n", heading())
		for _, r := range rows() {
			if !chosen(r.name, os.Getenv("SLUICE_FIND")) {
				continue
			}
			trials := r.trials(seeds)
			fmt.Println(line(r, trials))
			for _, text := range r.remarks(trials) {
				fmt.Println("    " + text)
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

// trial is what one search of each kind came to, and what its answer is worth.
type trial struct {
	seed  uint64
	auto  searched
	sweep searched

	found   *find.Result
	pacing  float64 // share of refusals of a Scheduler with what was found,
	used    float64 // and its calls a minute, relative to the most
	rateOff float64 // of the limit that bounds the truth, relatively; NaN: it was not found
}

// searched is one search.
type searched struct {
	workers       int
	calls, tokens int
	took          time.Duration
	unpaced       float64 // share of refusals that so many workers meet
	err           error
}

// trials makes so many searches of each kind. A benchmark has no *testing.T, which bubbles want.
func (r row) trials(seeds int) []trial {
	trials := make([]trial, seeds)
	tests := make([]testing.InternalTest, seeds)
	for i := range tests {
		tests[i] = testing.InternalTest{Name: fmt.Sprintf("%s/seed %d", r.name, i+1), F: func(t *testing.T) {
			t.Parallel()
			trials[i] = r.trial(t, uint64(i+1))
		}}
	}
	if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, tests) {
		panic(r.name + " failed") // it said why
	}
	return trials
}

// trial searches once of each kind, with the luck of seed.
func (r row) trial(t *testing.T, seed uint64) trial {
	got := trial{seed: seed}
	synctest.Test(t, func(t *testing.T) { got.auto, got.found = r.auto(t, seed) })
	synctest.Test(t, func(t *testing.T) { got.sweep = r.sweep(t, seed) })
	_, bound, most := r.truth()
	synctest.Test(t, func(t *testing.T) {
		pacing, perMinute := r.paced(t, got.found, seed+1000)
		got.pacing, got.used = pacing, perMinute/most
	})
	got.auto.unpaced = r.unpaced(t, got.auto.workers, seed+1000)
	got.sweep.unpaced = r.unpaced(t, got.sweep.workers, seed+1000)
	got.rateOff = math.NaN()
	for _, one := range r.rates() {
		if f := got.found.Limits[one.dimension]; one.dimension == bound && f.Known() {
			got.rateOff = f.Value/one.limit - 1
		}
	}
	return got
}

// search is a search's Config, and the server that it is made at.
func (r row) search(t *testing.T, seed uint64) (find.Config, *sim.Server) {
	server, err := sim.New(r.config(seed))
	if err != nil {
		t.Fatal(err)
	}
	p, target := r.provider()
	c := find.Config{Provider: p, Target: target, Base: server.Transport(), Prompt: longPrompt, MinOutputTokens: realTokens, Seed: seed}
	if os.Getenv("SLUICE_LOG") != "" {
		begun := time.Now()
		c.Log = func(line string) { t.Logf("%s seed %d %8.3f s  %s", r.name, seed, time.Since(begun).Seconds(), line) }
	}
	return c, server
}

// auto makes an automatic search. It runs in a bubble.
func (r row) auto(t *testing.T, seed uint64) (searched, *find.Result) {
	c, server := r.search(t, seed)
	begun := time.Now()
	found, err := find.Auto(t.Context(), c)
	s := spent(server, begun, err)
	s.workers = found.Workers
	return s, found
}

// sweep makes a sweep. It runs in a bubble.
func (r row) sweep(t *testing.T, seed uint64) searched {
	c, server := r.search(t, seed)
	c.Log = nil
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

// of returns one figure of each trial, in order.
func of(trials []trial, figure func(*trial) float64) (figures []float64) {
	for i := range trials {
		if x := figure(&trials[i]); !math.IsNaN(x) {
			figures = append(figures, x)
		}
	}
	slices.Sort(figures)
	return figures
}

func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[(len(sorted)-1)/2]
}

// heading is the head of the table.
func heading() string {
	return fmt.Sprintf("%-40s %5s  %s\n%-40s %5s  %s", "", "", "auto: medians over the seeds; 429s of ten minutes unpaced, and paced by what was found: mean/most, in %",
		"provider", "truth",
		"answer [least..most]  err %  R or K err % (worst)  calls  ktokens  minutes  unpaced 429   paced 429  used % | sweep  [least..most]  calls  ktokens  unpaced 429")
}

// line is a row of the table.
func line(r row, trials []trial) string {
	auto := of(trials, func(t *trial) float64 { return float64(t.auto.workers) })
	sweep := of(trials, func(t *trial) float64 { return float64(t.sweep.workers) })
	truth := r.whole()
	rateOff := "-"
	if off := of(trials, func(t *trial) float64 { return t.rateOff }); len(off) > 0 {
		worst := max(math.Abs(off[0]), math.Abs(off[len(off)-1]))
		rateOff = fmt.Sprintf("%+.1f (%.1f)", 100*median(off), 100*worst)
		if missing := len(trials) - len(off); missing > 0 {
			rateOff += fmt.Sprintf(" %d?", missing)
		}
	}
	return fmt.Sprintf("%-40s %5d  %6.0f %14s  %5s  %19s  %5.0f  %7.1f  %7.1f  %11s %11s  %6.0f | %5.0f %14s  %5.0f  %7.1f  %11s",
		r.name, truth, median(auto), span(auto), percent(median(auto)/float64(truth)-1), rateOff,
		median(of(trials, func(t *trial) float64 { return float64(t.auto.calls) })),
		median(of(trials, func(t *trial) float64 { return float64(t.auto.tokens) / 1000 })),
		median(of(trials, func(t *trial) float64 { return t.auto.took.Minutes() })),
		share(of(trials, func(t *trial) float64 { return t.auto.unpaced })), share(of(trials, func(t *trial) float64 { return t.pacing })),
		100*median(of(trials, func(t *trial) float64 { return t.used })),
		median(sweep), span(sweep),
		median(of(trials, func(t *trial) float64 { return float64(t.sweep.calls) })),
		median(of(trials, func(t *trial) float64 { return float64(t.sweep.tokens) / 1000 })),
		share(of(trials, func(t *trial) float64 { return t.sweep.unpaced })))
}

func span(sorted []float64) string {
	return fmt.Sprintf("[%.0f..%.0f]", sorted[0], sorted[len(sorted)-1])
}

func percent(x float64) string { return fmt.Sprintf("%+.0f", 100*x) }

// share is the mean and the most of shares, in per cent.
func share(sorted []float64) string {
	sum := 0.0
	for _, x := range sorted {
		sum += x
	}
	return fmt.Sprintf("%.1f/%.1f", 100*sum/float64(len(sorted)), 100*sorted[len(sorted)-1])
}

// remarks tell of searches that ended in an error, and of those whose answer is more than is safe, with what they believed.
func (r row) remarks(trials []trial) (remarks []string) {
	exact, _, _ := r.truth()
	for i := range trials {
		t := &trials[i]
		for name, err := range map[string]error{"auto": t.auto.err, "sweep": t.sweep.err} {
			if err != nil {
				remarks = append(remarks, fmt.Sprintf("seed %d, %s: %v", t.seed, name, err))
			}
		}
		if w := t.auto.workers; w > r.whole() && float64(w) > 1.05*exact {
			remarks = append(remarks, fmt.Sprintf("seed %d: %d for %.1f: %s", t.seed, w, exact, belief(t.found)))
		}
	}
	return remarks
}

// belief is what a search based its answer on.
func belief(found *find.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "bound by %s; %v a call (%d); slots %.0f %s", found.Bound, found.Latency.Mean.Round(time.Millisecond), found.Latency.N,
		found.Slots.Value, found.Slots.Source)
	for d, f := range found.Limits {
		fmt.Fprintf(&b, "; %v %.1f %s", d, f.Value, f.Source)
	}
	for _, note := range found.Notes {
		b.WriteString("; " + note)
	}
	return b.String()
}
