package cli

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// block is how the run stands, in several lines.
func (st *runStatus) block(now time.Time) []string {
	lines := []string{st.head()}
	row := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-10s %s", name, fmt.Sprintf(format, args...)))
	}
	st.stateRows(row, now)
	partRows(st.Parts, row, now)
	return lines
}

// word is the run's status for people.
func (st *runStatus) word() string {
	failed := st.State.Failed
	switch {
	case st.Status == string(work.CalledOff):
		return "called off"
	case st.Status == string(work.Completed) && failed > 0:
		return st.Status + " with " + prose.Count(failed, "failed item")
	}
	return st.Status
}

// head names the run and says what it is about.
func (st *runStatus) head() string {
	text := fmt.Sprintf("%s: %s", st.Output, st.word())
	if st.Reason != "" {
		text += ": " + st.Reason
	}
	if st.Alive {
		text += fmt.Sprintf(" (process %d)", st.State.PID)
	}
	return text
}

// done is how many items have a result: of a run that was killed the output knows more than the state.
func (st *runStatus) done() int {
	s := st.State
	n := max(s.Done+s.Failed, st.recorded)
	if s.Total > 0 {
		n = min(n, s.Total)
	}
	return n
}

// paused reports whether the run waits for a limit, or would do so if it was resumed.
func (st *runStatus) paused(now time.Time) bool {
	return st.State.Status != work.Completed && st.State.RateLimitUntil.After(now)
}

// stateRows are what the state file says.
func (st *runStatus) stateRows(row func(name, format string, args ...any), now time.Time) {
	s, going, done := st.State, !st.ended(), st.done()
	progress := counted(done, s.Total)
	if s.Total > 0 {
		progress += "  " + term.Bar(done, s.Total, 24)
	}
	if n := s.Failed; n > 0 {
		progress += fmt.Sprintf("  %s failed", prose.Group(n))
	}
	row("items", "%s", progress)
	if st.paused(now) {
		text := "until " + prose.Zoned(s.RateLimitUntil.Local(), now)
		if s.RateLimit.Text != "" {
			text += ": " + term.Clip(s.RateLimit.Text, mostMessage)
		}
		row("paused", "%s", text)
	}
	if going && s.Outlook != "" {
		row("outlook", "%s", s.Outlook)
	}
	row("limits", "rate-limited %s, paused %s", prose.Times(s.Throttles), prose.Times(s.PauseCount))
	row("tokens", "%s in, %s out", prose.Group(s.InputTokens), prose.Group(s.OutputTokens))
	row("updated", "%s ago", prose.Span(now.Sub(s.UpdatedAt)))
}

// line is how the run stands, in one line.
func (st *runStatus) line(now time.Time) string {
	s := st.State
	text := fmt.Sprintf("%s: %s, %s", st.Output, st.word(), counted(st.done(), s.Total))
	if n := s.Failed; n > 0 && st.Status != string(work.Completed) {
		text += fmt.Sprintf(", %s failed", prose.Group(n))
	}
	if st.paused(now) {
		text += ", paused until " + prose.Clock(s.RateLimitUntil, now, time.TimeOnly)
	}
	if st.Reason != "" {
		text += ", " + st.Reason
	}
	return text + st.partWords(now) + fmt.Sprintf(" (%s ago)", prose.Span(now.Sub(s.UpdatedAt)))
}

// partWords say how the parts stand, behind other words; "" where none is pending.
func (st *runStatus) partWords(now time.Time) string {
	f := sumParts(st.Parts)
	if f.Pending == 0 {
		return ""
	}
	return ", " + f.words(now)
}

// counted is "done of total", or what is known of it.
func counted(done, total int) string {
	if total == 0 {
		return prose.Group(done) + " done"
	}
	return fmt.Sprintf("%s of %s", prose.Group(done), prose.Group(total))
}

// escaped makes lines harmless on a terminal.
func escaped(lines []string) []string {
	for i, line := range lines {
		lines[i] = term.Escape(line)
	}
	return lines
}

// clipped cuts lines to a width.
func clipped(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = term.Clip(line, width)
	}
	return lines
}
