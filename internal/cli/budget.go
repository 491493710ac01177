package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/pricing"
)

// budgetFlags bound what a run may use.
type budgetFlags struct {
	flags       *pflag.FlagSet
	maxCost     float64
	maxTokens   int
	deadline    string
	maxFailures string
	priceIn     float64
	priceOut    float64
}

func (f *budgetFlags) register(fs *pflag.FlagSet) {
	f.flags = fs
	fs.Float64Var(&f.maxCost, "max-cost", 0, "stop before the calls of this run cost more than this, in USD")
	fs.IntVar(&f.maxTokens, "max-tokens-total", 0, "stop before the calls of this run take more tokens than this, input and output")
	fs.StringVar(&f.deadline, "deadline", "", "send nothing after this time (such as 2h) or instant (such as 2026-01-31T18:00:00Z)")
	fs.StringVar(&f.maxFailures, "max-failures", "", "stop at so many failed items of this run, or, as in 5%, at more than that part of the finished ones")
	fs.Float64Var(&f.priceIn, "price-in", 0, "USD per million input tokens (absent: as published)")
	fs.Float64Var(&f.priceOut, "price-out", 0, "USD per million output tokens (absent: as published)")
}

// What is beyond these is a slip, and sums of it could not be compared: US dollars, and US dollars per million tokens as in files.
const (
	mostCost  = 1e9
	mostPrice = 1e6
)

// budget is what the flags say of the budget of a run that begins now.
func (f *budgetFlags) budget(now time.Time, attempts int) (b batch.Budget, err error) {
	b = batch.Budget{Cost: f.maxCost, Tokens: f.maxTokens, Attempts: attempts}
	switch set := f.flags.Changed; {
	case set("max-cost") && !(f.maxCost > 0 && f.maxCost <= mostCost):
		return b, usageError(fmt.Errorf("--max-cost %v is not a sum to spend", f.maxCost), "say it in USD, such as --max-cost 2.50; leave it out for no bound")
	case set("max-tokens-total") && f.maxTokens <= 0:
		return b, usageError(fmt.Errorf("--max-tokens-total %d is not a number of tokens to use", f.maxTokens), "say how many, such as --max-tokens-total 1000000; leave it out for no bound")
	}
	for _, flag := range [...]struct {
		name  string
		price float64
	}{{"price-in", f.priceIn}, {"price-out", f.priceOut}} {
		if !(flag.price >= 0 && flag.price <= mostPrice) {
			return b, usageError(fmt.Errorf("--%s %v is not a price", flag.name, flag.price), "say it in USD per million tokens")
		}
	}
	if in, out := f.flags.Changed("price-in"), f.flags.Changed("price-out"); in != out {
		name := "--price-in"
		if in {
			name = "--price-out"
		}
		return b, usageError(errors.New("one price alone says nothing of what calls cost"), "say %s, too, in USD per million tokens", name)
	}
	if err := f.setDeadline(&b, now); err != nil {
		return b, err
	}
	return b, f.setFailures(&b)
}

// setDeadline reads a time from now, or an instant.
func (f *budgetFlags) setDeadline(b *batch.Budget, now time.Time) error {
	if !f.flags.Changed("deadline") {
		return nil
	}
	const hint = "write a time such as --deadline 2h30m, or an instant such as --deadline 2026-01-31T18:00:00Z"
	if d, err := time.ParseDuration(f.deadline); err == nil {
		if d <= 0 {
			return usageError(fmt.Errorf("--deadline %s leaves no time", f.deadline), hint)
		}
		b.Deadline = now.Add(d)
		return nil
	}
	at, err := time.Parse(time.RFC3339, f.deadline)
	if err != nil {
		return usageError(fmt.Errorf("--deadline %q is neither a time nor an instant", f.deadline), hint)
	}
	if !at.After(now) {
		return usageError(fmt.Errorf("--deadline %s is past", f.deadline), hint)
	}
	b.Deadline = at
	return nil
}

// setFailures reads a number, or a part in percent.
func (f *budgetFlags) setFailures(b *batch.Budget) (err error) {
	if !f.flags.Changed("max-failures") {
		return nil
	}
	const hint = "write a number of items such as --max-failures 10, or a part of them such as --max-failures 5%%; leave it out for no bound"
	if part, ok := strings.CutSuffix(strings.TrimSpace(f.maxFailures), "%"); ok {
		share, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(share > 0 && share < 100) {
			return usageError(fmt.Errorf("--max-failures %s is not a part between 0%% and 100%%", f.maxFailures), hint)
		}
		b.FailedShare = share / 100
		return nil
	}
	if b.Failures, err = strconv.Atoi(f.maxFailures); err != nil || b.Failures <= 0 {
		return usageError(fmt.Errorf("--max-failures %q is not a number of items above 0", f.maxFailures), hint)
	}
	return nil
}

// told returns the prices that the flags tell for all models; nil if they tell none.
func (f *budgetFlags) told() *pricing.Rate {
	if !f.flags.Changed("price-in") {
		return nil
	}
	return &pricing.Rate{Input: f.priceIn, Output: f.priceOut}
}

// missingPrice says which price is missing of the two that --max-cost needs.
func missingPrice(in, out bool) error {
	switch {
	case in && !out:
		return usageError(errors.New("--max-cost needs the price of output, too"), "say --price-out, in USD per million tokens")
	case out && !in:
		return usageError(errors.New("--max-cost needs the price of input, too"), "say --price-in, in USD per million tokens")
	}
	return usageError(errors.New("--max-cost needs prices, and none are known"), "say --price-in and --price-out, in USD per million tokens")
}

// explainBudget says how a run whose budget is spent goes on.
func (e *exitError) explainBudget(spent *batch.BudgetError, o *runOptions) {
	e.code = exitBudget
	e.err = fmt.Errorf("stopped by --%s: %w", strings.ReplaceAll(string(spent.What), "_", "-"), spent)
	switch {
	case spent.Alone():
		e.hint = fmt.Sprintf("say more, or bound the answers with --max-tokens; what is recorded is kept. Then the same command goes on: %s", o.command())
	case spent.What == batch.LimitedTime && !isDuration(o.budget.deadline):
		e.hint = "what is recorded is kept; to go on without a deadline: " + o.commandWithout("--deadline")
	case spent.What == batch.LimitedFailures:
		e.hint = "look at why they failed; what is recorded is kept. The same command goes on, and --retry-failed tries those again: " + o.command()
	default:
		e.hint = "what is recorded is kept; the same command goes on and may use as much again: " + o.command()
	}
}

func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil
}

// commandWithout is the command line that this run was started by, without a flag and its value, and with words instead.
func (o *runOptions) commandWithout(flag string, instead ...string) string {
	less := *o
	less.args = nil
	for i := 0; i < len(o.args); i++ {
		switch {
		case o.args[i] == flag:
			i++ // its value
		case !strings.HasPrefix(o.args[i], flag+"="):
			less.args = append(less.args, o.args[i])
		}
	}
	less.args = append(less.args, instead...)
	return less.command()
}
