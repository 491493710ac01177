package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// findOptions are the flags of the find command.
type findOptions struct {
	cmd     *cobra.Command
	account accountFlags
	cfg     find.Config

	mode       string
	outputFile string
	maxCost    float64
	price      priceFlag
	dryRun     bool
	progress   string
	published  bool // --from-provider
	asJSON     bool
	verbose    bool

	auto func(context.Context, find.Config) (*find.Result, error)
}

// newFind returns the command that searches for what a provider enforces.
func newFind(s *term.Streams) *cobra.Command { return newFindBy(s, find.Auto) }

// newFindBy is newFind with another way to search.
func newFindBy(s *term.Streams, auto func(context.Context, find.Config) (*find.Result, error)) *cobra.Command {
	o := findOptions{auto: auto}
	cmd := &cobra.Command{
		Use:   "find --model M | --from-provider",
		Short: "Measure the limits of a provider, and a safe number of workers",
		Long: `Measure the limits that a provider enforces, and the number of workers that stay within these limits.

The number of workers is printed on standard output. A worker is a loop that sends requests like yours without pacing.
--output-file saves the limits for --config of run, serve, worker and plan.

Sluice reads limits from headers and rejections, and measures unknown limits with small requests. --mode sweep sends
real requests from 3, 6, 12 and more workers, but does not find limits per minute. --from-provider reads the limits
from the provider's own API, with the admin key in ANTHROPIC_ADMIN_KEY or OPENAI_ADMIN_KEY.

Requests cost money: see --dry-run, --token-budget and --max-cost. Exit code 4 means that no number of workers is safe.
Exit code 5 means that a spending or token cap stopped the search.`,
		Example: `  sluice find --model gpt-4o-mini --dry-run
  sluice find --model gpt-4o-mini --output-file limits.json
  sluice run prompts.jsonl -o out.jsonl --config limits.json
  sluice find --model claude-sonnet-4-5 --prompt-file usual.txt --min-output-tokens 1200 --max-cost 2
  sluice find --model qwen3 --base-url http://127.0.0.1:8000/v1 --max-workers 256
  sluice find --model sim-small --provider sim
  sluice find --from-provider --provider anthropic
  sluice find --model gpt-4o-mini --mode sweep --verbose`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.cmd = cmd
			return runFind(cmd.Context(), s, &o)
		},
	}
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of find.
func (o *findOptions) table() []flagGroup {
	o.mode, o.account.Keys.File = find.ModeAuto, account.DotEnv
	o.cfg.MaxWorkers, o.cfg.MinOutputTokens, o.cfg.Timeout = find.DefaultWorkers, find.DefaultOutput, find.DefaultTimeout
	return []flagGroup{
		{"Provider", append(o.account.target("Measure this model"), o.account.keyFile("keys-file"), o.account.headerFlag(), configFlag(&o.account.Sources))},
		{"Search", []flag{
			{name: "mode", field: &o.mode, metavar: find.ModeAuto + "|" + find.ModeSweep, help: "Measure limits, or test growing numbers of workers", common: true},
			{name: "max-workers", field: countFrom(&o.cfg.MaxWorkers, 1), help: "Test and recommend at most N workers", common: true, sets: "MaxWorkers"},
			{name: "prompt-file", field: &o.cfg.PromptFile, metavar: "FILE", help: "Send the prompt in FILE (default: ask for a long essay)"},
			{name: "min-output-tokens", field: countFrom(&o.cfg.MinOutputTokens, 1), help: "Stop each response after N output tokens", sets: "MinOutputTokens"},
			{name: "timeout", field: durationFrom(&o.cfg.Timeout, 1), help: "Limit the time of a request", sets: "Timeout"},
			{name: "from-provider", field: &o.published, help: "Print the limits from the provider's own API", common: true,
				without: "mode output-file dry-run prompt-file token-budget max-cost"},
		}},
		{"Spending", []flag{
			{name: "token-budget", field: countFrom(&o.cfg.Budget.Tokens, -1), help: "Use at most N tokens; -1 means no limit (default: 1,000,000)", common: true},
			{name: "max-cost", field: usd(&o.maxCost), help: "Spend at most this amount", common: true, sets: "MaxCost"},
			o.price.flag(),
			{name: "dry-run", field: &o.dryRun, help: "Print the maximum cost without sending requests", common: true},
		}},
		{"Output", []flag{
			{name: "output-file", field: &o.outputFile, metavar: "FILE", help: "Write limits to FILE, for --config of other commands", common: true},
			progressFlag(&o.progress),
			{name: "json", field: &o.asJSON, help: "Print a JSON document instead of the number of workers", common: true},
			{name: "verbose", field: &o.verbose, help: "Print every step on standard error"},
		}},
	}
}

