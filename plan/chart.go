package plan

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
)

// Named is a forecast as a chart names it.
type Named struct {
	Name string
	Forecast
}

// mostLines is how many forecasts can be told apart in one chart: so many colours are safe for the colour-blind.
const mostLines = chart.Colours

const (
	chartWidth  = 24 * vg.Centimeter
	panelHeight = 5.5 * vg.Centimeter
	mostPoints  = 120
)

// Draw writes a chart of the forecasts as SVG, all on the same axes: calls answered per minute, of a single one beside what
// its tightest limit allows, the tightest limit's use, calls in flight, and throttled calls so far, if there are any. Runs
// of very different length are drawn over the share of each one's own time, and rates that differ as much on a logarithmic
// axis. The same forecasts make the same bytes. It fails when there is nothing to draw, more than 7 forecasts, or w fails.
func Draw(w io.Writer, forecasts ...Named) error {
	return chart.WriteSVG(w, chartWidth, chartHeight(forecasts), func(c draw.Canvas) error { return drawOn(c, forecasts) })
}

const legendRow = 0.55 * vg.Centimeter

func chartHeight(forecasts []Named) vg.Length {
	panels := 3
	if anyThrottled(forecasts) {
		panels++
	}
	return panelHeight*vg.Length(panels) + headHeight(forecasts)
}

// headHeight is the legend's: a row for each forecast, and one for the limits.
func headHeight(forecasts []Named) vg.Length { return legendRow * vg.Length(len(forecasts)+2) }

func anyThrottled(forecasts []Named) bool {
	return slices.ContainsFunc(forecasts, func(f Named) bool { return f.Throttled > 0 })
}

// drawOn draws the chart on c.
func drawOn(c draw.Canvas, forecasts []Named) error {
	longest, shortest := time.Duration(0), time.Duration(math.MaxInt64)
	for _, f := range forecasts {
		if len(f.Steps) == 0 || f.Time <= 0 {
			return fmt.Errorf("chart: forecast %q is empty", f.Name)
		}
		longest, shortest = max(longest, f.Time), min(shortest, f.Time)
	}
	switch {
	case len(forecasts) == 0:
		return errors.New("chart: there is no forecast")
	case len(forecasts) > mostLines:
		return fmt.Errorf("chart: %d forecasts cannot be told apart: want at most %d", len(forecasts), mostLines)
	}
	ch := drawing{forecasts: forecasts, longest: longest, legend: chart.Legend(), shares: longest > comparable*shortest}
	ch.unit, ch.unitName = timeUnit(longest)

	panels := [][]*plot.Plot{{ch.rate()}, {ch.quota()}, {ch.inFlight()}}
	if anyThrottled(forecasts) {
		panels = append(panels, []*plot.Plot{ch.throttled()})
	}
	panels[len(panels)-1][0].X.Label.Text = "time (" + ch.unitName + ")"
	if ch.shares {
		panels[len(panels)-1][0].X.Label.Text = "share of each run's own time (%)"
	}
	head := headHeight(forecasts)
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 8 * vg.Millimeter, PadBottom: 2 * vg.Millimeter}
	for i, row := range plot.Align(panels, tiles, draw.Crop(c, 0, 0, 0, -head)) {
		panels[i][0].Draw(row[0])
	}
	ch.legend.Draw(draw.Crop(c, 2*vg.Centimeter, 0, 0, -2*vg.Millimeter))
	return nil
}

// drawing is a chart that is being drawn.
type drawing struct {
	forecasts []Named
	longest   time.Duration
	unit      time.Duration // of the axis of time
	unitName  string
	shares    bool // the axis of time is each forecast's own
	legend    plot.Legend
}

// comparable is how many times as long, or as fast, one forecast may be as another on a common axis: of more, the smaller
// is squeezed to nothing.
const comparable = 2

// timeUnit is the unit in which a time of that length is best told.
func timeUnit(d time.Duration) (time.Duration, string) {
	switch {
	case d <= 3*time.Minute:
		return time.Second, "seconds"
	case d <= 3*time.Hour:
		return time.Minute, "minutes"
	case d <= 72*time.Hour:
		return time.Hour, "hours"
	}
	return 24 * time.Hour, "days"
}

