// Package chart draws charts as SVG: panels one below the other, with aligned axes and round ticks, under one legend.
package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Lengths are in points.
const (
	width     = 680
	rightEdge = 24 // room for half of the last label of the horizontal axis
	gap       = 8
	row       = 16 // of text
	sample    = 28 // width of a mark in the legend
	headLeft  = 34
	lineWidth = 1.6
)

// Panel is one pair of axes and the marks on them. Later marks cover earlier ones.
type Panel struct {
	X, Y  Axis
	Marks []Mark
}

// Point is a place on the axes. Values outside an axis are drawn at its end.
type Point struct{ X, Y float64 }

// Mark is points of one colour: a line that keeps its height up to the next point, or boxes. A mark without a Name is not in
// the legend.
type Mark struct {
	Boxes  bool // a filled rectangle for each two points, which are opposite corners
	Name   string
	Points []Point
	Colour string
	Width  float64 // of the line, in points (default 1.6)
	Dashes string  // stroke-dasharray of the line
}

// Write draws panels as SVG on a white background, below a legend that shows each named mark once, in the order of the
// panels. height is that of a panel and its axis, in points. The same panels make the same bytes. It fails if w does.
func Write(w io.Writer, height float64, panels ...*Panel) error {
	var out canvas
	legend := marksByName(panels)
	head := float64(gap*min(1, len(legend)) + row*len(legend))
	total := head + height*float64(len(panels)) + row + gap
	out.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%dpt" height="%gpt" viewBox="0 0 %[1]d %[2]g" font-family="Liberation Sans,Arial,Helvetica,sans-serif">`+"\n", width, round(total))
	out.box(0, 0, width, total, "#FFFFFF")
	for i, m := range legend {
		y := float64((i + 1) * row)
		out.sample(m, headLeft, y-4)
		out.text(headLeft+sample+4, y, 11, "start", m.Name)
	}
	left := 0.0
	for _, p := range panels {
		if p.Y.Max == 0 {
			p.Y.Max = max(p.Highest(), 1) * 1.08
		}
		p.X.tick(10)
		p.Y.tick(5)
		for _, t := range p.Y.Ticks {
			left = max(left, row+gap+6*float64(len(t.Label)))
		}
	}
	for i, p := range panels {
		low := head + height*float64(i+1)
		out.panel(p, frame{left: left, right: width - rightEdge, top: low - height + gap, bottom: low - row})
	}
	out.printf("</svg>\n")
	_, err := w.Write(out.Bytes())
	return err
}