// runFind is the find command.
func runFind(ctx context.Context, s *term.Streams, o *findOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if o.published {
		return o.fromProvider(ctx, s)
	}
	o.account.Rate = o.price.rate
	if o.dryRun {
		o.account.Purpose = account.Estimate
	}
	accounts, err := o.account.open(s, o.verbose)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, accounts.Close()) }()
	f := &search{s: s, o: o, accounts: accounts}
	if err := f.prepare(); err != nil {
		return err
	}
	if o.dryRun {
		if o.asJSON {
			f.forecast.DryRun = true
			return s.JSON(f.forecast)
		}
		return printSpending(s, &o.cfg, f.forecast, o.mode == find.ModeAuto)
	}
	if err := f.openFile(); err != nil {
		return err
	}
	return f.report(f.run(ctx))
}

// search is one search.
type search struct {
	s        *term.Streams
	o        *findOptions
	accounts *account.Accounts
	forecast find.Forecast
	document *regular.Output
}

// check rejects wrong values and combinations of flags.
func (o *findOptions) check() error {
	if !o.cmd.Flags().Changed("keys-file") && !account.HasDotEnv() {
		o.account.Keys.File = ""
	}
	noModel := o.account.Model == ""
	return cmp.Or(checkRules(
		rule{o.published && noModel && o.account.Provider == "", fault.Missing, "--from-provider: the provider is missing",
			"name the provider, for example --provider openai"},
		rule{!o.published && noModel, fault.Missing, "no model: --model is missing", "name the model, for example --model gpt-4o-mini"},
		rule{o.outputFile == "-", fault.Value, "--output-file - is not a file", "use --json to print the document on standard output"},
	), regular.KeepApart("--output-file", o.outputFile, append(o.account.Sources, o.cfg.PromptFile, o.account.Keys.File)...))
}

// prepare completes the Config of the search, and forecasts its spending. Nothing is sent.
func (f *search) prepare() error {
	to, err := f.accounts.Endpoint(f.o.account.Model)
	if err != nil {
		return err
	}
	c, p := &f.o.cfg, to.Provider
	c.Provider, c.Target, c.Base = p, to.Target, to.Base
	if err := f.limits(p); err != nil {
		return err
	}
	if note := f.accounts.RoomNote(c.MaxWorkers); note != "" { // each worker is an open file
		f.s.Errorf("sluice: %s\n", note)
		c.MaxWorkers = f.accounts.Room
	}
	if c.PromptFile != "" {
		text, err := readText("--prompt-file", c.PromptFile, 16, "name a file with a typical prompt")
		if err != nil {
			return err
		}
		c.Prompt = strings.TrimSpace(text)
	}
	if err := f.prices(p); err != nil {
		return err
	}
	estimate := find.Estimate
	if f.o.mode == find.ModeSweep {
		estimate = find.EstimateSweep
	}
	f.forecast, err = estimate(*c)
	return err
}

