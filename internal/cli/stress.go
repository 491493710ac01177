package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
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
func newStress(s *streams) *cobra.Command {
	var o stressOptions
	cmd := &cobra.Command{
		Use:   "stress --level " + strings.Join(stress.Levels(), "|"),
		Short: "Put load on members that share few slots, and measure whether they keep what is promised",
		Long: `Put load on members that share few slots, and measure whether they keep what is promised: no slot is lost, nobody waits
for ever, nobody starves, a cancelled call leaves no trace, and what is counted is what was sent.

  conservative   one member, then one after another
  aggressive     as many members as slots, then more, then many more
  chaos          cancellations, misuse, checkpoints, a provider that throttles, fails and stands still; then a
                 conservative round, which must pass
  hybrid         a campaign of phases in bursts, beside urgent reviews and a loop of tests

Calls go to an imitation in the same process, or to any endpoint that --base-url or --model names: there they cost money,
as many as the slots let through in --duration, of up to 16 tokens each.

The table is printed on standard output. Exit code 4 means that a threshold was missed, and names it.`,
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
	o.register(cmd.Flags())
	return cmd
}

func (o *stressOptions) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&o.level, "level", "", "conservative, aggressive, chaos or hybrid (required)")
	fs.IntVar(&o.slots, "slots", stress.DefaultSlots, "calls that may be open at once")
	fs.DurationVar(&o.duration, "duration", 0, "how long the load lasts (absent: 5m, 10m, 15m or 20m, by the level)")
	fs.Uint64Var(&o.seed, "seed", 1, "decides when calls come, are cancelled and fail")
	fs.DurationVar(&o.latency, "latency", stress.DefaultLatency, "how fast the imitation answers, and how closely arrivals follow (of an endpoint: as its first call took)")
	o.account.registerTarget(fs)
	fs.Lookup("model").Usage = "model to call (absent: the imitation)"
	o.account.limits.registerFor(fs, limits.Requests, limits.Tokens)
	fs.DurationVar(&o.timeout, "timeout", stress.DefaultTimeout, "time for one try")
	fs.StringVar(&o.events, "events", "", "append every event to FILE, as JSON lines: sluice report --events FILE shows why")
	fs.StringVar(&o.progress, "progress", progressAuto, "auto (on a terminal alone), plain, json or none")
	fs.BoolVar(&o.asJSON, "json", false, "print one JSON document in place of the table")
}

// runStress is the stress command.
func runStress(ctx context.Context, s *streams, o *stressOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	cfg := stress.Config{
		Level: o.level, Slots: o.slots, Duration: o.duration, Seed: o.seed, Latency: o.latency, Timeout: o.timeout,
	}
	if o.elsewhere() && !o.flags.Changed("latency") {
		cfg.Latency = 0 // it is found out
	}
	if program, err := os.Executable(); err == nil {
		cfg.Program = program
	}
	if o.elsewhere() {
		accounts, err := o.endpoint(s, &cfg)
		if err != nil {
			return err
		}
		defer accounts.Close()
	}
	if o.events != "" {
		log, err := s.openEvents(o.events)
		if err != nil {
			return err
		}
		cfg.Observer = log
		defer func() { s.note(log.Close()) }()
	}
	res, err := o.watched(ctx, s, cfg)
	return o.conclude(s, res, err)
}

// check finds what is wrong with the flags themselves.
func (o *stressOptions) check() error {
	if o.level == "" {
		return usageError(errors.New("no level: --level is missing"), "it is one of %s", strings.Join(stress.Levels(), ", "))
	}
	if err := cmp.Or(checkWord("level", o.level), checkWord("progress", o.progress)); err != nil {
		return err
	}
	switch {
	case o.slots < 1:
		return usageError(fmt.Errorf("--slots %d is below one", o.slots), "say how many calls may be open at once, such as --slots 5")
	case o.slots > mostSlots:
		return usageError(fmt.Errorf("--slots %d is above %d", o.slots, mostSlots), "there are eight members to a slot: say fewer")
	case o.flags.Changed("duration") && o.duration < stress.MinDuration:
		return usageError(fmt.Errorf("--duration %s is below %s", o.duration, stress.MinDuration), "say how long the load lasts, such as --duration 30s")
	case o.latency <= 0:
		return usageError(fmt.Errorf("--latency %s is not above zero", o.latency), "say how long an answer takes, such as --latency 100ms")
	case o.timeout <= 0:
		return usageError(fmt.Errorf("--timeout %s is not above zero", o.timeout), "say how long one try may take, such as --timeout 2m")
	}
	if o.account.provider == "sim" && o.account.baseURL != "" {
		return usageError(errors.New("--base-url has no meaning for --provider sim, which is built in"),
			"leave it out, or call a `sluice sim` that runs there with --provider openai-compatible and --model")
	}
	if !o.elsewhere() {
		for _, name := range []string{"model", "key-env", "rpm", "tpm"} { // --base-url was checked
			if o.flags.Changed(name) {
				return usageError(fmt.Errorf("--%s does not apply to the simulator", name), "name an endpoint by --base-url or --model, or leave it out")
			}
		}
	}
	return nil
}

// mostSlots keeps what a typing error asks for from using up the machine.
const mostSlots = 10_000

// elsewhere reports whether calls go to an endpoint.
func (o *stressOptions) elsewhere() bool {
	return o.account.provider != "" && o.account.provider != "sim" || o.account.provider == "" && (o.account.baseURL != "" || o.account.model != "")
}

// endpoint makes ready where calls go.
func (o *stressOptions) endpoint(s *streams, cfg *stress.Config) (*accounts, error) {
	if o.account.model == "" {
		return nil, usageError(errors.New("no model: --model is missing"), "say which model to call, such as --model gpt-4o-mini")
	}
	o.account.limits.limits.Concurrent = o.slots
	a, err := o.account.open(sluice.Config{}, s)
	if err != nil {
		return nil, err
	}
	p, err := a.of(o.account.model)
	if err != nil {
		return nil, err
	}
	if note := a.room.note(o.slots); note != "" {
		s.errorf("sluice: %s\n", note)
	}
	target := provider.Target{
		BaseURL: o.account.baseURL, Model: o.account.model, Header: a.headers, Endpoint: p.PromptEndpoint(o.account.model),
	}
	if target.Key, err = a.Key(p); err != nil {
		return nil, err
	}
	if err := p.Check(target); err != nil {
		return nil, usageError(err, "check --base-url and --model")
	}
	cfg.Endpoint = &stress.Endpoint{
		Provider: p, Target: target, Base: a.transport,
		Scheduler: func(observer sluice.Observer) (*sluice.Scheduler, error) {
			a.template.Observer = observer
			return a.Scheduler(p)
		},
	}
	return a, nil
}

// watched runs the level, shows how it stands, and lets an interrupt stop it.
func (o *stressOptions) watched(ctx context.Context, s *streams, cfg stress.Config) (*stress.Result, error) {
	ctx, end := interruptible(ctx)
	defer end()
	shown := newStagedProgress(s, o.progress)
	defer shown.stop()
	cfg.Progress = shown.load
	return stress.Run(ctx, cfg)
}
