package plan

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Lengths are the lengths of calls, as a table has them.
type Lengths struct {
	Calls     []Call // in their order: all of them, or a fair sample
	Rows      int    // how many the table has
	HasOutput bool   // it says how long the answers were
}

// LengthsError names the line of a table that makes no sense.
type LengthsError struct {
	Line int
	Err  error
}

// Error names the line.
func (e *LengthsError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with it.
func (e *LengthsError) Unwrap() error { return e.Err }

// ReadLengths reads a table of the tokens of calls: CSV with a header, of which the columns input_tokens (prompt_tokens,
// or ContextTokens as in Azure's traces) and, where there are, output_tokens (completion_tokens, GeneratedTokens),
// max_tokens (max_completion_tokens, max_output_tokens) and cached_tokens (cached_input_tokens) are read, whatever their
// case and punctuation. An empty field is not known, but input has to be. Of more than most rows it returns a fair sample of most, in their
// order; the same one each time. It fails with a *LengthsError.
func ReadLengths(r io.Reader, most int) (Lengths, error) {
	if most <= 0 {
		return Lengths{}, fmt.Errorf("lengths: at most %d calls make no sample", most)
	}
	t := newTable(r)
	if err := t.header(); err != nil {
		return Lengths{}, err
	}
	type row struct {
		n    int
		call Call
	}
	sample := newReservoir[row](most)
	lengths := Lengths{HasOutput: t.at[columnOutput] >= 0}
	for ; ; lengths.Rows++ {
		call, err := t.call()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Lengths{}, err
		}
		sample.add(row{lengths.Rows, call})
	}
	if lengths.Rows == 0 {
		return Lengths{}, &LengthsError{t.line + 1, errors.New("no rows below the header")}
	}
	slices.SortFunc(sample.kept, func(a, b row) int { return a.n - b.n })
	for _, one := range sample.kept {
		lengths.Calls = append(lengths.Calls, one.call)
	}
	return lengths, nil
}

// Columns that are read.
const (
	columnInput = iota
	columnCached
	columnOutput
	columnMax
	numColumns
)

// columnOf is what a column holds, by its name; below zero: nothing that is read.
func columnOf(name string) int {
	switch strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(strings.TrimSpace(name))) {
	case "contexttokens", "inputtokens", "prompttokens":
		return columnInput
	case "cachedtokens", "cachedinputtokens":
		return columnCached
	case "generatedtokens", "outputtokens", "completiontokens":
		return columnOutput
	case "maxtokens", "maxcompletiontokens", "maxoutputtokens":
		return columnMax
	}
	return -1
}

// mostLine is how many bytes a line of a table has at most.
const mostLine = 1 << 20

// table is one that is being read.
type table struct {
	in    bounded
	csv   *csv.Reader
	names []string
	at    [numColumns]int // where each column is; below zero: nowhere
	line  int             // at which the last row began
}

func newTable(r io.Reader) *table {
	t := &table{in: bounded{r: r}, at: [numColumns]int{-1, -1, -1, -1}}
	t.in.left = mostLine
	b := bufio.NewReader(&t.in)
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" { // spreadsheets mark UTF-8 with it
		b.Discard(3)
	}
	t.csv = csv.NewReader(b)
	t.csv.ReuseRecord = true
	return t
}

// bounded ends a row that is too long: a quote that is never closed must not take the whole file into memory.
type bounded struct {
	r    io.Reader
	left int
}

var errLongRow = fmt.Errorf("longer than %d bytes: is a quote never closed?", mostLine)

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongRow
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

// row reads the next row; at the end it is io.EOF.
func (t *table) row() ([]string, error) {
	t.in.left = mostLine
	record, err := t.csv.Read()
	if err == io.EOF {
		return nil, err
	}
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		if errors.Is(err, csv.ErrFieldCount) {
			return nil, &LengthsError{wrong.Line, fmt.Errorf("%w: %d, where the header has %d", wrong.Err, len(record), len(t.names))}
		}
		return nil, &LengthsError{wrong.StartLine, wrong.Err}
	}
	if len(record) > 0 {
		t.line, _ = t.csv.FieldPos(0)
	}
	if err != nil {
		return nil, &LengthsError{max(1, t.line), err}
	}
	return record, nil
}

// header finds the columns.
func (t *table) header() error {
	record, err := t.row()
	if err == io.EOF {
		return &LengthsError{1, errors.New("empty: want a header such as input_tokens,output_tokens")}
	}
	if err != nil {
		return err
	}
	t.names = slices.Clone(record)
	for i, name := range t.names {
		what := columnOf(name)
		if what < 0 {
			continue
		}
		if first := t.at[what]; first >= 0 {
			return &LengthsError{t.line, fmt.Errorf("%.40q and %.40q say the same", t.names[first], name)}
		}
		t.at[what] = i
	}
	if t.at[columnInput] < 0 {
		return &LengthsError{t.line, fmt.Errorf("no column of input tokens among %.200q", strings.Join(t.names, ", "))}
	}
	return nil
}

// call reads the next row.
func (t *table) call() (Call, error) {
	record, err := t.row()
	if err != nil {
		return Call{}, err
	}
	var c Call
	to := [numColumns]*int{columnInput: &c.Input, columnCached: &c.Cached, columnOutput: &c.Output, columnMax: &c.MaxTokens}
	for what, at := range t.at {
		if at < 0 {
			continue
		}
		text := strings.TrimSpace(record[at])
		if text == "" && what != columnInput {
			continue
		}
		least := 0
		if what == columnInput {
			least = 1
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > LargestCall {
			line, _ := t.csv.FieldPos(at)
			return c, &LengthsError{line, fmt.Errorf("%.40s is %.40q: want a number from %d to %d", t.names[at], text, least, LargestCall)}
		}
		if *to[what] = n; what == columnOutput && n == 0 {
			c.Output = NoOutput
		}
	}
	if err := c.check(); err != nil {
		return c, &LengthsError{t.line, err}
	}
	return c, nil
}
