package telemetry

import (
	"bytes"
	"html/template"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/chart"
)

const (
	chartWidth  = 24 * vg.Centimeter
	panelHeight = 5 * vg.Centimeter
	legendRow   = 0.55 * vg.Centimeter
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
	legend   plot.Legend
	rows     int
}

// draw is a lane's chart: calls per minute beside what the limit allows, calls in flight and slots, and how much of each
// limit was used. It is "" for a lane that shows nothing.
func (l *Lane) draw() (template.HTML, error) {
	if l.line == nil || l.Sent+l.Throttled == 0 {
		return "", nil
	}
	d := newDrawing(l)
	panels := [][]*plot.Plot{{d.rate()}, {d.inFlight()}}
	if len(l.Quota) > 0 {
		panels = append(panels, []*plot.Plot{d.quota()})
	}
	panels[len(panels)-1][0].X.Label.Text = "time that the run was on (" + d.unitName + ")"
	head := legendRow * vg.Length(d.rows+1)
	return svg(panelHeight*vg.Length(len(panels))+head, func(c draw.Canvas) {
		tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 8 * vg.Millimeter, PadBottom: 2 * vg.Millimeter}
		for i, row := range plot.Align(panels, tiles, draw.Crop(c, 0, 0, 0, -head)) {
			panels[i][0].Draw(row[0])
		}
		d.legend.Draw(draw.Crop(c, 2*vg.Centimeter, 0, 0, -2*vg.Millimeter))
	})
}

// svg is a chart as it stands in a page.
func svg(height vg.Length, paint func(draw.Canvas)) (template.HTML, error) {
	var b bytes.Buffer
	err := chart.WriteSVG(&b, chartWidth, height, func(c draw.Canvas) error {
		paint(c)
		return nil
	})
	if err != nil {
		return "", err
	}
	text := b.Bytes()
	if i := bytes.Index(text, []byte("<svg")); i > 0 { // the head of a document of its own
		text = text[i:]
	}
	return template.HTML(text), nil
}

// newDrawing makes bins so wide that single calls do not show.
func newDrawing(l *Lane) *drawing {
	const enough = 8 // calls in a bin, on average
	wide := (len(l.Bins) + mostPoints - 1) / mostPoints
	for len(l.Bins)/wide > 20 && l.Sent*wide < enough*len(l.Bins) {
		wide++
	}
	d := &drawing{lane: l, wide: wide, width: time.Duration(wide) * l.line.width, legend: chart.Legend()}
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

// panel returns an empty panel on the common axis of time, the lane's pauses marked.
func (d *drawing) panel(label string) *plot.Plot {
	p := chart.Panel(label)
	p.X.Min, p.X.Max = 0, d.end()
	return p
}

// marks puts the lane's pauses below everything else, up to the panel's height, and ends its axis above everything.
func (d *drawing) marks(p *plot.Plot, lines ...plot.Plotter) *plot.Plot {
	for _, l := range lines {
		if r, ok := l.(plot.DataRanger); ok {
			_, _, _, most := r.DataRange()
			p.Y.Max = max(p.Y.Max, most)
		}
	}
	p.Y.Min, p.Y.Max = 0, max(p.Y.Max, 1)*1.08
	if math.IsInf(p.Y.Max, 0) {
		p.Y.Max = 1
	}
	for _, s := range d.lane.line.pauses {
		// Light enough for lines upon it, and so wide that it can be seen.
		from, to := d.x(s.from), min(max(d.x(s.to), d.x(s.from)+d.end()/600), d.end())
		if from >= to {
			continue
		}
		area := &plotter.Polygon{XYs: []plotter.XYs{{{X: from, Y: 0}, {X: to, Y: 0}, {X: to, Y: p.Y.Max}, {X: from, Y: p.Y.Max}}}, Color: color.RGBA{253, 226, 200, 255}}
		p.Add(area)
	}
	top := p.Y.Max
	p.Add(lines...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, d.end(), 0, top
	return p
}

// steps are a value of each bin.
func (d *drawing) steps(value func(b *Bin, width time.Duration, i int) float64) plotter.XYs {
	var xys plotter.XYs
	for i := range d.bins {
		width := d.width
		if i == len(d.bins)-1 { // the last may be a part
			width = time.Duration(len(d.lane.Bins)-i*d.wide) * d.lane.line.width
		}
		xys = append(xys, plotter.XY{X: d.x(time.Duration(i) * d.width), Y: value(&d.bins[i], width, i)})
	}
	return append(xys, plotter.XY{X: d.end(), Y: xys[len(xys)-1].Y})
}

// line is a line of steps. Lines differ by colour, and by dashes too, for print.
func (d *drawing) line(colour int, name string, xys plotter.XYs, dashes ...vg.Length) *plotter.Line {
	l := &plotter.Line{XYs: xys, StepStyle: plotter.PostStep,
		LineStyle: draw.LineStyle{Color: chart.Colour(colour), Width: vg.Points(1.6), Dashes: dashes}}
	if name != "" {
		d.legend.Add(name, l)
		d.rows++
	}
	return l
}

// rate is the panel of calls per minute.
func (d *drawing) rate() *plot.Plot {
	perMinute := func(n int, width time.Duration) float64 { return float64(n) / width.Minutes() }
	lines := []plot.Plotter{d.line(0, "answered per minute; in flight", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Answered, w) }))}
	if d.lane.Throttled > 0 {
		lines = append(lines, d.line(1, "throttled per minute", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Throttled, w) }), 2, 2))
	}
	if d.lane.Failed > 0 {
		lines = append(lines, d.line(3, "failed attempts per minute", d.steps(func(b *Bin, w time.Duration, _ int) float64 { return perMinute(b.Failed, w) }), 9, 2, 2, 2))
	}
	for _, q := range d.lane.Quota {
		if q.dimension == sluice.Requests {
			lines = append(lines, d.limit("limit of requests per minute", d.limits(&q)))
		}
	}
	return d.marks(d.panel("calls per minute"), lines...)
}

