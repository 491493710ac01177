package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/chart"
)

// draw returns a chart of the panels as SVG.
func draw(t *testing.T, panels ...*chart.Panel) string {
	t.Helper()
	var svg bytes.Buffer
	if err := chart.Write(&svg, panels...); err != nil {
		t.Fatal(err)
	}
	return svg.String()
}

// labels returns the texts of an SVG, joined by blanks.
func labels(t *testing.T, svg string) string {
	t.Helper()
	var all []string
	for d := xml.NewDecoder(strings.NewReader(strings.Replace(svg, chart.Style(), "", 1))); ; {
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

// paths returns the paths in the colour of limits.
func paths(svg string) (all []string) {
	for _, m := range regexp.MustCompile(`<path d="([^"]*)" class="k7" color="#5A5A5A"`).FindAllStringSubmatch(svg, -1) {
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
		Marks: []chart.Mark{{Points: []chart.Point{{0, 0}, {1, 10}, {2, 10}}, Colour: chart.Grey, Dashes: "5,4"}}})
	if diff := cmp.Diff([]string{"M26,155L221,155L221,25L416,25"}, paths(svg)); diff != "" {
		t.Error(diff)
	}
}

func TestPanelsShareTheirHorizontalPlaces(t *testing.T) {
	point := func(y float64) *chart.Panel {
		return &chart.Panel{X: chart.Axis{Max: 2}, Marks: []chart.Mark{{Points: []chart.Point{{1, 0}, {2, y}}, Colour: chart.Grey}}}
	}
	lines := paths(draw(t, point(1), point(1e6)))
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	first, _, _ := strings.Cut(lines[0], ",")
	if second, _, _ := strings.Cut(lines[1], ","); first != second {
		t.Errorf("the points are at %s and %s", first, second)
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

func TestEachPanelHasItsTitleAndLegendWithEscapedText(t *testing.T) {
	hostile := `<script> & "more"`
	mark := chart.Mark{Name: hostile, Colour: chart.Grey}
	panel := func() *chart.Panel {
		return &chart.Panel{Title: hostile, X: chart.Axis{Max: 1}, Marks: []chart.Mark{mark, {}}}
	}
	svg := draw(t, panel(), panel())
	if strings.Contains(svg, "<script") || strings.Count(labels(t, svg), hostile) != 4 || !strings.Contains(svg, `aria-label="&lt;script&gt;`) {
		t.Error(svg)
	}
	if n := len(paths(svg)); n != 2 {
		t.Errorf("%d samples, want 2", n)
	}
}

func TestLegendsStayInsideTheChart(t *testing.T) {
	p := &chart.Panel{X: chart.Axis{Max: 1}}
	for range 12 {
		p.Marks = append(p.Marks, chart.Mark{Name: "a name of some length", Boxes: true, Points: []chart.Point{{0, 0}, {1, 1}}})
	}
	for _, m := range regexp.MustCompile(`<text x="([0-9.]+)"`).FindAllStringSubmatch(draw(t, p), -1) {
		if x, err := strconv.ParseFloat(m[1], 64); err != nil || x > 430 {
			t.Errorf("text begins at %s of 440", m[1])
		}
	}
}

// Each colour differs between light and dark backgrounds, and a page and a file have the same rules.
func TestChartsHaveADarkVariant(t *testing.T) {
	svg := draw(t, &chart.Panel{Title: "t", Marks: []chart.Mark{{Name: "m", Colour: chart.Peach, Boxes: true}}})
	if !strings.Contains(svg, "<style>"+chart.Style()+"</style>") || strings.Contains(chart.SVG(&chart.Panel{}), "<style") {
		t.Error("a file has its style within, and an element of a page has not")
	}
	for _, m := range regexp.MustCompile(`class="(k[0-9]+)" color="(#[0-9A-F]+)"`).FindAllStringSubmatch(svg, -1) {
		if !strings.Contains(chart.Style(), "."+m[1]+" {") || strings.Contains(chart.Style(), m[1]+" { color: "+m[2]) {
			t.Errorf("%s has no other colour than %s", m[1], m[2])
		}
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
	if err := chart.Write(w); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
