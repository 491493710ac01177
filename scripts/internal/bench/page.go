package bench

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

const intro = `# Benchmarks

Every figure of this project, each with the command that makes it again. This page and ` + "`benchmarks.json`" + ` beside it are written by
` + "`go run ./scripts/bench`" + `: with the name of a section, or of a step as ` + "`serve/load`" + `, that is measured again; ` + "`--list`" + ` has the names and
about how long each takes, ` + "`--all`" + ` measures everything (some three hours), ` + "`--quick`" + ` takes a short look, which the page then says.
What is not measured again keeps its figures and their date. An interrupted step keeps its old ones.
A + behind a commit: files other than documents had changed since.

Figures are medians where something was measured more than once, with the least and the most in parentheses. *Asked* is the bound that
a figure should keep to; what misses it is bold. Wherever there is something to compare with, it was measured by the same command, in
the same run.

Ratios to the optimum are to what a client could do that knows the provider's whole state, computed by ` + "`sim`" + ` from the provider's
parameters alone (` + "`sim.Config.Optimum`" + `).
`

// Page is the whole page: what a book says of the sections.
func Page(sections []Section, b *Book) string {
	var text strings.Builder
	text.WriteString(intro)
	text.WriteString(summary(sections, b))
	for _, s := range sections {
		fmt.Fprintf(&text, "\n## %s\n", s.Title)
		if s.Text != "" {
			fmt.Fprintf(&text, "\n%s\n", s.Text)
		}
		for _, step := range s.Steps {
			writeStep(&text, step, b.record(s.Name, step.Name))
		}
		if s.Notes != "" {
			fmt.Fprintf(&text, "\n%s\n", s.Notes)
		}
	}
	return text.String()
}

// summary says what misses its bound, and what was not measured.
func summary(sections []Section, b *Book) string {
	var missed, absent []string
	kept := 0
	for _, s := range sections {
		for _, step := range s.Steps {
			r := b.record(s.Name, step.Name)
			if r == nil || len(r.Figures) == 0 {
				absent = append(absent, "`"+s.Name+"/"+step.Name+"`")
				continue
			}
			for _, t := range step.Tables {
				for _, row := range t.rows(r) {
					for _, c := range row.cells {
						if c.missed {
							missed = append(missed, fmt.Sprintf("| %s | %s | %s: %s | %s |", s.Title, row.label, c.title, c.text, c.asked))
						} else if c.asked != "" {
							kept++
						}
					}
				}
			}
		}
	}
	text := fmt.Sprintf("\n%s of %s keep to what is asked of them.\n", prose.Group(kept), prose.Count(kept+len(missed), "figure"))
	if len(missed) > 0 {
		text += "\n| section | of | missed | asked |\n|---|---|---|---|\n" + strings.Join(missed, "\n") + "\n"
	}
	if len(absent) > 0 {
		text += "\nNot measured yet: " + strings.Join(absent, ", ") + ".\n"
	}
	return text
}

func writeStep(text *strings.Builder, step Step, r *Record) {
	if step.Text != "" {
		fmt.Fprintf(text, "\n%s\n", step.Text)
	}
	fmt.Fprintf(text, "\n`%s`", step.line(r != nil && r.Quick))
	if r == nil {
		text.WriteString("\n\nNot measured yet.\n")
		return
	}
	fmt.Fprintf(text, "%s\n", r.when())
	for _, t := range step.Tables {
		t.write(text, r)
	}
}

// when says when and where a step was measured.
func (r *Record) when() string {
	if r.Date.IsZero() {
		return "\n\nNot measured: " + r.Missing + "."
	}
	if r.Note != "" {
		return fmt.Sprintf("\\\n%s at %s, %s.", r.Date.UTC().Format("2006-01-02"), r.Commit, r.Note)
	}
	text := fmt.Sprintf("\\\n%s UTC at %s, %s, a load of %.1f at the start, %s", r.Date.UTC().Format("2006-01-02 15:04"), r.Commit, r.Machine, r.Load,
		prose.Span(time.Duration(r.Took*float64(time.Second))))
	if r.Rounds > 1 {
		text += fmt.Sprintf(" in %d rounds", r.Rounds)
	}
	text += "."
	if r.Quick {
		text += " **A short look**: not to be compared."
	}
	if r.Failed != "" {
		text += " **The command failed**: " + r.Failed + "."
	}
	if r.Missing != "" {
		text += " Not measured again: " + r.Missing + "."
	}
	return text
}

// shown is a row of a table.
type shown struct {
	label string
	cells []cell
}

type cell struct {
	title, text, asked string
	missed, each       bool
}

