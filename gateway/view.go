package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// view is what the dashboard shows.
type view struct {
	State                string
	Waiting, Open, Ended string
	Lanes                []laneView
	MoreLanes            int // that are not shown
	Charts               []chartView
	Tenants              []tenantView
	Kinds                []kindView
	Recent               []recentView
}

type laneView struct {
	Name, State              string
	Bad                      bool
	InFlight, Slots, Waiting int
	Budgets                  []budgetView
}

type budgetView struct{ Words, Bar string }

type chartView struct {
	Name, Words, Most string
	Lines             []lineView
}

type lineView struct{ Class, Name, Points string }

type kindView struct{ Name, N string }

type tenantView struct {
	Name, Ended, Failed, Tokens, Share, Wait string
	Waiting, Open                            int
	Bar                                      string // of its share
}

type recentView struct {
	At, ID, Tenant, Model, Upstream, Answer, Wait, Latency, Tokens string
	Bad                                                            bool
}

const (
	mostLanesShown   = 50
	mostTenantsShown = 50
	mostKindsShown   = 8
	nobody           = "(nobody in particular)"
)

// view is how things stand. It takes part in no state, so that pages that are looked at do not hold old ones.
func (g *Gateway) view() *view {
	cfg := &g.now.Load().cfg
	v := &view{State: "The gateway serves."}
	v.Lanes, v.MoreLanes = lanesOf(cfg)
	if g.draining.Load() {
		v.State = "The gateway is stopping."
	}
	held := func(l laneView) bool { return l.State == heldWords }
	if slices.ContainsFunc(v.Lanes, held) {
		v.State = "The gateway is paused: nothing is sent."
	}
	s := cfg.Traffic.Snapshot()
	v.Waiting, v.Open, v.Ended = prose.Group(s.Waiting), prose.Group(s.Open), prose.Group(s.Ended)
	v.Charts = []chartView{throughput(s.Times), latency(s.Times)}
	for _, t := range busiest(s.Tenants) {
		v.Tenants = append(v.Tenants, tenantView{
			Name: cmp.Or(t.Name, nobody), Waiting: t.Waiting, Open: t.Open, Ended: prose.Group(t.Ended), Failed: prose.Group(t.Failed),
			Tokens: prose.Group(t.Tokens), Bar: bar(t.Share), Share: prose.Percent(t.Share), Wait: prose.Span(t.Wait / time.Duration(max(1, t.Ended))),
		})
	}
	for _, k := range s.Kinds {
		if k.Kind != KindOK && len(v.Kinds) < mostKindsShown {
			v.Kinds = append(v.Kinds, kindView{k.Kind, prose.Group(k.N)})
		}
	}
	for i := range s.Recent {
		v.Recent = append(v.Recent, recentOf(&s.Recent[i]))
	}
	return v
}

// busiest are tenants by name: where they are too many, those that used most, and all others in one.
func busiest(all []TenantTraffic) []TenantTraffic {
	if len(all) <= mostTenantsShown {
		return all
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b TenantTraffic) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(b.Ended, a.Ended))
	})
	shown, rest := all[:mostTenantsShown], all[mostTenantsShown:]
	others := TenantTraffic{Name: fmt.Sprintf("(%d others)", len(rest))}
	for _, t := range rest {
		others.Waiting, others.Open = others.Waiting+t.Waiting, others.Open+t.Open
		others.Ended, others.Failed, others.Tokens = others.Ended+t.Ended, others.Failed+t.Failed, others.Tokens+t.Tokens
		others.Share, others.Wait = others.Share+t.Share, others.Wait+t.Wait
	}
	slices.SortFunc(shown, func(a, b TenantTraffic) int { return cmp.Compare(a.Name, b.Name) })
	return append(slices.Clip(shown), others)
}

func recentOf(r *Record) recentView {
	answer := r.Kind
	if r.Status != 0 {
		answer = fmt.Sprintf("%d %s", r.Status, r.Kind)
	}
	return recentView{
		At: r.At.Add(r.Latency).Format("15:04:05"), ID: r.ID, Tenant: r.Tenant, Model: r.Model, Upstream: r.Upstream, Answer: answer, Bad: r.Kind != KindOK,
		Wait: prose.Span(r.Wait), Latency: prose.Span(r.Latency), Tokens: fmt.Sprintf("%d, %d", r.Usage.Input, r.Usage.Output),
	}
}