// panel returns an empty panel on the common axis of time.
func (ch *drawing) panel(label string) *plot.Plot {
	p := chart.Panel(label)
	p.X.Min, p.X.Max = 0, ch.end()
	return p
}

// closePanel ends a panel's axis above everything in it.
func closePanel(p *plot.Plot) *plot.Plot {
	p.X.Min, p.Y.Min = 0, 0
	p.Y.Max = max(p.Y.Max, 1) * 1.08
	return p
}

// rate is the panel of calls per minute.
func (ch *drawing) rate() *plot.Plot {
	p := ch.panel("answered per minute")
	var lines []*plotter.Line
	slowest, fastest := math.Inf(1), 0.0 // on average
	for i, f := range ch.forecasts {
		line := ch.line(i, ch.points(f, func(s Step, width time.Duration) float64 { return float64(s.Answered) / width.Minutes() }))
		lines = append(lines, line)
		p.Add(line)
		ch.legend.Add(summary(f), line)
		slowest, fastest = min(slowest, f.PerMinute()), max(fastest, f.PerMinute())
	}
	ch.legend.Add(ch.limitWords(p), ch.rule(0))
	if slowest > 0 && fastest > comparable*slowest {
		return logarithmic(p, lines, slowest)
	}
	return closePanel(p)
}

// limitWords say what a dashed line is. Of one forecast it stands beside the rate, too; those of several would not be told
// apart there.
func (ch *drawing) limitWords(p *plot.Plot) string {
	if len(ch.forecasts) > 1 {
		return "all of a run's tightest limit"
	}
	f := ch.forecasts[0]
	q, ok := tightest(f.Quotas)
	if !ok || f.Answered == 0 || q.Spent == 0 {
		return "limit"
	}
	allowed := float64(q.Limit) / minutes(q.Dimension) / (q.Spent / float64(f.Answered))
	if allowed <= 4*p.Y.Max { // far above, it would squeeze the line to the ground
		p.Add(ch.rule(allowed))
	}
	text := fmt.Sprintf("tightest limit: %v %s", q.Dimension, prose.Group(q.Limit))
	if q.Dimension != sluice.Requests {
		text += fmt.Sprintf(", which allows %.4g answers a minute", allowed)
	}
	return text
}

