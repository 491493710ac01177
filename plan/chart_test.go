package plan_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/sim"
)

// whatIfs are forecasts of one job under three conditions.
func whatIfs(t *testing.T) []plan.Named {
	bounds := sluice.Limits{RPM: 600, TPM: 300_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.SimulatorConfig(bounds, limits.ChargeDeclared, 900*time.Millisecond, 5*time.Millisecond),
		Calls:    []plan.Call{{Input: 300, MaxTokens: 500, Output: 100}, {Input: 500, MaxTokens: 400, Output: 150}}, Requests: 3000,
	}
	paced, unpaced, storm := s, s, s
	paced.Told = bounds
	unpaced.Unpaced = 20
	storm.Provider.Storms = []sim.Storm{{From: 100 * time.Second, To: 140 * time.Second, Silent: true}}
	return []plan.Named{
		{Name: "paced", Forecast: simulate(t, paced)},
		{Name: `20 workers <without> "pacing" & sense`, Forecast: simulate(t, unpaced)},
		{Name: "storm", Forecast: simulate(t, storm)},
	}
}

// texts are the texts of an SVG and how many lines each colour has.
func texts(t *testing.T, svg []byte) (words []string, strokes map[string]int) {
	t.Helper()
	strokes = make(map[string]int)
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return words, strokes
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch v := token.(type) {
		case xml.CharData:
			if s := strings.TrimSpace(string(v)); s != "" {
				words = append(words, s)
			}
		case xml.StartElement:
			for _, a := range v.Attr {
				if _, colour, ok := strings.Cut(a.Value, "stroke:"); ok && a.Name.Local == "style" {
					strokes[colour[:7]]++
				}
			}
		}
	}
}

func TestDrawShowsEveryForecastOnCommonAxes(t *testing.T) {
	forecasts := whatIfs(t)
	var svg bytes.Buffer
	if err := plan.Draw(&svg, forecasts...); err != nil {
		t.Fatal(err)
	}
	words, strokes := texts(t, svg.Bytes())
	all := strings.Join(words, "\n")
	for _, want := range []string{"paced: 3,000 calls in 5m45s, 0 throttled", `20 workers <without> "pacing" & sense: `, "storm: 3,000 calls in",
		"all of a run's tightest limit", "answered per minute", "tightest limit used (%)", "calls in flight (most)", "throttled so far", "time (minutes)", "600", "100"} {
		if !strings.Contains(all, want) {
			t.Errorf("the chart does not say %q, but:\n%s", want, all)
		}
	}
	for _, colour := range []string{"#0072B2", "#D55E00", "#009E73"} {
		if strokes[colour] != 5 { // four panels and the legend
			t.Errorf("%d lines are %s, want 5: %v", strokes[colour], colour, strokes)
		}
	}
	var again bytes.Buffer
	if err := plan.Draw(&again, forecasts...); err != nil || !bytes.Equal(svg.Bytes(), again.Bytes()) {
		t.Errorf("the same twice differs, %v", err)
	}
	if svg.Len() > 200_000 {
		t.Errorf("%d bytes", svg.Len())
	}
}

func TestDrawLeavesOutThrottlesWhereThereAreNone(t *testing.T) {
	var svg bytes.Buffer
	if err := plan.Draw(&svg, whatIfs(t)[0]); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	if all := strings.Join(words, "\n"); strings.Contains(all, "throttled so far") || !strings.Contains(all, "tightest limit used: rpm (%)") {
		t.Errorf("the chart says:\n%s", all)
	}
}

