package telemetry

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/template"
)

//go:embed page.html
var pageText string

// mostCharts is how many lanes are drawn.
const mostCharts = 4

// page is what the template of the page shows.
type page struct {
	Title   string
	Report  *Report
	Figures []figure
	Charts  []laneChart
	Omitted string // lanes that are not drawn

	Waits, Latency          template.HTML
	WaitWords, LatencyWords string
	OfSlots                 bool // the waits are of calls
	Rows                    []row
	Foot                    string
}

// figure is one of the few numbers that are seen first.
type figure struct {
	Name, Value string
	Bad         bool
}

// laneChart is the chart of a lane.
type laneChart struct {
	Name, Words, Caption string
	SVG                  template.HTML
}

// WriteHTML writes the report as one page that needs nothing else: no script, no other file and no network. All
// values in it are escaped. It fails when w does.
func (r *Report) WriteHTML(w io.Writer) error {
	more := func(f Failure) bool { return f.Count > len(f.IDs) }
	t, err := template.ParseHTML("page", pageText, map[string]any{"more": more})
	if err != nil {
		return err
	}
	p := page{Title: r.title(), Report: r, Figures: r.figures(), Rows: r.rows(), Foot: r.foot(), WaitWords: r.Waits.words(), LatencyWords: r.Latency.words(), OfSlots: r.ofSlots()}
	if p.Waits, err = r.Waits.draw("wait", 0); err != nil {
		return err
	}
	if p.Latency, err = r.Latency.draw("latency", 2); err != nil {
		return err
	}
	if err := p.addCharts(r); err != nil {
		return err
	}
	text, err := t.Append(nil, "page", p)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// addCharts draws the busiest lanes.
func (p *page) addCharts(r *Report) error {
	if r.Run == nil {
		return nil
	}
	for i := range r.Run.Lanes {
		l := &r.Run.Lanes[i]
		if i == mostCharts {
			p.Omitted = fmt.Sprintf("%s are not drawn: see the figures below.", prose.Count(len(r.Run.Lanes)-mostCharts, "further lane"))
			break
		}
		drawn, err := l.draw()
		if err != nil {
			return err
		}
		if drawn != "" {
			p.Charts = append(p.Charts, laneChart{Name: l.title(r.Run), Words: l.boundWords(), Caption: l.caption(), SVG: drawn})
		}
	}
	return nil
}

// title is what the report is of.
func (r *Report) title() string {
	switch {
	case r.Output != "":
		return "Report of " + r.Output
	case r.Events != "":
		return "Report of " + r.Events
	}
	return "Report of a run"
}

func (l *Lane) title(r *Run) string {
	if name := l.name(r); name != "" {
		return name
	}
	return "calls without a lane"
}

// boundWords says what held the lane back, and what it used.
func (l *Lane) boundWords() string {
	text := "Limited by " + prose.Shares(l.Bound) + "."
	if quota := l.quotaWords(); quota != "" {
		text += " Used " + quota + "."
	}
	return text
}

// caption says how the chart is to be read.
func (l *Lane) caption() string {
	text := "The upper panel shows answers per minute, the second one how many calls were open at once and how many might be (slots)"
	if len(l.Quota) > 0 {
		text += ", the third one how much of each limit was used: above 100 % where a bucket was full at first"
	}
	if len(l.line.pauses) > 0 {
		text += ". Shaded times are pauses that the provider asked for"
	}
	return text + "."
}

// figures are what one wants to see first.
func (r *Report) figures() []figure {
	if r.ofSlots() {
		return []figure{{Name: "slots taken", Value: prose.Group(r.Run.Slots.Acquired)}, {Name: "time", Value: took(r.Run.WallMS)},
			{Name: "calls throttled", Value: prose.Group(r.Run.Throttles.Count)}}
	}
	all := []figure{{Name: "items done", Value: fmt.Sprintf("%s of %s", prose.Group(r.Items.OK), prose.Group(r.Items.Total))}}
	if r.Items.Failed > 0 {
		all = append(all, figure{"items failed", prose.Group(r.Items.Failed), true})
	}
	if r.Run != nil {
		all = append(all, figure{Name: "time", Value: took(r.Run.WallMS)}, figure{Name: "items a minute", Value: prose.Group(int(r.Items.PerMin + 0.5))},
			figure{Name: "calls throttled", Value: prose.Group(r.Run.Throttles.Count)})
	}
	if r.Waits.Count > 0 {
		all = append(all, figure{Name: "median wait", Value: took(r.Waits.P50)})
	}
	if r.Latency.Count > 0 {
		all = append(all, figure{Name: "median latency", Value: took(r.Latency.P50)})
	}
	all = append(all, figure{Name: "tokens in / out", Value: prose.Group(r.InputTokens) + " / " + prose.Group(r.OutputTokens)})
	if r.Cost != nil {
		all = append(all, figure{Name: "cost", Value: prose.Dollars(*r.Cost)})
	}
	return all
}

// foot says what the report is made of.
func (r *Report) foot() string {
	var parts []string
	if r.Run != nil && !r.Run.First.IsZero() {
		const day = "2006-01-02 15:04:05 MST"
		parts = append(parts, "From "+r.Run.First.Round(time.Second).Format(day)+" to "+r.Run.Last.Round(time.Second).Format(day)+".")
	}
	if r.Cut {
		parts = append(parts, "A last line was cut off, and is left out.")
	}
	return strings.Join(append(parts, "Percentiles are within 3 %. Made by sluice report."), " ")
}
