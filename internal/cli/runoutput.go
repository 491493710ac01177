package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// mostMessage is the maximum length of a quoted message.
const mostMessage = runinfo.MaxMessage

// clipped cuts lines to a width.
func clipped(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = term.Clip(line, width)
	}
	return lines
}

// printEnding prints the document of a summary or the summary itself, and the next step.
func printEnding(s *term.Streams, watch *watchFlags, document any, ending *runinfo.Ending, print func()) error {
	if watch.json {
		if err := s.JSON(document); err != nil {
			return err
		}
	}
	if watch.progress != term.ProgressJSON { // else standard error is for programs
		print()
	}
	if ending.Error == "" && ending.Hint != "" {
		s.Errorf("hint: %s\n", ending.Hint)
	}
	return nil
}

// printSummary prints the items that need attention, the work of this run, and the next command.
func printSummary(s *term.Streams, sum *runinfo.Summary) {
	switch {
	case sum.Total == 0 && sum.Error == "":
		s.Errorf("nothing to do: %s has no lines\n", inputName(sum.Input))
		return
	case sum.Total == 0: // the error has the reason
		return
	}
	done := earlierText(prose.Group(sum.Done)+" of "+prose.Group(sum.Total)+" done", sum.Done-sum.DoneNow)
	if sum.Done == sum.Total && sum.Recorded() == 0 {
		done = prose.Group(sum.Done) + " of " + prose.Group(sum.Total) + " done already"
	}
	s.Errorf("%s\n", prose.Fields(done,
		prose.If(sum.Failed, earlierText(prose.Group(sum.Failed)+" failed", sum.Failed-(sum.Recorded()-sum.DoneNow))),
		prose.If(sum.Left, prose.Group(sum.Left)+" remaining")))
	failedRows(s, sum.Kinds, sum.First)
	if sum.Recorded()+sum.Left > 0 {
		printRun(s, sum)
		printLimits(s, sum)
		allRuns(s, sum.AllRuns)
	}
	if sum.Done+sum.Failed > 0 {
		s.Row("output", "%s", sum.Output)
	}
	if sum.Error == "" && sum.Hint == "" {
		name := "answers"
		if sum.Failed > 0 {
			name = "report"
		}
		s.Errorf("next: sluice %s %s\n", name, term.Quote(sum.Output))
	}
}

// printRun prints the work of this run.
func printRun(s *term.Streams, sum *runinfo.Summary) {
	thisRun(s, sum.Recorded(), sum.Attempts, sum.WallMS, sum.Throttles)
	if n := sum.CutOff(); n > 0 {
		s.SubRow("cut off", "%s reached the maximum number of output tokens: raise max_tokens", prose.Count(n, "result"))
	}
	// An item without a result when the run stopped can be a hit in a later run.
	if all := min(sum.Cached+sum.Run.CacheMisses, sum.Recorded()); all > 0 {
		s.SubRow("cache", "%s hits of %s", prose.Group(sum.Cached), prose.Group(all))
	}
	if v := sum.Batch; v != nil && v.Text() != "" {
		s.SubRow("batch", "%s", v.Text())
		if v.Saved != nil {
			s.SubRow("saved", "%s: live requests would have cost %s", prose.Dollars(*v.Saved), prose.Dollars(*v.LiveCost))
		}
	}
	if sum.Attempts == 0 && sum.Throttles == 0 {
		return
	}
	s.SubRow("tokens", "%s", sum.InOut())
	costRow(s, sum.Bill, sum.Recorded(), sum.CostDoubts())
	if len(sum.Finish) > 0 {
		s.SubRow("finish", "%s", prose.Counts(sum.Finish))
	}
}

// printLimits prints how much of the limits this run used, and which of them were binding.
func printLimits(s *term.Streams, sum *runinfo.Summary) {
	const maxLanes = 4
	for _, up := range sum.Upstreams {
		s.SubRow("upstream", "%s", up)
	}
	lanes := slices.SortedStableFunc(slices.Values(sum.Lanes), func(a, b runinfo.LaneUse) int { return cmp.Compare(b.Granted, a.Granted) })
	others := lanes[min(maxLanes, len(lanes)):]
	for _, lane := range lanes[:len(lanes)-len(others)] {
		if text := lane.String(); text != "" {
			s.SubRow("limits", "%s", text)
		}
	}
	if len(others) > 0 {
		requests := 0
		for _, lane := range others {
			requests += lane.Granted
		}
		s.SubRow("limits", "%s with %s: see --json", prose.Count(len(others), "other model"), prose.Count(requests, "request"))
	}
	if len(sum.Bound) > 0 {
		s.SubRow("limited by", "%s", prose.Shares(sum.Bound))
	}
}

