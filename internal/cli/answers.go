package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// answersOptions are the flags of the answers command.
type answersOptions struct {
	results string
	input   string
	format  string
}

// newAnswers returns the command that prints the answers that stand in a file of results.
func newAnswers(s *term.Streams) *cobra.Command {
	var o answersOptions
	cmd := &cobra.Command{
		Use:   "answers OUT.jsonl|DIR",
		Short: "Print the texts of the responses in a file of results",
		Long: `Print the text and the finish reason of each response, from any provider. If a response has no text, the arguments of
its tool calls are printed. If a response has several choices, the first choice is printed. For a directory of exec, the
standard output of each command is printed, in the order of the items. The command also works during a run.`,
		Example: `  sluice answers out.jsonl | jq -r .text
  sluice answers out.jsonl --format csv --input prompts.jsonl > answers.csv
  sluice answers out.jsonl --format text | less
  sluice answers .sluice-exec --format csv > answers.csv`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, fmt.Errorf("expected one file of results, not %d", len(args)),
					"name the output file of a run: sluice answers OUT.jsonl")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			o.results = args[0]
			return printAnswers(s, &o)
		},
	}
	o.format = "jsonl"
	define(cmd, flagGroup{"Output", []flag{
		{name: "format", field: &o.format, metavar: "jsonl|csv|text", help: "Choose the output format", common: true},
		{name: "input", field: &o.input, metavar: "FILE", help: "Print rows in this input's order, with the input's fields", common: true,
			sets: "Input", fix: "set --input to the input file of the run"},
	}})
	return cmd
}

// check finds what is wrong with the flags.
func (o *answersOptions) check() error {
	if o.results == "-" || o.input == "-" {
		return fault.New(fault.Value, errors.New("answers are not read from standard input"), "name a file, because Sluice may read it more than once")
	}
	return nil
}

// answer is the printed line of one item. The fields of its input come after its ID.
type answer struct {
	ID     string `json:"custom_id"` // ID of the item.
	fields []batch.Field
	said
}

// said has the fields of an answer after those of the input. All but the list are columns.
type said struct {
	Text    *string  `json:"text"`                   // Response text, or arguments of tool calls.
	Texts   []string `json:"texts,omitzero"`         // Texts of all choices, if several exist.
	Finish  string   `json:"finish_reason,omitzero"` // Finish reason from the provider.
	Refusal string   `json:"refusal,omitzero"`       // Refusal text from the model.
	Error   string   `json:"error,omitzero"`         // Kind of the failure.
	Message string   `json:"message,omitzero"`       // Error message, without keys.
}

// choose sets the fields of the response's choices.
func (s *said) choose(replies []provider.Reply) {
	if len(replies) == 0 {
		return
	}
	s.Text, s.Finish, s.Refusal = new(replies[0].Content()), replies[0].Finish, replies[0].Refusal
	if len(replies) > 1 {
		for _, r := range replies {
			s.Texts = append(s.Texts, r.Content())
		}
	}
}

// text returns the response text; "" if there is none.
func (s *said) text() string {
	if s.Text == nil {
		return ""
	}
	return *s.Text
}

// printAnswers is the answers command.
func printAnswers(s *term.Streams, o *answersOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	p, err := &answerPrinter{o: o}, error(nil)
	if dir, ok := runinfo.ExecDir(o.results); ok {
		p.commands = dir
		if o.input != "" {
			return fault.New(fault.Conflict, errors.New("--input applies only to the output of sluice run"), "omit --input: results of commands are already in the order of their items")
		}
	} else {
		if p.results, err = batch.OpenRecordings(o.results); err != nil {
			return fault.New(fault.File, err, noResults, "answers")
		}
		defer p.results.Close()
	}
	if err = p.print(s.Data()); err != nil {
		return err
	}
	p.conclude(s)
	return nil
}

// noResults is the hint of a command whose output is not there.
const noResults = "name the file that sluice run -o OUT.jsonl wrote: sluice %s OUT.jsonl"

// inputFileError is what is wrong with the file that --input names.
type inputFileError struct{ err error }

// Error says it without the name that the library has for the flag.
func (e *inputFileError) Error() string {
	if wrong, ok := errors.AsType[*batch.ConfigError](e.err); ok {
		return "--input: " + wrong.Err.Error()
	}
	return "--input: " + e.err.Error()
}

func (e *inputFileError) Unwrap() error { return e.err }

// Hint says what can be done.
func (e *inputFileError) Hint() string { return "set --input to the input file of the run" }

// FaultCode is the code of the error in the catalogue of errors.
func (e *inputFileError) FaultCode() string { return fault.Input }

