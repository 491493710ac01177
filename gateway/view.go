package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/template"
	"github.com/sluice-llm/sluice/limits"
)

// view is the content of the dashboard.
type view struct {
	Banner    string // "": the gateway serves
	Figures   []figureView
	Charts    []template.HTML
	Lanes     []laneView
	MoreLanes int // that are not shown
	Uses      []useView
	MoreUses  int
}

type figureView struct{ ID, Name, Value string }

type laneView struct {
	Name, State              string
	Bad                      bool
	InFlight, Slots, Waiting int
	Limits                   []string
}

type useView struct {
	Tenant, Model, Ended, Failed, Throttled, Input, Output, Spend string
	Waiting                                                       int
}

// maxRows is the largest number of rows of a table.
const maxRows = 50

// view returns the content now. It holds no reference to a state, so that open pages do not keep old states.
func (g *Gateway) view() *view {
	cfg := &g.now.Load().cfg
	v := &view{}
	all := accountsOf(cfg)
	lanes := 0
	for _, a := range all {
		for i := range a.Lanes {
			l := &a.Lanes[i]
			if l.Held {
				v.Banner = "Paused: the gateway sends no requests."
			}
			if lanes++; lanes <= maxRows {
				v.Lanes = append(v.Lanes, a.view(l))
			}
		}
	}
	if g.draining.Load() {
		v.Banner = "The gateway is stopping."
	}
	s := cfg.Traffic.Snapshot()
	v.figures(&s)
	for _, p := range panels(s.Times, all) {
		v.Charts = append(v.Charts, template.HTML(chart.SVG(p)))
	}
	slices.SortStableFunc(s.Uses, func(a, b Use) int { // the largest first
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Input+b.Output, a.Input+a.Output), cmp.Compare(b.Ended, a.Ended))
	})
	for _, u := range s.Uses[:min(len(s.Uses), maxRows)] {
		v.Uses = append(v.Uses, u.view())
	}
	v.MoreLanes, v.MoreUses = lanes-len(v.Lanes), len(s.Uses)-len(v.Uses)
	return v
}

// figures adds the numbers at the top of the page. Those of the last minute are of its complete slots.
func (v *view) figures(s *TrafficSnapshot) {
	var minute TimeTraffic
	const complete = int(time.Minute / slotTime)
	for _, t := range s.Times[slots-1-complete : slots-1] {
		minute.Ended, minute.Tokens, minute.Throttled = minute.Ended+t.Ended, minute.Tokens+t.Tokens, minute.Throttled+t.Throttled
	}
	spend, unpriced := 0.0, 0
	for _, u := range s.Uses {
		spend, unpriced = spend+u.Cost, unpriced+u.Unpriced
	}
	v.Figures = []figureView{
		{"n-requests", "requests/s", fmt.Sprintf("%.3g", float64(minute.Ended)/time.Minute.Seconds())},
		{"n-tokens", "tokens/min", prose.Group(minute.Tokens)},
		{"n-throttled", "429s/min", prose.Group(minute.Throttled)},
		{"n-waiting", "waiting", prose.Group(s.Waiting)},
		{"n-open", "in flight", prose.Group(s.Open)},
		{"n-spend", "spending since the gateway started", spendWords(spend, unpriced)},
	}
}

// spendWords returns a spend, and how many requests it lacks.
func spendWords(usd float64, unpriced int) string {
	switch {
	case unpriced == 0:
		return prose.Dollars(usd)
	case usd == 0:
		return "unknown price"
	}
	return fmt.Sprintf("%s + %s of unknown price", prose.Dollars(usd), prose.Group(unpriced))
}

func (u *Use) view() useView {
	return useView{
		Tenant: cmp.Or(u.Tenant, "(no tenant)"), Model: cmp.Or(u.Model, "(rejected by the gateway)"), Waiting: u.Waiting,
		Ended: prose.Group(u.Ended), Failed: prose.Group(u.Failed), Throttled: prose.Group(u.Throttled),
		Input: prose.Group(u.Input), Output: prose.Group(u.Output), Spend: spendWords(u.Cost, u.Unpriced),
	}
}

