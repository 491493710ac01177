package find_test

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/limits"
)

// Columns: medians over the seeds, and the least and the most. A limit's error has the worst in parentheses, and how often
// it was not found. Shares of 429s in ten minutes are means, the most, and the mean after two.
const (
	headCells = "%-38s %5s %17s | %4s %9s %5s %16s %6s %7s %7s %17s %17s %5s | %5s %9s %6s %7s %17s"
	lineCells = "%-38s %5d %17s | %4.0f %9s %5s %16s %6.0f %7.1f %7.1f %17s %17s %5.0f | %5.0f %9s %6.0f %7.1f %17s"
)

var heading = fmt.Sprintf(headCells+"\n"+headCells,
	"", "", "429s of as many", "", "", "err", "R or K", "", "tokens", "minutes", "429s of as many", "429s if run", "used",
	"", "", "", "tokens", "429s of as many",
	"provider", "truth", "%", "auto", "", "%", "err %", "calls", "k", "", "%", "paces them, %", "%",
	"sweep", "", "calls", "k", "%")

// line is a row of the table.
func (r row) line(trials []trial) string {
	auto := of(trials, func(t *trial) float64 { return float64(t.auto.workers) })
	sweep := of(trials, func(t *trial) float64 { return float64(t.sweep.workers) })
	mid := func(figure func(*trial) float64) float64 { return median(of(trials, figure)) }
	truth := r.whole()
	return fmt.Sprintf(lineCells, r.name, truth, share(trials, func(t *trial) refusals { return t.truly }),
		median(auto), span(auto), fmt.Sprintf("%+.0f", 100*(median(auto)/float64(truth)-1)), r.limitOff(trials),
		mid(func(t *trial) float64 { return float64(t.auto.calls) }),
		mid(func(t *trial) float64 { return float64(t.auto.tokens) / 1000 }),
		mid(func(t *trial) float64 { return t.auto.took.Minutes() }),
		share(trials, func(t *trial) refusals { return t.auto.unpaced }),
		share(trials, func(t *trial) refusals { return t.paced }), 100*mid(func(t *trial) float64 { return t.used }),
		median(sweep), span(sweep),
		mid(func(t *trial) float64 { return float64(t.sweep.calls) }),
		mid(func(t *trial) float64 { return float64(t.sweep.tokens) / 1000 }),
		share(trials, func(t *trial) refusals { return t.sweep.unpaced }))
}

// limitOff is how far off the limit is that bounds the truth.
func (r row) limitOff(trials []trial) string {
	_, bound, _ := r.truth()
	off := of(trials, func(t *trial) float64 { return t.rateOff })
	missing := len(trials) - len(off)
	switch {
	case bound == limits.AnyDimension || bound == limits.Concurrency:
		return "-"
	case len(off) == 0:
		return fmt.Sprintf("%d unknown", missing)
	}
	text := fmt.Sprintf("%+.1f (%.1f)", 100*median(off), 100*worst(off))
	if missing > 0 {
		text += fmt.Sprintf(" %d?", missing)
	}
	return text
}

// of returns one figure of each trial that has it, in order.
func of(trials []trial, figure func(*trial) float64) (figures []float64) {
	for i := range trials {
		if x := figure(&trials[i]); !math.IsNaN(x) {
			figures = append(figures, x)
		}
	}
	slices.Sort(figures)
	return figures
}

// median is the lower of the two in the middle, if there are two.
func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[(len(sorted)-1)/2]
}

func worst(sorted []float64) float64 {
	return max(math.Abs(sorted[0]), math.Abs(sorted[len(sorted)-1]))
}

func mean(figures []float64) float64 {
	sum := 0.0
	for _, x := range figures {
		sum += x
	}
	return sum / float64(len(figures))
}

func span(sorted []float64) string {
	return fmt.Sprintf("[%.0f..%.0f]", sorted[0], sorted[len(sorted)-1])
}

// share is the mean and the most of shares, and the mean once all has settled, in per cent.
func share(trials []trial, which func(*trial) refusals) string {
	all := of(trials, func(t *trial) float64 { return which(t).all })
	then := of(trials, func(t *trial) float64 { return which(t).then })
	return fmt.Sprintf("%.1f/%.1f (%.1f)", 100*mean(all), 100*all[len(all)-1], 100*mean(then))
}

