package telemetry_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

func TestDocumentedMetricsExist(t *testing.T) {
	all := names(telemetry.NewMetrics(none))
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(sluice_[a-z_]+)`").FindAllSubmatch(text, -1) {
		if !all[string(row[1])] {
			t.Errorf("%s is documented, but does not exist", row[1])
		}
	}
}
