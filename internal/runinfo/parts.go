package runinfo

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// Parts is the state of all batches of a run together.
type Parts struct {
	All       int            `json:"all"`                       // Batches.
	Pending   int            `json:"pending"`                   // Batches without recorded results.
	ByState   map[string]int `json:"by_state"`                  // Batches by state.
	Requests  int            `json:"requests"`                  // Requests of pending batches.
	Submitted int            `json:"submitted_requests"`        // Submitted requests of pending batches.
	Done      int            `json:"done_requests"`             // Finished requests of pending batches.
	Lost      int            `json:"lost,omitempty"`            // Batches missing at the provider.
	Expires   time.Time      `json:"first_expires_at,omitzero"` // First expiry.
	Problem   string         `json:"problem,omitempty"`         // First error message.

	running, runs int // batches in progress at the provider, and their requests
}

// NewParts adds up batches.
func NewParts(all []batch.Part) *Parts {
	f := &Parts{All: len(all), ByState: make(map[string]int)}
	for i := range all {
		p := &all[i]
		f.ByState[stateOf(p)]++
		if !p.Open() {
			continue
		}
		f.Pending++
		f.Requests += p.Requests
		if p.Problem != nil && f.Problem == "" {
			f.Problem = p.Problem.Message
		}
		if p.Lost {
			f.Lost++
		} else if p.Batch != "" {
			f.Submitted += p.Requests
			f.Done += p.Succeeded + p.Failed
		}
		if p.Batch != "" && p.AtProvider() {
			f.running++
			f.runs += p.Requests
			if !p.ExpiresAt.IsZero() && (f.Expires.IsZero() || p.ExpiresAt.Before(f.Expires)) {
				f.Expires = p.ExpiresAt
			}
		}
	}
	return f
}

// stateOf returns the state of a batch; of a submitted batch, its status at the provider.
func stateOf(p *batch.Part) string {
	switch {
	case p.Open() && p.Lost:
		return "lost"
	case p.State == batchjob.Sent && p.Status != "":
		return string(p.Status)
	}
	return string(p.State)
}

// Text describes the batches; "" without any.
func (f *Parts) Text(now time.Time) string {
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
		text += "; the provider says: " + term.Clip(f.Problem, MaxMessage)
	}
	return text
}

// Continuing names the batches that continue at the provider after a run stops; "" if there are none.
func (f *Parts) Continuing(now time.Time) string {
	if f.running == 0 {
		return ""
	}
	text := fmt.Sprintf("%s with %s %s at the provider", prose.Count(f.running, "batch"), prose.Count(f.runs, "request"),
		prose.Verb(f.running, "continues", "continue"))
	if f.Expires.After(now) {
		text += ", the first until " + prose.Clock(f.Expires, now, time.TimeOnly)
	}
	return text
}

// hint names the next step for pending batches; "" without any.
func (f *Parts) hint() string {
	switch {
	case f.Pending == 0:
		return ""
	case f.Lost == f.Pending:
		return prose.Count(f.Lost, "batch") + " lost: run the same command to look for them again, or add --redo lost to pay for them again"
	}
	return "collect pending batches with the same run command, or cancel them with --cancel"
}

// PartText describes one batch.
func PartText(p *batch.Part, now time.Time) string {
	size := prose.Count(p.Requests, "request")
	if p.Batch != "" {
		size = fmt.Sprintf("%s of %s done", prose.Group(p.Succeeded+p.Failed), prose.Group(p.Requests))
	}
	text := fmt.Sprintf("%s %s: %s, %s", p.Account, cmp.Or(p.Batch, "part "+p.Tag), strings.ReplaceAll(stateOf(p), "_", " "), size)
	text += prose.If(p.Failed, ", "+prose.Group(p.Failed)+" failed") + prose.If(len(p.Model), ", "+p.Model)
	if !p.MadeAt.IsZero() {
		text += fmt.Sprintf(", made %s ago", prose.Span(now.Sub(p.MadeAt)))
	}
	if p.Batch != "" && p.AtProvider() && p.ExpiresAt.After(now) {
		text += ", expires in " + prose.Span(p.ExpiresAt.Sub(now))
	}
	if p.Problem != nil {
		text += ": " + term.Clip(p.Problem.Message, MaxMessage)
	}
	return text
}