// remarks tell what is not as it should be, with what the searches believed.
func (r row) remarks(trials []trial) []string {
	remarks := append(r.misses(trials), r.throttles(trials)...)
	for i := range trials {
		if err := trials[i].sweep.err; err != nil {
			remarks = append(remarks, fmt.Sprintf("seed %d, sweep: %v", trials[i].seed, err))
		}
	}
	return remarks
}

// misses are answers that are not what is true.
func (r row) misses(trials []trial) (misses []string) {
	exact, bound, _ := r.truth()
	miss := func(format string, args ...any) { misses = append(misses, fmt.Sprintf(format, args...)) }
	for i := range trials {
		t := &trials[i]
		if t.auto.err != nil {
			miss("seed %d: %v", t.seed, t.auto.err)
		}
		if w := t.auto.workers; w > r.whole() && float64(w) > 1.05*exact {
			miss("seed %d is above: %d for %.1f: %s", t.seed, w, exact, belief(t.found))
		}
		if t.found.Findings.Queue && r.sim.Queue == 0 {
			miss("seed %d finds a queue of %.0f where there is none", t.seed, t.found.Findings.Limits[limits.Concurrency].Value)
		}
	}
	w := median(of(trials, func(t *trial) float64 { return float64(t.auto.workers) }))
	switch off := of(trials, func(t *trial) float64 { return t.rateOff }); {
	case bound == limits.Concurrency:
		if w != exact {
			miss("median %.0f, want exactly %.0f: %s", w, exact, belief(trials[0].found))
		}
	case bound == limits.AnyDimension: // nothing but the workers that were asked for
	case w > exact || w < min(0.9*exact, float64(r.whole()-1)):
		miss("median %.0f, want 90 %% of %.1f, or one less than whole, and not more: %s", w, exact, belief(trials[0].found))
	case len(off) > 0 && math.Abs(median(off)) > 0.03:
		miss("median of the limit is off by %+.1f %%", 100*median(off))
	}
	return misses
}

// Shares of calls that may be refused after a search.
const (
	mostUnpaced = 0.03
	mostPaced   = 0.01
)

// throttles are shares of refusals that are too high. Without a pace they cannot be as low as that everywhere: of a bucket
// that is empty at first, all that begin at once ask in vain for a while.
func (r row) throttles(trials []trial) (remarks []string) {
	shares := func(which func(*trial) refusals) refusals {
		return refusals{
			mean(of(trials, func(t *trial) float64 { return which(t).all })),
			mean(of(trials, func(t *trial) float64 { return which(t).then })),
		}
	}
	strays := r.sim.Faults.Throttled
	truly := shares(func(t *trial) refusals { return t.truly })
	unpaced := shares(func(t *trial) refusals { return t.auto.unpaced })
	if !r.unsafe && (unpaced.all > max(mostUnpaced, truly.all)+strays || unpaced.then > max(mostUnpaced, truly.then)+strays) {
		remarks = append(remarks, fmt.Sprintf("unpaced: %.1f %% are refused", 100*unpaced.all))
	}
	if paced := shares(func(t *trial) refusals { return t.paced }); paced.all > mostPaced+strays {
		remarks = append(remarks, fmt.Sprintf("paced: %.1f %% are refused, and %.1f %% by who knows what is true", 100*paced.all,
			100*shares(func(t *trial) refusals { return t.ideally }).all))
	}
	return remarks
}

// belief is what a search based its answer on.
func belief(found *find.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "bound by %s; %v a call (%d)", found.Bound, found.Findings.Latency.Mean, found.Findings.Latency.N)
	if found.Findings.Limits[limits.Concurrency].Known() {
		fmt.Fprintf(&b, "; slots %.0f %s", found.Findings.Limits[limits.Concurrency].Value, found.Findings.Limits[limits.Concurrency].Source)
	}
	for d := range new(sluice.Limits).All() {
		if f := found.Findings.Limits[d]; f.Known() {
			fmt.Fprintf(&b, "; %v %.1f %s", d, f.Value, f.Source)
		}
	}
	for _, note := range found.Notes {
		b.WriteString("; " + note)
	}
	return b.String()
}
