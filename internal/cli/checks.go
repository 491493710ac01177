package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
)

// checkFlags say which answers a run accepts.
type checkFlags struct {
	schema   string
	feedback bool
	failOn   string
	text     string // of the schema, once it is read
}

func (c *checkFlags) register(fs *pflag.FlagSet) {
	c.registerRules(fs)
	fs.BoolVar(&c.feedback, "schema-feedback", false, "tell the model what was wrong with its answer when it is tried again")
}

func (c *checkFlags) registerRules(fs *pflag.FlagSet) {
	fs.StringVar(&c.schema, "schema", "", "file with a JSON Schema that answers must fit; others are tried again")
	fs.StringVar(&c.failOn, "fail-on", "", "answers that are tried again: length, content_filter, refusal, empty, or several with commas between")
}

// schemaMiB is the size of a schema at most.
const schemaMiB = 1

// fill sets what the flags say. It reads the schema.
func (c *checkFlags) fill(cfg *batch.Config) error {
	rules, err := c.rules()
	if err == nil && rules != (batch.Rules{}) {
		cfg.Check, cfg.Feedback = rules.Check, c.feedback
	}
	return err
}

// rules are what answers are checked by.
func (c *checkFlags) rules() (rules batch.Rules, err error) {
	if err := rules.FailOn.UnmarshalText([]byte(c.failOn)); err != nil {
		return rules, usageError(fmt.Errorf("--fail-on: %w", err), "name sorts of answers with commas between, such as --fail-on length,refusal")
	}
	if c.feedback && c.schema == "" {
		return rules, usageError(errors.New("--schema-feedback needs --schema"), "name the schema that answers must fit: --schema FILE")
	}
	if c.schema != "" {
		doc, err := readNamed(c.schema, schemaMiB)
		if err != nil {
			return rules, usageError(fmt.Errorf("--schema: %w", err), "name a file with a JSON Schema")
		}
		c.text = string(doc)
		if rules.Schema, err = batch.ParseSchema(doc); err != nil {
			return rules, usageError(fmt.Errorf("--schema %s: %w", c.schema, err), "it is one JSON Schema in one file, of draft 4, 6, 7, 2019-09 or 2020-12; patterns are those of RE2")
		}
	}
	return rules, nil
}