// logarithmic gives the panel an axis of powers, down to half of the slowest run's rate: single steps below are cut.
func logarithmic(p *plot.Plot, lines []*plotter.Line, slowest float64) *plot.Plot {
	for _, line := range lines {
		for i := range line.XYs {
			line.XYs[i].Y = max(line.XYs[i].Y, slowest/2)
		}
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, slowest/2, p.Y.Max*1.3
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, chart.Powers{}
	p.Y.Label.Text = "answered/min (log)"
	return p
}

// summary is a forecast in the legend.
func summary(f Named) string {
	text := fmt.Sprintf("%s: %s calls in %s, %s throttled", f.Name, prose.Group(f.Answered), roundTime(f.Time), prose.Group(f.Throttled))
	if q, ok := tightest(f.Quotas); ok {
		text += fmt.Sprintf(", tightest limit %v %s", q.Dimension, prose.Group(q.Limit))
	}
	if f.Failed > 0 {
		text += fmt.Sprintf(", %s failed", prose.Group(f.Failed))
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

// quota is the panel of each forecast's tightest limit.
func (ch *drawing) quota() *plot.Plot {
	p := ch.panel("tightest limit used (%)")
	for i, f := range ch.forecasts {
		q, ok := tightest(f.Quotas)
		if !ok {
			continue
		}
		p.Add(ch.line(i, ch.points(f, func(s Step, width time.Duration) float64 {
			return 100 * q.of(s) / width.Minutes() / (float64(q.Limit) / minutes(q.Dimension))
		})))
		p.Y.Label.Text = fmt.Sprintf("tightest limit used: %v (%%)", q.Dimension)
	}
	if len(ch.forecasts) > 1 {
		p.Y.Label.Text = "tightest limit used (%)"
	}
	p.Add(ch.rule(100))
	return closePanel(p)
}

// tightest is the limit of which most was used.
func tightest(quotas []QuotaUse) (most QuotaUse, ok bool) {
	for _, q := range quotas {
		if !ok || q.Share > most.Share {
			most, ok = q, true
		}
	}
	return most, ok
}

// of is what a step used of the limit.
func (q *QuotaUse) of(s Step) float64 {
	switch q.Dimension {
	case sluice.Tokens:
		return s.Spent.Tokens
	case sluice.InputTokens:
		return s.Spent.Input
	case sluice.OutputTokens:
		return s.Spent.Output
	}
	return s.Spent.Requests
}

// inFlight is the panel of open calls.
func (ch *drawing) inFlight() *plot.Plot {
	p := ch.panel("calls in flight (most)")
	p.Y.Tick.Marker = chart.Ticks{Most: 5, Whole: true}
	for i, f := range ch.forecasts {
		p.Add(ch.line(i, ch.points(f, func(s Step, _ time.Duration) float64 { return float64(s.InFlight) })))
	}
	return closePanel(p)
}

// throttled is the panel of throttled calls: their number so far, as a rate makes a storm of a single one.
func (ch *drawing) throttled() *plot.Plot {
	p := ch.panel("throttled so far")
	p.Y.Tick.Marker = chart.Ticks{Most: 5, Whole: true}
	for i, f := range ch.forecasts {
		sum := 0
		p.Add(ch.line(i, ch.points(f, func(s Step, _ time.Duration) float64 {
			sum += s.Throttled
			return float64(sum)
		})))
	}
	return closePanel(p)
}

// points are a value of a forecast over time, of steps so wide that their number can be seen and single calls do not
// show.
func (ch *drawing) points(f Named, value func(s Step, width time.Duration) float64) plotter.XYs {
	const enough = 15 // calls in a step, on average
	wide := (len(f.Steps) + mostPoints - 1) / mostPoints
	for len(f.Steps)/wide > 12 && float64(f.Answered)*float64(wide) < enough*float64(len(f.Steps)) {
		wide++
	}
	var xys plotter.XYs
	for from := 0; from < len(f.Steps); from += wide {
		var sum Step
		for _, s := range f.Steps[from:min(from+wide, len(f.Steps))] {
			sum = sum.with(s)
		}
		begin := time.Duration(from) * f.Width
		end := min(begin+time.Duration(wide)*f.Width, f.Time)
		if end-begin < f.Width/2 && from > 0 { // a rest, too short to tell a rate by
			break
		}
		xys = append(xys, plotter.XY{X: ch.x(f, begin), Y: value(sum, max(end-begin, time.Nanosecond))})
	}
	xys = append(xys, plotter.XY{X: ch.x(f, f.Time), Y: xys[len(xys)-1].Y}) // the end of the last step
	return xys
}

// x is where an instant of a forecast is on the axis of time, which ends at end.
func (ch *drawing) x(f Named, d time.Duration) float64 {
	if ch.shares {
		return 100 * float64(d) / float64(f.Time)
	}
	return float64(d) / float64(ch.unit)
}

func (ch *drawing) end() float64 {
	if ch.shares {
		return 100
	}
	return float64(ch.longest) / float64(ch.unit)
}

// line is the i-th forecast's. Lines differ by colour, and by dashes too, for print.
func (ch *drawing) line(i int, points plotter.XYs) *plotter.Line {
	dashes := [mostLines][]vg.Length{nil, {7, 2}, {2, 2}, {9, 2, 2, 2}, {4, 4}, {12, 3}, {1, 3}}
	return &plotter.Line{XYs: points, StepStyle: plotter.PostStep,
		LineStyle: draw.LineStyle{Color: chart.Colour(i), Width: vg.Points(1.6), Dashes: dashes[i]}}
}

// rule is a limit.
func (ch *drawing) rule(y float64) *plotter.Line {
	return &plotter.Line{XYs: plotter.XYs{{X: 0, Y: y}, {X: ch.end(), Y: y}},
		LineStyle: draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1), Dashes: []vg.Length{5, 4}}}
}
