package telemetry

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/template"
	"github.com/sluice-llm/sluice/limits"
)

// maxPoints is the largest number of steps of a line.
const maxPoints = 120

// drawing is the chart of a lane that is being drawn. Its text is ours alone: names stand in the page, escaped.
type drawing struct {
	lane     *Lane
	bins     []Bin
	wide     int // bins of the lane in one of bins
	width    time.Duration
	unit     time.Duration // of the axis of time
	unitName string
}

// draw returns the charts of a lane: requests per minute beside the limit, requests in flight, and use of each limit. A lane
// without requests has none.
func (l *Lane) draw() []template.HTML {
	if l.line == nil || l.Sent+l.Throttled == 0 {
		return nil
	}
	d := newDrawing(l)
	panels := []*chart.Panel{d.rate(), d.inFlight()}
	if len(l.Quota) > 0 {
		panels = append(panels, d.quota())
	}
	var all []template.HTML
	for _, p := range panels {
		all = append(all, template.HTML(chart.SVG(p)))
	}
	return all
}

// newDrawing makes bins so wide that single calls do not show.
func newDrawing(l *Lane) *drawing {
	const enough = 8 // calls in a bin, on average
	wide := (len(l.Bins) + maxPoints - 1) / maxPoints
	for len(l.Bins)/wide > 20 && l.Sent*wide < enough*len(l.Bins) {
		wide++
	}
	d := &drawing{lane: l, wide: wide, width: time.Duration(wide) * l.line.width}
	for from := 0; from < len(l.Bins); from += wide {
		var sum Bin
		for _, b := range l.Bins[from:min(from+wide, len(l.Bins))] {
			sum = sum.with(b)
		}
		d.bins = append(d.bins, sum)
	}
	d.unit, d.unitName = time.Second, "s"
	if end := time.Duration(len(l.Bins)) * l.line.width; end > 3*time.Hour {
		d.unit, d.unitName = time.Hour, "h"
	} else if end > 3*time.Minute {
		d.unit, d.unitName = time.Minute, "min"
	}
	return d
}

func (d *drawing) x(at time.Duration) float64 { return float64(at) / float64(d.unit) }

// end is where the time ends: that of the last bin of the lane.
func (d *drawing) end() float64 {
	return d.x(time.Duration(len(d.lane.Bins)) * d.lane.line.width)
}

// panel returns a panel on the axis of time, with the pauses of the lane below everything else.
func (d *drawing) panel(title string, marks ...chart.Mark) *chart.Panel {
	pauses := chart.Mark{Boxes: true, Colour: chart.Peach}
	for _, s := range d.lane.line.pauses {
		from, to := d.x(s.from), min(max(d.x(s.to), d.x(s.from)+d.end()/600), d.end()) // so wide that it can be seen
		if from < to {
			pauses.Name = "pause"
			pauses.Points = append(pauses.Points, chart.Point{X: from}, chart.Point{X: to, Y: math.Inf(1)})
		}
	}
	return &chart.Panel{Title: title, X: chart.Axis{Max: d.end(), Unit: d.unitName}, Marks: append([]chart.Mark{pauses}, marks...)}
}

// steps are a value of each bin.
func (d *drawing) steps(value func(b *Bin, width time.Duration, i int) float64) []chart.Point {
	var xys []chart.Point
	for i := range d.bins {
		width := d.width
		if i == len(d.bins)-1 { // the last may be a part
			width = time.Duration(len(d.lane.Bins)-i*d.wide) * d.lane.line.width
		}
		xys = append(xys, chart.Point{X: d.x(time.Duration(i) * d.width), Y: value(&d.bins[i], width, i)})
	}
	return append(xys, chart.Point{X: d.end(), Y: xys[len(xys)-1].Y})
}

// line returns a line of steps. Lines differ by colour, and by dashes too, for print.
func (d *drawing) line(colour chart.Colour, name string, xys []chart.Point, dashes string) chart.Mark {
	return chart.Mark{Name: name, Points: xys, Colour: colour, Dashes: dashes}
}