const heldWords = "paused"

// lanesOf are the lanes of all upstreams; those of one account have the same.
func lanesOf(cfg *Config) (all []laneView, more int) {
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
		snap := s.Snapshot()
		for i := range snap.Lanes {
			if len(all) == mostLanesShown {
				more++
				continue
			}
			all = append(all, laneOf(names[s], &snap.Lanes[i], snap.At))
		}
	}
	return all, more
}

func laneOf(account string, l *limits.LaneSnapshot, now time.Time) laneView {
	v := laneView{Name: account + ": " + l.Lane, InFlight: l.InFlight, Slots: l.Slots, Waiting: l.Waiting, State: "open"}
	switch left := l.Until.Sub(now); {
	case l.Held:
		v.State, v.Bad = heldWords, true
	case left > 0:
		v.State, v.Bad = fmt.Sprintf("cools down for %s (%s)", prose.Span(left.Round(time.Second)), l.Pause), true
	case l.Probing:
		v.State = "tries whether it may again"
	case l.Blocked && l.Waiting > 0:
		v.State = "waits for " + l.Binding.String()
	}
	for _, b := range l.Budgets {
		if b.Limit > 0 {
			view := budgetView{
				Bar:   bar(b.Level / max(1, b.Cap)),
				Words: fmt.Sprintf("%s %s: %s left", b.Dimension, prose.Group(b.Limit), prose.Group(int64(max(0, b.Level)))),
			}
			if b.Shared {
				view.Words = fmt.Sprintf("%s %s: shared with others", b.Dimension, prose.Group(b.Limit))
			}
			v.Budgets = append(v.Budgets, view)
		}
	}
	return v
}

// bar is how long the bar of a part is, of 60.
func bar(part float64) string { return fmt.Sprintf("%.1f", 60*min(max(0, part), 1)) }

// throughput draws how many requests ended.
func throughput(times []TimeTraffic) chartView {
	all, bad := make([]float64, len(times)), make([]float64, len(times))
	ended, failed := 0, 0
	most := 1.0
	for i, t := range times {
		all[i], bad[i] = float64(t.Ended), float64(t.Failed)
		ended, failed = ended+t.Ended, failed+t.Failed
		most = max(most, all[i])
	}
	words := "Nothing ended."
	if ended > 0 {
		words = fmt.Sprintf("%s ended, %s of them not well; at most %s within ten seconds.", prose.Group(ended), prose.Group(failed), prose.Group(int64(most)))
	}
	return chartView{
		Name: "Requests in each ten seconds", Most: prose.Group(int64(most)), Words: words,
		Lines: []lineView{{"one", "all that ended", points(all, most)}, {"two", "not well", points(bad, most)}},
	}
}

// latency draws how long requests took.
func latency(times []TimeTraffic) chartView {
	median, high := make([]float64, len(times)), make([]float64, len(times))
	most := 0.0
	for i, t := range times {
		median[i], high[i] = t.Median.Seconds(), t.P95.Seconds()
		most = max(most, high[i])
	}
	words, top := "Nothing ended.", ""
	if most > 0 {
		top = prose.Span(time.Duration(most * float64(time.Second)))
		words = fmt.Sprintf("Of any ten seconds, 95 %% took at most %s.", top)
	}
	return chartView{
		Name: "How long they took, with their wait", Words: words, Most: top,
		Lines: []lineView{{"one", "half of them at most", points(median, most)}, {"two", "95 % at most", points(high, most)}},
	}
}

// points are those of a line over the width of a chart.
func points(values []float64, most float64) string {
	var b strings.Builder
	for i, v := range values {
		y := 100.0
		if most > 0 {
			y -= 95 * v / most
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", float64(i)*360/float64(max(1, len(values)-1)), y)
	}
	return strings.TrimSpace(b.String())
}
