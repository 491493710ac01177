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
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/sim"
)

// whatIfs are forecasts of one job under three conditions.
func whatIfs(t *testing.T) []plan.Named {
	limits := sluice.Limits{RPM: 600, TPM: 300_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.Imitate(limits, sluice.ChargeDeclared, 900*time.Millisecond, 5*time.Millisecond),
		Calls:    []plan.Call{{Input: 300, MaxTokens: 500, Output: 100}, {Input: 500, MaxTokens: 400, Output: 150}}, Requests: 3000,
	}
	paced, unpaced, storm := s, s, s
	paced.Told = limits
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
	for _, want := range []string{"paced: 3,000 calls in 5m4s, 0 throttled", `20 workers <without> "pacing" & sense: `, "storm: 3,000 calls in",
		"limit", "answered per minute", "tightest limit used (%)", "calls in flight (most)", "throttled per minute", "time (minutes)", "600", "100"} {
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
	if all := strings.Join(words, "\n"); strings.Contains(all, "throttled per minute") || !strings.Contains(all, "tightest limit used: rpm (%)") {
		t.Errorf("the chart says:\n%s", all)
	}
}

func TestDrawTellsTimeInAUnitThatSuits(t *testing.T) {
	for want, d := range map[string]time.Duration{"time (seconds)": 20 * time.Second, "time (minutes)": time.Hour, "time (hours)": 30 * time.Hour,
		"time (days)": 200 * time.Hour} {
		s := plan.Scenario{Provider: plan.Imitate(sluice.Limits{RPM: 1}, 0, time.Second, 0), Told: sluice.Limits{RPM: 1}, Calls: calls(1, plan.Call{}),
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
