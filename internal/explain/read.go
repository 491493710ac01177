package explain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
)

// maxError is the maximum size of an error, and of a line of JSON with its newline.
const maxError = 16 << 20

// ReadText reads the text of the query from in. name is the name of the input in errors.
func (q *Query) ReadText(in io.Reader, name string) error {
	text, err := io.ReadAll(io.LimitReader(in, maxError+1))
	switch {
	case err != nil:
		return fault.New(fault.File, fmt.Errorf("%s: %w", name, err), "name a file with the error, or send it on standard input")
	case len(text) > maxError:
		return fault.New(fault.Input, fmt.Errorf("%s is longer than %d MiB", name, maxError>>20), "send only the text of the error")
	case strings.TrimSpace(string(text)) == "" && q.Status == 0 && len(q.Headers) == 0:
		return fault.New(fault.Input, fmt.Errorf("%s is empty", name), "write the error into the file: sluice explain error.txt")
	}
	q.Text = string(text)
	return nil
}

// Lines explains the error in each line of JSON. Fields of q are the defaults of a line. emit gets each verdict, and warn each invalid
// line. The error is about the input, or from emit.
func (q *Query) Lines(in io.Reader, name string, emit func(Verdict) error, warn func(error)) error {
	const example = `write a JSON object on each line, such as {"text": "...", "status": 429}`
	invalid, explained := 0, 0
	for line, err := range work.NewLineReader(in, maxError-1).All() {
		of := *q
		switch long, isLong := errors.AsType[*work.TooLongError](err); {
		case isLong:
			line.Number, err = long.Line, fmt.Errorf("the line is longer than %d MiB", maxError>>20)
		case err != nil:
			return fault.New(fault.File, fmt.Errorf("%s line %d: %w", name, line.Number, err), "name a readable file, or send it on standard input")
		case len(bytes.TrimSpace(line.Bytes)) == 0:
			continue
		default:
			err = of.Read(line.Bytes)
		}
		if err != nil {
			invalid++
			warn(fmt.Errorf("%s line %d: %w", name, line.Number, err))
			continue
		}
		explained++
		if err := emit(Explain(of)); err != nil {
			return err
		}
	}
	switch {
	case invalid > 0:
		err := fmt.Errorf("%s of %s lines of %s are invalid", prose.Group(invalid), prose.Group(invalid+explained), name)
		return fault.New(fault.Input, err, example)
	case explained == 0:
		return fault.New(fault.Input, fmt.Errorf("%s is empty", name), example)
	}
	return nil
}
