package plan

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// ReadLengths reads a table of the tokens of calls: CSV with a header, of which the columns ContextTokens and
// GeneratedTokens (as in Azure's traces), or input_tokens and output_tokens, and max_tokens, if there is one, are read,
// whatever the case of their letters. Of more than most rows it returns a fair sample of most, in their order; the same
// one each time. It fails with the number of the line that makes no sense.
func ReadLengths(r io.Reader, most int) ([]Call, error) {
	if most <= 0 {
		return nil, fmt.Errorf("lengths: at most %d calls make no sample", most)
	}
	in := table{r: bufio.NewReaderSize(r, mostLine)}
	header, err := in.row()
	if err == io.EOF {
		return nil, errors.New("lengths: the table is empty: want a header such as input_tokens,output_tokens")
	}
	if err != nil {
		return nil, fmt.Errorf("lengths: line %d: %w", in.line, err)
	}
	columns, err := findColumns(header)
	if err != nil {
		return nil, err
	}
	type row struct {
		n    int
		call Call
	}
	var kept []row
	random := rand.New(rand.NewPCG(1, 2))
	for n := 0; ; n++ {
		record, err := in.row()
		if err == io.EOF {
			break
		}
		var call Call
		if err == nil {
			call, err = columns.call(record)
		}
		if err != nil {
			return nil, fmt.Errorf("lengths: line %d: %w", in.line, err)
		}
		if len(kept) < most {
			kept = append(kept, row{n, call})
		} else if i := random.IntN(n + 1); i < most {
			kept[i] = row{n, call}
		}
	}
	if len(kept) == 0 {
		return nil, errors.New("lengths: the table has no rows below its header")
	}
	slices.SortFunc(kept, func(a, b row) int { return a.n - b.n })
	calls := make([]Call, len(kept))
	for i := range kept {
		calls[i] = kept[i].call
	}
	return calls, nil
}

// columns are where the numbers stand; below zero: nowhere.
type columns struct{ input, output, declared int }

func findColumns(header []string) (columns, error) {
	c := columns{-1, -1, -1}
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))) // spreadsheets mark UTF-8 with it
		var at *int
		switch name {
		case "contexttokens", "input_tokens":
			at = &c.input
		case "generatedtokens", "output_tokens":
			at = &c.output
		case "max_tokens":
			at = &c.declared
		default:
			continue
		}
		if *at >= 0 {
			return c, fmt.Errorf("lengths: column %d of the header says %.40q again", i+1, name)
		}
		*at = i
	}
	if c.input < 0 || c.output < 0 {
		return c, fmt.Errorf("lengths: the header names no column for the tokens in or out: want input_tokens and output_tokens")
	}
	return c, nil
}

// call reads a row.
func (c columns) call(record []string) (call Call, err error) {
	for _, f := range []struct {
		name string
		at   int
		to   *int
	}{{"input", c.input, &call.Input}, {"output", c.output, &call.Output}, {"max_tokens", c.declared, &call.MaxTokens}} {
		if f.at < 0 {
			continue
		}
		if f.at >= len(record) {
			return call, fmt.Errorf("it has %d fields, and %s tokens are in field %d", len(record), f.name, f.at+1)
		}
		text := strings.TrimSpace(record[f.at])
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > mostTokens {
			return call, fmt.Errorf("%s tokens are %.40q: want a number from 0 to %d", f.name, text, mostTokens)
		}
		*f.to = n
	}
	if call.Output == 0 {
		call.Output = -1 // to a Scenario, zero is whatever the provider likes
	}
	return call, nil
}

// table reads rows of CSV, each on a line of its own: a quote that is never closed must not take the whole file into
// memory.
type table struct {
	r    *bufio.Reader
	line int // the number of the row read last
}

// row returns the fields of the next line that is not empty, or io.EOF.
func (t *table) row() ([]string, error) {
	for {
		line, err := t.r.ReadSlice('\n')
		t.line++
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("longer than %d bytes", mostLine)
		}
		if err != nil && (err != io.EOF || len(line) == 0) {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if bytes.IndexByte(line, '"') < 0 {
			return strings.Split(string(line), ","), nil
		}
		record, err := csv.NewReader(bytes.NewReader(line)).Read()
		if err != nil {
			return nil, errors.New("its quotes do not match")
		}
		return record, nil
	}
}
