package plan

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// Named is a forecast as a chart names it.
type Named struct {
	Name string
	Forecast
}

// mostLines is how many forecasts can be told apart in one chart: so many colours are safe for the colour-blind.
const mostLines = chart.Colours

const (
	panelHeight = 156 // points
	mostPoints  = 120
)

// Draw writes a chart of the forecasts as SVG, all on the same axes: calls answered per minute, of a single one beside what
// its tightest limit allows, the tightest limit's use, calls in flight, and throttled calls so far, if there are any. Runs
// of very different length are drawn over the share of each one's own time, and rates that differ as much on a logarithmic
// axis. The same forecasts make the same bytes. It fails when there is nothing to draw, more than 7 forecasts, or w fails.
func Draw(w io.Writer, forecasts ...Named) error {
	longest, shortest := time.Duration(0), time.Duration(math.MaxInt64)
	for _, f := range forecasts {
		if len(f.Steps) == 0 || f.Time.Duration <= 0 {
			return fmt.Errorf("chart: forecast %q is empty", f.Name)
		}
		longest, shortest = max(longest, f.Time.Duration), min(shortest, f.Time.Duration)
	}
	switch {
	case len(forecasts) == 0:
		return errors.New("chart: there is no forecast")
	case len(forecasts) > mostLines:
		return fmt.Errorf("chart: %d forecasts cannot be told apart: want at most %d", len(forecasts), mostLines)
	}
	ch := drawing{forecasts: forecasts, longest: longest, shares: longest > comparable*shortest}
	ch.unit, ch.unitName = timeUnit(longest)

	inFlight := ch.panel("calls in flight (most)", func(*Named) valueOf {
		return func(s Step, _ time.Duration) float64 { return float64(s.InFlight) }
	})
	throttled := ch.panel("throttled so far", func(*Named) valueOf { // as a rate, a single one would look like a storm
		sum := 0
		return func(s Step, _ time.Duration) float64 {
			sum += s.Throttled
			return float64(sum)
		}
	})
	inFlight.Y.Whole, throttled.Y.Whole = true, true
	panels := []*chart.Panel{ch.rate(), ch.quota(), inFlight}
	if slices.ContainsFunc(forecasts, func(f Named) bool { return f.Throttled > 0 }) {
		panels = append(panels, throttled)
	}
	axis := &panels[len(panels)-1].X
	axis.Label = "time (" + ch.unitName + ")"
	if ch.shares {
		axis.Label = "share of each run's own time (%)"
	}
	return (&chart.Chart{Height: panelHeight, Panels: panels}).Write(w)
}

