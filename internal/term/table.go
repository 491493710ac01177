package term

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is text in columns, each as wide as its widest cell. A line without columns ends a group of rows with equal columns.
type Table struct{ b strings.Builder }

// Row adds a row. Cells are escaped, because they can come from anywhere.
func (t *Table) Row(cells ...string) {
	for i, cell := range cells {
		if i > 0 {
			t.b.WriteByte('\t')
		}
		t.b.WriteString(Escape(cell))
	}
	t.b.WriteByte('\n')
}

// Linef adds a line without columns.
func (t *Table) Linef(format string, args ...any) {
	t.b.WriteString(fmt.Sprintf(format, args...) + "\n")
}

// Print writes the table. On a terminal, long lines are folded.
func (t *Table) Print(out *Writer) error {
	var table, trimmed strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	io.WriteString(w, t.b.String())
	w.Flush() // into memory
	for line := range strings.Lines(table.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(out, out.Fit(trimmed.String()))
	return err
}
