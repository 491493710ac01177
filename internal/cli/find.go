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
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/provider"
)

// Ways to search.
const (
	modeAuto  = find.ModeAuto
	modeSweep = find.ModeSweep
)

// findOptions are the flags of the find command.
type findOptions struct {
	flags   *pflag.FlagSet
	account accountFlags
	cfg     find.Config

	mode       string
	outputFile string
	maxCost    float64
	priceIn    float64
	priceOut   float64
	dryRun     bool
	progress   string
	published  bool // --from-provider
	asJSON     bool
	verbose    bool

	auto func(context.Context, find.Config) (*find.Result, error)
}

// newFind returns the command that searches for what a provider enforces.
func newFind(s *streams) *cobra.Command { return newFindBy(s, find.Auto) }

// newFindBy is newFind with another way to search.
func newFindBy(s *streams, auto func(context.Context, find.Config) (*find.Result, error)) *cobra.Command {
	o := findOptions{auto: auto}
	cmd := &cobra.Command{
		Use:   "find --model M | --from-provider",
		Short: "Find out what a provider really enforces, and how many workers are safe",
		Long: `Find out what a provider really enforces, and how many workers are safe.

One number is printed on standard output: so many loops without a pace, with calls like the real one, stay within every
limit. --output-file keeps the limits themselves, which run and plan read by --limits.

Headers and the words of refusals come first; what they do not tell is measured, by calls that are as small as they can
be. Only some calls are real: --prompt-file and --min-output-tokens say what they are like. --mode sweep tries 3, 6, 12
workers and so on with real calls, as people do by hand; it meets no limit per minute.

With --from-provider no model is called: the limits are those that the provider's own API publishes of your account. It
takes an admin key, in ANTHROPIC_ADMIN_KEY or OPENAI_ADMIN_KEY.

Calls cost money: --dry-run says what may be spent, --token-budget and --max-cost bound it.

Exit code 4 means that no number is safe, 5 that a budget was used up before an answer was there.`,
		Example: `  sluice find --model gpt-4o-mini --dry-run
  sluice find --model gpt-4o-mini --output-file limits.json
  sluice run prompts.jsonl -o out.jsonl --limits limits.json
  sluice find --model claude-sonnet-4-5 --prompt-file usual.txt --min-output-tokens 1200 --max-cost 2
  sluice find --model qwen3 --base-url http://127.0.0.1:8000/v1 --max-workers 256
  sluice find --model sim-small --provider sim
  sluice find --from-provider --provider anthropic
  sluice find --model gpt-4o-mini --mode sweep --verbose`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.flags = cmd.Flags()
			return runFind(cmd.Context(), s, &o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *findOptions) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	o.account.registerAddress(fs)
	o.account.settings.registerConfig(fs)
	fs.Lookup("model").Usage = "model to search with (required)"
	keys := fs.Lookup("keys-file")
	keys.DefValue, keys.Usage = dotEnv, "file of NAME=value lines with the key, if the environment lacks it"
	fs.StringVar(&o.mode, "mode", modeAuto, "auto, or sweep: bursts of more and more workers")
	fs.IntVar(&o.cfg.MaxWorkers, "max-workers", find.DefaultWorkers, "try and recommend no more")
	fs.StringVar(&o.cfg.PromptFile, "prompt-file", "", "prompt of the real calls (absent: one that asks for a long essay)")
	fs.IntVar(&o.cfg.MinOutputTokens, "min-output-tokens", find.DefaultOutput, "output tokens of a real call, which is cut off there")
	fs.StringVar(&o.outputFile, "output-file", "", "write what was found to FILE, as one JSON document, which --limits reads")
	fs.DurationVar(&o.cfg.Timeout, "timeout", find.DefaultTimeout, "time for one call")
	fs.IntVar(&o.cfg.Budget.Tokens, "token-budget", 0, "spend no more tokens, input and output together (0: 1,000,000, or as many as it takes on a server of one's own; -1: as many as it takes)")
	fs.Float64Var(&o.maxCost, "max-cost", 0, "spend no more USD")
	fs.Float64Var(&o.priceIn, "price-in", 0, "USD per million input tokens (absent: as published)")
	fs.Float64Var(&o.priceOut, "price-out", 0, "USD per million output tokens (absent: as published)")
	fs.BoolVar(&o.dryRun, "dry-run", false, "say what may be spent, and send nothing")
	fs.StringVar(&o.progress, "progress", progressAuto, "auto (on a terminal alone), plain, json or none")
	fs.BoolVar(&o.published, "from-provider", false, "print the limits that the provider's API publishes; call no model")
	fs.BoolVar(&o.asJSON, "json", false, "print one JSON document in place of the number")
	fs.BoolVar(&o.verbose, "verbose", false, "say every step on standard error")
}

// runFind is the find command.
func runFind(ctx context.Context, s *streams, o *findOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if o.published {
		return o.fromProvider(ctx, s)
	}
	accounts, err := o.account.open(sluice.Config{}, s)
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
	s        *streams
	o        *findOptions
	accounts *accounts
	forecast find.Forecast
	document *newFile
}

// check finds what is wrong with the flags themselves.
func (o *findOptions) check() error {
	if err := cmp.Or(checkWord("mode", o.mode), checkWord("progress", o.progress)); err != nil {
		return err
	}
	if !o.flags.Changed("keys-file") && isFile(dotEnv) {
		o.account.keysFile = dotEnv
	}
	c := &o.cfg
	switch {
	case o.published:
		return o.checkPublished()
	case o.account.model == "":
		return usageError(errors.New("no model: --model is missing"), "say which model to search with, such as --model gpt-4o-mini")
	case c.MaxWorkers < 1:
		return usageError(fmt.Errorf("--max-workers %d is below one", c.MaxWorkers), "say how many may be tried, such as --max-workers 100")
	case c.MinOutputTokens < 1:
		return usageError(fmt.Errorf("--min-output-tokens %d is below one", c.MinOutputTokens), "say how long real answers are, such as --min-output-tokens 500")
	case c.Timeout <= 0:
		return usageError(fmt.Errorf("--timeout %s is not above zero", c.Timeout), "say how long one call may take, such as --timeout 2m")
	case c.Budget.Tokens < -1:
		return usageError(fmt.Errorf("--token-budget %d is below zero", c.Budget.Tokens), "say how many tokens may be spent, or -1 for as many as it takes")
	case !(o.maxCost >= 0):
		return usageError(fmt.Errorf("--max-cost %v is no sum of money", o.maxCost), "say how many USD it may cost")
	case !(o.priceIn >= 0):
		return usageError(fmt.Errorf("--price-in %v is not a price", o.priceIn), "say it in USD per million tokens")
	case !(o.priceOut >= 0):
		return usageError(fmt.Errorf("--price-out %v is not a price", o.priceOut), "say it in USD per million tokens")
	}
	return o.checkFiles()
}

// checkPublished finds flags that do not go with --from-provider.
func (o *findOptions) checkPublished() error {
	if o.account.model == "" && o.account.provider == "" {
		return usageError(errors.New("--from-provider: of which provider?"), "name it, such as --provider openai, or a model of it")
	}
	for _, name := range []string{"mode", "output-file", "dry-run", "prompt-file", "token-budget", "max-cost"} {
		if o.flags.Changed(name) {
			return usageError(fmt.Errorf("--%s is about a search, and --from-provider searches nothing", name), "leave one of them out")
		}
	}
	return nil
}

// checkFiles refuses an output file that is none, or that is read.
func (o *findOptions) checkFiles() error {
	if o.outputFile == "-" {
		return usageError(errors.New("--output-file - is no file"), "--json prints the document on standard output")
	}
	return keepsApart("output-file", o.outputFile, o.cfg.PromptFile, o.account.keysFile, o.account.caFile, o.account.settings.config)
}

// prepare finds out whose limits are searched for, and what it may cost. Nothing is sent.
func (f *search) prepare() error {
	p, err := f.accounts.of(f.o.account.model)
	if err != nil {
		return err
	}
	if err := f.limits(p); err != nil {
		return err
	}
	c := &f.o.cfg
	c.Provider, c.Base = p, f.accounts.transport
	c.Target = provider.Target{BaseURL: f.o.account.baseURL, Model: f.o.account.model, Header: f.accounts.headers}
	if note := f.accounts.room.note(c.MaxWorkers); note != "" { // each worker is an open file
		f.s.errorf("sluice: %s\n", note)
		c.MaxWorkers = f.accounts.room.calls
	}
	if !f.o.dryRun {
		if c.Target.Key, err = f.accounts.Key(p); err != nil {
			return err
		}
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
		return wrongField(err)
	}
	return nil
}

// limits takes in the configured limits of an account at p.
func (f *search) limits(p provider.Provider) error {
	var c sluice.Config
	if err := f.accounts.settings.Apply(&c, p, f.o.account.model, f.accounts.limits); err != nil {
		return err
	}
	f.o.cfg.Told = c.Limits.PerMinute() // what else a file says was found by an earlier search
	f.accounts.explainLimits(f.s, f.o.verbose)
	return nil
}

// readPrompt returns what stands in a file.
func readPrompt(name string) (string, error) {
	b, err := readNamed(name, 16)
	prompt := strings.TrimSpace(string(b))
	if err == nil && prompt == "" {
		err = fmt.Errorf("%s is empty", name)
	}
	if err != nil {
		return "", usageError(fmt.Errorf("--prompt-file: %w", err), "name a file with the prompt of a real call")
	}
	return prompt, nil
}

// prices finds out what tokens cost, and refuses a bound on what is not known.
func (f *search) prices(p provider.Provider) error {
	c := &f.o.cfg.Budget
	if known := f.accounts.Price(p, f.o.account.model); known != nil {
		rate := known.Standard()
		c.PriceIn, c.PriceOut = &rate.Input, &rate.Output
	}
	if f.o.flags.Changed("price-in") {
		c.PriceIn = &f.o.priceIn
	}
	if f.o.flags.Changed("price-out") {
		c.PriceOut = &f.o.priceOut
	}
	if !f.o.flags.Changed("max-cost") {
		return nil
	}
	if c.PriceIn == nil || c.PriceOut == nil {
		return missingPrice(c.PriceIn != nil, c.PriceOut != nil)
	}
	c.MaxCost = &f.o.maxCost
	return nil
}

// wrongField names the flag whose value the search refuses.
func wrongField(err error) error {
	wrong, ok := errors.AsType[*find.FieldError](err)
	if !ok {
		return err
	}
	flags := map[string]string{
		"Target.Model": "model", "Target": "base-url", "MaxWorkers": "max-workers", "MinOutputTokens": "min-output-tokens",
		"Timeout": "timeout", "MaxCost": "max-cost", "PriceIn": "price-in", "PriceOut": "price-out",
	}
	return usageError(fmt.Errorf("--%s: %w", cmp.Or(flags[wrong.Field], wrong.Field), wrong.Err), "see sluice find --help")
}

// openFile finds out whether what is found can be written down, before anything is spent on it.
func (f *search) openFile() (err error) {
	if dir := filepath.Dir(f.o.outputFile); f.o.outputFile != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return usageError(fmt.Errorf("--output-file: %w", err), "name a file that can be written")
		}
	}
	if f.document, err = newFileFor("output-file", f.o.outputFile); err != nil {
		return err
	}
	if f.s.prints(f.o.outputFile) { // the file would replace what is printed
		return usageError(fmt.Errorf("--output-file: standard output goes to %s as well", f.o.outputFile), "--json prints the document on standard output")
	}
	return nil
}
