package plan

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// maxPoints is the largest number of steps of a line.
const maxPoints = 120

// Draw writes an SVG chart of a forecast. The panels show the throughput with the tightest limit, the use of that
// limit, the requests in flight and any 429 responses. Equal forecasts produce identical charts. If the forecast is
// empty or writing fails, Draw returns an error.
func Draw(w io.Writer, name string, f Forecast) error {
	if len(f.Steps) == 0 || f.Time.Duration <= 0 {
		return fmt.Errorf("chart: forecast %q is empty", name)
	}
	d := drawing{Forecast: &f}
	d.unit, d.unitName = timeUnit(f.Time.Duration)
	inFlight := d.panel("Requests in flight, maximum", func(s Step, _ time.Duration) float64 { return float64(s.InFlight) })
	inFlight.Y.Whole = true
	panels := []*chart.Panel{d.rate(name), d.quota(), inFlight}
	if f.Throttled > 0 {
		sum := 0 // as a rate, a single one would look like a storm
		throttled := d.panel("429 responses so far", func(s Step, _ time.Duration) float64 {
			sum += s.Throttled
			return float64(sum)
		})
		throttled.Y.Whole = true
		panels = append(panels, throttled)
	}
	return chart.Write(w, panels...)
}

// drawing is a chart that is being drawn.
type drawing struct {
	*Forecast
	unit     time.Duration // of the axis of time
	unitName string
}

// timeUnit returns the unit of the axis of time.
func timeUnit(d time.Duration) (time.Duration, string) {
	switch {
	case d <= 3*time.Minute:
		return time.Second, "s"
	case d <= 3*time.Hour:
		return time.Minute, "min"
	case d <= 72*time.Hour:
		return time.Hour, "h"
	}
	return 24 * time.Hour, "days"
}

// valueOf is the value of a step of that width.
type valueOf func(s Step, width time.Duration) float64

// panel returns a panel on the axis of time, with a line of values.
func (d *drawing) panel(title string, value valueOf) *chart.Panel {
	return &chart.Panel{Title: title, X: chart.Axis{Max: d.x(d.Time.Duration), Unit: d.unitName},
		Marks: []chart.Mark{{Points: d.points(value), Colour: chart.Blue}}}
}

// rate returns the panel of requests per minute.
func (d *drawing) rate(name string) *chart.Panel {
	p := d.panel("Requests answered per minute", func(s Step, width time.Duration) float64 { return float64(s.Completed) / width.Minutes() })
	p.Marks[0].Name = d.summary(name)
	if allowed, _ := d.limit(); allowed > 0 && allowed <= 4*p.Highest() { // far above, it would squeeze the line to the ground
		p.Marks = append(p.Marks, d.rule(allowed))
	}
	return p
}

// limit returns how many calls per minute the tightest limit allows, 0 if that is unknown, and the legend of the dashed lines.
func (d *drawing) limit() (perMinute float64, words string) {
	if len(d.Quotas) == 0 || d.Completed == 0 || d.Quotas[0].Spent == 0 {
		return 0, "limit"
	}
	q := d.Quotas[0]
	perMinute = float64(q.Limit) / minutes(q.Dimension) / (q.Spent / float64(d.Completed))
	words = fmt.Sprintf("tightest limit: %v %s", q.Dimension, prose.Group(q.Limit))
	if q.Dimension != limits.Requests {
		words += fmt.Sprintf(" (%.4g requests/min)", perMinute)
	}
	return perMinute, words
}

// summary is the forecast in the legend.
func (d *drawing) summary(name string) string {
	text := fmt.Sprintf("%s: %s requests in %s, %s rate-limited", name, prose.Group(d.Completed), roundTime(d.Time.Duration), prose.Group(d.Throttled))
	if d.Failed > 0 {
		text += fmt.Sprintf(", %s failed", prose.Group(d.Failed))
	}
	return text
}

// roundTime leaves out what nobody reads.
func roundTime(d time.Duration) time.Duration {
	switch {
	case d > time.Hour:
		return d.Round(time.Minute)
	case d > time.Minute:
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}

// quota returns the panel of the use of the tightest limit.
func (d *drawing) quota() *chart.Panel {
	p := &chart.Panel{Title: "Use of the tightest limit (%)", X: chart.Axis{Max: d.x(d.Time.Duration), Unit: d.unitName}}
	if len(d.Quotas) > 0 {
		q := d.Quotas[0]
		p = d.panel(fmt.Sprintf("Use of the tightest limit, %v (%%)", q.Dimension), func(s Step, width time.Duration) float64 {
			return 100 * s.Spent[q.Dimension] / width.Minutes() / (float64(q.Limit) / minutes(q.Dimension))
		})
	}
	p.Marks = append(p.Marks, d.rule(100))
	return p
}

// points are a value over time, of steps so wide that their number can be seen and single calls do not show.
func (d *drawing) points(value valueOf) []chart.Point {
	const enough = 15 // calls in a step, on average
	wide := (len(d.Steps) + maxPoints - 1) / maxPoints
	for len(d.Steps)/wide > 12 && float64(d.Completed)*float64(wide) < enough*float64(len(d.Steps)) {
		wide++
	}
	var xys []chart.Point
	for from := 0; from < len(d.Steps); from += wide {
		var sum Step
		for _, s := range d.Steps[from:min(from+wide, len(d.Steps))] {
			sum = sum.with(s)
		}
		begin := time.Duration(from) * d.Width
		end := min(begin+time.Duration(wide)*d.Width, d.Time.Duration)
		if end-begin < d.Width/2 && from > 0 { // a rest, too short to tell a rate by
			break
		}
		xys = append(xys, chart.Point{X: d.x(begin), Y: value(sum, max(end-begin, time.Nanosecond))})
	}
	return append(xys, chart.Point{X: d.x(d.Time.Duration), Y: xys[len(xys)-1].Y}) // the end of the last step
}

// x is where an instant is on the axis of time.
func (d *drawing) x(at time.Duration) float64 { return float64(at) / float64(d.unit) }

// rule is a limit.
func (d *drawing) rule(y float64) chart.Mark {
	_, words := d.limit()
	return chart.Mark{Name: words, Points: []chart.Point{{X: 0, Y: y}, {X: d.x(d.Time.Duration), Y: y}}, Colour: chart.Grey, Dashes: "5,4"}
}
