package chart_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-llm/sluice/internal/chart"
)

func TestTicksAreFewRoundNumbers(t *testing.T) {
	for _, c := range []struct {
		ticks     chart.Ticks
		low, high float64
		want      string
	}{
		{chart.Ticks{Most: 5}, 0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{chart.Ticks{Most: 5}, 0, 30_000, "0 10,000 20,000 30,000"},
		{chart.Ticks{Most: 5, Whole: true}, 0, 2, "0 1 2"},
		{chart.Ticks{Most: 10}, 0.5, 100.5, "10 20 30 40 50 60 70 80 90 100"},
	} {
		var labels []string
		for _, tick := range c.ticks.Ticks(c.low, c.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%+v from %v to %v: %s, want %s", c.ticks, c.low, c.high, got, c.want)
		}
	}
}

func TestPowersAreOneTwoAndFive(t *testing.T) {
	var labels []string
	for _, tick := range (chart.Powers{}).Ticks(0.3, 25) {
		labels = append(labels, tick.Label)
	}
	if diff := cmp.Diff([]string{"0.5", "1", "2", "5", "10", "20"}, labels); diff != "" {
		t.Error(diff)
	}
}

func TestWriteSVGNamesFontsThatMachinesHave(t *testing.T) {
	var svg bytes.Buffer
	err := chart.WriteSVG(&svg, vg.Inch, vg.Inch, func(c draw.Canvas) error {
		legend := chart.Legend()
		legend.Add(`<script> & "more"`)
		legend.Draw(c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := svg.String(); !strings.Contains(s, "Liberation Sans,Arial,Helvetica,sans-serif") || strings.Contains(s, "<script") {
		t.Error(s)
	}
}

func TestWriteSVGWritesNothingWhenPaintingFails(t *testing.T) {
	var svg bytes.Buffer
	if err := chart.WriteSVG(&svg, vg.Inch, vg.Inch, func(draw.Canvas) error { return io.ErrNoProgress }); !errors.Is(err, io.ErrNoProgress) || svg.Len() > 0 {
		t.Errorf("%v, %d bytes", err, svg.Len())
	}
}
