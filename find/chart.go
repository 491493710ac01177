package find

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
)

const (
	chartWidth  = 24 * vg.Centimeter
	panelHeight = 7 * vg.Centimeter
	headHeight  = 2.9 * vg.Centimeter
	headLeft    = 1.2 * vg.Centimeter

	mostBars   = 32
	mostPoints = 1500 // thinned evenly, if there are more
)

// Draw writes a chart of a search as SVG: the shares of calls accepted and refused and, where any were accepted, their
// latency, over the calls in flight when each was sent. The answer is marked, and the title says what binds it. The same
// result makes the same bytes. It fails when no call was answered or refused, or when w fails.
func Draw(w io.Writer, r *Result) error {
	if len(r.Probes) == 0 {
		return errors.New("chart: no call was answered or refused")
	}
	d := drawing{Result: r, most: r.Workers}
	for _, p := range r.Probes {
		d.most = max(d.most, p.InFlight)
	}
	panels := [][]*plot.Plot{{d.shares()}}
	if slices.ContainsFunc(r.Probes, func(p Probe) bool { return !p.Refused }) {
		panels = append(panels, []*plot.Plot{d.latencies()})
	}
	panels[len(panels)-1][0].X.Label.Text = "calls in flight"
	height := headHeight + panelHeight*vg.Length(len(panels))
	return chart.WriteSVG(w, chartWidth, height, func(c draw.Canvas) error {
		tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 8 * vg.Millimeter, PadBottom: 2 * vg.Millimeter}
		for i, row := range plot.Align(panels, tiles, draw.Crop(c, 0, 0, 0, -headHeight)) {
			panels[i][0].Draw(row[0])
		}
		d.head(c)
		return nil
	})
}

// drawing is a chart that is being drawn.
type drawing struct {
	*Result
	most int // calls in flight, or workers
}

// head is the title and, below it, what the marks mean.
func (d *drawing) head(c draw.Canvas) {
	title := draw.TextStyle{Color: color.Black, Font: chart.Sans(14), Handler: plot.DefaultTextHandler, YAlign: draw.YTop}
	c.FillText(title, vg.Point{X: c.Min.X + headLeft, Y: c.Max.Y - 3*vg.Millimeter}, d.title())
	calls, answer := chart.Legend(), chart.Legend()
	calls.Add("accepted calls: "+tally(d.Probes, func(p Probe) bool { return !p.Refused }), swatch{accepted()})
	calls.Add("refused calls: "+tally(d.Probes, func(p Probe) bool { return p.Refused }), swatch{refused()})
	for _, real := range []bool{true, false} {
		words := "latency of tiny calls"
		if real {
			words = "latency of real calls"
		}
		if slices.ContainsFunc(d.Probes, func(p Probe) bool { return p.Real == real && !p.Refused }) {
			answer.Add(words, &plotter.Scatter{GlyphStyle: glyph(real)})
		}
	}
	if d.Workers > 0 {
		calls.Add("the answer", d.rule(d.Workers))
	}
	if n, words := d.slots(); n > 0 {
		answer.Add(words, d.slotsRule(n))
	}
	top := -1.1 * vg.Centimeter
	calls.Draw(draw.Crop(c, headLeft, 0, 0, top))
	answer.Draw(draw.Crop(c, headLeft+8*vg.Centimeter, 0, 0, top))
}

// tally is how many of the probes are of a kind.
func tally(probes []Probe, kind func(Probe) bool) string {
	n := 0
	for _, p := range probes {
		if kind(p) {
			n++
		}
	}
	return prose.Group(n)
}

// title says what the answer is, and why it is not higher.
func (d *drawing) title() string {
	if d.Workers == 0 {
		return strings.TrimSuffix("no number of workers is known to be safe: "+d.binds(), ": ")
	}
	workers := "workers"
	if d.Workers == 1 {
		workers = "worker"
	}
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", d.Workers, workers, d.binds()), ": ")
}