// panels are the charts of the last 15 minutes.
func panels(times []TimeTraffic, all []account) []*chart.Panel {
	const perMinute = float64(time.Minute / slotTime)
	requests := panel("Requests per second", times,
		series{chart.Blue, "all", func(t *TimeTraffic) float64 { return float64(t.Ended) / slotTime.Seconds() }},
		series{chart.Purple, "failed", func(t *TimeTraffic) float64 { return float64(t.Failed) / slotTime.Seconds() }})
	tokens := panel("Tokens per minute", times, series{chart.Blue, "input and output", func(t *TimeTraffic) float64 { return float64(t.Tokens) * perMinute }})
	throttled := panel("429 responses from upstreams per minute", times, series{chart.Vermilion, "", func(t *TimeTraffic) float64 { return float64(t.Throttled) * perMinute }})
	waiting := panel("Waiting requests, maximum", times, series{chart.Green, "", func(t *TimeTraffic) float64 { return float64(t.Waiting) }})
	throttled.Y.Whole, waiting.Y.Whole = true, true
	if limit := sumOfLimits(all, limits.Requests); limit > 0 {
		requests.Marks = append(requests.Marks, limitMark(limit/time.Minute.Seconds()))
	}
	if limit := sumOfLimits(all, limits.Tokens); limit > 0 {
		tokens.Marks = append(tokens.Marks, limitMark(limit))
	}
	return []*chart.Panel{requests, tokens, throttled, waiting}
}

// series is one line of a panel.
type series struct {
	colour chart.Colour
	name   string
	value  func(*TimeTraffic) float64
}

func panel(title string, times []TimeTraffic, lines ...series) *chart.Panel {
	p := &chart.Panel{Title: title, X: chart.Axis{Max: float64(slots), Ticks: []chart.Tick{
		{Label: "-15 min"}, {Value: float64(slots) / 3, Label: "-10 min"}, {Value: float64(slots) * 2 / 3, Label: "-5 min"}, {Value: float64(slots), Label: "now"}}}}
	for _, l := range lines {
		m := chart.Mark{Name: l.name, Colour: l.colour}
		for i := range times {
			m.Points = append(m.Points, chart.Point{X: float64(i), Y: l.value(&times[i])})
		}
		p.Marks = append(p.Marks, m)
	}
	return p
}

func limitMark(y float64) chart.Mark {
	return chart.Mark{Name: "limit shared by all models", Colour: chart.Grey, Dashes: "5,4", Points: []chart.Point{{Y: y}, {X: float64(slots), Y: y}}}
}

// account is a scheduler as it stands, and the names of its upstreams.
type account struct {
	upstreams string
	sluice.Snapshot
}

func accountsOf(cfg *Config) (all []account) {
	names := make(map[*sluice.Scheduler]string)
	var order []*sluice.Scheduler
	for _, up := range cfg.Upstreams.All() {
		if names[up.Scheduler] == "" {
			order = append(order, up.Scheduler)
			names[up.Scheduler] = up.Name
		} else {
			names[up.Scheduler] += ", " + up.Name
		}
	}
	for _, s := range order {
		all = append(all, account{names[s], s.Snapshot()})
	}
	return all
}

// sumOfLimits returns the limit per minute of all lanes together, or 0 if that of a lane is unknown.
func sumOfLimits(all []account, d limits.Dimension) (sum float64) {
	for _, a := range all {
		lanes := 0.0
		for _, l := range a.Lanes {
			i := slices.IndexFunc(l.Budgets, func(b limits.BucketSnapshot) bool { return b.Dimension == d && b.Limit > 0 })
			if i < 0 {
				return 0
			}
			lanes += float64(l.Budgets[i].Limit)
		}
		configured := a.Account.PerMinute()
		if together := float64(*configured.At(d)); together > 0 {
			lanes = min(lanes, together)
		}
		sum += lanes
	}
	return sum
}

func (a *account) view(l *limits.LaneSnapshot) laneView {
	v := laneView{Name: a.upstreams + ": " + l.Lane, InFlight: l.InFlight, Slots: l.Slots, Waiting: l.Waiting, State: "open"}
	switch left := l.Until.Sub(a.At); {
	case l.Held:
		v.State, v.Bad = "paused", true
	case left > 0:
		v.State, v.Bad = fmt.Sprintf("cooldown of %s (%s)", prose.Span(left.Round(time.Second)), l.Pause), true
	case l.Probing:
		v.State = "testing whether the cooldown is over"
	case l.Blocked && l.Waiting > 0:
		v.State = "limited by " + l.Binding.String()
	}
	for _, b := range l.Budgets {
		switch {
		case b.Limit > 0 && b.Shared:
			v.Limits = append(v.Limits, fmt.Sprintf("%s %s (shared by instances)", b.Dimension, prose.Group(b.Limit)))
		case b.Limit > 0:
			v.Limits = append(v.Limits, fmt.Sprintf("%s %s (%s remaining)", b.Dimension, prose.Group(b.Limit), prose.Group(int64(max(0, b.Level)))))
		}
	}
	return v
}
