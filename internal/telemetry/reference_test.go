package telemetry_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/telemetry"
)

//go:generate env SLUICE_TEST_WRITE=1 go test -count=1 -run TestReferenceOfMetrics .

var description = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{\}, variableLabels: \{(.*?)\}`)

// histograms are the metrics that are histograms. Others are counters if their names end in _total, otherwise gauges.
var histograms = regexp.MustCompile(`^gen_ai_|_(wait|call_duration)_seconds$`)

func TestReferenceOfMetrics(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Metrics\n\n`--metrics HOST:PORT` of `run`, `exec`, `serve` and `worker` serves these metrics at `/metrics`. " +
		"The label `lane` is a model, or `upstream: model` if several upstreams exist.\n")
	for _, part := range []struct {
		title string
		of    prometheus.Collector
	}{{"Runs and lanes", telemetry.NewMetrics(none)}, {"Gateway", gatewayOf(gateway.TrafficSnapshot{})}} {
		fmt.Fprintf(&b, "\n## %s\n\nmetric | type and labels | description\n---|---|---\n", part.title)
		ch := make(chan *prometheus.Desc, 1000)
		part.of.Describe(ch)
		close(ch)
		for d := range ch {
			m := description.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("no description in %s", d)
			}
			kind := "gauge"
			switch {
			case histograms.MatchString(m[1]):
				kind = "histogram"
			case strings.HasSuffix(m[1], "_total"):
				kind = "counter"
			}
			if m[3] != "" {
				kind += " by `" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
			}
			fmt.Fprintf(&b, "`%s` | %s | %s\n", m[1], kind, strings.ReplaceAll(m[2], `\"`, `"`))
		}
	}
	suite.Generated(t, "../../docs/reference/metrics.md", b.String())
}
