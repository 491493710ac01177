package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
)

// printExecSummary prints the summary of a run of commands.
func printExecSummary(s *term.Streams, sum *runinfo.ExecSummary) {
	if sum.Items == 0 && sum.Error == "" {
		s.Errorf("nothing to do: there are no items\n")
		return
	}
	s.Errorf("%s\n", doneText(&sum.Summary, sum.Succeeded-sum.Done))
	for _, stage := range sum.Stages {
		pass := ""
		if stage.PassRate != nil {
			pass = "pass rate " + prose.Percent(*stage.PassRate)
		}
		s.Row("stage", "%s: %s", stage.Stage, prose.Fields(doneText(&stage, 0), pass))
	}
	failedRows(s, sum.Kinds, sum.First)
	if sum.RateLimited > 0 {
		s.Row("limited", "%s without a recorded result: they run again on resume", prose.Count(sum.RateLimited, "item"))
	}
	if ran := sum.Run.Done + sum.Run.Failed; ran+sum.Left > 0 {
		thisRun(s, ran, ran, sum.WallMS, sum.Throttles)
		if sum.InputTokens+sum.OutputTokens > 0 {
			s.SubRow("tokens", "%s", sum.InOut())
		}
		costRow(s, sum.Bill, ran, "")
		if sum.Throttles > 0 {
			s.SubRow("paused", "%s", prose.Times(sum.Pauses))
		}
		allRuns(s, sum.AllRuns)
	}
	if sum.Outlook != "" {
		s.Row("usage", "%s", sum.Outlook)
	}
	s.Row("results", "%s", sum.Results)
	if sum.Error == "" && sum.Hint == "" {
		s.Errorf("next: sluice answers %s\n", term.Quote(sum.Dir))
	}
}

// doneText counts the items of a run or a stage by their states.
func doneText(t *proc.Summary, earlier int) string {
	return prose.Fields(earlierText(prose.Group(t.Succeeded)+" of "+prose.Group(t.Items)+" done", earlier),
		prose.If(t.Failed, prose.Group(t.Failed)+" failed"), prose.If(t.Quarantined, prose.Group(t.Quarantined)+" quarantined"),
		prose.If(t.Blocked, prose.Group(t.Blocked)+" blocked"), prose.If(t.Left-t.Blocked, prose.Group(t.Left-t.Blocked)+" remaining"))
}

// printPlanned prints the commands that a run would start.
func printPlanned(s *term.Streams, cfg proc.Config, asJSON bool) error {
	var lines strings.Builder
	p, err := proc.ReadPreview(cfg, func(item proc.Planned) error {
		if asJSON {
			b, err := json.Marshal(item)
			lines.Write(append(b, '\n'))
			return err
		}
		words := make([]string, len(item.Command))
		for i, word := range item.Command {
			words[i] = term.Quote(word)
		}
		fmt.Fprintln(&lines, term.Escape(strings.Join(words, " ")))
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.Out.Write([]byte(lines.String())); err != nil {
		return err
	}
	s.Errorf("%s of %s remaining: nothing was run\n", prose.Group(p.Remaining), prose.Count(p.Items, "item"))
	for _, b := range p.Blocked {
		s.Row("blocked", "%s", b)
	}
	return nil
}
