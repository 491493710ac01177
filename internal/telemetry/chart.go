package telemetry

import (
	"math"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/template"
	"github.com/sluice-llm/sluice/limits"
)

const (
	panelHeight = 142 // points
	mostPoints  = 120
)

// drawing is the chart of a lane that is being drawn. Its text is ours alone: names stand in the page, escaped.
type drawing struct {
	lane     *Lane
	bins     []Bin
	wide     int // bins of the lane in one of bins
	width    time.Duration
	unit     time.Duration // of the axis of time
	unitName string
}

// draw is a lane's chart: calls per minute beside what the limit allows, calls in flight and slots, and how much of each
// limit was used. It is "" for a lane that shows nothing.
func (l *Lane) draw() (template.HTML, error) {
	if l.line == nil || l.Sent+l.Throttled == 0 {
		return "", nil
	}
	d := newDrawing(l)
	panels := []*chart.Panel{d.rate(), d.inFlight()}
	if len(l.Quota) > 0 {
		panels = append(panels, d.quota())
	}
	panels[len(panels)-1].X.Label = "time that the run was on (" + d.unitName + ")"
	return svg(panels...)
}

// svg is a chart as it stands in a page.
func svg(panels ...*chart.Panel) (template.HTML, error) {
	var b strings.Builder
	err := chart.Write(&b, panelHeight, panels...)
	return template.HTML(b.String()), err
}

// newDrawing makes bins so wide that single calls do not show.
func newDrawing(l *Lane) *drawing {
	const enough = 8 // calls in a bin, on average
	wide := (len(l.Bins) + mostPoints - 1) / mostPoints
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
	d.unit, d.unitName = time.Second, "seconds"
	if end := time.Duration(len(l.Bins)) * l.line.width; end > 3*time.Hour {
		d.unit, d.unitName = time.Hour, "hours"
	} else if end > 3*time.Minute {
		d.unit, d.unitName = time.Minute, "minutes"
	}
	return d
}

func (d *drawing) x(at time.Duration) float64 { return float64(at) / float64(d.unit) }

// end is where the time ends: that of the last bin of the lane.
func (d *drawing) end() float64 {
	return d.x(time.Duration(len(d.lane.Bins)) * d.lane.line.width)
}

// panel returns a panel on the common axis of time, with the lane's pauses below everything else.
func (d *drawing) panel(label string, marks ...chart.Mark) *chart.Panel {
	pauses := chart.Mark{Boxes: true, Colour: "#FDE2C8"} // light enough for lines upon it
	for _, s := range d.lane.line.pauses {
		from, to := d.x(s.from), min(max(d.x(s.to), d.x(s.from)+d.end()/600), d.end()) // so wide that it can be seen
		if from < to {
			pauses.Points = append(pauses.Points, chart.Point{X: from}, chart.Point{X: to, Y: math.Inf(1)})
		}
	}
	return &chart.Panel{X: chart.Axis{Max: d.end()}, Y: chart.Axis{Label: label}, Marks: append([]chart.Mark{pauses}, marks...)}
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

// line is a line of steps. Lines differ by colour, and by dashes too, for print.
func (d *drawing) line(colour int, name string, xys []chart.Point, dashes string) chart.Mark {
	return chart.Mark{Name: name, Points: xys, Colour: chart.Colour(colour), Dashes: dashes}
}

// rate is the panel of calls per minute.
func (d *drawing) rate() *chart.Panel {
	perMinute := func(n int, width time.Duration) float64 { return float64(n) / width.Minutes() }
	lines := []chart.Mark{d.line(0, "answered per minute; in flight", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Answered, w) }), "")}
	if d.lane.Throttled > 0 {
		lines = append(lines, d.line(1, "throttled per minute", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Throttled, w) }), "2,2"))
	}
	if d.lane.Failed > 0 {
		lines = append(lines, d.line(3, "failed attempts per minute", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Failed, w) }), "9,2,2,2"))
	}
	for _, q := range d.lane.Quota {
		if q.dimension == limits.Requests {
			lines = append(lines, d.limit("limit of requests per minute", d.limits(&q)))
		}
	}
	return d.panel("calls per minute", lines...)
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
	return chart.Mark{Name: name, Points: xys, Colour: chart.Grey, Width: 1.2, Dashes: "5,4"}
}

// inFlight is the panel of open calls.
func (d *drawing) inFlight() *chart.Panel {
	p := d.panel("calls in flight",
		d.line(0, "", d.steps(func(b *Bin, _ time.Duration, _ int) float64 { return float64(b.InFlight) }), ""),
		d.line(2, "slots", d.steps(func(b *Bin, _ time.Duration, _ int) float64 { return float64(b.Slots) }), "7,2"))
	p.Y.Whole = true
	return p
}

// quota is the panel of how much of each limit was used.
func (d *drawing) quota() *chart.Panel {
	lines := []chart.Mark{d.limit("all of a limit", []chart.Point{{X: 0, Y: 100}, {X: d.end(), Y: 100}})}
	colour := 0
	for _, q := range d.lane.Quota {
		if q.dimension.Window() > time.Minute {
			continue // a share of a day says nothing of a minute
		}
		lines = append(lines, d.line([...]int{0, 4, 5, 6, 3}[colour%5], "use of "+q.Dimension, d.steps(func(b *Bin, w time.Duration, _ int) float64 {
			return 100 * float64(b.used(q.dimension)) / (float64(q.Limit) * w.Minutes())
		}), ""))
		colour++
	}
	return d.panel("use of limits (%)", lines...)
}

// draw is a histogram, by doublings of the time.
func (t Times) draw(label string, colour int) (template.HTML, error) {
	if t.Count == 0 {
		return "", nil
	}
	end := float64(len(t.Bars))
	half := min(0.4, 0.027*end) // few bars are not wide
	bars := chart.Mark{Boxes: true, Colour: chart.Colour(colour)}
	var ticks []chart.Tick
	for i, b := range t.Bars {
		at := float64(i) + 0.5
		bars.Points = append(bars.Points, chart.Point{X: at - half}, chart.Point{X: at + half, Y: float64(b.Count)})
		ticks = append(ticks, chart.Tick{Value: float64(i), Label: took(b.From)})
	}
	ticks = append(ticks, chart.Tick{Value: end, Label: took(t.Bars[len(t.Bars)-1].To)})
	return svg(&chart.Panel{X: chart.Axis{Label: label, Max: end, Ticks: ticks}, Y: chart.Axis{Label: "items", Whole: true}, Marks: []chart.Mark{bars}})
}