// binds are the words for what keeps the answer from being higher.
func (d *drawing) binds() string {
	switch d.Bound {
	case BoundConcurrency:
		return soMany("calls may be open at once", d.Slots)
	case BoundQueue:
		return soMany("calls are served at once, and the others wait", d.Slots)
	case BoundRequests:
		return soMany("requests a minute", d.Limits[sluice.Requests])
	case BoundTokens:
		for _, dim := range []sluice.Dimension{sluice.Tokens, sluice.InputTokens, sluice.OutputTokens} {
			if f := d.Limits[dim]; f.Known() {
				return soMany(map[sluice.Dimension]string{sluice.Tokens: "tokens a minute", sluice.InputTokens: "input tokens a minute",
					sluice.OutputTokens: "output tokens a minute"}[dim], f)
			}
		}
		return "tokens a minute"
	case BoundWorkers:
		return "no more were asked for"
	case BoundCertified:
		return "no more could be certified"
	case BoundSoak:
		return "more were refused when they ran"
	case BoundNothing:
		return "every call was refused sooner or later"
	}
	return string(d.Bound)
}

// soMany says how many of something there may be, as far as that is known.
func soMany(words string, f Finding) string {
	n := prose.Group(math.Round(f.Value))
	switch {
	case !f.Known():
		return "only so many " + words
	case f.Source == sluice.SourceAtLeast:
		return fmt.Sprintf("at least %s %s (verified)", n, words)
	}
	return fmt.Sprintf("%s %s (%s)", n, words, f.Source)
}

// slots is where another line marks the calls that may be open, and its words; 0 is nowhere.
func (d *drawing) slots() (n int, words string) {
	n = int(d.Slots.Value)
	switch {
	case !d.Slots.Known() || n == d.Workers || n < 1 || n > d.most:
		return 0, ""
	case d.Queue:
		return n, soMany("served at once", d.Slots)
	}
	return n, soMany("open at once", d.Slots)
}

// panel returns an empty panel on the common axis of calls in flight.
func (d *drawing) panel(label string) *plot.Plot {
	p := chart.Panel(label)
	p.X.Tick.Marker = chart.Ticks{Most: 12, Whole: true}
	return p
}

// mark draws the lines that mark the answer and the slots, from one height to another.
func (d *drawing) mark(p *plot.Plot, low, high float64) {
	if n, _ := d.slots(); n > 0 {
		p.Add(between(d.slotsRule(n), low, high))
	}
	if d.Workers > 0 {
		p.Add(between(d.rule(d.Workers), low, high))
	}
}

func between(line *plotter.Line, low, high float64) *plotter.Line {
	line.XYs[0].Y, line.XYs[1].Y = low, high
	return line
}

// closePanel ends a panel's axes.
func (d *drawing) closePanel(p *plot.Plot, low, high float64) *plot.Plot {
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, float64(d.most+1), low, high
	return p
}

// shares is the panel of calls accepted and refused.
func (d *drawing) shares() *plot.Plot {
	p := d.panel("share of calls (%)")
	wide := (d.most + mostBars - 1) / mostBars
	bars := make([]bar, (d.most+wide-1)/wide)
	for _, probe := range d.Probes {
		b := &bars[(max(probe.InFlight, 1)-1)/wide]
		if b.calls++; probe.Refused {
			b.refused++
		}
	}
	labels := &plotter.Labels{}
	for i := range bars {
		b := &bars[i]
		b.from, b.to = float64(i*wide)+0.5, float64(min((i+1)*wide, d.most))+0.5
		if b.calls == 0 {
			continue
		}
		p.Add(b)
		labels.XYs = append(labels.XYs, plotter.XY{X: (b.from + b.to) / 2, Y: 101})
		labels.Labels = append(labels.Labels, prose.Group(b.calls))
		labels.TextStyle = append(labels.TextStyle, text(8, draw.XCenter))
	}
	p.Add(labels)
	d.mark(p, 0, 100)
	d.mark(p, 109, 122) // not through the counts
	if d.Workers > 0 {
		p.Add(d.answer())
	}
	p.Y.Tick.Marker = percents{}
	return d.closePanel(p, 0, 122)
}

// answer is the words beside the line, on the side where there is more room.
func (d *drawing) answer() *plotter.Labels {
	words := &plotter.Labels{XYs: plotter.XYs{{X: float64(d.Workers), Y: 111}}, Labels: []string{fmt.Sprintf("answer: %d", d.Workers)},
		TextStyle: []draw.TextStyle{text(11, draw.XLeft)}, Offset: vg.Point{X: 2.5 * vg.Millimeter}}
	if 2*d.Workers > d.most {
		words.TextStyle[0].XAlign, words.Offset.X = draw.XRight, -words.Offset.X
	}
	return words
}