// earlierText adds the share of earlier runs to a count.
func earlierText(text string, n int) string {
	return text + prose.If(n, " ("+prose.Group(n)+" by earlier runs)")
}

// failedRows counts failed items by kind, with the first of each in this run.
func failedRows(s *term.Streams, kinds map[sluice.Kind]int, first map[sluice.Kind]string) {
	for _, kind := range prose.LargestFirst(kinds) {
		text := prose.Group(kinds[kind]) + " " + kind.String()
		if first[kind] != "" {
			text += ", first " + first[kind]
		}
		s.Row("failed", "%s", text)
	}
}

// thisRun writes the number of items, the time and the rate of this run. One request makes no rate.
func thisRun(s *term.Streams, items, attempts int, wallMS int64, throttles int) {
	const minForRate = 2
	wall, rate := time.Duration(wallMS)*time.Millisecond, ""
	if min(items, attempts) >= minForRate && wall > 0 {
		rate = prose.Group(float64(items)/wall.Minutes()) + "/min"
	}
	s.Row("this run", "%s", prose.Fields(prose.Count(items, "item")+" in "+prose.Span(wall), rate,
		prose.If(throttles, "rate-limited "+prose.Times(throttles))))
}

// allRuns writes the figures of all runs, if there are several.
func allRuns(s *term.Streams, all *work.Figures) {
	if all != nil {
		s.Row("all runs", "%s", all)
	}
}

// costRow writes the cost of this run, and the number of items whose cost is known.
func costRow(s *term.Streams, bill runinfo.Bill, items int, doubts string) {
	switch {
	case bill.Cost == nil:
	case bill.Costed < items:
		s.SubRow("cost", "%s for %s of %s items%s", prose.Dollars(*bill.Cost), prose.Group(bill.Costed), prose.Group(items), doubts)
	default:
		s.SubRow("cost", "%s%s", prose.Dollars(*bill.Cost), doubts)
	}
}

// printStart prints the limit of requests in flight, remarks about the settings, and the fields of rows.
func (r *batchRun) printStart() {
	wanted := r.batch.Progress().Left()
	if r.o.cfg.Input == "-" { // the number of items is unknown
		wanted = r.accounts.Config.Limits.Concurrency
	}
	if note := r.accounts.RoomNote(wanted); note != "" {
		r.s.Errorf("sluice: %s\n", note)
	}
	explainSettings(r.s, r.accounts.Settings, r.o.watch.verbose)
	if r.o.cfg.Input != "-" {
		noteFields(r.s, r.batch.PromptFields())
	}
}

// noteFields prints the fields of rows that are sent and those that are copied to results, if there are any.
func noteFields(s *term.Streams, fields batch.PromptFields) {
	if len(fields.Sent)+len(fields.Kept) > 0 {
		s.Errorf("sluice: fields sent in requests: %s; copied to results: %s\n", namesOf(fields.Sent), namesOf(fields.Kept))
	}
}

// namesOf lists the first few names of fields.
func namesOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	const most = 8
	if more := len(names) - most; more > 0 {
		return term.Clip(strings.Join(names[:most], ", "), mostMessage) + fmt.Sprintf(" and %d more", more)
	}
	return term.Clip(strings.Join(names, ", "), mostMessage)
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
		progress += "  " + term.Bar(st.Finished(), s.Total, 24)
	}
	if s.Failed > 0 {
		progress += fmt.Sprintf("  %s failed", prose.Group(s.Failed))
	}
	b.row("items", "%s", progress)
	if st.Paused(now) {
		text := "until " + prose.Zoned(s.RateLimitUntil.Local(), now)
		if s.RateLimit.Text != "" {
			text += ": " + term.Clip(s.RateLimit.Text, mostMessage)
		}
		b.row("paused", "%s", text)
	}
	if !st.Ended() && s.Outlook != "" {
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
			b.row("member", "%s at %s (pid %d%s), for %s", cmp.Or(m.Role, "somebody"), cmp.Or(m.Host, "-"), m.PID, version,
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
		text += fmt.Sprintf("%d of %d slots", l.Open, l.Slots)
	} else {
		text += prose.Count(l.Open, "call") + " in flight"
	}
	text += prose.If(l.Waiting, ", "+prose.Count(l.Waiting, "member")+" in line")
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
