package telemetry_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

// document is what is written of telemetry.
func document(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryMetricOfPrometheusIsDocumented(t *testing.T) {
	text, all := document(t), names(telemetry.NewMetrics(none))
	rows := regexp.MustCompile("(?m)^\\| `(sluice_[a-z_]+)`").FindAllStringSubmatch(text, -1)
	for _, row := range rows {
		if !all[row[1]] {
			t.Errorf("%s is documented, and there is none", row[1])
		}
		delete(all, row[1])
	}
	for name := range all {
		t.Errorf("%s is not documented", name)
	}
}

// checkDocumented looks for what was exported in the document.
func checkDocumented(t *testing.T, c *collector) {
	text := document(t)
	said := make(map[string]bool)
	for _, s := range c.spans {
		for _, a := range s.Attributes {
			said[a.Key] = true
		}
		if len(s.ParentSpanId) > 0 {
			said[s.Name] = true
		}
	}
	for name := range c.metrics {
		said[name] = true
	}
	for name := range said {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s is exported and not documented", name)
		}
	}
}