// limits sets the configured limits of an account at p.
func (f *search) limits(p provider.Provider) error {
	var c sluice.Config
	if err := f.accounts.ApplyLimits(&c, p, ""); err != nil {
		return err
	}
	f.o.cfg.Told = c.Limits.PerMinute() // others in a file are results of earlier searches
	return nil
}

// prices sets the prices, and rejects --max-cost without them.
func (f *search) prices(p provider.Provider) error {
	c := &f.o.cfg.Budget
	if known := f.accounts.Price(p, f.o.account.Model); known != nil {
		rate := known.Standard()
		c.PriceIn, c.PriceOut = &rate.Input, &rate.Output
	}
	if !f.o.cmd.Flags().Changed("max-cost") {
		return nil
	}
	if c.PriceIn == nil || c.PriceOut == nil {
		return account.MissingPrice()
	}
	c.MaxCost = &f.o.maxCost
	return nil
}

// openFile checks that the result can be written, before the search spends anything.
func (f *search) openFile() (err error) {
	if dir := filepath.Dir(f.o.outputFile); f.o.outputFile != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fault.New(fault.File, fmt.Errorf("--output-file: %w", err), "name a writable file")
		}
	}
	if f.document, err = regular.Plan("--output-file", f.o.outputFile); err != nil {
		return err
	}
	if f.s.GoesTo(f.o.outputFile) { // the file would replace standard output
		return fault.New(fault.File, fmt.Errorf("--output-file: standard output is redirected to %s too", f.o.outputFile), "use --json to print the document on standard output")
	}
	return nil
}

// fromProvider prints the limits that the provider publishes, of one model or all.
func (o *findOptions) fromProvider(ctx context.Context, s *term.Streams) (err error) {
	accounts, err := o.account.open(s, o.verbose)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, accounts.Close()) }()
	p, err := accounts.Of(o.account.Model)
	if err != nil {
		return err
	}
	read, err := account.NewLimitsReader(p, o.account.BaseURL, o.account.Keys, s.Hide)
	if err != nil {
		return fault.New(fault.Key, err, "export an admin key in ANTHROPIC_ADMIN_KEY or OPENAI_ADMIN_KEY")
	}
	found, err := read(ctx)
	if err != nil {
		return &fault.Error{Code: fault.Rejected, Err: fmt.Errorf("limits of %s: %w", p.Name, err)}
	}
	if model := o.account.Model; model != "" {
		found.Groups = slices.DeleteFunc(found.Groups, func(g provider.LimitGroup) bool { return !slices.Contains(g.Models, model) })
		if len(found.Groups) == 0 {
			return &fault.Error{Code: fault.Rejected, Err: fmt.Errorf("%s publishes no limits of %s for this account", p.Name, model)}
		}
	}
	if o.asJSON {
		return s.JSON(found)
	}
	return printPublished(s, found)
}

// run searches, shows the progress, and stops at an interrupt.
func (f *search) run(ctx context.Context) (find.Outcome, *fault.Error) {
	ctx, stop := signals.Interruptible(ctx)
	defer stop()
	shown := term.NewStaged(f.s, f.o.progress)
	defer shown.Stop()
	cfg := f.o.cfg
	cfg.Progress = func(at find.Progress) { shown.Show(string(at.Phase), at.Elapsed, at.String(), at) }
	if f.o.verbose {
		cfg.Log = func(line string) { f.s.Errorf("%s\n", line) }
	}
	if f.o.mode == find.ModeSweep {
		r, err := find.Sweep(ctx, cfg)
		return r.Outcome(err), f.ending(err)
	}
	r, err := f.o.auto(ctx, cfg)
	end := f.ending(err)
	if end != nil {
		r.Error = end.Error()
	}
	return r.Outcome(), end
}

