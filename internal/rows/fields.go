package rows

import (
	"strconv"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// Field is a member of a row that is an object, as the records of tables are.
type Field struct {
	Name  string
	Value []byte // JSON
}

// FieldReader reads what stands in rows. Use NewFieldReader. It is not safe for concurrent use.
type FieldReader struct {
	fields []Field
	known  map[string]int
}

// NewFieldReader returns one. A row that is not an object has its text as the field prompt.
func NewFieldReader() *FieldReader { return &FieldReader{known: make(map[string]int)} }

// Read returns a row's custom_id and its other fields, in their order. Where it has none, the id is the key of a request, as
// Gemini's batches have it, or else the number of the line. A row that is too long or broken has no fields. They are valid
// until the next is read.
func (r *FieldReader) Read(row Row) (id string, fields []Field) {
	id = strconv.Itoa(row.Number)
	r.fields = r.fields[:0]
	s := jsonscan.New(row.Bytes)
	if row.Text || s.Peek() != '{' {
		if row.Bytes != nil { // else it was too long
			r.fields = append(r.fields, Field{"prompt", jsonscan.AppendString(nil, row.Bytes)})
		}
		return id, r.fields
	}
	custom, ok := r.members(&s)
	if !ok {
		return id, nil
	}
	switch {
	case len(custom) == 0 || string(custom) == "null":
	case custom[0] == '"':
		id = string(jsonscan.Unquote(custom))
	default:
		id = string(custom)
	}
	return id, r.fields
}

// members reads the members of an object but its custom_id, which it returns as JSON. It says false of one that is broken.
func (r *FieldReader) members(s *jsonscan.Scanner) (customID []byte, ok bool) {
	clear(r.known)
	var key []byte
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
	if customID == nil && request {
		customID = key
	}
	return customID, s.End()
}