// rows are those that a record has figures of.
func (t Table) rows(r *Record) (all []shown) {
	names := regexp.MustCompile(t.Rows)
	seen := make(map[string]bool)
	for _, f := range r.Figures {
		m := names.FindStringSubmatch(f.Name)
		if m == nil || seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		label := m[0]
		if len(m) > 1 {
			label = m[1]
		}
		row := shown{label: label}
		if other, ok := t.Labels[label]; ok {
			row.label = other
		}
		some := false
		for _, c := range t.Columns {
			cell := c.cell(r, f.Name, label)
			some = some || cell.text != ""
			row.cells = append(row.cells, cell)
		}
		if some {
			all = append(all, row)
		}
	}
	if t.Sorted {
		slices.SortFunc(all, func(a, b shown) int { return strings.Compare(a.label, b.label) })
	}
	return all
}

// cell is what a column shows of a row.
func (c Column) cell(r *Record, name, label string) cell {
	whose := func(of string) string {
		if of == "" {
			return name
		}
		return strings.ReplaceAll(of, "*", label)
	}
	out := cell{title: c.Title}
	f := r.figure(whose(c.Of), c.Unit)
	if f == nil {
		return out
	}
	if len(f.Values) == 0 {
		out.text = f.Text
		return out
	}
	scale := c.Scale
	if scale == 0 {
		scale = 1
	}
	v := f.median() * scale
	if c.Yes {
		out.text, out.asked = "yes", "yes"
		if out.missed = slices.Min(f.Values) != 1; out.missed {
			out.text = "no"
		}
		return out
	}
	if c.Over != "" || c.Below != "" {
		below := c.Below
		if below == "" {
			below = c.Unit
		}
		ref := r.figure(whose(c.Over), below)
		if ref == nil || ref.median() == 0 {
			return out
		}
		v /= ref.median()
	}
	out.text = digits(v, c.Digits) + c.Suffix
	if n := len(f.Values); c.Spread && n > 1 && c.Over == "" {
		least, most := math.Inf(1), math.Inf(-1)
		for _, one := range f.Values {
			least, most = min(least, one*scale), max(most, one*scale)
		}
		out.text += fmt.Sprintf(" (%s to %s)", digits(least, c.Digits), digits(most, c.Digits))
	}
	if a := c.asked(label); a.Op != "" {
		out.asked, out.each = a.String(), c.Each != nil
		if rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', max(c.Digits, 3), 64), 64); err == nil {
			out.missed = !a.kept(rounded)
		}
	}
	return out
}

func bound(v float64) string {
	if v >= 1000 {
		return prose.Group(v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// digits writes a number with so many digits after the point, and commas between groups of three before it. Below 0 it has as
// many digits as it is worth.
func digits(v float64, after int) string {
	if after < 0 {
		return prose.Number(v)
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', after, 64)
	whole, rest, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
		whole = prose.Group(n)
	}
	if rest != "" {
		whole += "." + rest
	}
	if v < 0 && strings.Trim(text, "0.") != "" {
		return "−" + whole
	}
	return whole
}

// write prints the table. What is asked of a whole column stands in its head; what is asked of some rows has a column of its own.
func (t Table) write(text *strings.Builder, r *Record) {
	rows := t.rows(r)
	if len(rows) == 0 {
		return
	}
	asks := 0
	for _, c := range t.Columns {
		if c.Each != nil {
			asks++
		}
	}
	if t.Caption != "" {
		fmt.Fprintf(text, "\n%s\n", t.Caption)
	}
	fmt.Fprintf(text, "\n| %s |", t.First)
	rule := "|---|"
	for _, c := range t.Columns {
		head := c.Title
		if c.Each == nil && c.Asked.Op != "" {
			head += " (asked: " + c.Asked.String() + ")"
		}
		fmt.Fprintf(text, " %s |", head)
		rule += "---|"
	}
	if asks > 0 {
		text.WriteString(" asked |")
		rule += "---|"
	}
	fmt.Fprintf(text, "\n%s\n", rule)
	for _, row := range rows {
		fmt.Fprintf(text, "| %s |", escape(row.label))
		var asked []string
		for _, c := range row.cells {
			shown := escape(c.text)
			if c.missed {
				shown = "**" + shown + "**"
			}
			fmt.Fprintf(text, " %s |", shown)
			if !c.each {
				continue
			}
			one := c.asked
			if asks > 1 {
				one = c.title + " " + one
			}
			if c.missed {
				one += " **missed**"
			}
			asked = append(asked, one)
		}
		if asks > 0 {
			fmt.Fprintf(text, " %s |", strings.Join(asked, "; "))
		}
		text.WriteByte('\n')
	}
}

func escape(cell string) string { return strings.ReplaceAll(cell, "|", "\\|") }