// limits is a limit over time, from when it was known.
func (d *drawing) limits(q *Quota) plotter.XYs {
	var xys plotter.XYs
	for _, at := range d.lane.line.limits {
		if at.d == q.dimension {
			xys = append(xys, plotter.XY{X: min(d.x(at.x), d.end()), Y: float64(at.limit)})
		}
	}
	if len(xys) == 0 {
		return plotter.XYs{{X: 0, Y: float64(q.Limit)}, {X: d.end(), Y: float64(q.Limit)}}
	}
	return append(xys, plotter.XY{X: d.end(), Y: xys[len(xys)-1].Y})
}

// limit is a line that is not to be passed.
func (d *drawing) limit(name string, xys plotter.XYs) *plotter.Line {
	l := &plotter.Line{XYs: xys, StepStyle: plotter.PostStep,
		LineStyle: draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1.2), Dashes: []vg.Length{5, 4}}}
	d.legend.Add(name, l)
	d.rows++
	return l
}

// inFlight is the panel of open calls.
func (d *drawing) inFlight() *plot.Plot {
	p := d.panel("calls in flight")
	p.Y.Tick.Marker = chart.Ticks{Most: 5, Whole: true}
	return d.marks(p,
		d.line(0, "", d.steps(func(b *Bin, _ time.Duration, _ int) float64 { return float64(b.InFlight) })),
		d.line(2, "slots", d.steps(func(b *Bin, _ time.Duration, _ int) float64 { return float64(b.Slots) }), 7, 2))
}

// quota is the panel of how much of each limit was used.
func (d *drawing) quota() *plot.Plot {
	lines := []plot.Plotter{d.limit("all of a limit", plotter.XYs{{X: 0, Y: 100}, {X: d.end(), Y: 100}})}
	colour := 0
	for _, q := range d.lane.Quota {
		if window(q.dimension) > time.Minute {
			continue // a share of a day says nothing of a minute
		}
		lines = append(lines, d.line([...]int{0, 4, 5, 6, 3}[colour%5], "use of "+q.Dimension, d.steps(func(b *Bin, w time.Duration, _ int) float64 {
			return 100 * float64(b.used(q.dimension)) / (float64(q.Limit) * w.Minutes())
		})))
		colour++
	}
	return d.marks(d.panel("use of limits (%)"), lines...)
}

// draw is a histogram, by doublings of the time.
func (t Times) draw(label string, colour int) (template.HTML, error) {
	if t.Count == 0 {
		return "", nil
	}
	p := chart.Panel("items")
	p.X.Label.Text = label
	p.Y.Tick.Marker = chart.Ticks{Most: 5, Whole: true}
	values := make(plotter.Values, len(t.Bars))
	var ticks plot.ConstantTicks
	for i, b := range t.Bars {
		values[i] = float64(b.Count)
		ticks = append(ticks, plot.Tick{Value: float64(i) - 0.5, Label: took(b.From)})
	}
	ticks = append(ticks, plot.Tick{Value: float64(len(t.Bars)) - 0.5, Label: took(t.Bars[len(t.Bars)-1].To)})
	bars, err := plotter.NewBarChart(values, min(1.2*vg.Centimeter, 18*vg.Centimeter/vg.Length(len(values))))
	if err != nil {
		return "", err
	}
	bars.Color, bars.LineStyle.Width = chart.Colour(colour), 0
	p.Add(bars)
	p.X.Tick.Marker = ticks
	p.X.Min, p.X.Max, p.Y.Min = -0.5, float64(len(values))-0.5, 0
	return svg(panelHeight, func(c draw.Canvas) {
		p.Draw(draw.Crop(c, 3*vg.Millimeter, -8*vg.Millimeter, 2*vg.Millimeter, -2*vg.Millimeter))
	})
}
