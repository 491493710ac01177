package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
)

// clipped cuts lines to a width.
func clipped(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = term.Clip(line, width)
	}
	return lines
}

// block is a text of named rows.
type block []string

func (b *block) row(name, format string, args ...any) {
	*b = append(*b, fmt.Sprintf("  %-10s %s", name, fmt.Sprintf(format, args...)))
}

// statusBlock returns the state of a run in lines.
func statusBlock(st *runinfo.Stored, now time.Time) []string {
	s, head := st.State, st.Output+": "+st.Word()
	if st.Reason != "" {
		head += ": " + st.Reason
	}
	if st.Alive {
		head += fmt.Sprintf(" (process %d)", s.PID)
	}
	b := block{head}
	progress := st.Progress()
	if s.Total > 0 {
		progress += "  " + term.Bar(s.Finished(), s.Total, 24)
	}
	if s.Failed > 0 {
		progress += fmt.Sprintf("  %s failed", prose.Group(s.Failed))
	}
	b.row("items", "%s", progress)
	if st.Paused(now) {
		text := "until " + prose.Zoned(s.RateLimitUntil.Local(), now)
		if s.RateLimit.Text != "" {
			text += ": " + term.Clip(s.RateLimit.Text, runinfo.MaxMessage)
		}
		b.row("paused", "%s", text)
	}
	if !st.Status.Ended() && s.Outlook != "" {
		b.row("outlook", "%s", s.Outlook)
	}
	b.row("limits", "rate-limited %s, paused %s", prose.Times(s.Throttles), prose.Times(s.PauseCount))
	if s.Runs > 1 {
		b.row("all runs", "%s", s.Figures)
		b.row("last run", "%s", s.Last)
	} else {
		b.row("tokens", "%s", s.InOut())
	}
	b.row("updated", "%s ago", prose.Span(now.Sub(s.UpdatedAt)))
	b.parts(st.Parts, now)
	return b
}

// parts adds a row for all batches, and one for each pending batch.
func (b *block) parts(all []batch.Part, now time.Time) {
	const maxParts = 20
	if len(all) == 0 {
		return
	}
	b.row("batches", "%s", runinfo.NewParts(all).Text(now))
	pending := slices.DeleteFunc(slices.Clone(all), func(p batch.Part) bool { return !p.Open() })
	for i := range pending {
		if i == maxParts && len(pending) > maxParts+1 {
			b.row("", "and %s more: --json lists all", prose.Group(len(pending)-maxParts))
			return
		}
		b.row("batch", "%s", runinfo.PartText(&pending[i], now))
	}
}

// sharedBlock returns the state of everything in Redis in lines.
func sharedBlock(st *cluster.Status) []string {
	e, kept := &st.Engine, "no append-only file"
	switch {
	case e.Durable:
		kept = "append-only file"
	case e.Version == "": // such a server does not describe its files either
		kept = "append-only file unknown"
	}
	b := block{fmt.Sprintf("%s: %s %s, %s, %s", st.URL, e.Name, cmp.Or(e.Version, "version unknown"), e.Mode, kept)}
	if len(st.Accounts)+len(st.Jobs) == 0 {
		b.row("shared", "no jobs, and no accounts used in the last two days")
	}
	for i := range st.Accounts {
		a := &st.Accounts[i]
		b = append(b, "account "+a.Account)
		if a.Format != "" {
			b.row("keys", "the keys in Redis have the unknown version %s", a.Format)
		}
		if len(a.Members) == 0 {
			b.row("member", "none now")
		}
		for _, m := range a.Members {
			version := prose.If(len(m.Version), ", "+m.Version)
			b.row("member", "%s at %s (pid %d%s), for %s", cmp.Or(m.Role, "unknown"), cmp.Or(m.Host, "-"), m.PID, version,
				prose.Span(st.At.Sub(m.Since)))
		}
		for k := range a.Lanes {
			b.row("lane", "%s", sharedLane(&a.Lanes[k]))
		}
	}
	for i := range st.Jobs {
		b.job(&st.Jobs[i])
	}
	return b
}

// sharedLane describes a lane in Redis.
func sharedLane(l *cluster.LaneStatus) string {
	text := cmp.Or(l.Lane, "all together") + ": "
	if l.Slots > 0 {
		text += fmt.Sprintf("%d of %s in flight", l.Open, prose.Count(l.Slots, "request"))
	} else {
		text += prose.Count(l.Open, "request") + " in flight"
	}
	text += prose.If(l.Waiting, ", "+prose.Count(l.Waiting, "instance")+" waiting")
	switch {
	case l.CooldownMS > 0:
		text += fmt.Sprintf(", pauses for %s (%s)", prose.Span(time.Duration(l.CooldownMS)*time.Millisecond), l.Why)
	case l.Probing:
		text += ", tests the limit"
	}
	for _, b := range l.Budgets {
		text += fmt.Sprintf("; %s paced at %s, %s available", b.Dimension, prose.Group(math.Round(b.Pace)), prose.Group(math.Floor(b.Level)))
	}
	return text
}

// job adds the state of a run with --distribute.
func (b *block) job(j *cluster.JobStatus) {
	*b = append(*b, "job "+j.Name)
	if j.Version != 0 {
		b.row("keys", "the keys in Redis have the unknown version %d", j.Version)
		return
	}
	switch c := j.Collector; {
	case c == nil:
		b.row("collector", "none")
	case c.Alive:
		b.row("collector", "%s (pid %d)", c.Host, c.PID)
	default:
		b.row("collector", "process %[2]d on %[1]s ended: resume the run with the same command and the same files", c.Host, c.PID)
	}
	b.row("items", "%s queued, %s at workers, %s delayed, %s with unrecorded results; %s done", prose.Group(j.Queued), prose.Group(j.Held),
		prose.Group(j.Delayed), prose.Group(j.Results), prose.Group(j.Done))
	if j.Poisoned > 0 {
		b.row("given up", "%s, because workers died while processing them", prose.Count(j.Poisoned, "item"))
	}
	if len(j.Workers) == 0 {
		b.row("worker", "none")
	}
	for _, w := range j.Workers {
		seen := prose.Span(time.Duration(w.SeenMS) * time.Millisecond)
		b.row("worker", "%s (pid %d): %s, seen %s ago", w.Host, w.PID, prose.Count(w.Held, "item"), seen)
	}
}
