package telemetry

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/template"
)

//go:embed page.html
var pageText string

// maxCharts is the largest number of lanes that are drawn.
const maxCharts = 4

// page is what the template of the page shows.
type page struct {
	Title   string
	Report  *Report
	Figures []figure
	Charts  []laneChart
	Omitted string // lanes that are not drawn
	Style   template.HTML

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

// laneChart is the charts of a lane.
type laneChart struct {
	Name, Words string
	Panels      []template.HTML
}

// WriteHTML writes the report as one page that needs nothing else: no script, no other file and no network. All
// values in it are escaped. It fails when w does.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.ParseHTML("page", pageText)
	if err != nil {
		return err
	}
	p := page{Title: r.title(), Report: r, Figures: r.figures(), Rows: r.rows(), Foot: r.foot(), Style: template.HTML(chart.Style()),
		WaitWords: r.Waits.words(), LatencyWords: r.Latency.words(), OfSlots: r.ofSlots()}
	of := "Items"
	if p.OfSlots {
		of = "Calls"
	}
	p.Waits, p.Latency = r.Waits.draw(of+" by wait", chart.Blue), r.Latency.draw("Items by latency", chart.Green)
	p.addCharts(r)
	text, err := t.Append(nil, "page", p)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// addCharts draws the busiest lanes.
func (p *page) addCharts(r *Report) {
	if r.Run == nil {
		return
	}
	for i := range r.Run.Lanes {
		l := &r.Run.Lanes[i]
		if i == maxCharts {
			p.Omitted = fmt.Sprintf("%s are not drawn: see the numbers below.", prose.Count(len(r.Run.Lanes)-maxCharts, "further lane"))
			break
		}
		if panels := l.draw(); panels != nil {
			p.Charts = append(p.Charts, laneChart{l.title(r.Run), l.boundWords(), panels})
		}
	}
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
	return "requests without a lane"
}

// boundWords says what held the lane back, and what it used.
func (l *Lane) boundWords() string {
	text := "Limited by " + prose.Shares(l.Bound) + "."
	if quota := l.quotaWords(); quota != "" {
		text += " Used " + quota + "."
	}
	return text
}

// figures are what one wants to see first.
func (r *Report) figures() []figure {
	if r.ofSlots() {
		return []figure{{Name: "slots taken", Value: prose.Group(r.Run.Slots.Acquired)}, {Name: "time", Value: took(r.Run.WallMS)},
			{Name: "429 responses", Value: prose.Group(r.Run.Throttles.Count)}}
	}
	all := []figure{{Name: fmt.Sprintf("of %s done", prose.Count(r.Items.Total, "item")), Value: prose.Group(r.Items.OK)}}
	if r.Items.Failed > 0 {
		all = append(all, figure{"items failed", prose.Group(r.Items.Failed), true})
	}
	if r.Run != nil {
		all = append(all, figure{Name: "time", Value: took(r.Run.WallMS)}, figure{Name: "items/min", Value: prose.Group(int(r.Items.PerMin + 0.5))},
			figure{Name: "429 responses", Value: prose.Group(r.Run.Throttles.Count)})
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
		parts = append(parts, "An incomplete last line is ignored.")
	}
	return strings.Join(append(parts, "Percentiles are accurate to 3 %. Created by sluice report."), " ")
}
