package plan

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sluice-llm/sluice"
)

// Named is a forecast as a chart names it.
type Named struct {
	Name string
	Forecast
}

// mostLines is how many forecasts can be told apart in one chart: so many colours are safe for the colour-blind.
const mostLines = 7

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
	canvas := vgsvg.New(chartWidth, chartHeight(forecasts))
	if err := drawOn(draw.New(canvas), forecasts); err != nil {
		return err
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Few machines have the font by which the text was measured; these are as wide.
	_, err := w.Write(bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")))
	return err
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
	ch := chart{forecasts: forecasts, longest: longest, legend: plot.NewLegend(), shares: longest > comparable*shortest}
	ch.unit, ch.unitName = timeUnit(longest)
	ch.legend.TextStyle.Font = sans(11)
	ch.legend.Top, ch.legend.Left = true, true
	ch.legend.ThumbnailWidth, ch.legend.Padding = vg.Centimeter, vg.Millimeter

	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
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

// chart is one that is being drawn.
type chart struct {
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
func (ch *chart) panel(label string) *plot.Plot {
	p := plot.New()
	p.Y.Label.Text = label
	p.Y.Label.TextStyle.Font, p.X.Label.TextStyle.Font = sans(11), sans(11)
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = sans(10), sans(10)
	p.X.Min, p.X.Max = 0, ch.end()
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{most: 10}, ticks{most: 5}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{240}
	p.Add(grid)
	return p
}

// closePanel ends a panel's axis above everything in it.
func closePanel(p *plot.Plot) *plot.Plot {
	p.X.Min, p.Y.Min = 0, 0
	p.Y.Max = max(p.Y.Max, 1) * 1.08
	return p
}

// rate is the panel of calls per minute.
func (ch *chart) rate() *plot.Plot {
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
func (ch *chart) limitWords(p *plot.Plot) string {
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
	text := fmt.Sprintf("tightest limit: %v %s", q.Dimension, thousands(float64(q.Limit)))
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
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, powers{}
	p.Y.Label.Text = "answered/min (log)"
	return p
}

// summary is a forecast in the legend.
func summary(f Named) string {
	text := fmt.Sprintf("%s: %s calls in %s, %s throttled", f.Name, thousands(float64(f.Answered)), roundTime(f.Time), thousands(float64(f.Throttled)))
	if q, ok := tightest(f.Quotas); ok {
		text += fmt.Sprintf(", tightest limit %v %s", q.Dimension, thousands(float64(q.Limit)))
	}
	if f.Failed > 0 {
		text += fmt.Sprintf(", %s failed", thousands(float64(f.Failed)))
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
func (ch *chart) quota() *plot.Plot {
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
func (ch *chart) inFlight() *plot.Plot {
	p := ch.panel("calls in flight (most)")
	p.Y.Tick.Marker = ticks{most: 5, whole: true}
	for i, f := range ch.forecasts {
		p.Add(ch.line(i, ch.points(f, func(s Step, _ time.Duration) float64 { return float64(s.InFlight) })))
	}
	return closePanel(p)
}

// throttled is the panel of throttled calls: their number so far, as a rate makes a storm of a single one.
func (ch *chart) throttled() *plot.Plot {
	p := ch.panel("throttled so far")
	p.Y.Tick.Marker = ticks{most: 5, whole: true}
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
func (ch *chart) points(f Named, value func(s Step, width time.Duration) float64) plotter.XYs {
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
func (ch *chart) x(f Named, d time.Duration) float64 {
	if ch.shares {
		return 100 * float64(d) / float64(f.Time)
	}
	return float64(d) / float64(ch.unit)
}

func (ch *chart) end() float64 {
	if ch.shares {
		return 100
	}
	return float64(ch.longest) / float64(ch.unit)
}

// line is the i-th forecast's. Lines differ by colour, and by dashes too, for print.
func (ch *chart) line(i int, points plotter.XYs) *plotter.Line {
	// The palette of Okabe and Ito, without its yellow, is safe for the colour-blind:
	// https://jfly.uni-koeln.de/color/
	colours := [mostLines]color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255}, {230, 159, 0, 255}, {0, 0, 0, 255},
	}
	dashes := [mostLines][]vg.Length{nil, {7, 2}, {2, 2}, {9, 2, 2, 2}, {4, 4}, {12, 3}, {1, 3}}
	return &plotter.Line{XYs: points, StepStyle: plotter.PostStep,
		LineStyle: draw.LineStyle{Color: colours[i], Width: vg.Points(1.6), Dashes: dashes[i]}}
}

// rule is a limit.
func (ch *chart) rule(y float64) *plotter.Line {
	return &plotter.Line{XYs: plotter.XYs{{X: 0, Y: y}, {X: ch.end(), Y: y}},
		LineStyle: draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1), Dashes: []vg.Length{5, 4}}}
}

func sans(points float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(points)}
}

// ticks are at most so many round numbers.
type ticks struct {
	most  int
	whole bool // none between whole numbers
}

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(max(high-low, 1e-9))))
	for step*float64(t.most) > 4*(high-low) {
		step /= 10
	}
	for i := 0; (high-low)/step > float64(t.most); i++ { // 1, 2, 5, 10, ...
		step *= [3]float64{2, 2.5, 2}[i%3]
	}
	if t.whole {
		step = max(step, 1)
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		out = append(out, plot.Tick{Value: i * step, Label: thousands(i * step)})
	}
	return out
}

// powers are the ticks 1, 2, 5, 10, 20 and so on of a logarithmic axis.
type powers struct{}

// Ticks implements plot.Ticker.
func (powers) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, digit := range [...]float64{1, 2, 5} {
			if at := digit * power; at >= low && at <= high {
				out = append(out, plot.Tick{Value: at, Label: thousands(at)})
			}
		}
	}
	return out
}

// thousands writes 30000 as 30,000, and what is no whole number with the digits that it has.
func thousands(x float64) string {
	if x != math.Trunc(x) {
		return fmt.Sprintf("%.4g", x)
	}
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
