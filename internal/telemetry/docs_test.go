package telemetry_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/telemetry"
)

func TestDocumentedMetricsExist(t *testing.T) {
	suite.FullOnly(t)
	all := names(telemetry.NewMetrics(none))
	g := gatewayOf(gateway.TrafficSnapshot{})
	g.Ended(&answered)
	g.Ended(&gateway.Record{Kind: "forbidden"})
	for series := range scrape(t, g) {
		name, _, _ := strings.Cut(series, "{")
		all[name] = true
	}
	for _, document := range []string{"observability.md", "serve.md"} {
		text, err := os.ReadFile("../../docs/" + document)
		rows := regexp.MustCompile("(?m)^\\| `((?:sluice|gen_ai)_[a-z_]+)`").FindAllStringSubmatch(string(text), -1)
		if err != nil || len(rows) == 0 {
			t.Errorf("%s: %d metrics, %v", document, len(rows), err)
		}
		for _, row := range rows {
			if !all[row[1]] {
				t.Errorf("%s is in %s, but does not exist", row[1], document)
			}
		}
	}
}
