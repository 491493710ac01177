package find

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

const (
	panelHeight = 198 // points
	mostBars    = 32
	mostPoints  = 1500 // thinned evenly, if there are more
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
	panels := []*chart.Panel{d.shares()}
	if slices.ContainsFunc(r.Probes, func(p Probe) bool { return !p.Refused }) {
		panels = append(panels, d.latencies())
	}
	panels[len(panels)-1].X.Label = "calls in flight"
	return (&chart.Chart{Title: d.title(), Columns: 2, Height: panelHeight, Panels: panels}).Write(w)
}

// drawing is a chart that is being drawn.
type drawing struct {
	*Result
	most int // calls in flight, or workers
}

// title says what the answer is, and why it is not higher.
func (d *drawing) title() string {
	answer := "no number of workers is known to be safe"
	if d.Workers > 0 {
		answer = prose.Count(d.Workers, "worker")
	}
	return strings.TrimSuffix(answer+": "+d.binds(), ": ")
}

// binds is the reason why the answer is not higher.
func (d *drawing) binds() string {
	switch d.Bound {
	case BoundConcurrency:
		return soMany("calls may be open at once", d.Findings.Limits[limits.Concurrency])
	case BoundQueue:
		return soMany("calls are served at once, and the others wait", d.Findings.Limits[limits.Concurrency])
	case BoundRequests, BoundTokens:
		of := d.Binding.Dimension
		return soMany(of.Counted(" a minute", "/day"), d.Findings.Limits[of])
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

// soMany states a limit, as far as it is known.
func soMany(words string, f Finding) string {
	n := prose.Group(math.Round(f.Value))
	switch {
	case !f.Known():
		return "only so many " + words
	case f.Source == limits.SourceAtLeast:
		return fmt.Sprintf("at least %s %s (verified)", n, words)
	}
	return fmt.Sprintf("%s %s (%s)", n, words, f.Source)
}

// slots returns where another line marks the calls that may be open, and its words; 0 is nowhere.
func (d *drawing) slots() (int, string) {
	f, words := d.Findings.Limits[limits.Concurrency], "open at once"
	n := int(f.Value)
	if !f.Known() || n == d.Workers || n < 1 || n > d.most {
		return 0, ""
	}
	if d.Findings.Queue {
		words = "served at once"
	}
	return n, soMany(words, f)
}

// panel returns an empty panel on the common axis of calls in flight.
func (d *drawing) panel(y chart.Axis) *chart.Panel {
	return &chart.Panel{X: chart.Axis{Max: float64(d.most + 1), Whole: true}, Y: y}
}

// rules are the lines that mark the answer and the slots, from one height to another.
func (d *drawing) rules(low, high float64) (lines []chart.Mark) {
	vertical := func(n int) []chart.Point { return []chart.Point{{X: float64(n), Y: low}, {X: float64(n), Y: high}} }
	if n, words := d.slots(); n > 0 {
		lines = append(lines, chart.Mark{Name: words, Points: vertical(n), Colour: chart.Grey, Width: 1.2, Dashes: "2,2"})
	}
	if d.Workers > 0 {
		lines = append(lines, chart.Mark{Name: "the answer", Points: vertical(d.Workers), Colour: chart.Colour(6), Dashes: "6,3"})
	}
	return lines
}

// shares is the panel of calls accepted and refused.
func (d *drawing) shares() *chart.Panel {
	p := d.panel(chart.Axis{Label: "share of calls (%)", Max: 122, Ticks: chart.Round(0, 100, 5, true)})
	wide := (d.most + mostBars - 1) / mostBars
	rejected := 0
	bars := make([]struct{ calls, refused int }, (d.most+wide-1)/wide)
	for _, probe := range d.Probes {
		b := &bars[(max(probe.InFlight, 1)-1)/wide]
		if b.calls++; probe.Refused {
			b.refused++
			rejected++
		}
	}
	accepted := chart.Mark{Shape: chart.Boxes, Colour: chart.Colour(4), Name: "accepted calls: " + prose.Group(len(d.Probes)-rejected)}
	refused := chart.Mark{Shape: chart.Boxes, Colour: chart.Colour(1), Name: "refused calls: " + prose.Group(rejected)}
	for i, b := range bars {
		if b.calls == 0 {
			continue
		}
		from, to := float64(i*wide)+0.5, float64(min((i+1)*wide, d.most))+0.5
		space := (to - from) / 20
		share := 100 * float64(b.calls-b.refused) / float64(b.calls)
		if share > 0 {
			accepted.Points = append(accepted.Points, chart.Point{X: from + space}, chart.Point{X: to - space, Y: share})
		}
		if share < 100 {
			refused.Points = append(refused.Points, chart.Point{X: from + space, Y: share}, chart.Point{X: to - space, Y: 100})
		}
		p.Notes = append(p.Notes, chart.Note{Point: chart.Point{X: (from + to) / 2, Y: 101}, Text: prose.Group(b.calls), Size: 8, Anchor: "middle"})
	}
	p.Marks = slices.Concat([]chart.Mark{accepted, refused}, d.rules(0, 100), d.rules(109, 122)) // not through the counts
	if d.Workers > 0 {
		p.Notes = append(p.Notes, d.answer())
	}
	return p
}

// answer is the words beside the line, on the side where there is more room.
func (d *drawing) answer() chart.Note {
	space := float64(d.most) / 80
	words := chart.Note{Point: chart.Point{X: float64(d.Workers) + space, Y: 111}, Text: fmt.Sprintf("answer: %d", d.Workers), Size: 11, Anchor: "start"}
	if 2*d.Workers > d.most {
		words.X, words.Anchor = float64(d.Workers)-space, "end"
	}
	return words
}

// latencies is the panel of how long accepted calls took.
func (d *drawing) latencies() *chart.Panel {
	// They differ by form, too, for print. There are fewer real calls, and they matter more: they are on top.
	tiny := chart.Mark{Shape: chart.Crosses, Colour: chart.Colour(0), Name: "latency of tiny calls"}
	real := chart.Mark{Shape: chart.Dots, Colour: chart.Colour(6), Name: "latency of real calls"}
	least, most := math.Inf(1), 0.0
	for _, probe := range d.Probes {
		if probe.Refused {
			continue
		}
		m := &tiny
		if probe.Real {
			m = &real
		}
		y := max(probe.Latency.Seconds(), 1e-4) // no time at all would be nowhere on an axis of powers
		m.Points = append(m.Points, chart.Point{X: float64(probe.InFlight), Y: y})
		least, most = min(least, y), max(most, y)
	}
	axis := chart.Axis{Label: "latency (s)", Max: most * 1.1}
	if most > 5*least {
		axis = chart.Axis{Label: "latency (s, log)", Log: true, Min: least / 1.5, Max: most * 1.5}
	}
	p := d.panel(axis)
	p.Marks = d.rules(axis.Min, axis.Max)
	for _, m := range []chart.Mark{tiny, real} {
		if m.Points = thin(m.Points); len(m.Points) > 0 {
			p.Marks = append(p.Marks, m)
		}
	}
	return p
}

// thin leaves so many points that they can be seen.
func thin(points []chart.Point) []chart.Point {
	slices.SortStableFunc(points, func(a, b chart.Point) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	every := (len(points) + mostPoints - 1) / mostPoints
	var few []chart.Point
	for i := 0; i < len(points); i += every {
		few = append(few, points[i])
	}
	return few
}
