// Package answers reads the texts of responses from the results of a run, and writes them as JSON lines, as a table or as text.
package answers

import (
	"cmp"
	"errors"
	"io"
	"iter"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/provider"
)

// Config says which answers are written, and how.
type Config struct {
	Results string // output file of run, or directory of exec
	Input   string // input file of the run: answers have its order and fields; "": the order of the results, and their fields
	Format  string // jsonl, csv or text
}

// Counts are the items and results without an answer.
type Counts struct {
	Failed  int // items
	Missing int // items of the input without a result
	Foreign int // results without an item in the input
}

// answer is the printed line of one item. The fields of its input come after its ID.
type answer struct {
	ID     string `json:"custom_id"` // ID of the item.
	fields []batch.Field
	said
}

// said has the fields of an answer after the fields of the input. All except the list are columns.
type said struct {
	Text    *string  `json:"text"`                   // Response text, or arguments of tool calls.
	Texts   []string `json:"texts,omitzero"`         // Texts of all choices, if several exist.
	Finish  string   `json:"finish_reason,omitzero"` // Finish reason from the provider.
	Refusal string   `json:"refusal,omitzero"`       // Refusal text from the model.
	Error   string   `json:"error,omitzero"`         // Kind of the failure.
	Message string   `json:"message,omitzero"`       // Error message, without keys.
}

// text returns the response text; "" if there is none.
func (s *said) text() string {
	if s.Text == nil {
		return ""
	}
	return *s.Text
}

// Write writes all answers to w. It also writes the answers before an error, because the error can be in the last of many results.
func Write(w io.Writer, cfg Config) (Counts, error) {
	if cfg.Results == "-" || cfg.Input == "-" {
		return Counts{}, fault.New(fault.Value, errors.New("answers are not read from standard input"), "name a file, because Sluice may read it more than once")
	}
	r := &reader{cfg: cfg}
	if dir, ok := runinfo.ExecDir(cfg.Results); ok {
		if cfg.Input != "" {
			return Counts{}, fault.New(fault.Conflict, errors.New("--input applies only to the output of sluice run"),
				"omit --input: results of commands are already in the order of their items")
		}
		return r.write(w, r.ofCommands(dir), nil)
	}
	var err error
	if r.results, err = batch.OpenRecordings(cfg.Results); err != nil {
		return Counts{}, fault.New(fault.File, err, "name the file that sluice run -o OUT.jsonl wrote: sluice answers OUT.jsonl")
	}
	defer r.results.Close()
	if cfg.Input == "" {
		return r.write(w, r.ofResults(), r.fieldsOfResults())
	}
	return r.write(w, r.ofInput(), r.fieldsOfInput())
}

// reader reads answers, and counts them.
type reader struct {
	cfg     Config
	results *batch.Recordings // nil for a directory of exec
	counts  Counts
}

// write writes answers. fields has the fields of all items, for a table.
func (r *reader) write(w io.Writer, all iter.Seq2[answer, error], fields iter.Seq2[[]batch.Field, error]) (_ Counts, err error) {
	var names []string
	if r.cfg.Format == "csv" && fields != nil {
		if names, err = fieldNames(cmp.Or(r.cfg.Input, r.cfg.Results), fields); err != nil {
			return r.counts, err
		}
	}
	form := newForm(w, r.cfg.Format, names)
	for a, err := range all {
		if err == nil {
			err = form.write(&a)
		}
		if err != nil {
			return r.counts, cmp.Or(err, form.end())
		}
		if a.Error != "" {
			r.counts.Failed++
		}
	}
	return r.counts, form.end()
}

// ofCommands yields the output of commands.
func (r *reader) ofCommands(dir string) iter.Seq2[answer, error] {
	return func(yield func(answer, error) bool) {
		results, err := proc.Results(dir)
		if err != nil {
			yield(answer{}, err)
			return
		}
		for _, res := range results {
			a, err := answer{ID: res.ID}, error(nil)
			if res.Fault != nil {
				a.Error, a.Message = res.Fault.Code.String(), res.Fault.Message
			} else {
				var text string
				text, err = res.Said(dir)
				a.Text = &text
			}
			if !yield(a, err) {
				return
			}
		}
	}
}

// ofResults yields the answers in the order of the results.
func (r *reader) ofResults() iter.Seq2[answer, error] {
	return func(yield func(answer, error) bool) {
		for rec, err := range r.results.All() {
			if !yield(ofRecording(&rec, rec.Fields()), err) {
				return
			}
		}
	}
}

// ofInput yields the answers in the order of the input.
func (r *reader) ofInput() iter.Seq2[answer, error] {
	return func(yield func(answer, error) bool) {
		found, err := 0, r.results.Index()
		if err != nil {
			yield(answer{}, err)
			return
		}
		for in, err := range batch.FieldsOf(r.cfg.Input) {
			if err != nil {
				yield(answer{}, err)
				return
			}
			rec, ok, err := r.results.Find(in.ID)
			if err == nil && !ok {
				r.counts.Missing++
				continue
			}
			found++
			if !yield(ofRecording(&rec, in.Fields), err) {
				return
			}
		}
		r.counts.Foreign = max(0, r.results.Len()-found)
	}
}

// ofRecording returns the answer of a result.
func ofRecording(rec *batch.Recording, fields []batch.Field) answer {
	a := answer{ID: rec.ID, fields: fields, said: said{Error: rec.Failed()}}
	if rec.Error != nil {
		a.Message = rec.Error.Message
	}
	if rec.Response == nil {
		return a
	}
	replies := provider.Replies(rec.Response.Body)
	for i, reply := range replies {
		if i == 0 {
			a.Text, a.Finish, a.Refusal = new(reply.Content()), reply.Finish, reply.Refusal
		}
		if len(replies) > 1 {
			a.Texts = append(a.Texts, reply.Content())
		}
	}
	return a
}

// fieldsOfResults yields the fields of all results, up to a broken one, which is reported after the answers before it.
func (r *reader) fieldsOfResults() iter.Seq2[[]batch.Field, error] {
	return func(yield func([]batch.Field, error) bool) {
		for rec, err := range r.results.All() {
			if fault.Is[*batch.RecordingError](err) || !yield(rec.Fields(), err) {
				return
			}
		}
	}
}

// fieldsOfInput yields the fields of all items.
func (r *reader) fieldsOfInput() iter.Seq2[[]batch.Field, error] {
	return func(yield func([]batch.Field, error) bool) {
		for in, err := range batch.FieldsOf(r.cfg.Input) {
			if !yield(in.Fields, err) {
				return
			}
		}
	}
}