// answerPrinter prints answers, and counts them.
type answerPrinter struct {
	o       *answersOptions
	results *batch.Recordings

	commands string // directory of commands whose answers they are; "": they are in results
	failed   int
	missing  int // items of the input without a result
	foreign  int // results that belong to no line of the input
}

// print writes all answers to w.
func (p *answerPrinter) print(w io.Writer) error {
	form := p.o.form(w)
	var names []string
	var err error
	if p.o.input != "" {
		if p.o.format == "csv" {
			if names, err = fieldNames(p.o.input, fieldsOf(batch.FieldsOf(p.o.input))); err != nil {
				return &inputFileError{err}
			}
		}
		if err = p.results.Index(); err != nil {
			return err
		}
	} else if (p.o.format == "csv") && p.results != nil {
		if names, err = fieldNames(p.o.results, p.metadata()); err != nil {
			return err
		}
	}
	if err = form.begin(names); err != nil {
		return err
	}
	switch {
	case p.commands != "":
		err = p.ofCommands(form)
	case p.o.input == "":
		err = p.inOrderOfResults(form)
	default:
		err = p.inOrderOfInput(form)
	}
	// What came before an error is printed: a line that is no result may be the last of many.
	return cmp.Or(err, form.end())
}

// metadata gives the metadata of the results.
func (p *answerPrinter) metadata() iter.Seq2[[]batch.Field, error] {
	return func(yield func([]batch.Field, error) bool) {
		for rec, err := range p.results.All() {
			if _, broken := errors.AsType[*batch.RecordingError](err); broken || !yield(rec.Fields(), err) {
				return // a broken line is reported once the results before it are printed
			}
		}
	}
}

// fieldsOf gives the fields of an input's rows.
func fieldsOf(input iter.Seq2[batch.InputFields, error]) iter.Seq2[[]batch.Field, error] {
	return func(yield func([]batch.Field, error) bool) {
		for in, err := range input {
			if !yield(in.Fields, err) {
				return
			}
		}
	}
}

// inOrderOfResults prints the results as they stand in their file.
func (p *answerPrinter) inOrderOfResults(form answerForm) error {
	for rec, err := range p.results.All() {
		if err != nil {
			return err
		}
		if err := p.one(form, rec, rec.Fields()); err != nil {
			return err
		}
	}
	return nil
}

// inOrderOfInput prints the results of the input's items.
func (p *answerPrinter) inOrderOfInput(form answerForm) error {
	found := 0
	for in, err := range batch.FieldsOf(p.o.input) {
		if err != nil {
			return &inputFileError{err}
		}
		rec, ok, err := p.results.Find(in.ID)
		if err != nil {
			return err
		}
		if !ok {
			p.missing++
			continue
		}
		found++
		if err := p.one(form, rec, in.Fields); err != nil {
			return err
		}
	}
	p.foreign = max(0, p.results.Len()-found)
	return nil
}

// ofCommands prints what the commands of sluice exec wrote.
func (p *answerPrinter) ofCommands(form answerForm) error {
	results, err := proc.Results(p.commands)
	if err != nil {
		return err
	}
	for _, r := range results {
		a := answer{ID: r.ID}
		if r.Fault != nil {
			a.Error, a.Message = r.Fault.Code.String(), r.Fault.Message
		} else {
			text, err := r.Said(p.commands)
			if err != nil {
				return err
			}
			a.Text = &text
		}
		if err := p.show(form, &a); err != nil {
			return err
		}
	}
	return nil
}

// one prints one result.
func (p *answerPrinter) one(form answerForm, rec batch.Recording, fields []batch.Field) error {
	a := answer{ID: rec.ID, fields: fields, said: said{Error: rec.Failed()}}
	if rec.Error != nil {
		a.Message = rec.Error.Message
	}
	if rec.Response != nil {
		a.choose(provider.Replies(rec.Response.Body))
	}
	return p.show(form, &a)
}

// show prints one answer.
func (p *answerPrinter) show(form answerForm, a *answer) error {
	if a.Error != "" {
		p.failed++
	}
	return form.answer(a)
}

// conclude says what is not among the answers.
func (p *answerPrinter) conclude(s *term.Streams) {
	if p.failed > 0 {
		s.Errorf("sluice: %s failed: the output contains their errors\n", prose.Count(p.failed, "item"))
	}
	if p.missing > 0 {
		s.Errorf("sluice: %s of %s have no result in %s\n", prose.Count(p.missing, "item"), p.o.input, p.o.results)
	}
	if p.foreign > 0 {
		s.Errorf("sluice: %s omitted, because their items are not in %s\n", prose.Count(p.foreign, "result"), p.o.input)
	}
}