func text(points float64, align draw.XAlignment) draw.TextStyle {
	return draw.TextStyle{Color: color.Black, Font: chart.Sans(points), Handler: plot.DefaultTextHandler, XAlign: align}
}

// percents are the ticks of a share, which has no more than all.
type percents struct{}

// Ticks implements plot.Ticker.
func (percents) Ticks(_, _ float64) []plot.Tick { return chart.Ticks{Most: 5}.Ticks(0, 100) }

// latencies is the panel of how long accepted calls took.
func (d *drawing) latencies() *plot.Plot {
	p := d.panel("latency (s)")
	var scatters []plot.Plotter
	least, most := math.Inf(1), 0.0
	for _, real := range []bool{false, true} { // there are fewer real ones, and they matter more: they are on top
		var points plotter.XYs
		for _, probe := range d.Probes {
			if probe.Real == real && !probe.Refused {
				// What took no time at all would be nowhere on an axis of powers.
				y := max(probe.Latency.Seconds(), 1e-4)
				points = append(points, plotter.XY{X: float64(probe.InFlight), Y: y})
				least, most = min(least, y), max(most, y)
			}
		}
		scatters = append(scatters, &plotter.Scatter{XYs: thin(points), GlyphStyle: glyph(real)})
	}
	low, high := 0.0, most*1.1
	if most > 5*least {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, chart.Powers{}
		p.Y.Label.Text = "latency (s, log)"
		low, high = least/1.5, most*1.5
	}
	d.mark(p, low, high)
	p.Add(scatters...)
	return d.closePanel(p, low, high)
}

// thin leaves so many points that they can be seen.
func thin(points plotter.XYs) plotter.XYs {
	slices.SortStableFunc(points, func(a, b plotter.XY) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	every := (len(points) + mostPoints - 1) / mostPoints
	var few plotter.XYs
	for i := 0; i < len(points); i += every {
		few = append(few, points[i])
	}
	return few
}

// rule is the line that marks the answer.
func (d *drawing) rule(workers int) *plotter.Line {
	return &plotter.Line{XYs: plotter.XYs{{X: float64(workers)}, {X: float64(workers)}},
		LineStyle: draw.LineStyle{Color: color.Black, Width: vg.Points(1.6), Dashes: []vg.Length{6, 3}}}
}

// slotsRule is the line that marks how many calls may be open.
func (d *drawing) slotsRule(n int) *plotter.Line {
	line := d.rule(n)
	line.LineStyle = draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1.2), Dashes: []vg.Length{2, 2}}
	return line
}

func accepted() color.Color { return chart.Colour(4) }
func refused() color.Color  { return chart.Colour(1) }

// glyph is the mark of a call's latency. They differ by form, too, for print.
func glyph(real bool) draw.GlyphStyle {
	if real {
		return draw.GlyphStyle{Color: chart.Colour(6), Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
	}
	return draw.GlyphStyle{Color: chart.Colour(0), Radius: vg.Points(2.5), Shape: draw.PlusGlyph{}}
}

// bar is the calls that were sent with so many in flight.
type bar struct {
	from, to       float64
	calls, refused int
}

// Plot implements plot.Plotter.
func (b *bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	gap := min(vg.Points(1), (x(b.to)-x(b.from))/8)
	part := func(low, high float64, colour color.Color) {
		if high > low {
			c.FillPolygon(colour, []vg.Point{{X: x(b.from) + gap, Y: y(low)}, {X: x(b.to) - gap, Y: y(low)}, {X: x(b.to) - gap, Y: y(high)}, {X: x(b.from) + gap, Y: y(high)}})
		}
	}
	share := 100 * float64(b.calls-b.refused) / float64(b.calls)
	part(0, share, accepted())
	part(share, 100, refused())
}

// swatch is a colour in a legend.
type swatch struct{ colour color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	right, low, high := c.Max.X-vg.Millimeter, c.Min.Y+vg.Millimeter/2, c.Max.Y-vg.Millimeter/2
	c.FillPolygon(s.colour, []vg.Point{{X: c.Min.X, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: c.Min.X, Y: high}})
}
