package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
)

// stressOptions are the flags of the stress command.
type stressOptions struct {
	flags    *pflag.FlagSet
	account  accountFlags
	level    string
	slots    int
	duration time.Duration
	seed     uint64
	latency  time.Duration
	timeout  time.Duration
	events   string
	progress string
	asJSON   bool
}

// newStress returns the command that puts load on members and their slots.
func newStress(s *term.Streams) *cobra.Command {
	var o stressOptions
	cmd := &cobra.Command{
		Use:   "stress --level " + strings.Join(stress.Levels(), "|"),
		Short: "Load agents that share few slots, and check fairness and counts",
		Long: `Simulate many agents that share a few slots, and check the fairness and the counts of permits. No slot may be lost, and no request may wait for
ever. Each agent must get its share, cancelled requests must not leave a trace, and counts must equal the requests sent.

  conservative   one agent, then several agents in turn
  aggressive     as many agents as slots, then more
  chaos          cancellations, misuse, checkpoints, faults and recovery
  hybrid         campaign phases with reviews and tests

Requests go to a built-in simulator. With --base-url or --model, requests go to a real endpoint and cost money. Exit
code 4 means that a measurement missed its threshold.`,
		Example: `  sluice stress --level conservative --duration 30s
  sluice stress --level aggressive --slots 8 --json
  sluice stress --level chaos --duration 1m --seed 7 --events events.jsonl
  sluice report --events events.jsonl
  sluice stress --level hybrid --model gpt-4o-mini --duration 5m`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.flags = cmd.Flags()
			return runStress(cmd.Context(), s, &o)
		},
	}
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of stress.
func (o *stressOptions) table() []flagGroup {
	o.slots, o.seed, o.latency, o.timeout = stress.DefaultSlots, 1, stress.DefaultLatency, stress.DefaultTimeout
	return []flagGroup{
		{"Load", []flag{
			{name: "level", field: &o.level, metavar: strings.Join(stress.Levels(), "|"), help: "Choose the load", common: true},
			{name: "slots", field: countFrom(&o.slots, 1), help: "Allow N requests in flight at once", common: true},
			{name: "duration", field: &o.duration, metavar: "DURATION", help: "Set the load duration (default: 5m to 20m, by level)", common: true},
			{name: "seed", field: &o.seed, metavar: "N", help: "Set the random seed", common: true},
			{name: "latency", field: durationFrom(&o.latency, 1), help: "Set the latency of the simulator"},
		}},
		{"Provider", append(o.account.target("Send requests to this model instead of the simulator"), slices.Concat(limitFlags(&o.account.Limits, "learned")[:2], []flag{
			{name: "timeout", field: durationFrom(&o.timeout, 1), help: "Limit the time of an attempt"},
		})...)},
		{"Watching", []flag{
			eventsFlag(&o.events),
			progressFlag(&o.progress),
			{name: "json", field: &o.asJSON, help: "Print one JSON document", common: true},
		}},
	}
}

// runStress is the stress command.
func runStress(ctx context.Context, s *term.Streams, o *stressOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	cfg := stress.Config{
		Level: o.level, Slots: o.slots, Duration: o.duration, Seed: o.seed, Latency: o.latency, Timeout: o.timeout,
	}
	if program, err := os.Executable(); err == nil {
		cfg.Program = program
	}
	if o.hasEndpoint() {
		if !o.flags.Changed("latency") {
			cfg.Latency = 0 // the first request measures it
		}
		o.account.Limits.Concurrency = o.slots
		accounts, err := o.account.open(s, false)
		if err != nil {
			return err
		}
		defer func() { s.Warn(accounts.Close()) }()
		if cfg.Endpoint, err = o.endpoint(s, accounts); err != nil {
			return err
		}
	}
	if o.events != "" {
		log, err := telemetry.OpenLog(o.events, s.Redact)
		if err != nil {
			return err
		}
		cfg.Observer = log
		defer func() { s.Warn(log.Close()) }()
	}
	res, err := o.watched(ctx, s, cfg)
	return o.conclude(s, res, err)
}

