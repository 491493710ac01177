// Package chart draws charts as SVG, for light and dark backgrounds. A chart has one panel or several, one below the other.
// Each panel has a title, a legend and axes with round ticks.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Lengths are in pixels, for a chart that is shown at its own width.
const (
	width      = 440
	plotHeight = 130
	titleRow   = 19
	legendRow  = 16
	tickRow    = 20
	margin     = 12  // around the panels of a file
	rightEdge  = 24  // room for half of the last label of the horizontal axis
	sample     = 18  // width of a mark in the legend
	letter     = 5.8 // mean width of a letter of the legend
	digit      = 6.2 // width of a digit at a tick
	lineWidth  = 1.8

	maxName = 70 // letters of a name in the legend, which fill a row
)

// Panel is a pair of axes and the marks on them. Later marks cover earlier ones.
type Panel struct {
	Title string // says what is drawn, and in which unit
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
	Colour Colour
	Dashes string // stroke-dasharray of the line
}

// Colour is a colour of the palette, which has a value for light and one for dark backgrounds.
type Colour int

// The first seven are for series. They are the palette of Okabe and Ito without its yellow, which is safe for the
// colour-blind (https://jfly.uni-koeln.de/color/).
const (
	Blue Colour = iota
	Vermilion
	Green
	Purple
	Sky
	Orange
	Black
	Grey  // limits
	Peach // pauses; light enough for lines upon it
	ink
	grid
	paper
)

var palette = [...]struct{ light, dark string }{
	Blue: {"#0072B2", "#4BA3DB"}, Vermilion: {"#D55E00", "#FF8A3D"}, Green: {"#009E73", "#2FC79A"}, Purple: {"#CC79A7", "#E59AC4"},
	Sky: {"#56B4E9", "#8FD0F5"}, Orange: {"#E69F00", "#F2B84B"}, Black: {"#000000", "#E6E8EB"}, Grey: {"#5A5A5A", "#B4BAC4"},
	Peach: {"#FDE2C8", "#553A26"}, ink: {"#1C1E21", "#D5D9DF"}, grid: {"#E1E1E1", "#3A4049"}, paper: {"#FFFFFF", "#16181C"},
}

// Style returns the style sheet that a page with charts needs for its dark variant.
func Style() string {
	var b strings.Builder
	b.WriteString("@media (prefers-color-scheme: dark) {")
	for c, of := range palette {
		fmt.Fprintf(&b, " .chart .k%d { color: %s }", c, of.dark)
	}
	b.WriteString(" }\n")
	return b.String()
}

// SVG returns a panel as an element of a page that includes Style. The same panel makes the same bytes.
func SVG(p *Panel) string { return draw("", 0, p) }

// Write writes panels as a file of its own. The same panels make the same bytes. It fails if w does.
func Write(w io.Writer, panels ...*Panel) error {
	_, err := io.WriteString(w, draw("<style>"+Style()+"</style>\n", margin, panels...))
	return err
}

