package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// redoFlag is the flag for the states of recorded items that run again.
type redoFlag struct{ which []string }

func (r *redoFlag) flag(words string) flag {
	return flag{name: "redo", field: &r.which, metavar: words, help: "Repeat items that have one of these states", common: true}
}

func (r *redoFlag) has(which string) bool { return slices.Contains(r.which, which) }

// changed returns the treatment of items that differ from the recorded items (default: refuse).
func (r *redoFlag) changed() rows.Changed {
	switch {
	case r.has("changed"):
		return rows.ChangedRedo
	case r.has("none"):
		return rows.ChangedKeep
	}
	return rows.ChangedRefused
}

// check rejects none beside its opposite.
func (r *redoFlag) check() error {
	return checkRules(rule{r.has("none") && r.has("changed"), fault.Conflict, "--redo none and --redo changed cannot be combined",
		"keep the results of changed items with none, or repeat changed items with changed"})
}

func fsyncFlag(field *work.SyncMode) flag {
	return flag{name: "fsync", field: field, metavar: "each|interval", help: "Flush each result to disk, or flush every 100 ms"}
}

func attemptsFlag(field *int) flag {
	return flag{name: "max-attempts", field: countFrom(field, 1), help: "Limit attempts per item, excluding rate-limited attempts"}
}

// boundFlags limit the cost, time and failures of a run of requests or commands.
type boundFlags struct {
	batch.Budget // without the deadline
	deadline     deadlineFlag
}

func (f *boundFlags) flags() []flag {
	return []flag{
		{name: "max-cost", field: usd(&f.Cost), help: "Stop before the run costs more than this amount", common: true},
		{name: "deadline", field: f.deadline.option(), help: "Start no items after this time (2h or 2026-01-31T18:00:00Z)"},
		{name: "max-failures", field: &option{kind: "N|N%", set: f.setFailures},
			help: "Stop at N failed items, or when more than N % of items fail"},
	}
}

// from returns the budget of a run that starts now.
func (f *boundFlags) from(now time.Time) batch.Budget {
	b := f.Budget
	b.Deadline = f.deadline.from(now)
	return b
}

// setFailures parses a number of items, or a share of them in percent.
func (f *boundFlags) setFailures(text string) (err error) {
	f.Failures, f.FailedShare = 0, 0
	if part, ok := strings.CutSuffix(strings.TrimSpace(text), "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		f.FailedShare = percent / 100
		return wrongIf(err != nil || !(percent > 0 && percent < 100), "is not between 0% and 100%")
	}
	f.Failures, err = strconv.Atoi(text)
	return wrongIf(err != nil || f.Failures < 1, "is neither a whole number from 1 nor a percentage such as 5%")
}

// deadlineFlag is a flag that takes a duration from now, or an instant.
type deadlineFlag struct {
	text  string
	after time.Duration
	at    time.Time
}

func (d *deadlineFlag) option() *option { return &option{kind: "DURATION|TIME", set: d.set} }

func (d *deadlineFlag) set(text string) (err error) {
	*d = deadlineFlag{text: text}
	if d.after, err = time.ParseDuration(text); err == nil {
		return wrongIf(d.after <= 0, "is not above zero")
	}
	if d.at, err = time.Parse(time.RFC3339, text); err != nil {
		return badValue("is neither a duration such as 2h30m nor a time such as 2026-01-31T18:00:00Z")
	}
	return wrongIf(!d.at.After(time.Now()), "is past")
}

// from returns the instant of the deadline of a run that starts now; zero if there is none.
func (d *deadlineFlag) from(now time.Time) time.Time {
	if d.after > 0 {
		return now.Add(d.after)
	}
	return d.at
}

// priceFlag is a flag for the prices of input and output tokens.
type priceFlag struct{ rate *pricing.Rate }

func (p *priceFlag) flag() flag {
	set := func(text string) error {
		rate, err := pricing.ParseRate(text)
		p.rate = &rate
		return err
	}
	return flag{name: "price", field: &option{kind: "IN/OUT", set: set}, help: "Set prices in USD per million tokens, such as 0.15/0.60",
		sets: "PriceIn PriceOut Options.PriceIn Options.PriceOut"}
}

// checkFlags are the rules for responses.
type checkFlags struct {
	schema string
	reject []string
	text   string // of the schema, after rules
}

func (c *checkFlags) flags() []flag {
	return []flag{
		{name: "schema", field: &c.schema, metavar: "FILE", help: "Retry responses that do not match this JSON Schema"},
		{name: "reject", field: &c.reject, metavar: "length,content_filter,refusal,empty",
			help: "Retry truncated, filtered, refused or empty responses"},
	}
}

// fill sets the rules of a batch.
func (c *checkFlags) fill(cfg *batch.Config) error {
	rules, err := c.rules()
	if err == nil && rules != (batch.Rules{}) {
		cfg.Check, cfg.Feedback = rules.Check, rules.Schema != nil
	}
	return err
}

// rules returns the rules. It reads the schema.
func (c *checkFlags) rules() (rules batch.Rules, err error) {
	if err := rules.FailOn.UnmarshalText([]byte(strings.Join(c.reject, ","))); err != nil || c.schema == "" {
		return rules, err
	}
	if c.text, err = readText("--schema", c.schema, 1, "name a file with a JSON Schema"); err != nil {
		return rules, err
	}
	if rules.Schema, err = batch.ParseSchema([]byte(c.text)); err != nil {
		return rules, fault.New(fault.Value, fmt.Errorf("--schema %s: %w", c.schema, err),
			"correct the schema, of draft 4, 6, 7, 2019-09 or 2020-12, with patterns in the syntax of RE2")
	}
	return rules, nil
}

// readText reads a file of at most maxMiB for a flag. hint is for a file that cannot be read, or is empty.
func readText(flag, name string, maxMiB int64, hint string) (string, error) {
	b, err := regular.Read(name, maxMiB)
	switch {
	case err != nil:
		return "", fault.New(fault.File, fmt.Errorf("%s: %w", flag, err), "%s", hint)
	case !utf8.Valid(b):
		return "", fault.New(fault.File, fmt.Errorf("%s: %s is not valid UTF-8", flag, name), "save the file as UTF-8")
	}
	text := strings.TrimPrefix(string(b), "\ufeff")
	if strings.TrimSpace(text) == "" {
		return "", fault.New(fault.File, fmt.Errorf("%s: %s is empty", flag, name), "%s", hint)
	}
	return text, nil
}