// report writes the result of a search, and returns its error. A search without requests has no result.
func (f *search) report(w find.Outcome, end *fault.Error) (err error) {
	if end != nil && w.Spent.Requests == 0 {
		return end
	}
	if f.o.asJSON {
		err = f.s.JSON(w.Document)
	} else if end == nil || w.Workers > 0 {
		_, err = fmt.Fprintln(f.s.Out, w.Workers)
	}
	if f.o.progress != term.ProgressJSON && (end == nil || end.Exit() != fault.ExitFailed || w.Knows) { // else standard error is for programs
		f.s.Errorf("%s\n", w.Line)
		for _, note := range w.Notes {
			f.s.Errorf("note: %s\n", note)
		}
		if w.Hint != "" && end == nil { // else the error has its own
			f.s.Errorf("hint: %s\n", w.Hint)
		}
	}
	// An earlier file is not replaced by less.
	if f.document != nil && (end == nil || w.Learned || end.Exit() != fault.ExitFailed && !f.document.Replaces) {
		err = cmp.Or(err, f.write(w.Document))
	}
	switch {
	case end != nil:
		return end
	case err == nil && w.Workers == 0:
		return fault.Exit(fault.ExitThreshold)
	}
	return err
}

// write writes a document into the file of --output-file, without a key in it.
func (f *search) write(document any) error {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	text := f.s.RedactData(string(b) + "\n")
	err = f.document.Write(func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err == nil {
		f.s.Errorf("sluice: the record of the search is in %s\n", f.document.Name)
	}
	return err
}

// searchAgain ends hints.
const searchAgain = "then run the same command again"

// ending returns the error of a search; nil for none.
func (f *search) ending(err error) *fault.Error {
	if err == nil {
		return nil
	}
	e := fault.Of(err)
	refused, said := errors.AsType[*provider.Error](err)
	switch {
	case fault.Is[*fault.FieldError](err):
		nameFlag(f.o.cmd, e)
	case errors.Is(err, find.ErrTokenBudget):
		e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by --token-budget %s: %w", prose.Group(f.forecast.TokenBudget), err)
		e.Hint = cheaper
	case errors.Is(err, find.ErrMaxCost):
		e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by --max-cost %s: %w", prose.Dollars(f.o.maxCost), err)
		e.Hint = cheaper
	case errors.Is(err, find.ErrDay):
		e.Hint = "run the same command again tomorrow, so that other work can use the remaining requests of this day"
	case e.Code == fault.Interrupted:
		e.Hint = "run the same command again to start a new search"
	case said:
		explainRefused(e, refused, f)
	case e.Code == fault.Failed:
		e.Code = fault.Unreachable
	}
	return e.Say("--concurrency", "--max-workers", runinfo.SameCommand, "run the same command again")
}

// cheaper is the hint for a budget that is used up.
const cheaper = "raise --token-budget or --max-cost, or lower --max-workers"

// explainRefused adds the reason why the provider does not respond, and a hint.
func explainRefused(e *fault.Error, refused *provider.Error, f *search) {
	e.Code = fault.Rejected
	switch {
	case refused.Kind == sluice.Auth:
		e.Code, e.Err = fault.KeyRejected, fmt.Errorf("the key was rejected: %w", e.Err)
		e.Hint = keyHint(f.accounts, refused) + ", " + searchAgain
	case refused.Kind == sluice.QuotaExhausted:
		e.Code, e.Err = fault.Quota, fmt.Errorf("the account's quota is spent: %w", e.Err)
	case refused.Status == http.StatusNotFound:
		e.Hint = fmt.Sprintf("check --model and --base-url: %s has no such address, or no model %s for this key", f.o.cfg.Provider.Name, f.o.cfg.Target.Model)
	case refused.Kind == sluice.ContextLength:
		e.Hint = "use a shorter prompt with --prompt-file, or fewer --min-output-tokens"
	case !refused.Kind.Transient() && !refused.Kind.Throttle():
		e.Hint = "check --model, --base-url, --header, --prompt-file and --min-output-tokens: the provider rejects the requests"
	default:
		e.Hint = "run the same command later: the provider fails or has no capacity now"
	}
}