// draw returns panels one below the other, with aligned axes, and paper around them.
func draw(style string, around float64, panels ...*Panel) string {
	var c canvas
	left := 26.0 // room for half of the first label of the horizontal axis
	titles := make([]string, len(panels))
	for i, p := range panels {
		if p.Y.Max == 0 {
			p.Y.Max = max(p.Highest(), 1) * 1.08
		}
		p.X.tick(6)
		p.Y.tick(5)
		titles[i] = p.Title
		for _, t := range p.Y.Ticks {
			left = max(left, 10+digit*float64(len(t.Label)))
		}
	}
	y := 0.0
	for _, p := range panels {
		y = c.panel(p, left, y)
	}
	return fmt.Sprintf(`<svg class="chart" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg" viewBox="%g %[2]g %g %g" font-family="Liberation Sans,Arial,Helvetica,sans-serif">`+"\n",
		html.EscapeString(strings.Join(titles, ", ")), -around, width+2*around, round(y+2*around)) +
		style + rectangle(-around, -around, width+2*around, y+2*around, paper) + c.String() + "</svg>\n"
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

// text writes text; attributes are its size and anchor.
func (c *canvas) text(x, y float64, attributes, text string) {
	fmt.Fprintf(c, `<text x="%g" y="%g" %s class="k%d" color="%s" fill="currentColor">%s</text>`+"\n",
		round(x), round(y), attributes, ink, palette[ink].light, html.EscapeString(text))
}

func rectangle(x, y, w, h float64, colour Colour) string {
	return fmt.Sprintf(`<rect x="%g" y="%g" width="%g" height="%g" class="k%d" color="%s" fill="currentColor"/>`+"\n",
		round(x), round(y), round(w), round(h), colour, palette[colour].light)
}

func (c *canvas) path(d string, colour Colour, width float64, dashes string) {
	if dashes != "" {
		dashes = ` stroke-dasharray="` + dashes + `"`
	}
	fmt.Fprintf(c, `<path d="%s" class="k%d" color="%s" fill="none" stroke="currentColor" stroke-width="%g"%s/>`+"\n",
		d, colour, palette[colour].light, width, dashes)
}

// panel draws a panel below y, its vertical axis at left, and returns where it ends.
func (c *canvas) panel(p *Panel, left, y float64) float64 {
	c.text(0, y+13, `font-size="12" font-weight="bold"`, p.Title)
	top := c.legend(p.Marks, y+titleRow) + 6
	f := frame{left, width - rightEdge, top, top + plotHeight}
	var across, along bytes.Buffer
	for _, t := range p.Y.Ticks {
		_, y := f.at(p, Point{Y: t.Value})
		fmt.Fprintf(&across, "M%g,%gH%g", f.left, y, f.right)
		c.text(f.left-5, y+3.5, `font-size="11" text-anchor="end"`, t.Label)
	}
	for _, t := range p.X.Ticks {
		x, _ := f.at(p, Point{X: t.Value})
		fmt.Fprintf(&along, "M%g,%gv4", x, round(f.bottom))
		c.text(x, f.bottom+15, `font-size="11" text-anchor="middle"`, t.Label)
	}
	c.path(across.String(), grid, 0.7, "")
	for _, m := range p.Marks {
		c.mark(p, f, m)
	}
	c.path(along.String()+fmt.Sprintf("M%g,%gV%gH%g", f.left, round(f.top), round(f.bottom), f.right), ink, 0.7, "")
	return f.bottom + tickRow + 6
}

// legend draws the named marks in rows below y, and returns where they end.
func (c *canvas) legend(marks []Mark, y float64) float64 {
	x, low := 0.0, y
	for _, m := range marks {
		if m.Name == "" {
			continue
		}
		name := prose.Clip(m.Name, maxName)
		long := sample + 5 + letter*float64(len([]rune(name))) + 14
		if low == y || x+long > width {
			x, low = 0, low+legendRow
		}
		if m.Boxes {
			c.WriteString(rectangle(x, low-10, sample, 9, m.Colour))
		} else {
			c.path(fmt.Sprintf("M%g,%gH%g", round(x), low-5, round(x+sample)), m.Colour, lineWidth, m.Dashes)
		}
		c.text(x+sample+5, low-1.5, `font-size="11"`, name)
		x += long
	}
	return low
}

// mark draws a mark on the axes of p.
func (c *canvas) mark(p *Panel, f frame, m Mark) {
	var line bytes.Buffer
	lastX, lastY := 0.0, 0.0
	for i, at := range m.Points {
		x, y := f.at(p, at)
		switch {
		case m.Boxes && i%2 == 1:
			c.WriteString(rectangle(min(lastX, x), min(lastY, y), math.Abs(x-lastX), math.Abs(y-lastY), m.Colour))
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
		c.path(line.String(), m.Colour, lineWidth, m.Dashes)
	}
}

// at returns the place of a point of p on the canvas.
func (f frame) at(p *Panel, at Point) (x, y float64) {
	return round(f.left + p.X.share(at.X)*(f.right-f.left)), round(f.bottom - p.Y.share(at.Y)*(f.bottom-f.top))
}

// round keeps hundredths of a pixel.
func round(x float64) float64 { return math.Round(x*100) / 100 }

// Axis is one axis of a panel, from 0 to Max.
type Axis struct {
	Unit  string  // written behind the last tick
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
	step := math.Pow(10, math.Floor(math.Log10(max(a.Max, 1e-9)))-1)
	for i := 0; a.Max/step > float64(count); i++ { // 1, 2, 5, 10, ...
		step *= [3]float64{2, 2.5, 2}[i%3]
	}
	if a.Whole {
		step = max(step, 1)
	}
	for i := 0.0; i*step <= a.Max*(1+1e-9); i++ {
		a.Ticks = append(a.Ticks, Tick{i * step, label(i * step)})
	}
	if last := &a.Ticks[len(a.Ticks)-1]; a.Unit != "" {
		last.Label += " " + a.Unit
	}
}

// label writes a number with commas between its thousands, and one that is not whole with at most four digits.
func label(x float64) string {
	if x != math.Trunc(x) {
		return fmt.Sprintf("%.4g", x)
	}
	return prose.Group(x)
}
