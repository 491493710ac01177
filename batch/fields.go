package batch

import (
	"iter"

	"github.com/sluice-llm/sluice/internal/rows"
)

// Field is a member of an input line.
type Field = rows.Field

// InputFields is what stands in one line of an input. It is valid until the next one is read.
type InputFields struct {
	ID     string // under which its result is recorded
	Fields []Field
}

// FieldsOf gives what stands in the rows of an input file, in their order: the members of an object other than its custom_id,
// the columns of a table, or a text as a prompt. An error is the last.
func FieldsOf(path string) iter.Seq2[InputFields, error] {
	return func(yield func(InputFields, error) bool) {
		file, err := openRows(path, nil)
		if err != nil {
			yield(InputFields{}, err)
			return
		}
		defer file.Close()
		reader := rows.NewFieldReader()
		for row, err := range file.Rows() {
			if err != nil {
				yield(InputFields{}, err)
				return
			}
			if !yield(inputFields(reader, row), nil) {
				return
			}
		}
	}
}

func inputFields(r *rows.FieldReader, row rows.Row) InputFields {
	id, fields := r.Read(row)
	return InputFields{ID: id, Fields: fields}
}
