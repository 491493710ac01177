package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Choose returns the sections that names ask for, with the steps that they ask for, in their order; without names, all. A name of
// neither is an error.
func Choose(sections []Section, names []string) ([]Section, error) {
	if len(names) == 0 {
		return sections, nil
	}
	var chosen []Section
	found := make(map[string]bool)
	for _, s := range sections {
		whole := slices.Contains(names, s.Name)
		found[s.Name] = true
		var steps []Step
		for _, step := range s.Steps {
			found[s.Name+"/"+step.Name] = true
			if whole || slices.Contains(names, s.Name+"/"+step.Name) {
				steps = append(steps, step)
			}
		}
		if s.Steps = steps; len(steps) > 0 {
			chosen = append(chosen, s)
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("%s: no section is named so, see --list", name)
		}
	}
	return chosen, nil
}

// List names the sections and steps, about how long they take, and when they were measured.
func List(sections []Section, b *Book) string {
	var text strings.Builder
	var all time.Duration
	for _, s := range sections {
		all += s.takes()
		fmt.Fprintf(&text, "%-24s %9s  %s\n", s.Name, prose.Span(s.takes()), s.Title)
		for _, step := range s.Steps {
			when := "never"
			if r := b.record(s.Name, step.Name); r != nil && !r.Date.IsZero() {
				when = r.Date.Format("2006-01-02 15:04")
				if r.Quick {
					when += ", a short look"
				}
			}
			needs := ""
			if why := missing(step.Needs); why != "" {
				needs = "; " + why
			}
			fmt.Fprintf(&text, "  %-22s %9s  measured: %s%s\n", s.Name+"/"+step.Name, prose.Span(step.takes()), when, needs)
		}
	}
	fmt.Fprintf(&text, "%-24s %9s\n", "all", prose.Span(all))
	return text.String()
}
