package worlds

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Score is how a client did in one world.
type Score struct {
	Seed    uint64
	Class   string
	Optimum time.Duration
	Ratio   float64 // time ÷ optimum
	Excess  int     // 429s beyond the 429s of the knowing client
	Result
}

// Judge plays a world and scores the client beside the optimum and the knowing client.
func Judge(w *World, maker Maker) Score {
	optimum, ok := Optimum(w)
	r, knowing := Play(w, maker, nil), Play(w, Knowing, nil)
	s := Score{Seed: w.Seed, Class: w.Class(), Optimum: optimum, Result: r, Excess: max(0, r.Rejected-knowing.Rejected)}
	if ok && optimum > 0 {
		s.Ratio = r.Time.Seconds() / optimum.Seconds()
	}
	return s
}

// Survey scores a client in n worlds of Random or Basic, from seed first on, on all cores. Worlds of other classes than class
// are left out, unless class is empty.
func Survey(world func(seed uint64) *World, first uint64, n int, class string, maker Maker) []Score {
	scores := make([]Score, n)
	next := make(chan int)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := range next {
				if w := world(first + uint64(i)); class == "" || w.Class() == class {
					scores[i] = Judge(w, maker)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	return slices.DeleteFunc(scores, func(s Score) bool { return s.Class == "" })
}

// good reports whether a world meets the goals of every class at once: 2 % above the optimum, two rejections too many.
func (s Score) good() bool {
	return s.Ratio <= 1.02 && s.Excess <= 2 && s.Failed == 0 && s.Violation == ""
}

// goals are the ratios (p50, p90, p99) and the excess of 429s (p50, p90) to be reached in each class.
var goals = map[string]string{
	"known": "1.010 1.040 1.150 | 0 3", "partly": "1.015 1.060 1.250 | 2 6",
	"unknown": "1.050 1.150 1.500 | 6 15", "troubled": "1.030 1.100 1.400 | 3 10",
}

// Print writes the distribution of scores by class.
func Print(out io.Writer, scores []Score) {
	fmt.Fprintf(out, "%-9s %6s | time ÷ optimum: p50, p90, p99, max | 429s: p50, p90 | beyond: p50, p90, p99, max | failed, broken, stalled | good | goal\n", "class", "worlds")
	for _, class := range []string{"known", "partly", "unknown", "troubled", ""} {
		var ratios, rejected, excess []float64
		failed, broken, stalled, good := 0, 0, 0, 0
		for _, s := range scores {
			if class != "" && s.Class != class {
				continue
			}
			ratios, excess = append(ratios, s.Ratio), append(excess, float64(s.Excess))
			rejected = append(rejected, float64(s.Rejected))
			failed += min(1, s.Failed)
			if s.Violation != "" {
				broken++
			}
			if s.Stalled > 0 {
				stalled++
			}
			if s.good() {
				good++
			}
		}
		if len(ratios) == 0 {
			continue
		}
		slices.Sort(ratios)
		slices.Sort(rejected)
		slices.Sort(excess)
		fmt.Fprintf(out, "%-9s %6d | %.3f %.3f %.3f %.3f | %.0f %.0f | %.0f %.0f %.0f %.0f | %d, %d, %d | %.1f %% | %s\n", cmp.Or(class, "all"), len(ratios),
			quantile(ratios, 0.5), quantile(ratios, 0.9), quantile(ratios, 0.99), quantile(ratios, 1), quantile(rejected, 0.5), quantile(rejected, 0.9),
			quantile(excess, 0.5), quantile(excess, 0.9), quantile(excess, 0.99), quantile(excess, 1),
			failed, broken, stalled, 100*float64(good)/float64(len(ratios)), goals[class])
	}
}

// quantile returns a quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Worst returns the n worst scores: broken invariants first, then failed items, then by ratio.
func Worst(scores []Score, n int) []Score {
	sorted := slices.Clone(scores)
	rank := func(s Score) float64 {
		rank := s.Ratio
		if s.Failed > 0 {
			rank += 1e6
		}
		if s.Violation != "" {
			rank += 1e7
		}
		return rank
	}
	slices.SortStableFunc(sorted, func(a, b Score) int { return cmp.Compare(rank(b), rank(a)) })
	return sorted[:min(n, len(sorted))]
}