// drawing is a chart that is being drawn.
type drawing struct {
	forecasts []Named
	longest   time.Duration
	unit      time.Duration // of the axis of time
	unitName  string
	shares    bool // the axis of time is each forecast's own
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

// valueOf is the value of a step of that width.
type valueOf func(s Step, width time.Duration) float64

// panel returns a panel on the common axis of time, with a line of values for each forecast that has any. Lines differ by
// colour, and by dashes too, for print.
func (ch *drawing) panel(label string, values func(*Named) valueOf) *chart.Panel {
	dashes := [mostLines]string{"", "7,2", "2,2", "9,2,2,2", "4,4", "12,3", "1,3"}
	p := &chart.Panel{X: chart.Axis{Max: ch.end()}, Y: chart.Axis{Label: label}}
	for i := range ch.forecasts {
		f := &ch.forecasts[i]
		if value := values(f); value != nil {
			p.Marks = append(p.Marks, chart.Mark{Points: ch.points(f, value), Colour: chart.Colour(i), Dashes: dashes[i]})
		}
	}
	return p
}

// rate is the panel of calls per minute.
func (ch *drawing) rate() *chart.Panel {
	p := ch.panel("answered per minute", func(*Named) valueOf {
		return func(s Step, width time.Duration) float64 { return float64(s.Answered) / width.Minutes() }
	})
	slowest, fastest := math.Inf(1), 0.0 // on average
	for i, f := range ch.forecasts {
		p.Marks[i].Name = summary(f)
		slowest, fastest = min(slowest, f.Throughput), max(fastest, f.Throughput)
	}
	if allowed, _ := ch.limit(); allowed > 0 && allowed <= 4*p.Highest() { // far above, it would squeeze the line to the ground
		p.Marks = append(p.Marks, ch.rule(allowed))
	}
	if slowest > 0 && fastest > comparable*slowest {
		// Single steps below half of the slowest run's rate are cut.
		p.Y = chart.Axis{Label: "answered/min (log)", Log: true, Min: slowest / 2, Max: p.Highest() * 1.3}
	}
	return p
}

// limit returns the legend of the dashed lines, and how many calls per minute the tightest limit of a single forecast allows.
// 0 is unknown; those of several forecasts could not be told apart.
func (ch *drawing) limit() (perMinute float64, words string) {
	f := &ch.forecasts[0]
	switch {
	case len(ch.forecasts) > 1:
		return 0, "all of a run's tightest limit"
	case len(f.Quotas) == 0 || f.Answered == 0 || f.Quotas[0].Spent == 0:
		return 0, "limit"
	}
	q := f.Quotas[0]
	perMinute = float64(q.Limit) / minutes(q.Dimension) / (q.Spent / float64(f.Answered))
	words = fmt.Sprintf("tightest limit: %v %s", q.Dimension, prose.Group(q.Limit))
	if q.Dimension != limits.Requests {
		words += fmt.Sprintf(", which allows %.4g answers a minute", perMinute)
	}
	return perMinute, words
}

// summary is a forecast in the legend.
func summary(f Named) string {
	text := fmt.Sprintf("%s: %s calls in %s, %s throttled", f.Name, prose.Group(f.Answered), roundTime(f.Time.Duration), prose.Group(f.Throttled))
	if len(f.Quotas) > 0 {
		text += fmt.Sprintf(", tightest limit %v %s", f.Quotas[0].Dimension, prose.Group(f.Quotas[0].Limit))
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
func (ch *drawing) quota() *chart.Panel {
	label := "tightest limit used (%)"
	if f := &ch.forecasts[0]; len(ch.forecasts) == 1 && len(f.Quotas) > 0 {
		label = fmt.Sprintf("tightest limit used: %v (%%)", f.Quotas[0].Dimension)
	}
	p := ch.panel(label, func(f *Named) valueOf {
		if len(f.Quotas) == 0 {
			return nil
		}
		q := f.Quotas[0]
		return func(s Step, width time.Duration) float64 {
			return 100 * s.Spent[q.Dimension] / width.Minutes() / (float64(q.Limit) / minutes(q.Dimension))
		}
	})
	p.Marks = append(p.Marks, ch.rule(100))
	return p
}

// points are a value of a forecast over time, of steps so wide that their number can be seen and single calls do not
// show.
func (ch *drawing) points(f *Named, value valueOf) []chart.Point {
	const enough = 15 // calls in a step, on average
	wide := (len(f.Steps) + mostPoints - 1) / mostPoints
	for len(f.Steps)/wide > 12 && float64(f.Answered)*float64(wide) < enough*float64(len(f.Steps)) {
		wide++
	}
	var xys []chart.Point
	for from := 0; from < len(f.Steps); from += wide {
		var sum Step
		for _, s := range f.Steps[from:min(from+wide, len(f.Steps))] {
			sum = sum.with(s)
		}
		begin := time.Duration(from) * f.Width
		end := min(begin+time.Duration(wide)*f.Width, f.Time.Duration)
		if end-begin < f.Width/2 && from > 0 { // a rest, too short to tell a rate by
			break
		}
		xys = append(xys, chart.Point{X: ch.x(f, begin), Y: value(sum, max(end-begin, time.Nanosecond))})
	}
	xys = append(xys, chart.Point{X: ch.x(f, f.Time.Duration), Y: xys[len(xys)-1].Y}) // the end of the last step
	return xys
}

// x is where an instant of a forecast is on the axis of time, which ends at end.
func (ch *drawing) x(f *Named, d time.Duration) float64 {
	if ch.shares {
		return 100 * float64(d) / float64(f.Time.Duration)
	}
	return float64(d) / float64(ch.unit)
}

func (ch *drawing) end() float64 {
	if ch.shares {
		return 100
	}
	return float64(ch.longest) / float64(ch.unit)
}

// rule is a limit.
func (ch *drawing) rule(y float64) chart.Mark {
	_, words := ch.limit()
	return chart.Mark{Name: words, Points: []chart.Point{{X: 0, Y: y}, {X: ch.end(), Y: y}}, Colour: chart.Grey, Width: 1, Dashes: "5,4"}
}