// check refuses flags with wrong values, and flags that exclude each other.
func (o *stressOptions) check() error {
	err := cmp.Or(config.CheckEvents(o.events), checkRules(
		rule{o.level == "", fault.Missing, "no level: --level is missing", "use one of " + strings.Join(stress.Levels(), ", ")},
		rule{o.slots > maxSlots, fault.Value, fmt.Sprintf("--slots %d is above %d", o.slots, maxSlots),
			"use fewer slots, because each slot has eight members"},
		rule{o.flags.Changed("duration") && o.duration < stress.MinDuration, fault.Value,
			fmt.Sprintf("--duration %s is below %s", o.duration, stress.MinDuration), "use a longer time, for example --duration 30s"},
		rule{o.account.Provider == "sim" && o.account.BaseURL != "", fault.Conflict,
			"--base-url does not apply to --provider sim, which is built in",
			"omit it, or use a running `sluice sim` with --provider openai-compatible and --model"},
		rule{o.hasEndpoint() && o.account.Model == "", fault.Missing, "no model: --model is missing", "name the model, for example --model gpt-4o-mini"},
	))
	if err != nil || o.hasEndpoint() {
		return err
	}
	for _, name := range []string{"model", "key-env", "rpm", "tpm"} { // --base-url was checked
		if o.flags.Changed(name) {
			return fault.New(fault.Conflict, fmt.Errorf("--%s does not apply to the simulator", name), "set --base-url or --model, or omit it")
		}
	}
	return nil
}

// maxSlots bounds the load of a mistyped number on this host.
const maxSlots = 10_000

// hasEndpoint reports whether an endpoint gets the requests, instead of the simulator.
func (o *stressOptions) hasEndpoint() bool {
	return o.account.Provider != "" && o.account.Provider != "sim" || o.account.Provider == "" && (o.account.BaseURL != "" || o.account.Model != "")
}

// endpoint returns the endpoint of the accounts that gets the requests.
func (o *stressOptions) endpoint(s *term.Streams, a *account.Accounts) (*stress.Endpoint, error) {
	to, err := a.Endpoint(o.account.Model)
	if err != nil {
		return nil, err
	}
	if note := a.RoomNote(o.slots); note != "" {
		s.Errorf("sluice: %s\n", note)
	}
	if err := to.Provider.Check(to.Target); err != nil {
		return nil, fault.New(fault.Value, err, "check --base-url and --model")
	}
	return &stress.Endpoint{
		Provider: to.Provider, Target: to.Target, Base: to.Base,
		Scheduler: func(observer sluice.Observer) (*sluice.Scheduler, error) {
			a.Config.Scheduler.Observer = observer
			return a.Scheduler(to.Provider)
		},
	}, nil
}

// watched runs the level, and shows its progress. An interrupt stops it.
func (o *stressOptions) watched(ctx context.Context, s *term.Streams, cfg stress.Config) (*stress.Result, error) {
	ctx, end := signals.Interruptible(ctx)
	defer end()
	shown := term.NewStaged(s, o.progress)
	defer shown.Stop()
	cfg.Progress = func(at stress.Progress) {
		elapsed, total := time.Duration(at.ElapsedMS)*time.Millisecond, time.Duration(at.TotalMS)*time.Millisecond
		line := fmt.Sprintf("%d/%d %s: %s of %s; %s", at.N, at.Of, at.Part, prose.Span(elapsed), prose.Span(total), at.Metrics)
		shown.Show(at.Part, elapsed, line, at)
	}
	return stress.Run(ctx, cfg)
}

// conclude prints the result, and returns the error of the command.
func (o *stressOptions) conclude(s *term.Streams, res *stress.Result, err error) error {
	if res == nil {
		return err
	}
	res.Events = o.events
	show := printStress
	if o.asJSON {
		show = func(s *term.Streams, res *stress.Result) error { return s.JSON(res) }
	}
	if err := show(s, res); err != nil {
		return err
	}
	printStressEnding(s, res)
	switch {
	case err != nil:
		return err
	case len(res.Missed) > 0:
		hint := "record the events with --events FILE, then read them with sluice report --events FILE"
		if o.events != "" {
			hint = "read the events with sluice report --events " + term.Quote(o.events)
		}
		return &fault.Error{Code: fault.Threshold, Err: fmt.Errorf("missed: %s", words(strings.Join(res.Missed, ", "))), Hint: hint}
	}
	return nil
}
