package rows

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
)

// startsArray reports whether a text begins as a JSON array of objects or texts. A line such as [1] or [INFO] is not one. It reads
// no further than it must: the next bytes may be long in coming.
func startsArray(r *bufio.Reader) bool {
	open := false
	for n := 1; ; n++ {
		head, _ := r.Peek(n)
		if len(head) < n {
			return false
		}
		switch c := head[n-1]; {
		case c == ' ', c == '\t', c == '\r', c == '\n':
		case !open && n <= len(mark) && string(head) == mark[:n]:
		case !open && c == '[':
			open = true
		default:
			return open && (c == '{' || c == '"' || c == ']')
		}
	}
}

// array reads the items of a JSON array, one at a time, as rows. Use newArray.
type array struct {
	path string
	in   counter
	json *json.Decoder
	base int64 // offset at which the decoder began
	item int
	raw  json.RawMessage
	b    []byte
}

// newArray returns a reader of the array that r begins with.
func newArray(path string, r *bufio.Reader) *array {
	a := &array{path: path, in: counter{bounded: bounded{r: r, left: mostRecord}, line: 1}}
	if head, _ := r.Peek(len(mark)); string(head) == mark {
		_, _ = r.Discard(len(mark))
		a.base = int64(len(mark))
	}
	a.json = json.NewDecoder(&a.in)
	_, _ = a.json.Token() // the bracket, which startsArray saw
	return a
}

// next reads the next item, or io.EOF after the last. The row is valid until the next. An *Error says why the rest cannot be read.
func (a *array) next() (Row, error) {
	a.in.left = mostRecord
	if !a.json.More() {
		return Row{}, a.end()
	}
	a.item++
	if cap(a.raw) > 1<<20 {
		a.raw, a.b = nil, nil // after a very long item
	}
	if err := a.json.Decode(&a.raw); err != nil {
		return Row{}, a.broken(err)
	}
	start := a.json.InputOffset() - int64(len(a.raw))
	row := Row{Line: work.Line{Number: a.item, Offset: a.base + start}, Source: a.in.lineAt(start)}
	a.b = row.element(a.raw, a.b)
	return row, nil
}

// element makes the row of an item, with its JSON on one line. It returns the memory of the row's bytes.
func (r *Row) element(raw, memory []byte) []byte {
	switch {
	case len(raw) > MaxBytes:
		r.Bad = tooLong()
		return memory
	case raw[0] == '"':
		r.Text, r.Bytes = true, jsonscan.Unquote(raw)
		if len(bytes.TrimSpace(r.Bytes)) == 0 {
			r.Bad = &Problem{Text: "the string is empty"}
		}
		return memory
	case raw[0] != '{':
		r.Bad = &Problem{Text: clip(string(raw)) + " is neither an object nor a string"}
		return memory
	}
	r.Bytes = jsonscan.AppendCompact(memory[:0], raw)
	return r.Bytes
}

// end reads the end of the array, after which nothing may follow.
func (a *array) end() error {
	if token, err := a.json.Token(); err != nil || token != json.Delim(']') {
		return a.broken(err)
	}
	offset := a.json.InputOffset()
	_, err := a.json.Token()
	switch _, syntax := errors.AsType[*json.SyntaxError](err); {
	case err == io.EOF:
		return io.EOF
	case err != nil && !syntax:
		return err
	}
	return &Error{Path: a.path, Line: a.in.lineAt(offset), Problem: "more text follows the end of the JSON array",
		Hint: "put all items into one array, or one item on each line"}
}

// broken returns the error of an array that cannot be read on.
func (a *array) broken(err error) error {
	rest, _ := io.ReadAll(a.json.Buffered())
	value := bytes.TrimLeft(rest, " \t\r\n")
	s := jsonscan.New(value)
	s.Skip()
	at := len(rest) - len(value) + min(s.Offset(), len(value))
	text := "broken JSON"
	_, syntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case errors.Is(err, errLongRecord):
		at, text = len(rest)-len(value), tooLong().Text+": is a quote or a bracket never closed?"
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		at, text = len(rest), "the JSON array is not closed"
	case err != nil && !syntax:
		return err
	case !s.Bad(): // the item itself is whole
		at, text = len(rest)-len(value), "a comma is missing before this item"
	}
	return &Error{Path: a.path, Line: a.in.lineAt(a.json.InputOffset() + int64(at)), Item: a.item, Problem: text,
		Hint: "check the file with a JSON tool, such as: jq empty " + a.path}
}

// counter is a bounded reader that knows the line of an offset.
type counter struct {
	bounded
	size   int64   // bytes read
	breaks []int64 // offsets of the newlines after the last offset asked for
	line   int     // of that offset
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.bounded.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			c.breaks = append(c.breaks, c.size+int64(i))
		}
	}
	c.size += int64(n)
	return n, err
}

// lineAt returns the line of an offset. Offsets must not decrease.
func (c *counter) lineAt(offset int64) int {
	passed := 0
	for passed < len(c.breaks) && c.breaks[passed] < offset {
		passed++
	}
	c.line += passed
	c.breaks = append(c.breaks[:0], c.breaks[passed:]...)
	return c.line
}

// elementAt reads the item of an array that begins at offset again.
func (r *Reader) elementAt(offset int64, number int) (Row, error) {
	row := Row{Line: work.Line{Number: number, Offset: offset}, Source: unknownLine}
	decoder := json.NewDecoder(&bounded{r: r.file.from(offset), left: mostRecord})
	if err := decoder.Decode(&r.raw); err != nil {
		if _, syntax := errors.AsType[*json.SyntaxError](err); !syntax {
			return Row{}, err
		}
		row.Bad = &Problem{Text: "broken JSON"}
		return row, nil
	}
	r.buf = row.element(r.raw, r.buf)
	return row, nil
}

// placeOf names a line, an item of an array, or both.
func placeOf(line, item int) string {
	switch {
	case item == 0:
		return fmt.Sprintf("line %d", line)
	case line <= 0:
		return fmt.Sprintf("item %d", item)
	}
	return fmt.Sprintf("line %d, item %d", line, item)
}
