package batch

import (
	"iter"
	"strconv"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/work"
)

// Field is a member of an input line.
type Field struct {
	Name  string
	Value []byte // JSON
}

// InputFields is what stands in one line of an input. It is valid until the next one is read.
type InputFields struct {
	ID     string // under which its result is recorded
	Other  string // under which it is if the line was no request, and that was recorded (Config.SkipInvalid)
	Fields []Field
}

// FieldsOf gives what stands in the rows of an input file, in their order: the members of an object other than its custom_id,
// the columns of a table, or a text as a prompt. An error is the last.
func FieldsOf(path string, format Format) iter.Seq2[InputFields, error] {
	return func(yield func(InputFields, error) bool) {
		in, err := openInput(Config{Input: path}, fill{format: format.named(path)})
		if err != nil {
			yield(InputFields{}, err)
			return
		}
		defer in.close()
		in.anyColumns = true
		reader := fieldReader{known: make(map[string]int), text: in.format == FormatText}
		for row, err := range in.rows() {
			if err != nil {
				yield(InputFields{}, err)
				return
			}
			if !yield(reader.read(row.Line), nil) {
				return
			}
		}
	}
}

// fieldReader reads the members of lines.
type fieldReader struct {
	fields []Field
	known  map[string]int
	text   bool // whatever lines begin with
}

func (r *fieldReader) read(line work.Line) InputFields {
	number := strconv.Itoa(line.Number)
	in := InputFields{ID: number, Other: string(invalidID(line.Number))}
	s := jsonscan.New(line.Bytes)
	if r.text || s.Peek() != '{' {
		if line.Bytes != nil { // else it was too long
			in.Fields = append(r.fields[:0], Field{"prompt", jsonscan.AppendString(nil, line.Bytes)})
		}
		return in
	}
	r.fields = r.fields[:0]
	clear(r.known)
	var key, customID []byte
	request := false
	for s.Enter('{'); s.Next('}'); {
		name := string(jsonscan.Name(s.Key()))
		value := s.Span()
		switch name {
		case "custom_id":
			customID = value
			continue
		case "key":
			key = value
		case "request":
			request = true
		}
		if at, twice := r.known[name]; twice {
			r.fields[at].Value = value
			continue
		}
		r.known[name] = len(r.fields)
		r.fields = append(r.fields, Field{name, value})
	}
	if !s.End() {
		return in
	}
	in.Fields = r.fields
	if customID == nil && request {
		customID = key
	}
	switch {
	case len(customID) == 0 || string(customID) == "null":
	case customID[0] == '"':
		in.ID = string(jsonscan.Unquote(customID))
	default:
		in.ID = string(customID)
	}
	return in
}
