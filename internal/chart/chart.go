// Package chart is what all our charts have in common: SVG whose text has its place on every machine, colours that the
// colour-blind can tell apart, and axes with round numbers.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sluice-llm/sluice/internal/prose"
)

// WriteSVG writes what paint paints on a white canvas of that size. The same painting makes the same bytes. It fails, and
// writes nothing, when paint does, and fails when w does.
func WriteSVG(w io.Writer, width, height vg.Length, paint func(draw.Canvas) error) error {
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	if err := paint(c); err != nil {
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

// Panel returns an empty plot with a grid.
func Panel(label string) *plot.Plot {
	p := plot.New()
	p.Y.Label.Text = label
	p.Y.Label.TextStyle.Font, p.X.Label.TextStyle.Font = Sans(11), Sans(11)
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = Sans(10), Sans(10)
	p.X.Tick.Marker, p.Y.Tick.Marker = Ticks{Most: 10}, Ticks{Most: 5}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{240}
	p.Add(grid)
	return p
}

// Legend returns a legend of rows, at the top on the left.
func Legend() plot.Legend {
	l := plot.NewLegend()
	l.TextStyle.Font = Sans(11)
	l.Top, l.Left = true, true
	l.ThumbnailWidth, l.Padding = vg.Centimeter, vg.Millimeter
	return l
}

// Sans is the font of all text.
func Sans(points float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(points)}
}

// Colours is how many there are.
const Colours = 7

// Colour is the i-th colour, of few: the palette of Okabe and Ito, without its yellow, is safe for the colour-blind
// (https://jfly.uni-koeln.de/color/).
func Colour(i int) color.RGBA {
	return [Colours]color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255}, {230, 159, 0, 255}, {0, 0, 0, 255},
	}[i]
}

// Ticks are at most so many round numbers.
type Ticks struct {
	Most  int
	Whole bool // none between whole numbers
}

// Ticks implements plot.Ticker.
func (t Ticks) Ticks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(max(high-low, 1e-9))))
	for step*float64(t.Most) > 4*(high-low) {
		step /= 10
	}
	for i := 0; (high-low)/step > float64(t.Most); i++ { // 1, 2, 5, 10, ...
		step *= [3]float64{2, 2.5, 2}[i%3]
	}
	if t.Whole {
		step = max(step, 1)
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		out = append(out, plot.Tick{Value: i * step, Label: label(i * step)})
	}
	return out
}

// Powers are the ticks 1, 2, 5, 10, 20 and so on of a logarithmic axis.
type Powers struct{}

// Ticks implements plot.Ticker.
func (Powers) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, digit := range [...]float64{1, 2, 5} {
			if at := digit * power; at >= low && at <= high {
				out = append(out, plot.Tick{Value: at, Label: label(at)})
			}
		}
	}
	return out
}

// label writes a number with commas between its thousands, and one that is not whole with the digits that it has.
func label(x float64) string {
	if x != math.Trunc(x) {
		return fmt.Sprintf("%.4g", x)
	}
	return prose.Group(x)
}
