package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// partFigures are how the parts of a run stand together.
type partFigures struct {
	All       int            `json:"all"`                       // Batches.
	Pending   int            `json:"pending"`                   // Batches without recorded results.
	ByState   map[string]int `json:"by_state"`                  // Batches by state.
	Requests  int            `json:"requests"`                  // Requests of pending batches.
	Submitted int            `json:"submitted_requests"`        // Submitted requests of pending batches.
	Done      int            `json:"done_requests"`             // Finished requests of pending batches.
	Lost      int            `json:"lost,omitempty"`            // Batches missing at the provider.
	Expires   time.Time      `json:"first_expires_at,omitzero"` // First expiry.
	Problem   string         `json:"problem,omitempty"`         // First error message.

	running, runs int // parts at which the provider works, and their requests
}

// sumParts adds parts up.
func sumParts(all []batch.Part) *partFigures {
	f := &partFigures{All: len(all), ByState: make(map[string]int)}
	for i := range all {
		f.add(&all[i])
	}
	return f
}

func (f *partFigures) add(p *batch.Part) {
	f.ByState[stateOf(p)]++
	if !p.Open() {
		return
	}
	f.Pending++
	f.Requests += p.Requests
	if p.Problem != nil && f.Problem == "" {
		f.Problem = p.Problem.Message
	}
	switch {
	case p.Lost:
		f.Lost++
		return
	case p.Batch == "":
		return
	}
	f.Submitted += p.Requests
	f.Done += p.Succeeded + p.Failed
	if !running(p) {
		return
	}
	f.running++
	f.runs += p.Requests
	if !p.ExpiresAt.IsZero() && (f.Expires.IsZero() || p.ExpiresAt.Before(f.Expires)) {
		f.Expires = p.ExpiresAt
	}
}

// running reports whether the provider still works at a part.
func running(p *batch.Part) bool { return p.Batch != "" && p.AtProvider() }

// stateOf returns the state of a part, and of a part that was sent its status at the provider.
func stateOf(p *batch.Part) string {
	switch {
	case p.Open() && p.Lost:
		return "lost"
	case p.State == batchjob.Sent && p.Status != "":
		return string(p.Status)
	}
	return string(p.State)
}

// words say how they stand at an instant.
func (f *partFigures) words(now time.Time) string {
	if f == nil || f.All == 0 {
		return ""
	}
	text := prose.Count(f.All, "batch") + ": " + prose.Counts(f.ByState)
	if f.Submitted > 0 {
		text += fmt.Sprintf("; the provider finished %s of %s requests", prose.Group(f.Done), prose.Group(f.Submitted))
	}
	if f.Expires.After(now) {
		text += fmt.Sprintf("; the first batch expires in %s", prose.Span(f.Expires.Sub(now)))
	}
	if f.Problem != "" {
		text += "; the provider says: " + term.Clip(f.Problem, mostMessage)
	}
	return text
}

// left names the batches that continue at the provider when a run stops; "" if there are none.
func (f *partFigures) left(now time.Time) string {
	if f == nil || f.running == 0 {
		return ""
	}
	verb := "continue"
	if f.running == 1 {
		verb = "continues"
	}
	text := fmt.Sprintf("%s with %s %s at the provider", prose.Count(f.running, "batch"), prose.Count(f.runs, "request"), verb)
	if f.Expires.After(now) {
		text += ", the first until " + prose.Clock(f.Expires, now, time.TimeOnly)
	}
	return text
}

// mostParts is how many parts are listed one by one.
const mostParts = 20

// partRows list parts that are pending, and sum up all of them.
func partRows(all []batch.Part, row func(name, format string, args ...any), now time.Time) {
	if len(all) == 0 {
		return
	}
	row("batches", "%s", sumParts(all).words(now))
	pending := slices.DeleteFunc(slices.Clone(all), func(p batch.Part) bool { return !p.Open() })
	for i := range pending {
		if i == mostParts && len(pending) > mostParts+1 {
			row("", "and %s more: --json lists all", prose.Group(len(pending)-mostParts))
			return
		}
		row("batch", "%s", partWords(&pending[i], now))
	}
}

// partWords say how a part stands.
func partWords(p *batch.Part, now time.Time) string {
	text := fmt.Sprintf("%s %s: %s", p.Account, cmp.Or(p.Batch, "part "+p.Tag), strings.ReplaceAll(stateOf(p), "_", " "))
	if p.Batch == "" {
		text += fmt.Sprintf(", %s", prose.Count(p.Requests, "request"))
	} else {
		text += fmt.Sprintf(", %s of %s done", prose.Group(p.Succeeded+p.Failed), prose.Group(p.Requests))
	}
	if p.Failed > 0 {
		text += fmt.Sprintf(", %s failed", prose.Group(p.Failed))
	}
	if p.Model != "" {
		text += ", " + p.Model
	}
	if !p.MadeAt.IsZero() {
		text += fmt.Sprintf(", made %s ago", prose.Span(now.Sub(p.MadeAt)))
	}
	if running(p) && p.ExpiresAt.After(now) {
		text += ", expires in " + prose.Span(p.ExpiresAt.Sub(now))
	}
	if p.Problem != nil {
		text += ": " + term.Clip(p.Problem.Message, mostMessage)
	}
	return text
}

// pendingHint says what to do about parts that a run left; "" where it left none.
func pendingHint(all []batch.Part) string {
	f := sumParts(all)
	switch {
	case f.Pending == 0:
		return ""
	case f.Lost == f.Pending:
		return prose.Count(f.Lost, "batch") + " lost: run the same command to look for them again, or add --redo lost to pay for them again"
	}
	return "collect pending batches with the same run command, or cancel them with --cancel"
}
