package telemetry

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// WriteText writes the report for a terminal, a line for each thing that there is to say: breaks within other people's
// words become spaces, so that nothing looks like a line of ours. It fails when w does.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ")
	fmt.Fprintln(&b, line.Replace(r.Verdict))
	if r.Next != "" {
		fmt.Fprintln(&b, r.Next)
	}
	if r.Command != "" {
		fmt.Fprintf(&b, "  %s\n", line.Replace(r.Command))
	}
	b.WriteByte('\n')
	for _, row := range r.rows() {
		fmt.Fprintf(&b, "  %-10s %s\n", row.Name, line.Replace(row.Text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// row is one line of a report: what it is about, and what there is to say.
type row struct{ Name, Text string }

// rows are what there is to say, the most wanted first.
func (r *Report) rows() []row {
	var all []row
	add := func(name, format string, args ...any) { all = append(all, row{name, fmt.Sprintf(format, args...)}) }
	items := fmt.Sprintf("%s: %s done, %s failed", prose.Group(r.Items.Total), prose.Group(r.Items.OK), prose.Group(r.Items.Failed))
	if r.Items.Reused > 0 {
		items += fmt.Sprintf(", %s with a reused result", prose.Group(r.Items.Reused))
	}
	if r.Items.PerMin > 0 {
		items += fmt.Sprintf("; %s/min", prose.Group(int(r.Items.PerMin+0.5)))
	}
	if !r.ofSlots() {
		add("items", "%s", items)
	}
	if r.Last != nil {
		add("last run", "run %s: %s", prose.Group(r.Runs), r.Last)
	}
	for _, f := range r.Failures {
		text := fmt.Sprintf("%s %s: %s", prose.Group(f.Count), f.Kind, strings.Join(f.IDs, ", "))
		if f.Count > len(f.IDs) {
			text += ", …"
		}
		if f.Message != "" {
			text += ": " + f.Message
		}
		add("failed", "%s", text)
	}
	all = append(all, r.runRows()...)
	if r.Waits.Count > 0 {
		add("waits", "%s", r.Waits.words())
	}
	if len(r.Longest) > 0 {
		var longest []string
		for _, l := range r.Longest {
			name := l.ID
			if l.Member != "" {
				name += " of " + l.Member
			}
			longest = append(longest, fmt.Sprintf("%s (%s)", name, took(l.Wait)))
		}
		add("longest", "%s", strings.Join(longest, ", "))
	}
	if r.Latency.Count > 0 {
		add("latency", "%s", r.Latency.words())
	}
	return append(all, r.itemRows()...)
}

// itemRows are of the items alone.
func (r *Report) itemRows() []row {
	var all []row
	add := func(name, format string, args ...any) { all = append(all, row{name, fmt.Sprintf(format, args...)}) }
	if r.Items.Total == 0 {
		return nil
	}
	add("retries", "%s", spread(r.Retries))
	throttled := spread(r.Throttled)
	if r.Items.Throttled > 0 {
		throttled += fmt.Sprintf("; %s of the rate-limited items succeeded later", prose.Percent(r.Items.ThrottleRate))
	}
	add("throttled", "%s", throttled)
	tokens := r.InOut()
	switch {
	case r.Cost == nil:
	case r.Costed < r.Items.Total:
		tokens += fmt.Sprintf("; %s for %s of %s", prose.Dollars(*r.Cost), prose.Group(r.Costed), prose.Count(r.Items.Total, "item"))
	default:
		tokens += "; " + prose.Dollars(*r.Cost)
	}
	if r.Estimated > 0 {
		tokens += fmt.Sprintf(", %s of it estimated", prose.Dollars(r.Estimated))
	}
	add("tokens", "%s", tokens)
	if len(r.Finish) > 0 {
		add("finish", "%s", prose.Counts(r.Finish))
	}
	if len(r.Models) > 0 {
		add("models", "%s", prose.Counts(r.Models))
	}
	return all
}

// runRows are of the time in which the items were run.
func (r *Report) runRows() []row {
	var all []row
	add := func(name, format string, args ...any) { all = append(all, row{name, fmt.Sprintf(format, args...)}) }
	if r.Run == nil {
		return nil
	}
	add("limited by", "%s", prose.Shares(r.Run.Bound))
	for _, l := range r.Run.Lanes {
		if text := l.quotaWords(); text != "" {
			add("quota", "%s: %s", l.name(r.Run), text)
		}
	}
	t := r.Run.Throttles
	if t.Count == 0 {
		add("throttles", "none")
	} else {
		text := fmt.Sprintf("%s (%s) in %s, %s an hour", prose.Group(t.Count), prose.Counts(t.ByLimit), prose.Count(t.Episodes, "episode"), prose.Number(t.EpisodesPerHour))
		if t.Said != "" {
			text += ", first: " + t.Said
		}
		add("throttles", "%s", text)
	}
	if c := r.Run.Cooldowns; c.Count > 0 {
		add("cooldowns", "%s, %s lost", prose.Group(c.Count), took(c.LostMS))
	}
	s := r.Run.Slots
	slots := fmt.Sprintf("%s acquired, %s waited, %s released, %s cancelled, %s, %s leaked; at most %s of %s in flight", prose.Group(s.Acquired), prose.Group(s.Waited),
		prose.Group(s.Released), prose.Group(s.Cancelled), prose.Count(s.Errors, "error"), prose.Group(s.Leaked), prose.Group(s.Most), prose.Group(s.Max))
	if s.Cut > 0 {
		slots += fmt.Sprintf("; %s in flight now or when a run was killed", prose.Group(s.Cut))
	}
	add("slots", "%s", slots)
	if len(r.Run.Lanes) > 1 {
		for _, l := range r.Run.Lanes {
			add("lane", "%s: %s answered, %s throttled, %s failed; %s", l.name(r.Run), prose.Group(l.Answered), prose.Group(l.Throttled), prose.Group(l.Failed), l.Latency.words())
		}
	}
	return all
}

// name tells a lane from the others: with its account, where another has one of that name.
func (l *Lane) name(r *Run) string {
	for _, other := range r.Lanes {
		if other.Lane == l.Lane && other.Account != l.Account && l.Account != "" {
			return l.Lane + " of " + l.Account
		}
	}
	return l.Lane
}

// quotaWords says what was used of each limit.
func (l *Lane) quotaWords() string {
	var parts []string
	for _, q := range l.Quota {
		source := prose.Source(limits.Source(q.Source), q.Claims)
		text := fmt.Sprintf("%s of %s %s (%s)", prose.Group(q.Used), q.Dimension, prose.Group(q.Limit), source)
		if q.long && q.Share > 0 { // in less than a minute a bucket that was full at first says more than the limit
			text = fmt.Sprintf("%s of %s %s (%s)", prose.Percent(q.Share), q.Dimension, prose.Group(q.Limit), source)
			if q.Busiest > 0 {
				text += fmt.Sprintf(", %s in the busiest minute", prose.Group(q.Busiest))
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
