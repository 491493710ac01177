package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
)

// checkFlags say which responses are accepted.
type checkFlags struct {
	schema string
	reject []string
	text   string // of the schema, once it is read
}

func (c *checkFlags) flags() []flag {
	return []flag{
		{name: "schema", field: &c.schema, metavar: "FILE", help: "Retry responses that do not match this JSON Schema"},
		{name: "reject", field: &c.reject, metavar: "length,content_filter,refusal,empty", help: "Retry truncated, filtered, refused or empty responses"},
	}
}

// schemaMiB is the size of a schema at most.
const schemaMiB = 1

// fill sets what the flags say. It reads the schema.
func (c *checkFlags) fill(cfg *batch.Config) error {
	rules, err := c.rules()
	if err == nil && rules != (batch.Rules{}) {
		cfg.Check, cfg.Feedback = rules.Check, rules.Schema != nil
	}
	return err
}

// rules are what answers are checked by.
func (c *checkFlags) rules() (rules batch.Rules, err error) {
	if err := rules.FailOn.UnmarshalText([]byte(strings.Join(c.reject, ","))); err != nil {
		return rules, err
	}
	if c.schema != "" {
		doc, err := regular.Read(c.schema, schemaMiB)
		if err != nil {
			return rules, fault.New(fault.File, fmt.Errorf("--schema: %w", err), "name a file with a JSON Schema")
		}
		c.text = string(doc)
		if rules.Schema, err = batch.ParseSchema(doc); err != nil {
			return rules, fault.New(fault.Value, fmt.Errorf("--schema %s: %w", c.schema, err), "correct the schema, of draft 4, 6, 7, 2019-09 or 2020-12, with patterns in the syntax of RE2")
		}
	}
	return rules, nil
}
