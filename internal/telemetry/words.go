package telemetry

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// took writes a time in milliseconds.
func took(ms int64) string { return prose.Span(time.Duration(ms) * time.Millisecond) }

// words writes percentiles.
func (t Times) words() string {
	return fmt.Sprintf("p50 %s, p95 %s, p99 %s, max %s", took(t.P50), took(t.P95), took(t.P99), took(t.Max))
}

// spread writes a distribution: "never 190, once 8, twice 2".
func spread(counts []Count) string {
	var parts []string
	for _, c := range counts {
		word := prose.Group(c.Of) + " times"
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
		parts = append(parts, word+" "+prose.Group(c.Items))
	}
	return strings.Join(parts, ", ")
}
