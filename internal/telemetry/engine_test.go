package telemetry_test

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/telemetry"
)

func TestTheEngineThatQuotasAreSharedBy(t *testing.T) {
	suite.FullOnly(t)
	e := telemetry.NewEngine()
	scrape := func() string {
		w := httptest.NewRecorder()
		telemetry.Handler(e).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	if body := scrape(); strings.Contains(body, "sluice_engine") {
		t.Errorf("nothing is shared, and there is %s", body)
	}
	s := cluster.Stats{Calls: 12, Failures: 2, Up: true, Took: 40 * time.Millisecond}
	for i := range s.Within {
		s.Within[i] = uint64(i + 1)
	}
	e.SetEngine(func() cluster.Stats { return s })
	want := `# TYPE sluice_engine_call_seconds histogram
sluice_engine_call_seconds_bucket{le="0.0005"} 1
sluice_engine_call_seconds_bucket{le="0.001"} 2
sluice_engine_call_seconds_bucket{le="0.0025"} 3
sluice_engine_call_seconds_bucket{le="0.005"} 4
sluice_engine_call_seconds_bucket{le="0.01"} 5
sluice_engine_call_seconds_bucket{le="0.025"} 6
sluice_engine_call_seconds_bucket{le="0.05"} 7
sluice_engine_call_seconds_bucket{le="0.1"} 8
sluice_engine_call_seconds_bucket{le="0.25"} 9
sluice_engine_call_seconds_bucket{le="1"} 10
sluice_engine_call_seconds_bucket{le="+Inf"} 10
sluice_engine_call_seconds_sum 0.04
sluice_engine_call_seconds_count 10
# TYPE sluice_engine_calls_total counter
sluice_engine_calls_total 12
# TYPE sluice_engine_failures_total counter
sluice_engine_failures_total 2
# TYPE sluice_engine_up gauge
sluice_engine_up 1
`
	body := scrape()
	for line := range strings.Lines(want) {
		if !strings.Contains("\n"+body, "\n"+line) {
			t.Errorf("there is no line %q in %s", line, body)
		}
	}
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 10)
	e.Describe(described)
	close(described)
	for d := range described {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("%s is not documented", name)
		}
	}
}
