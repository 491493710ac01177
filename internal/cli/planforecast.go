package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/work"
)

// forecastFigures are a forecast as it is printed.
type forecastFigures struct {
	Client clientFigures `json:"client"`

	TimeS       float64        `json:"time_s"`
	Stopped     string         `json:"stopped,omitempty"`
	Throughput  float64        `json:"throughput_rpm"`
	Answered    int            `json:"answered"`
	Failed      int            `json:"failed"`
	Tries       int            `json:"tries"`
	Throttled   int            `json:"throttled"`
	ThrottledBy map[string]int `json:"throttled_by,omitempty"`
	Cost        *float64       `json:"cost_usd,omitempty"`
	Peak        int            `json:"peak_in_flight"`
	Quotas      []quotaFigures `json:"quotas"`
	Wait        spreadFigures  `json:"wait_ms"`
	Latency     spreadFigures  `json:"latency_ms"`

	WithinDeadline *int `json:"requests_within_deadline,omitempty"`

	Jitter float64 `json:"jitter"`
	Seed   uint64  `json:"seed"`
	Plot   string  `json:"plot,omitempty"`

	seen plan.Forecast
}

// clientFigures are what the client knows of the limits when it begins.
type clientFigures struct {
	Told       map[string]float64 `json:"told"`
	BeginsWith map[string]float64 `json:"begins_with"`
}

type quotaFigures struct {
	Dimension sluice.Dimension `json:"dimension"`
	Limit     int              `json:"limit"`
	Spent     float64          `json:"used"`
	Share     float64          `json:"share"`
	Busiest   float64          `json:"busiest_minute"`
}

// spreadFigures are a plan.Spread in milliseconds.
type spreadFigures struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	Max  float64 `json:"max"`
}

func newSpread(s plan.Spread) spreadFigures {
	return spreadFigures{ms(s.Mean), ms(s.P50), ms(s.P95), ms(s.Max)}
}

func ms(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }

func spanMS(n float64) string { return span(time.Duration(n * float64(time.Millisecond))) }

func newForecast(f *figures, s *plan.Scenario, seen plan.Forecast, deadline time.Duration) *forecastFigures {
	c := &forecastFigures{
		Client: clientFigures{limitMap(s.Told), limitMap(s.Start)},
		TimeS:  seen.Time.Seconds(), Stopped: seen.Stopped, Throughput: seen.PerMinute(),
		Answered: seen.Answered, Failed: seen.Failed, Tries: seen.Tries, Throttled: seen.Throttled,
		ThrottledBy: byDimension(seen.Refused), Peak: seen.Peak, Quotas: []quotaFigures{},
		Wait: newSpread(seen.Wait), Latency: newSpread(seen.Latency), Jitter: s.Provider.Jitter, Seed: s.Provider.Seed, seen: seen,
	}
	if f.plan.Workload.Requests == 0 && seen.Time == s.Horizon {
		c.Stopped = "" // as far as was meant
	}
	for _, q := range seen.Quotas {
		c.Quotas = append(c.Quotas, quotaFigures(q))
	}
	slices.SortStableFunc(c.Quotas, func(a, b quotaFigures) int { return cmp.Compare(b.Share, a.Share) })
	if f.CostEach != nil {
		c.Cost = new(*f.CostEach * float64(seen.Answered))
	}
	if deadline > 0 {
		c.WithinDeadline = new(seen.Within(deadline))
	}
	return c
}

// byDimension are the counts above zero, by the limit's name.
func byDimension(counts [sluice.NumDimensions]int) map[string]int {
	by := make(map[string]int)
	for d, n := range counts {
		name := sluice.Dimension(d).String()
		if sluice.Dimension(d) == sluice.AnyDimension {
			name = "unstated"
		}
		if n > 0 {
			by[name] = n
		}
	}
	return by
}

// dimensionWords say how often each limit was met, the most often met first.
func dimensionWords(by map[string]int) string {
	var names []string
	for name := range by {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s by %s", group(by[name]), name)
	}
	return cmp.Or(strings.Join(names, ", "), "never")
}

// words say what the client knows.
func (c *clientFigures) words() string {
	var said []string
	for _, one := range [...]struct {
		verb   string
		limits map[string]float64
	}{{"is told", c.Told}, {"begins with", c.BeginsWith}} {
		if parts := limitParts(one.limits); len(parts) > 0 {
			said = append(said, one.verb+" "+strings.Join(parts, ", "))
		}
	}
	return cmp.Or(strings.Join(said, " and "), "is told nothing")
}

