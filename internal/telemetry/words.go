package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
)

// group writes a number with commas between groups of three digits.
func group[N int | int64](n N) string { return chart.Thousands(float64(n)) }

// things writes a number of things.
func things(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + one + "s"
}

// took writes a time as people say it.
func took(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	s := int64(math.Round(d.Seconds()))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %02d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %02d min", s/3600, s%3600/60)
}

// percent writes a share of one; what is above nothing is never written as 0 %.
func percent(share float64) string {
	if share > 0 && share < 0.005 {
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", share*100)
}

// counts writes numbers by name, the largest first.
func counts(byName map[string]int) string {
	var parts []string
	for _, name := range largestFirst(byName) {
		parts = append(parts, fmt.Sprintf("%s %s", group(byName[name]), cmp.Or(name, "none")))
	}
	return strings.Join(parts, ", ")
}

// shares writes shares by name, the largest first, and leaves out those near nothing.
func shares(byName map[string]float64) string {
	var parts []string
	for _, name := range largestFirst(byName) {
		if byName[name] >= 0.005 {
			parts = append(parts, fmt.Sprintf("%s %s of the time", name, percent(byName[name])))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}

// largestFirst returns the names by falling value; those of one value by name.
func largestFirst[V cmp.Ordered](byName map[string]V) []string {
	return slices.SortedFunc(maps.Keys(byName), func(a, b string) int {
		return cmp.Or(cmp.Compare(byName[b], byName[a]), strings.Compare(a, b))
	})
}

// words writes percentiles.
func (t Times) words() string {
	return fmt.Sprintf("p50 %s, p95 %s, p99 %s, max %s", took(t.P50), took(t.P95), took(t.P99), took(t.Max))
}

// spread writes a distribution: "never 190, once 8, twice 2".
func spread(counts []Count) string {
	var parts []string
	for _, c := range counts {
		word := group(c.Of) + " times"
		switch c.Of {
		case 0:
			word = "never"
		case 1:
			word = "once"
		case 2:
			word = "twice"
		case mostTries:
			word += " or more"
		}
		parts = append(parts, word+" "+group(c.Items))
	}
	return strings.Join(parts, ", ")
}
