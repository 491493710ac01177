package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
)

// boundFlags stop a run of requests or commands.
type boundFlags struct {
	cost     float64 // USD
	deadline deadline
	failures failureBound
}

// budgetFlags bound what a run may use.
type budgetFlags struct {
	boundFlags
	tokens int
	price  price
}

func (f *boundFlags) flags() []flag {
	return []flag{
		{name: "max-cost", field: usd(&f.cost), help: "Stop before the run costs more than this amount", common: true},
		{name: "deadline", field: &f.deadline, help: "Start no items after this time (2h or 2026-01-31T18:00:00Z)"},
		{name: "max-failures", field: &f.failures, help: "Stop at N failed items, or when more than N % of items fail"},
	}
}

// budget is what the flags say of the budget of a run that starts now.
func (f *boundFlags) budget(now time.Time) batch.Budget {
	return batch.Budget{Cost: f.cost, Deadline: f.deadline.from(now), Failures: f.failures.count, FailedShare: f.failures.share}
}

// deadline is a flag that takes a duration from now, or an instant.
type deadline struct {
	text  string
	after time.Duration
	at    time.Time
}

// String returns the text that was given.
func (d *deadline) String() string { return d.text }

// Type returns the metavar.
func (d *deadline) Type() string { return "DURATION|TIME" }

// Set reads the deadline.
func (d *deadline) Set(text string) (err error) {
	*d = deadline{text: text}
	if d.after, err = time.ParseDuration(text); err == nil {
		return wrongIf(d.after <= 0, "is not above zero")
	}
	if d.at, err = time.Parse(time.RFC3339, text); err != nil {
		return badValue("is neither a duration such as 2h30m nor a time such as 2026-01-31T18:00:00Z")
	}
	return wrongIf(!d.at.After(time.Now()), "is past")
}

// from returns the instant of the deadline of a run that starts now; zero if there is none.
func (d *deadline) from(now time.Time) time.Time {
	if d.after > 0 {
		return now.Add(d.after)
	}
	return d.at
}

// failureBound is a flag that takes a number of items, or a part of them in percent.
type failureBound struct {
	text  string
	count int
	share float64
}

// String returns the text that was given.
func (f *failureBound) String() string { return f.text }

// Type returns the metavar.
func (f *failureBound) Type() string { return "N|N%" }

// Set reads the bound.
func (f *failureBound) Set(text string) error {
	*f = failureBound{text: text}
	if part, ok := strings.CutSuffix(strings.TrimSpace(text), "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		f.share = percent / 100
		return wrongIf(err != nil || !(percent > 0 && percent < 100), "is not between 0% and 100%")
	}
	n, err := strconv.Atoi(text)
	f.count = n
	return wrongIf(err != nil || n < 1, "is neither a whole number from 1 nor a percentage such as 5%")
}

// price is a flag that takes the prices of input and output tokens.
type price struct{ rate *pricing.Rate }

func (p *price) flag() flag {
	return flag{name: "price", field: p, help: "Set prices in USD per million tokens, such as 0.15/0.60", sets: "PriceIn PriceOut Options.PriceIn Options.PriceOut"}
}

// String returns the prices.
func (p *price) String() string {
	if p.rate == nil {
		return ""
	}
	return fmt.Sprintf("%v/%v", p.rate.Input, p.rate.Output)
}

// Type returns the metavar.
func (p *price) Type() string { return "IN/OUT" }

// Set reads two prices.
func (p *price) Set(text string) error {
	rate, err := pricing.ParseRate(text)
	p.rate = &rate
	return err
}

// maxCost is the largest amount in US dollars, so that sums can be compared.
const maxCost = 1e9

// explainBudget says which flag stopped a run.
func explainBudget(e *fault.Error, spent *batch.BudgetError) (flag string) {
	flag = "--" + strings.ReplaceAll(string(spent.What), "_", "-")
	e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by %s: %w", flag, spent)
	return flag
}

// explainBudget says how a run whose budget is spent goes on.
func (o *runOptions) explainBudget(e *fault.Error, spent *batch.BudgetError) {
	flag, unit := explainBudget(e, spent), 1.0
	if spent.Unit == "usd" {
		unit = 1e-6
	}
	switch {
	case spent.Alone():
		enough := strconv.FormatFloat(math.Ceil((spent.Used.Used+spent.Next)/unit)*unit, 'f', int(-math.Log10(unit)), 64)
		e.Hint = "limit responses with --max-tokens, or resume with a higher cap: " + o.command(flag, enough)
	case spent.What == batch.LimitedTime && o.budget.deadline.after == 0:
		e.Hint = "resume without a deadline: " + o.command("--deadline")
	case spent.What == batch.LimitedFailures:
		e.Hint = "check the errors, then send the failed items again: " + o.command("--redo", "failed")
	default:
		e.Hint = sameCommand + ", which has a full new cap: " + o.command()
	}
}
