// Package bench measures every figure of docs/benchmarks.md again, and writes that page.
//
// A Section is about one thing; each of its Steps is one command, whose output becomes Figures. The Book keeps what was measured
// and when; the page is made of nothing but the Book and the sections.
package bench

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Section is a part of the page. It needs a Name and Steps.
type Section struct {
	Name  string // by which it is asked for
	Title string
	Text  string // what is measured, and how
	Steps []Step
	Notes string // below the tables: how to read them, and why what is missed is missed
}

// takes is about how long a section is to measure.
func (s Section) takes() (all time.Duration) {
	for _, step := range s.Steps {
		all += step.takes()
	}
	return all
}

// Step is one command of a section. Name, Command and Takes have to be there.
type Step struct {
	Name    string
	Text    string   // above its tables
	Env     []string // set for the command, beside what is there
	Command []string // run in the root of the module
	Quick   []string // what is run in its place for a short look; nil: it is short already
	Briefly []string // set for the short look, beside Env
	Rounds  int      // how often it is run; 0: once

	Takes  time.Duration // about how long a round lasts, where nothing else is at work
	Needs  []string      // programs that must be there, and variables, with a $
	Engine bool          // a Redis of its own is started for it, and SLUICE_TEST_REDIS names it
	Fresh  bool          // it has a home of its own, and empty caches of modules and of what was built

	Read   Reader // nil: the figure is how long the command takes
	Tables []Table
}

// takes is about how long all rounds last.
func (s Step) takes() time.Duration { return s.Takes * time.Duration(max(1, s.Rounds)) }

// line is the command as one types it.
func (s Step) line(quick bool) string {
	words, env := s.Command, s.Env
	if quick {
		words, env = s.short()
	}
	all := slices.Clone(env)
	if s.Engine {
		all = append(all, "SLUICE_TEST_REDIS=redis://127.0.0.1:6379")
	}
	for _, w := range words {
		if strings.ContainsAny(w, " |$*()'\"") {
			w = "'" + w + "'"
		}
		all = append(all, w)
	}
	for i, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.Contains(value, " ") {
			all[i] = name + "='" + value + "'"
		}
	}
	return strings.Join(all, " ")
}

func (s Step) short() (words, env []string) {
	words = s.Command
	if s.Quick != nil {
		words = s.Quick
	}
	return words, append(slices.Clone(s.Env), s.Briefly...)
}

// Table shows some of a step's figures: a row for each name that Rows matches.
type Table struct {
	Caption string
	First   string            // the title of the first column
	Rows    string            // a regular expression; what its first group matches is the row's label
	Labels  map[string]string // labels to be shown in place of others
	Sorted  bool              // rows by their labels; else as they were measured, which for some tests is in any order
	Columns []Column
}

// Column shows the figure that a row has in a unit.
type Column struct {
	Title  string
	Unit   string
	Of     string  // whose figure it is; a * stands for the row's label, "" is the row's own
	Over   string  // the reference that it is divided by, in the same way; "" is none
	Below  string  // the unit of the reference; "" is that of the figure
	Scale  float64 // what the figure is multiplied by; 0 is 1
	Digits int     // after the point; below 0: as many as the figure is worth
	Suffix string  // after the number, such as " MiB"
	Spread bool    // least and most beside the median
	Yes    bool    // 1 is shown as yes, and asked for; anything else as no

	Asked Asked            // of every row
	Each  map[string]Asked // of some, by label; where there are any, Asked is of none
}

// asked is what is asked of a row.
func (c Column) asked(label string) Asked {
	if c.Each != nil {
		return c.Each[label]
	}
	return c.Asked
}

// Asked is a bound that a figure should keep to. The zero value asks nothing.
type Asked struct {
	Op    string // "≤", "≥" or "="
	Bound float64
	Goal  float64 // what would be better still; 0 is nothing
}

// String is as the page says it.
func (a Asked) String() string {
	if a.Op == "" {
		return ""
	}
	text := a.Op + " " + bound(a.Bound)
	if a.Goal != 0 {
		text += ", better " + a.Op + " " + bound(a.Goal)
	}
	return text
}

// kept reports whether a figure keeps to what is asked.
func (a Asked) kept(figure float64) bool {
	switch a.Op {
	case "≤":
		return figure <= a.Bound
	case "≥":
		return figure >= a.Bound
	case "=":
		return figure == a.Bound
	}
	return true
}

// Figure is what was measured of one thing, in one unit.
type Figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values,omitempty"` // one of each time
	Text   string    `json:"text,omitempty"`   // where it is no number
}

// median is the middle of the values, or between the two in the middle.
func (f Figure) median() float64 {
	sorted := slices.Sorted(slices.Values(f.Values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// merged puts figures of the same name and unit together, in order of their first.
func merged(all []Figure) []Figure {
	var out []Figure
	at := make(map[[2]string]int)
	for _, f := range all {
		key := [2]string{f.Name, f.Unit}
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, Figure{Name: f.Name, Unit: f.Unit, Values: slices.Clone(f.Values), Text: f.Text})
			continue
		}
		out[i].Values = append(out[i].Values, f.Values...)
		out[i].Text = cmp.Or(f.Text, out[i].Text)
	}
	return out
}