// printForecasts writes what was foreseen as a table, beside what was computed.
func printForecasts(w io.Writer, columns []*figures) {
	if columns[0].Forecast == nil {
		return
	}
	fmt.Fprint(w, "\nforeseen, by a run in virtual time")
	rows := forecastRows()
	if len(columns) == 1 {
		fmt.Fprintf(w, " of a client that %s\n", columns[0].Forecast.Client.words())
		printRows(w, rows, columns)
		return
	}
	fmt.Fprintln(w)
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c.name())
	}
	fmt.Fprintln(w)
	client := figureRow{"client", func(f *figures) (string, string) { return f.Forecast.Client.words(), "" }}
	printRows(w, append([]figureRow{client}, rows...), columns)
}

func forecastRows() []figureRow {
	row := func(label string, cell func(f *figures, c *forecastFigures) (value, text string)) figureRow {
		return figureRow{label, func(f *figures) (string, string) { return cell(f, f.Forecast) }}
	}
	return []figureRow{
		row("time", func(f *figures, c *forecastFigures) (string, string) {
			text := "looked at"
			if f.TimeS != nil {
				text = fmt.Sprintf("computed: %s", span(f.plan.Time))
			}
			return span(c.seen.Time), text
		}),
		row("stopped", func(_ *figures, c *forecastFigures) (string, string) { return c.Stopped, "before the end" }),
		row("requests/min", func(f *figures, c *forecastFigures) (string, string) {
			return number(c.Throughput), fmt.Sprintf("computed: %s in the long run", number(f.Throughput))
		}),
		row("throttled", func(_ *figures, c *forecastFigures) (string, string) {
			return dimensionWords(c.ThrottledBy), fmt.Sprintf("of %s", tries(c.Tries))
		}),
		row("failed", func(_ *figures, c *forecastFigures) (string, string) {
			if c.Failed == 0 {
				return "", ""
			}
			return group(c.Failed), "above a whole limit, or given up"
		}),
		row("quota used", func(_ *figures, c *forecastFigures) (string, string) { return c.quotas() }),
		row("in flight", func(f *figures, c *forecastFigures) (string, string) {
			return group(c.Peak), c.inFlight(f)
		}),
		row("waits", func(_ *figures, c *forecastFigures) (string, string) {
			return spanMS(c.Wait.Mean), fmt.Sprintf("on average, in a queue of 16 calls at most; 95 %% below %s", spanMS(c.Wait.P95))
		}),
		row("cost", func(f *figures, c *forecastFigures) (string, string) {
			if c.Cost == nil {
				return "", ""
			}
			return dollars(*c.Cost), fmt.Sprintf("for %s", count(c.Answered, "answer"))
		}),
		row("within the deadline", func(_ *figures, c *forecastFigures) (string, string) { return optional(c.WithinDeadline), "requests" }),
	}
}

// inFlight explains the most calls in flight beside the slots that were computed.
func (c *forecastFigures) inFlight(f *figures) string {
	text := "at most"
	most := float64(c.Peak)
	start, ceiling := c.Client.BeginsWith["concurrent"], c.Client.Told["concurrent"]
	switch {
	case c.Peak == mostWorkers:
		text = "the most that a run opens"
	case start > 0 && ceiling == 0 && most > start:
		text = fmt.Sprintf("at most: concurrent %s is where it begins, and it tries more; --concurrent %s holds it there", number(start), number(start))
	}
	text += fmt.Sprintf("; computed slots: %s", group(f.Slots))
	if c.Peak > f.Slots && start == 0 && ceiling == 0 {
		text += ", enough for the pace; more are open where calls take longer, a full bucket lets many start, or no limit is known yet"
	}
	return text
}

// mostWorkers is how many calls of a model a run has open at most.
const mostWorkers = work.UsualWorkers

// tries counts them.
func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return group(n) + " tries"
}

// quotas say how much was used of the limits, the most used first.
func (c *forecastFigures) quotas() (value, text string) {
	if len(c.Quotas) == 0 {
		return "", ""
	}
	words := func(q quotaFigures) string {
		return fmt.Sprintf("%s of %s %s", prose.Percent(q.Share), q.Dimension, group(q.Limit))
	}
	text = "of what it lets through in the time"
	for _, q := range c.Quotas[1:] {
		text += "; " + words(q)
	}
	return words(c.Quotas[0]), text
}