// tiers are forecasts of one job under limits that differ by 20 times, of which those on output decide.
func tiers(t *testing.T) []plan.Named {
	var all []plan.Named
	for name, bounds := range map[string]sluice.Limits{"slow": {RPM: 1000, OTPM: 8000}, "fast": {RPM: 2000, OTPM: 160_000}} {
		s := plan.Scenario{Provider: plan.SimulatorConfig(bounds, limits.ChargeActual, time.Second, 0), Calls: calls(1, plan.Call{Input: 10, Output: 500}), Requests: 600, Told: bounds}
		all = append(all, plan.Named{Name: name, Forecast: simulate(t, s)})
	}
	slices.SortFunc(all, func(a, b plan.Named) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func TestDrawKeepsRunsOfVeryDifferentLengthReadable(t *testing.T) {
	var svg bytes.Buffer
	both := tiers(t)
	if err := plan.Draw(&svg, both...); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	all := strings.Join(words, "\n")
	for _, want := range []string{"share of each run's own time (%)", "answered/min (log)", "\n20\n", "\n200\n", "tightest limit otpm 8,000", "tightest limit otpm 160,000"} {
		if !strings.Contains(all, want) {
			t.Errorf("the chart does not say %q, but:\n%s", want, all)
		}
	}
	if strings.Contains(all, "time (minutes)") {
		t.Errorf("the chart is over minutes too:\n%s", all)
	}
	reach := make(map[string]float64) // how far to the right the lines of a colour go
	for _, m := range regexp.MustCompile(`(?s)<path d="([^"]*)"[^>]*stroke:(#0072B2|#D55E00)`).FindAllStringSubmatch(svg.String(), -1) {
		for _, x := range regexp.MustCompile(`[ML](-?[0-9.]+),`).FindAllStringSubmatch(m[1], -1) {
			at, err := strconv.ParseFloat(x[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			reach[m[2]] = max(reach[m[2]], at)
		}
	}
	if fast, slow := reach["#0072B2"], reach["#D55E00"]; fast == 0 || fast != slow {
		t.Errorf("the runs end at %v and %v of the axis", fast, slow)
	}
}

func TestDrawBindsASingleRunToItsTightestLimit(t *testing.T) {
	var svg bytes.Buffer
	if err := plan.Draw(&svg, tiers(t)[1]); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	if all := strings.Join(words, "\n"); !strings.Contains(all, "tightest limit: otpm 8,000, which allows 16 answers a minute") || !strings.Contains(all, "time (minutes)") {
		t.Errorf("the chart says:\n%s", all)
	}
}

func TestDrawCountsASingleThrottleAsOne(t *testing.T) {
	limits := sluice.Limits{RPM: 60, Burst: time.Second}
	s := plan.Scenario{Provider: plan.SimulatorConfig(limits, 0, time.Second, 0), Calls: calls(1, plan.Call{}), Requests: 60, Told: limits}
	s.Provider.Storms = []sim.Storm{{From: 20 * time.Second, To: 22 * time.Second, Silent: true}}
	f := simulate(t, s)
	if f.Throttled == 0 || f.Throttled > 2 {
		t.Fatalf("%d throttled in %v: the test needs one or two", f.Throttled, f.Time)
	}
	var svg bytes.Buffer
	if err := plan.Draw(&svg, plan.Named{Name: "one", Forecast: f}); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	_, axis, _ := strings.Cut(strings.Join(words, " "), "throttled so far ")
	if !strings.HasPrefix(axis, "0 1 ") || strings.Contains(axis, " 3 ") {
		t.Errorf("the axis is %q", axis)
	}
}

func TestDrawTellsTimeInAUnitThatSuits(t *testing.T) {
	for want, d := range map[string]time.Duration{"time (seconds)": 20 * time.Second, "time (minutes)": time.Hour, "time (hours)": 30 * time.Hour,
		"time (days)": 200 * time.Hour} {
		s := plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPM: 1}, 0, time.Second, 0), Told: sluice.Limits{RPM: 1}, Calls: calls(1, plan.Call{}),
			Requests: -1, Horizon: d}
		var svg bytes.Buffer
		if err := plan.Draw(&svg, plan.Named{Forecast: simulate(t, s)}); err != nil {
			t.Fatal(err)
		}
		if words, _ := texts(t, svg.Bytes()); !strings.Contains(strings.Join(words, "\n"), want) {
			t.Errorf("%v: the chart says %q", d, words)
		}
	}
}

func TestDrawRefusesWhatCannotBeShown(t *testing.T) {
	f := whatIfs(t)[0]
	many := []plan.Named{f, f, f, f, f, f, f, f}
	for word, forecasts := range map[string][]plan.Named{"no forecast": nil, `"nothing" is empty`: {f, {Name: "nothing"}}, "8 forecasts": many} {
		if err := plan.Draw(io.Discard, forecasts...); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want an error that says %s: %v", word, err)
		}
	}
	if err := plan.Draw(broken{}, f); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer's error is lost: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
