// Package chart draws charts as SVG: panels one below the other, with aligned axes and round ticks, under one legend.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
)

// Lengths are in points.
const (
	width     = 680
	rightEdge = 24 // room for half of the last label of the horizontal axis
	gap       = 8
	row       = 16 // of text
	sample    = 28 // width of a mark in the legend
	headLeft  = 34
)

// Chart is a drawing of panels below a title, if there is one, and a legend. The legend shows each named mark once, in the
// order of the panels.
type Chart struct {
	Title   string
	Columns int     // of the legend (default 1)
	Height  float64 // of a panel and its axis, in points
	Panels  []*Panel
}

// Panel is one pair of axes and the marks on them. Later marks cover earlier ones.
type Panel struct {
	X, Y  Axis
	Marks []Mark
	Notes []Note
}

// Shape is how the points of a mark are drawn.
type Shape int

// The shapes.
const (
	Steps   Shape = iota // a line that keeps its height up to the next point
	Boxes                // a filled rectangle for each two points, which are opposite corners
	Dots                 // a disc for each point
	Crosses              // a + for each point
)

// Point is a place on the axes. Values outside an axis are drawn at its end.
type Point struct{ X, Y float64 }

// Mark is points of one shape and colour. A mark without a Name is not in the legend.
type Mark struct {
	Shape  Shape
	Name   string
	Points []Point
	Colour string
	Width  float64 // of the line, in points (default 1.6)
	Dashes string  // stroke-dasharray of the line
}

// Note is text on a panel.
type Note struct {
	Point
	Text   string
	Size   float64 // in points
	Anchor string  // text-anchor: start, middle or end
}

// Write writes the chart as SVG on a white background. The same chart makes the same bytes. It fails if w does.
func (c *Chart) Write(w io.Writer) error {
	var out canvas
	legend, top := c.legend(), 0.0
	columns := max(c.Columns, 1)
	if c.Title != "" {
		top += row + gap
	}
	head := top
	if len(legend) > 0 {
		head += gap + float64((len(legend)+columns-1)/columns*row)
	}
	height := head + c.Height*float64(len(c.Panels)) + row + gap
	out.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%dpt" height="%gpt" viewBox="0 0 %[1]d %[2]g" font-family="Liberation Sans,Arial,Helvetica,sans-serif">`+"\n", width, round(height))
	out.box(0, 0, width, height, "#FFFFFF")
	if c.Title != "" {
		out.text(headLeft, row+gap/2, 14, "start", c.Title)
	}
	for i, m := range legend {
		x, y := headLeft+float64(i%columns*(width-headLeft)/columns), top+float64((i/columns+1)*row)
		out.sample(m, x, y-4)
		out.text(x+sample+4, y, 11, "start", m.Name)
	}
	left := 0.0
	for _, p := range c.Panels {
		p.fit()
		for _, t := range p.Y.Ticks {
			left = max(left, row+gap+6*float64(len(t.Label)))
		}
	}
	for i, p := range c.Panels {
		low := head + c.Height*float64(i+1)
		out.panel(p, frame{left: left, right: width - rightEdge, top: low - c.Height + gap, bottom: low - row})
	}
	out.printf("</svg>\n")
	_, err := w.Write(out.Bytes())
	return err
}

// legend returns the first mark of each name.
func (c *Chart) legend() []Mark {
	var all []Mark
	seen := make(map[string]bool)
	for _, p := range c.Panels {
		for _, m := range p.Marks {
			if m.Name != "" && !seen[m.Name] {
				seen[m.Name] = true
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

// fit fills in the end of the vertical axis and the ticks of both, where the caller did not.
func (p *Panel) fit() {
	if p.Y.Max == 0 {
		p.Y.Max = max(p.Highest(), 1) * 1.08
	}
	p.X.tick(10)
	p.Y.tick(5)
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

// sample draws a mark as the legend shows it, left of x+sample and centred on y.
func (c *canvas) sample(m Mark, x, y float64) {
	f := frame{left: x, right: x + sample, top: y - 5, bottom: y + 5}
	p := Panel{X: Axis{Max: 1}, Y: Axis{Max: 1}}
	switch m.Shape {
	case Steps, Boxes:
		m.Points = []Point{{0, 0.5}, {1, 0.5}}
		if m.Shape == Boxes {
			m.Points = []Point{{0, 0}, {1, 1}}
		}
	case Dots, Crosses:
		m.Points = []Point{{0.5, 0.5}}
	}
	c.mark(&p, f, m)
}

// panel draws a panel, its axes around f.
func (c *canvas) panel(p *Panel, f frame) {
	var across, along bytes.Buffer
	middle := (f.top + f.bottom) / 2
	c.printf(`<text transform="translate(%g %g) rotate(-90)" font-size="11" text-anchor="middle">%s</text>`+"\n", 14.0, round(middle), html.EscapeString(p.Y.Label))
	for _, t := range p.Y.Ticks {
		_, y := f.at(p, Point{p.X.Min, t.Value})
		fmt.Fprintf(&across, "M%g,%gH%g", f.left, y, f.right)
		c.text(f.left-5, y+3.5, 10, "end", t.Label)
	}
	for _, t := range p.X.Ticks {
		x, _ := f.at(p, Point{t.Value, p.Y.Min})
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
	for _, n := range p.Notes {
		x, y := f.at(p, n.Point)
		c.text(x, y, n.Size, n.Anchor, n.Text)
	}
}

// mark draws a mark on the axes of p.
func (c *canvas) mark(p *Panel, f frame, m Mark) {
	const radius = 2.5
	var line bytes.Buffer
	for i, at := range m.Points {
		x, y := f.at(p, at)
		switch m.Shape {
		case Steps:
			if i == 0 {
				fmt.Fprintf(&line, "M%g,%g", x, y)
				break
			}
			if beforeX, before := f.at(p, m.Points[i-1]); before != y && beforeX != x {
				fmt.Fprintf(&line, "L%g,%g", x, before)
			}
			fmt.Fprintf(&line, "L%g,%g", x, y)
		case Boxes:
			if i%2 == 1 {
				x0, y0 := f.at(p, m.Points[i-1])
				c.box(min(x0, x), min(y0, y), math.Abs(x-x0), math.Abs(y-y0), m.Colour)
			}
		case Dots:
			c.printf(`<circle cx="%g" cy="%g" r="%g" style="fill:%s"/>`+"\n", x, y, radius, m.Colour)
		case Crosses:
			fmt.Fprintf(&line, "M%g,%gh%gm%g,%gv%g", round(x-radius), y, 2*radius, -radius, -radius, 2*radius)
		}
	}
	if line.Len() > 0 {
		if m.Shape == Crosses {
			m.Width = 0.8
		} else if m.Width == 0 {
			m.Width = 1.6
		}
		c.path(line.String(), m.Colour, m.Width, m.Dashes)
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

// Colours is the number of colours.
const Colours = 7

// Colour returns the i-th colour, from 0 to Colours-1. The palette of Okabe and Ito, without its yellow, is safe for the
// colour-blind (https://jfly.uni-koeln.de/color/).
func Colour(i int) string {
	return [Colours]string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"}[i]
}
