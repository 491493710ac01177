package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// autoWords say what --batch does.
func autoWords(a *forecast.Auto) string {
	took := shortTime(new(a.TimeS.Seconds()))
	if a.WaitS == nil {
		return fmt.Sprintf("all items are sent live immediately and take about %s, because no batch can finish before the deadline", took)
	}
	return fmt.Sprintf("all items go into batches; after %s, items without a result are sent live: sending all items live would take about %s", prose.Span(a.WaitS.Duration), took)
}

// printVia writes it for people, as rows below those of live calls.
func printVia(s *term.Streams, v *forecast.Via) {
	if v == nil || len(v.Accounts) == 0 {
		return
	}
	s.Row("by batch", "%s", viaCost(v))
	for _, b := range v.Accounts {
		text := fmt.Sprintf("%s at %s: %s, about %s", prose.Count(b.Batches, "batch"), b.Provider, prose.Count(b.Requests, "request"), megabytes(b.Bytes))
		if b.Window.Duration > 0 {
			text += ", within " + hours(b.Window.Duration)
		}
		if b.BoundBy != "" {
			text += fmt.Sprintf("; %s turns for %s", prose.Group(b.Turns), strings.ReplaceAll(b.BoundBy, "_", " "))
		}
		s.Row("batches", "%s", text)
	}
	if v.Pending.Batches > 0 {
		s.Row("pending", "%s in %s of earlier runs, which are resumed and not submitted again: the numbers above include them",
			prose.Count(v.Requests, "request"), prose.Count(v.Batches, "batch"))
	}
	if v.Auto != nil {
		s.Row("deadline", "%s", autoWords(v.Auto))
	}
}

// viaCost says what it costs; of an unknown price, which part of it.
func viaCost(v *forecast.Via) string {
	price := v.Accounts[0].Price
	alike := !slices.ContainsFunc(v.Accounts, func(b *forecast.Batches) bool { return b.Price != price })
	if v.Cost == nil && alike && price > 0 {
		return fmt.Sprintf("unknown, but %s of the live price", prose.Percent(price))
	}
	return costWords(v.Cost)
}

// hours writes the time in which a batch ends as providers state it.
func hours(d time.Duration) string {
	if d%time.Hour != 0 {
		return prose.Span(d)
	}
	return prose.Number(d.Hours()) + " h"
}

// megabytes writes a size as providers state theirs.
func megabytes(n int64) string {
	const mega = 1e6
	if n < mega/10 {
		return fmt.Sprintf("%s kB", prose.Number(float64((n+999)/1000)))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/mega)
}
