package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/chart"
)

// draw returns a chart of the panels as SVG.
func draw(t *testing.T, panels ...*chart.Panel) string {
	t.Helper()
	var svg bytes.Buffer
	if err := chart.Write(&svg, 100, panels...); err != nil {
		t.Fatal(err)
	}
	return svg.String()
}

// labels returns the texts of an SVG, joined by blanks.
func labels(t *testing.T, svg string) string {
	t.Helper()
	var all []string
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(all, " ")
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && len(bytes.TrimSpace(text)) > 0 {
			all = append(all, string(text))
		}
	}
}

// paths returns the paths of a colour.
func paths(svg, colour string) (all []string) {
	for _, m := range regexp.MustCompile(`<path d="([^"]*)" style="fill:none;stroke:`+colour).FindAllStringSubmatch(svg, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestTicksAreFewRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		high  float64
		whole bool
		want  string
	}{
		{1, false, "0 0.2 0.4 0.6 0.8 1"},
		{30_000, false, "0 10,000 20,000 30,000"},
		{2, true, "0 1 2"},
	} {
		svg := draw(t, &chart.Panel{X: chart.Axis{Max: 1, Ticks: []chart.Tick{}}, Y: chart.Axis{Max: c.high, Whole: c.whole}})
		if got := labels(t, svg); got != c.want {
			t.Errorf("%+v: %s, want %s", c, got, c.want)
		}
	}
}

func TestStepsKeepTheirHeightUpToTheNextPoint(t *testing.T) {
	svg := draw(t, &chart.Panel{X: chart.Axis{Max: 2}, Y: chart.Axis{Max: 10},
		Marks: []chart.Mark{{Points: []chart.Point{{0, 0}, {1, 10}, {2, 10}}, Colour: "#123456", Dashes: "5,4"}}})
	if diff := cmp.Diff([]string{"M36,84L346,84L346,8L656,8"}, paths(svg, "#123456;stroke-width:1.6;stroke-dasharray:5,4")); diff != "" {
		t.Error(diff)
	}
}

func TestPanelsShareTheirHorizontalPlaces(t *testing.T) {
	point := func(y float64) *chart.Panel {
		return &chart.Panel{X: chart.Axis{Max: 2}, Marks: []chart.Mark{{Points: []chart.Point{{1, 0}, {2, y}}, Colour: "#123456"}}}
	}
	at := regexp.MustCompile(`<path d="M([0-9.]+),[^"]*" style="fill:none;stroke:#123456`).FindAllStringSubmatch(draw(t, point(1), point(1e6)), -1)
	if len(at) != 2 || at[0][1] != at[1][1] {
		t.Errorf("the points are at %v", at)
	}
}

func TestAnAxisEndsAboveAllMarks(t *testing.T) {
	p := &chart.Panel{X: chart.Axis{Max: 1}, Marks: []chart.Mark{{Points: []chart.Point{{0, 50}, {1, math.NaN()}}}, {Points: []chart.Point{{0, 90}, {1, math.Inf(1)}}}}}
	svg := draw(t, p)
	if p.Y.Max <= 90 || p.Y.Max > 100 {
		t.Errorf("the axis ends at %v", p.Y.Max)
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("a place is no number: %s", svg)
	}
}

func TestALegendNamesEachMarkOnceAndEscapesText(t *testing.T) {
	hostile := `<script> & "more"`
	mark := chart.Mark{Name: hostile, Boxes: true, Colour: "#123456"}
	svg := draw(t, &chart.Panel{X: chart.Axis{Max: 1}, Marks: []chart.Mark{mark}}, &chart.Panel{X: chart.Axis{Max: 1, Label: hostile}, Marks: []chart.Mark{mark}})
	if strings.Contains(svg, "<script") || strings.Count(labels(t, svg), hostile) != 2 { // and the axis
		t.Error(svg)
	}
	if n := strings.Count(svg, "fill:#123456"); n != 1 {
		t.Errorf("%d samples, want 1", n)
	}
}

func TestTextIsInAFontThatMachinesHave(t *testing.T) {
	if svg := draw(t, &chart.Panel{}); !strings.Contains(svg, ",sans-serif\"") {
		t.Error(svg)
	}
}

func TestWriteReturnsTheErrorOfItsWriter(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := chart.Write(w, 100); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
