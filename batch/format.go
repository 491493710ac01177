package batch

import "github.com/sluice-llm/sluice/internal/rows"

// Format says how an input is parted into rows.
type Format = rows.Format

// Formats.
const (
	FormatByName = rows.FormatByName // FormatCSV for .csv, FormatTSV for .tsv, with .gz behind it or not; else FormatLines
	FormatLines  = rows.FormatLines  // lines, each recognised by itself, or the items of a JSON array
	FormatText   = rows.FormatText   // lines of plain text, whatever they begin with
	FormatCSV    = rows.FormatCSV    // a table: the first line names its columns
	FormatTSV    = rows.FormatTSV    // a table whose columns are parted by tabs
)