// rate returns the panel of requests per minute.
func (d *drawing) rate() *chart.Panel {
	perMinute := func(n int, width time.Duration) float64 { return float64(n) / width.Minutes() }
	lines := []chart.Mark{d.line(chart.Blue, "answered", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Answered, w) }), "")}
	if d.lane.Throttled > 0 {
		lines = append(lines, d.line(chart.Vermilion, "429", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Throttled, w) }), "2,2"))
	}
	if d.lane.Failed > 0 {
		lines = append(lines, d.line(chart.Purple, "failed", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Failed, w) }), "9,2,2,2"))
	}
	for _, q := range d.lane.Quota {
		if q.dimension == limits.Requests {
			lines = append(lines, d.limit("limit", d.limits(&q)))
		}
	}
	return d.panel("Requests per minute", lines...)
}

// limits is a limit over time, from when it was known.
func (d *drawing) limits(q *Quota) []chart.Point {
	var xys []chart.Point
	for _, at := range d.lane.line.limits {
		if at.d == q.dimension {
			xys = append(xys, chart.Point{X: min(d.x(at.x), d.end()), Y: float64(at.limit)})
		}
	}
	if len(xys) == 0 {
		return []chart.Point{{X: 0, Y: float64(q.Limit)}, {X: d.end(), Y: float64(q.Limit)}}
	}
	return append(xys, chart.Point{X: d.end(), Y: xys[len(xys)-1].Y})
}

// limit is a line that is not to be passed.
func (d *drawing) limit(name string, xys []chart.Point) chart.Mark {
	return chart.Mark{Name: name, Points: xys, Colour: chart.Grey, Dashes: "5,4"}
}

// inFlight returns the panel of requests in flight.
func (d *drawing) inFlight() *chart.Panel {
	p := d.panel("Requests in flight",
		d.line(chart.Blue, "in flight", d.steps(func(b *Bin, _ time.Duration, _ int) float64 { return float64(b.InFlight) }), ""),
		d.line(chart.Green, "concurrency limit", d.steps(func(b *Bin, _ time.Duration, _ int) float64 { return float64(b.Slots) }), "7,2"))
	p.Y.Whole = true
	return p
}

// quota returns the panel of the use of each limit.
func (d *drawing) quota() *chart.Panel {
	lines := []chart.Mark{d.limit("limit", []chart.Point{{X: 0, Y: 100}, {X: d.end(), Y: 100}})}
	colours := [...]chart.Colour{chart.Blue, chart.Sky, chart.Orange, chart.Black, chart.Purple}
	for _, q := range d.lane.Quota {
		if q.dimension.Window() > time.Minute {
			continue // a share of a day says nothing of a minute
		}
		lines = append(lines, d.line(colours[(len(lines)-1)%len(colours)], q.Dimension, d.steps(func(b *Bin, w time.Duration, _ int) float64 {
			return 100 * float64(b.used(q.dimension)) / (float64(q.Limit) * w.Minutes())
		}), ""))
	}
	return d.panel("Use of limits (%)", lines...)
}

// draw returns a histogram, by doublings of the time, or "" without times.
func (t Times) draw(title string, colour chart.Colour) template.HTML {
	if t.Count == 0 {
		return ""
	}
	end := float64(len(t.Bars))
	half := min(0.4, 0.027*end) // few bars are not wide
	bars := chart.Mark{Boxes: true, Colour: colour}
	var ticks []chart.Tick
	every := (len(t.Bars) + 6) / 7 // bars from one label to the next
	for i, b := range t.Bars {
		at := float64(i) + 0.5
		bars.Points = append(bars.Points, chart.Point{X: at - half}, chart.Point{X: at + half, Y: float64(b.Count)})
		if i%every == 0 {
			ticks = append(ticks, chart.Tick{Value: float64(i), Label: took(b.From)})
		}
	}
	if len(t.Bars)%every == 0 {
		ticks = append(ticks, chart.Tick{Value: end, Label: took(t.Bars[len(t.Bars)-1].To)})
	}
	return template.HTML(chart.SVG(&chart.Panel{Title: title, X: chart.Axis{Max: end, Ticks: ticks}, Y: chart.Axis{Whole: true}, Marks: []chart.Mark{bars}}))
}
