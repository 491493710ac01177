package plan_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/sim"
)

// stormy is a forecast of a job that a storm interrupts, if there is one.
func stormy(t *testing.T, storms ...sim.Storm) plan.Forecast {
	bounds := sluice.Limits{RPM: 600, TPM: 300_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.SimulatorConfig(bounds, limits.ChargeDeclared, 900*time.Millisecond), Told: bounds,
		Calls: []plan.Call{{Input: 300, MaxTokens: 500, Output: 100}, {Input: 500, MaxTokens: 400, Output: 150}}, Requests: 3000,
	}
	s.Provider.PerToken, s.Provider.Storms = 5*time.Millisecond, storms
	return simulate(t, s)
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
				if v.Name.Local == "path" && a.Name.Local == "color" {
					strokes[a.Value]++
				}
			}
		}
	}
}

func TestDrawShowsRatesLimitsAndThrottles(t *testing.T) {
	f := stormy(t, sim.Storm{From: 100 * time.Second, To: 140 * time.Second, Silent: true})
	var svg bytes.Buffer
	if err := plan.Draw(&svg, `a <storm> & "sense"`, f); err != nil {
		t.Fatal(err)
	}
	words, strokes := texts(t, svg.Bytes())
	all := strings.Join(words, "\n")
	for _, want := range []string{`a <storm> & "sense": 3,000 requests in`, "tightest limit: rpm 600", "Requests answered per minute", "Use of the tightest limit, rpm (%)",
		"Requests in flight, maximum", "429 responses so far", " min", "600", "100"} {
		if !strings.Contains(all, want) {
			t.Errorf("the chart does not say %q, but:\n%s", want, all)
		}
	}
	if strokes["#0072B2"] != 5 { // four panels and the legend
		t.Errorf("want 5 lines: %v", strokes)
	}
	var again bytes.Buffer
	if err := plan.Draw(&again, `a <storm> & "sense"`, f); err != nil || !bytes.Equal(svg.Bytes(), again.Bytes()) {
		t.Errorf("the same twice differs, %v", err)
	}
	if svg.Len() > 200_000 {
		t.Errorf("%d bytes", svg.Len())
	}
}

func TestDrawLeavesOutThrottlesWhereThereAreNone(t *testing.T) {
	var svg bytes.Buffer
	if err := plan.Draw(&svg, "paced", stormy(t)); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	if all := strings.Join(words, "\n"); strings.Contains(all, "429 responses so far") || !strings.Contains(all, "paced: 3,000 requests in 5m45s, 0 rate-limited") {
		t.Errorf("the chart says:\n%s", all)
	}
}

func TestDrawNamesTheRateThatALimitOfTokensAllows(t *testing.T) {
	bounds := sluice.Limits{RPM: 1000, OTPM: 8000}
	s := plan.Scenario{Provider: plan.SimulatorConfig(bounds, limits.ChargeActual, time.Second), Calls: calls(1, plan.Call{Input: 10, Output: 500}), Requests: 600, Told: bounds}
	var svg bytes.Buffer
	if err := plan.Draw(&svg, "slow", simulate(t, s)); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	if all := strings.Join(words, "\n"); !strings.Contains(all, "tightest limit: otpm 8,000 (16 requests/min)") || !strings.Contains(all, " min") {
		t.Errorf("the chart says:\n%s", all)
	}
}

func TestDrawCountsASingleThrottleAsOne(t *testing.T) {
	limits := sluice.Limits{RPM: 60, Burst: time.Second}
	s := plan.Scenario{Provider: plan.SimulatorConfig(limits, 0, time.Second), Calls: calls(1, plan.Call{}), Requests: 60, Told: limits}
	s.Provider.Storms = []sim.Storm{{From: 20 * time.Second, To: 22 * time.Second, Silent: true}}
	f := simulate(t, s)
	if f.Throttled == 0 || f.Throttled > 2 {
		t.Fatalf("%d throttled in %v: the test needs one or two", f.Throttled, f.Time)
	}
	var svg bytes.Buffer
	if err := plan.Draw(&svg, "one", f); err != nil {
		t.Fatal(err)
	}
	words, _ := texts(t, svg.Bytes())
	_, axis, _ := strings.Cut(strings.Join(words, " "), "429 responses so far ")
	if !strings.HasPrefix(axis, "0 1 ") || strings.Contains(axis, " 3 ") {
		t.Errorf("the axis is %q", axis)
	}
}

func TestDrawTellsTimeInAUnitThatSuits(t *testing.T) {
	for want, d := range map[string]time.Duration{" s": 20 * time.Second, " min": time.Hour, " h": 30 * time.Hour,
		" days": 200 * time.Hour} {
		s := plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPM: 1}, 0, time.Second), Told: sluice.Limits{RPM: 1}, Calls: calls(1, plan.Call{}),
			Requests: -1, Horizon: d}
		var svg bytes.Buffer
		if err := plan.Draw(&svg, "", simulate(t, s)); err != nil {
			t.Fatal(err)
		}
		if words, _ := texts(t, svg.Bytes()); !strings.Contains(strings.Join(words, "\n"), want) {
			t.Errorf("%v: the chart says %q", d, words)
		}
	}
}

func TestDrawRefusesWhatCannotBeShown(t *testing.T) {
	if err := plan.Draw(io.Discard, "nothing", plan.Forecast{}); err == nil || !strings.Contains(err.Error(), `"nothing" is empty`) {
		t.Errorf("an empty forecast: %v", err)
	}
	if err := plan.Draw(broken{}, "paced", stormy(t)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer's error is lost: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
