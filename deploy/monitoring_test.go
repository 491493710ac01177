//go:build full

package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// exported are the labels of every metric that gateways and runs export, with the values that they may have where the program
// decides them.
func exported(t *testing.T) map[string]map[string][]string {
	var budgets []limits.BucketSnapshot
	for d := limits.Concurrency; d < limits.NumDimensions; d++ {
		budgets = append(budgets, limits.BucketSnapshot{Dimension: d, Limit: 60, Level: 30, Source: "configured"})
	}
	snapshot := func() sluice.Snapshot {
		return sluice.Snapshot{Lanes: []limits.LaneSnapshot{{Lane: "m", Slots: 1, Budgets: budgets}}}
	}
	m := telemetry.NewMetrics(snapshot)
	m.SetProgress(func() work.Report { return work.Report{Total: 1} })
	m.Observe(sluice.Event{Type: limits.EventSlotAcquired, Lane: "m"})
	g := telemetry.NewGateway(func() gateway.TrafficSnapshot { return gateway.TrafficSnapshot{} })
	g.Ended(&gateway.Record{
		Tenant: "amy", Model: "m", Listed: true, Upstream: "u", Provider: "openai", Endpoint: "/v1/chat/completions", Stream: true,
		Kind: gateway.KindOK, Tries: 1, Wait: time.Second, First: time.Second, Latency: time.Minute, Usage: sluice.Usage{Input: 1, Output: 2},
	})
	g.Ended(&gateway.Record{Kind: "forbidden"})
	w := httptest.NewRecorder()
	telemetry.Handler(m, g).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	all := map[string]map[string][]string{"up": {}}
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for _, line := range regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(w.Body.String(), -1) {
		if all[line[1]] == nil {
			all[line[1]] = make(map[string][]string)
		}
		for _, l := range label.FindAllStringSubmatch(line[2], -1) {
			all[line[1]][l[1]] = append(all[line[1]][l[1]], l[2])
		}
	}
	reasons := regexp.MustCompile("`([a-z_]+)`")
	for _, row := range regexp.MustCompile(`(?m)^[0-9, ]+ \| (.*?) \|`).FindAllStringSubmatch(read(t, "../docs/guides/share-a-quota.md"), -1) {
		for _, m := range reasons.FindAllStringSubmatch(row[1], -1) {
			all["sluice_gateway_refusals_total"]["reason"] = append(all["sluice_gateway_refusals_total"]["reason"], m[1])
		}
	}
	if len(all) < 60 {
		t.Fatalf("%d metrics: %q", len(all), slices.Sorted(maps.Keys(all)))
	}
	return all
}

var (
	metric    = regexp.MustCompile(`\b((?:sluice|gen_ai|go|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`^([a-z_]+)(=|!=|=~|!~)"(.*)"$`)
	grouping  = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	legend    = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}`)
	decided   = []string{"kind", "dimension", "direction", "source", "reason"} // labels whose values are not of users
	scraped   = []string{"job", "instance"}
	bracketed = regexp.MustCompile(`\[[^\]]*\]`)
)

// checkQuery reports what a query, or a text about its series, names that nobody exports.
func checkQuery(known map[string]map[string][]string, query, text string) (faults []string) {
	complain := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	labels := slices.Clone(scraped)
	bare := grouping.ReplaceAllString(bracketed.ReplaceAllString(query, ""), "")
	all := metric.FindAllStringSubmatch(bare, -1)
	if len(all) == 0 {
		complain("no metric is in %s", query)
	}
	for _, m := range all {
		own, ok := known[m[1]]
		if !ok {
			complain("there is no metric %s", m[1])
			continue
		}
		labels = slices.AppendSeq(labels, maps.Keys(own))
		if m[2] == "" {
			continue
		}
		for _, part := range strings.Split(m[2], ", ") {
			c := matcher.FindStringSubmatch(part)
			switch {
			case c == nil:
				complain("%s is no condition of a label", part)
			case own[c[1]] == nil && !slices.Contains(scraped, c[1]):
				complain("%s has no label %s", m[1], c[1])
			case slices.Contains(decided, c[1]):
				for _, value := range strings.Split(c[3], "|") {
					if !slices.Contains(own[c[1]], value) {
						complain("%s is never of %s %s", m[1], c[1], value)
					}
				}
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for _, l := range strings.Split(m[1], ", ") {
			if !slices.Contains(labels, l) {
				complain("nothing in %s has a label %s", query, l)
			}
		}
	}
	for _, m := range legend.FindAllStringSubmatch(text, -1) {
		if groups := grouping.FindStringSubmatch(query); !slices.Contains(labels, m[1]) || groups != nil && !strings.Contains(groups[1], m[1]) {
			complain("%s has no label %s for %s", query, m[1], text)
		}
	}
	return faults
}

func TestQueriesThatNameWhatIsNotThereAreFound(t *testing.T) {
	known := exported(t)
	for _, c := range [][2]string{
		{"sum(sluice_nothing)", ""}, {`sluice_waiting{tenant="amy"}`, ""}, {`sluice_attempts_total{kind="tired"}`, ""},
		{"sum by (tenant) (sluice_waiting)", ""}, {"sum by (lane) (sluice_waiting)", "{{tenant}}"}, {"sum by (lane) (sluice_attempts_total)", "{{kind}}"},
		{"1", ""}, {`sluice_gateway_refusals_total{reason=~"queue_full|tired"}`, ""}, {`sluice_wait_seconds{lane="m"}`, ""},
	} {
		if len(checkQuery(known, c[0], c[1])) == 0 {
			t.Errorf("%q, %q: no fault is found", c[0], c[1])
		}
	}
}

// dashboard is what is looked at of it.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ UID string }
		GridPos    struct{ H, W, X, Y int }
		Targets    []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ UID string }
		}
	}
}

func TestTheDashboardShowsWhatIsExported(t *testing.T) {
	known := exported(t)
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "grafana-dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Name != "datasource" {
		t.Error("the source of data cannot be chosen")
	}
	shown, ids := make(map[string]bool), make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: its id %d is another's", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%s lies over %s, or beside the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s asks nothing, or a source of its own", p.Title)
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %s asks a source of its own", p.Title, q.RefID)
			}
			for _, fault := range checkQuery(known, q.Expr, q.LegendFormat) {
				t.Errorf("%s: %s", p.Title, fault)
			}
			for _, m := range metric.FindAllStringSubmatch(q.Expr, -1) {
				shown[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(m[1], "")] = true
			}
		}
	}
	for name := range known {
		base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(base, "sluice_") && !shown[base] {
			t.Errorf("%s is exported and not shown", base)
		}
	}
}

func TestAlertsUseExportedMetrics(t *testing.T) {
	known := exported(t)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "prometheus-alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	tried := read(t, "prometheus-alerts_test.yaml")
	for _, r := range rules.Groups[0].Rules {
		for _, fault := range checkQuery(known, r.Expr, r.Annotations["summary"]) {
			t.Errorf("%s: %s", r.Alert, fault)
		}
		if r.Annotations["description"] == "" {
			t.Errorf("%s has no description", r.Alert)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s is of severity %q", r.Alert, s)
		}
		if !strings.Contains(tried, "- alertname: "+r.Alert+"\n") {
			t.Errorf("no test of %s", r.Alert)
		}
	}
}
