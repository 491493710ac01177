package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// Ways to search.
const (
	modeAuto  = find.ModeAuto
	modeSweep = find.ModeSweep
)

// findOptions are the flags of the find command.
type findOptions struct {
	cmd     *cobra.Command
	account accountFlags
	cfg     find.Config

	mode       string
	outputFile string
	maxCost    float64
	price      price
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
	o.mode, o.account.Keys.File = modeAuto, account.DotEnv
	o.cfg.MaxWorkers, o.cfg.MinOutputTokens, o.cfg.Timeout = find.DefaultWorkers, find.DefaultOutput, find.DefaultTimeout
	return []flagGroup{
		{"Provider", append(o.account.target("Measure this model"), o.account.keyFile("keys-file"), o.account.headerFlag(), configFlag(&o.account.Sources))},
		{"Search", []flag{
			{name: "mode", field: &o.mode, metavar: modeAuto + "|" + modeSweep, help: "Measure limits, or test growing numbers of workers", common: true},
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
	if o.dryRun {
		o.account.Purpose = account.Estimate
	}
	accounts, err := o.account.open(s)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, accounts.Close()) }()
	f := &search{s: s, o: o, accounts: accounts}
	if err := f.prepare(); err != nil {
		return err
	}
	if o.dryRun {
		return f.foretell()
	}
	if err := f.openFile(); err != nil {
		return err
	}
	if o.mode == modeSweep {
		return f.sweep(ctx)
	}
	return f.measure(ctx)
}

// search is one search.
type search struct {
	s        *term.Streams
	o        *findOptions
	accounts *account.Accounts
	forecast find.Forecast
	document *newFile
}

// check finds what is wrong with the flags themselves.
func (o *findOptions) check() error {
	if !o.cmd.Flags().Changed("keys-file") && !account.HasDotEnv() {
		o.account.Keys.File = ""
	}
	switch {
	case o.published:
		return o.checkPublished()
	case o.account.Model == "":
		return fault.New(fault.Missing, errors.New("no model: --model is missing"), "name the model, for example --model gpt-4o-mini")
	}
	return o.checkFiles()
}

// checkPublished finds flags that do not go with --from-provider.
func (o *findOptions) checkPublished() error {
	if o.account.Model == "" && o.account.Provider == "" {
		return fault.New(fault.Missing, errors.New("--from-provider: the provider is missing"), "name the provider, for example --provider openai")
	}
	return nil
}

// checkFiles refuses an output file that is none, or that is read.
func (o *findOptions) checkFiles() error {
	if o.outputFile == "-" {
		return fault.New(fault.Value, errors.New("--output-file - is not a file"), "use --json to print the document on standard output")
	}
	return keepsApart("output-file", o.outputFile, append(o.account.Sources, o.cfg.PromptFile, o.account.Keys.File)...)
}

// prepare finds out whose limits are searched for, and what it may cost. Nothing is sent.
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
		if c.Prompt, err = readPrompt(c.PromptFile); err != nil {
			return err
		}
	}
	if err := f.prices(p); err != nil {
		return err
	}
	estimate := find.Estimate
	if f.o.mode == modeSweep {
		estimate = find.EstimateSweep
	}
	if f.forecast, err = estimate(*c); err != nil {
		return err
	}
	return nil
}

// limits takes in the configured limits of an account at p.
func (f *search) limits(p provider.Provider) error {
	var c sluice.Config
	if err := f.accounts.ApplyLimits(&c, p, ""); err != nil {
		return err
	}
	f.o.cfg.Told = c.Limits.PerMinute() // what else a file says was found by an earlier search
	explainSettings(f.s, f.accounts.Settings, f.o.verbose)
	return nil
}

// readPrompt returns what stands in a file.
func readPrompt(name string) (string, error) {
	b, err := regular.Read(name, 16)
	prompt := strings.TrimSpace(string(b))
	if err == nil && prompt == "" {
		err = fmt.Errorf("%s is empty", name)
	}
	if err != nil {
		return "", fault.New(fault.File, fmt.Errorf("--prompt-file: %w", err), "name a file with a typical prompt")
	}
	return prompt, nil
}

// prices finds out what tokens cost, and refuses a bound on what is not known.
func (f *search) prices(p provider.Provider) error {
	c := &f.o.cfg.Budget
	if known := f.accounts.Price(p, f.o.account.Model); known != nil {
		rate := known.Standard()
		c.PriceIn, c.PriceOut = &rate.Input, &rate.Output
	}
	if told := f.o.price.rate; told != nil {
		c.PriceIn, c.PriceOut = &told.Input, &told.Output
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

// openFile finds out whether what is found can be written down, before anything is spent on it.
func (f *search) openFile() (err error) {
	if dir := filepath.Dir(f.o.outputFile); f.o.outputFile != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fault.New(fault.File, fmt.Errorf("--output-file: %w", err), "name a writable file")
		}
	}
	if f.document, err = newFileFor("output-file", f.o.outputFile); err != nil {
		return err
	}
	if f.s.GoesTo(f.o.outputFile) { // the file would replace what is printed
		return fault.New(fault.File, fmt.Errorf("--output-file: standard output is redirected to %s too", f.o.outputFile), "use --json to print the document on standard output")
	}
	return nil
}