// marksByName returns the first mark of each name.
func marksByName(panels []*Panel) (all []Mark) {
	for _, p := range panels {
		for _, m := range p.Marks {
			if m.Name != "" && !slices.ContainsFunc(all, func(other Mark) bool { return other.Name == m.Name }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Highest returns the largest finite Y of the marks, at least 0.
func (p *Panel) Highest() float64 {
	highest := 0.0
	for _, m := range p.Marks {
		for _, at := range m.Points {
			if at.Y > highest && !math.IsInf(at.Y, 1) {
				highest = at.Y
			}
		}
	}
	return highest
}

// frame is the part of the canvas that the axes enclose.
type frame struct{ left, right, top, bottom float64 }

// canvas is the SVG written so far.
type canvas struct{ bytes.Buffer }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.Buffer, format, args...) }

func (c *canvas) text(x, y, size float64, anchor, text string) {
	c.printf(`<text x="%g" y="%g" font-size="%g" text-anchor="%s">%s</text>`+"\n", round(x), round(y), size, anchor, html.EscapeString(text))
}

func (c *canvas) box(x, y, w, h float64, colour string) {
	c.printf(`<rect x="%g" y="%g" width="%g" height="%g" style="fill:%s"/>`+"\n", round(x), round(y), round(w), round(h), colour)
}

func (c *canvas) path(d, colour string, width float64, dashes string) {
	if dashes != "" {
		dashes = ";stroke-dasharray:" + dashes
	}
	c.printf(`<path d="%s" style="fill:none;stroke:%s;stroke-width:%g%s"/>`+"\n", d, colour, width, dashes)
}

// sample draws a mark as the legend shows it, from x and centred on y.
func (c *canvas) sample(m Mark, x, y float64) {
	if m.Boxes {
		c.box(x, y-5, sample, 10, m.Colour)
		return
	}
	c.path(fmt.Sprintf("M%g,%gH%g", x, y, x+sample), m.Colour, cmp.Or(m.Width, lineWidth), m.Dashes)
}

// panel draws a panel, its axes around f.
func (c *canvas) panel(p *Panel, f frame) {
	var across, along bytes.Buffer
	middle := (f.top + f.bottom) / 2
	c.printf(`<text transform="translate(%g %g) rotate(-90)" font-size="11" text-anchor="middle">%s</text>`+"\n", 14.0, round(middle), html.EscapeString(p.Y.Label))
	for _, t := range p.Y.Ticks {
		_, y := f.at(p, Point{Y: t.Value})
		fmt.Fprintf(&across, "M%g,%gH%g", f.left, y, f.right)
		c.text(f.left-5, y+3.5, 10, "end", t.Label)
	}
	for _, t := range p.X.Ticks {
		x, _ := f.at(p, Point{X: t.Value})
		fmt.Fprintf(&along, "M%g,%gV%g", x, round(f.bottom), round(f.top))
		c.text(x, f.bottom+13, 10, "middle", t.Label)
	}
	c.text((f.left+f.right)/2, f.bottom+13+row, 11, "middle", p.X.Label)
	c.path(along.String(), "#F0F0F0", 0.5, "")
	c.path(across.String(), "#E1E1E1", 0.5, "")
	for _, m := range p.Marks {
		c.mark(p, f, m)
	}
	c.path(fmt.Sprintf("M%g,%gV%gH%g", f.left, round(f.top), round(f.bottom), f.right), "#000000", 0.5, "")
}

// mark draws a mark on the axes of p.
func (c *canvas) mark(p *Panel, f frame, m Mark) {
	var line bytes.Buffer
	lastX, lastY := 0.0, 0.0
	for i, at := range m.Points {
		x, y := f.at(p, at)
		switch {
		case m.Boxes && i%2 == 1:
			c.box(min(lastX, x), min(lastY, y), math.Abs(x-lastX), math.Abs(y-lastY), m.Colour)
		case m.Boxes:
		case i == 0:
			fmt.Fprintf(&line, "M%g,%g", x, y)
		case lastY != y && lastX != x:
			fmt.Fprintf(&line, "L%g,%gL%g,%g", x, lastY, x, y)
		default:
			fmt.Fprintf(&line, "L%g,%g", x, y)
		}
		lastX, lastY = x, y
	}
	if line.Len() > 0 {
		c.path(line.String(), m.Colour, cmp.Or(m.Width, lineWidth), m.Dashes)
	}
}

// at returns the place of a point of p on the canvas.
func (f frame) at(p *Panel, at Point) (x, y float64) {
	return round(f.left + p.X.share(at.X)*(f.right-f.left)), round(f.bottom - p.Y.share(at.Y)*(f.bottom-f.top))
}

// round keeps hundredths of a point.
func round(x float64) float64 { return math.Round(x*100) / 100 }

// Grey is the colour of limits.
const Grey = "#5A5A5A"

// Colour returns the i-th of seven colours, from 0. The palette of Okabe and Ito, without its yellow, is safe for the
// colour-blind (https://jfly.uni-koeln.de/color/).
func Colour(i int) string {
	return [...]string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"}[i]
}

// Axis is one axis of a panel, from 0 to Max.
type Axis struct {
	Label string
	Max   float64 // a vertical axis without a Max ends above all marks
	Whole bool    // no ticks between whole numbers
	Ticks []Tick  // default: few round numbers
}

// Tick is a labelled value of an axis.
type Tick struct {
	Value float64
	Label string
}

// share returns how far along the axis a value is, from 0 to 1.
func (a *Axis) share(v float64) float64 {
	if v > 0 { // false for NaN
		return min(1, v/a.Max)
	}
	return 0
}

// tick gives the axis at most count ticks, and one at 0, at multiples of 1, 2 or 5 times a power of ten. It keeps ticks that
// are there.
func (a *Axis) tick(count int) {
	if a.Ticks != nil || a.Max <= 0 {
		return
	}
	step := math.Pow(10, math.Floor(math.Log10(max(a.Max, 1e-9))))
	for step*float64(count) > 4*a.Max {
		step /= 10
	}
	for i := 0; a.Max/step > float64(count); i++ { // 1, 2, 5, 10, ...
		step *= [3]float64{2, 2.5, 2}[i%3]
	}
	if a.Whole {
		step = max(step, 1)
	}
	for i := 0.0; i*step <= a.Max*(1+1e-9); i++ {
		a.Ticks = append(a.Ticks, Tick{i * step, label(i * step)})
	}
}

// label writes a number with commas between its thousands, and one that is not whole with at most four digits.
func label(x float64) string {
	if x != math.Trunc(x) {
		return fmt.Sprintf("%.4g", x)
	}
	return prose.Group(x)
}
