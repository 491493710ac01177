package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
)

// rowFlags say which items of the input run, and how prompts are made of them.
type rowFlags struct {
	template string
	limit    int
	dryRun   bool
}

// mostTemplate is how many MiB a template may have.
const mostTemplate = 1

// fill checks the flags and fills the batch's fields.
func (f *rowFlags) fill(cfg *batch.Config) error {
	cfg.Limit = f.limit
	if f.template == "" {
		return nil
	}
	text, err := regular.Read(f.template, mostTemplate)
	switch {
	case err != nil:
		return fault.New(fault.File, fmt.Errorf("--template: %w", err), "name a file with a template, such as: Answer in one word: {{.question}}")
	case !utf8.Valid(text):
		return fault.New(fault.File, fmt.Errorf("--template: %s is not valid UTF-8", f.template), "save the template as UTF-8")
	}
	cfg.TemplateName, cfg.Template = f.template, strings.TrimPrefix(string(text), "\ufeff")
	for _, end := range []string{"\n", "\r"} { // the end of its last line is the editor's, not the prompt's
		cfg.Template = strings.TrimSuffix(cfg.Template, end)
	}
	if strings.TrimSpace(cfg.Template) == "" {
		return fault.New(fault.File, fmt.Errorf("--template: %s is empty", f.template), "write a text with fields of the row, such as {{.question}}")
	}
	return nil
}
