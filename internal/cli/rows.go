package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
)

// rowFlags say what goes into a run: how its input is parted into rows, what prompts are made of them, and which of them.
type rowFlags struct {
	flags    *pflag.FlagSet
	format   string
	template string
	limit    int
	dryRun   bool
}

func (f *rowFlags) register(fs *pflag.FlagSet) {
	f.flags = fs
	fs.StringVar(&f.format, "format", "", "form of the input: jsonl, text, csv or tsv (default: by name)")
	fs.StringVar(&f.template, "template", "", "file of a template that makes the prompt of each row of its fields, such as {{.question}}")
	fs.IntVar(&f.limit, "limit", 0, "only the first so many rows (0: all)")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what is left to do, what it may cost and how long it takes, and send nothing")
}

// mostTemplate is how many MiB a template may have.
const mostTemplate = 1

// fill checks the flags and fills the batch's fields.
func (f *rowFlags) fill(cfg *batch.Config) error {
	if err := checkWordIfAny("format", f.format); err != nil {
		return err
	}
	if f.flags.Changed("limit") && f.limit < 1 {
		return usageError(fmt.Errorf("--limit %d is below one", f.limit), "leave --limit out to have all rows")
	}
	cfg.Limit = f.limit
	if err := cfg.Format.UnmarshalText([]byte(f.format)); err != nil || f.template == "" {
		return err
	}
	text, err := readNamed(f.template, mostTemplate)
	switch {
	case err != nil:
		return usageError(fmt.Errorf("--template: %w", err), "name a file that holds a template, such as: Answer in one word: {{.question}}")
	case !utf8.Valid(text):
		return usageError(fmt.Errorf("--template: %s is not valid UTF-8", f.template), "save it as UTF-8")
	}
	cfg.TemplateName, cfg.Template = f.template, strings.TrimPrefix(string(text), "\ufeff")
	for _, end := range []string{"\n", "\r"} { // the end of its last line is the editor's, not the prompt's
		cfg.Template = strings.TrimSuffix(cfg.Template, end)
	}
	if strings.TrimSpace(cfg.Template) == "" {
		return usageError(fmt.Errorf("--template: %s is empty", f.template), "a template is a text with fields of the row, such as {{.question}}")
	}
	return nil
}
