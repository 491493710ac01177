package rows

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Format says how an input is parted into rows.
type Format uint8

// Formats.
const (
	FormatByName Format = iota // FormatCSV for .csv, FormatTSV for .tsv, with .gz behind it or not; else FormatLines
	FormatLines                // lines, each recognised by itself, or the items of a JSON array
	FormatText                 // lines of plain text, whatever they begin with
	FormatCSV                  // a table: the first line names its columns
	FormatTSV                  // a table whose columns are parted by tabs
)

// UnmarshalText reads jsonl, text, csv or tsv; nothing is by name.
func (f *Format) UnmarshalText(b []byte) error {
	for i, name := range [...]string{"", "jsonl", "text", "csv", "tsv"} {
		if name == string(b) {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("format %q: want jsonl, text, csv or tsv", b)
}

// Of returns the format of an input of that name, which is f unless that is FormatByName.
func (f Format) Of(path string) Format {
	if f != FormatByName {
		return f
	}
	switch extension(path) {
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	}
	return FormatLines
}

// extension returns the ending of a file's name in lower case, without that of gzip.
func extension(path string) string {
	return filepath.Ext(strings.TrimSuffix(strings.ToLower(path), gzipSuffix))
}

// Table says whether it is that of a table, of which every row has the same fields.
func (f Format) Table() bool { return f == FormatCSV || f == FormatTSV }
