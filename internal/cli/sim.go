package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// simOptions are the flags of the sim command.
type simOptions struct {
	listen     string
	config     sim.Config
	limits     sluice.Limits
	others     rateLimits // of limits
	charge     string
	retryAfter string
	storms     []string
	changes    []string
	keyEnv     string
	shares     []string // names of flags that are shares of all
}

// newSim returns the command that serves the simulator of a provider over a socket.
func newSim(s *streams) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate a provider whose limits you choose",
		Long: `Simulate the OpenAI, Anthropic, Gemini and Cohere APIs with the limits, latency and faults that you choose.

Gemini's tokens per minute count the input alone: choose them by --rate-limit itpm=N. The paths tell the APIs apart.
The limits hold for all models and APIs together, which most providers have for each model.
The Batch APIs of the first three are there as well, which the limits on calls do not touch: see the flags --batch-*.
The address is printed on standard output. GET /stats tells what was called. An interrupt ends it.`,
		Example: `  sluice sim --rpm 500 --tpm 30000
  sluice sim --listen 127.0.0.1:8080 --concurrent 8 --retry-after none
  sluice sim --rpm 3000 --fault-500 0.05 --storm 3s-7s
  sluice sim --rpm 600 --no-headers --change 30s:0.5
  sluice sim --batch-latency 20s --batch-tokens 90000 --batch-fail 0.01 --batch-expire-every 5`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return err
			}
			return runSim(cmd.Context(), s, o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *simOptions) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	c := &o.config
	fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to listen on; port 0 is any free one")
	fs.IntVar(&o.limits.RPM, "rpm", 0, limits.Requests.Help()+" (0: no limit)")
	fs.IntVar(&o.limits.TPM, "tpm", 0, limits.Tokens.Help()+" (0: no limit)")
	o.others.limits = &o.limits
	fs.Var(&o.others, rateLimitFlag, "another limit, as `NAME=N`: itpm, otpm, rpd, burst=2s (what a bucket holds; else 60s), or a fixed window: requests=100/10s, tokens=50000/30s (repeatable)")
	fs.IntVar(&c.Concurrent, "concurrent", 0, "refuse calls above so many open ones (0: no limit)")
	fs.IntVar(&c.Queue, "queue", 0, "serve so many at once and let the rest wait (0: no queue)")
	fs.IntVar(&c.Contention, "contention", 0, "serve so many at full speed, and more of them slower (0: as many as come)")
	fs.BoolVar(&c.FixedWindow, "fixed-window", false, "fill buckets once in the time of their burst in place of continuously")
	fs.BoolVar(&c.Drained, "drained", false, "begin with empty buckets")
	fs.StringArrayVar(&o.changes, "change", nil, "multiply the limits by a factor from an instant on, as AFTER:FACTOR (repeatable)")
	fs.StringVar(&o.charge, "charge", "declared", "tokens charged: declared (max_tokens) or actual")
	fs.BoolVar(&c.ChargeRefusals, "charge-refusals", false, "count refused calls against the requests, too")
	fs.DurationVar(&c.Latency, "latency", 200*time.Millisecond, "time to the first byte")
	fs.DurationVar(&c.PerToken, "per-token", 0, "time for every output token")
	fs.Float64Var(&c.Jitter, "jitter", 0, "spread of the latency: sigma of a lognormal factor")
	fs.IntVar(&c.OutputTokens, "output-tokens", 64, "length of an answer where max_tokens does not cut it")
	fs.Float64Var(&c.OutputSigma, "output-sigma", 0, "spread of that length: sigma of a lognormal factor")
	fs.StringVar(&o.retryAfter, "retry-after", "seconds", "what a refusal says of the wait: seconds, ms, date or none")
	fs.BoolVar(&c.NoHeaders, "no-headers", false, "send no rate limit headers")
	fs.BoolVar(&c.LateHeaders, "late-headers", false, "count what is left when the answer is sent, not when the call was let in")
	fs.BoolVar(&c.DailyHeaders, "daily-headers", false, "state the day's requests in the headers, in place of the minute's (needs --rate-limit rpd=N)")
	fs.BoolVar(&c.VagueBodies, "vague", false, "refusals say neither limit nor wait in their body")
	o.share(fs, &c.Faults.ServerError, "fault-500", "share of calls answered 500")
	o.share(fs, &c.Faults.Overloaded, "fault-529", "share of calls answered 529 (Anthropic) or 503 (OpenAI, Gemini)")
	o.share(fs, &c.Faults.Reset, "fault-reset", "share of calls whose connection breaks before the answer")
	o.share(fs, &c.Faults.Hang, "fault-hang", "share of calls never answered")
	o.share(fs, &c.Faults.Cut, "fault-cut", "share of answers cut in the middle")
	o.share(fs, &c.Faults.BadRequest, "fault-400", "share of requests answered 400, always the same ones")
	o.share(fs, &c.Faults.Throttled, "fault-429", "share of calls answered 429 for no reason")
	fs.StringArrayVar(&o.storms, "storm", nil, "refuse every call in that time, as FROM-TO[:STATUS] (repeatable)")
	fs.IntVar(&c.SpentAfter, "spent-after", 0, "the account's money is spent after so many answers; calls that are open then are answered, too (0: never)")
	o.registerBatches(fs)
	fs.StringVar(&o.keyEnv, "key-env", "", "let in only the key that this environment variable holds")
	fs.StringSliceVar(&c.Models, "models", nil, "serve these models only, separated by commas (absent: any)")
	fs.Uint64Var(&c.Seed, "seed", 0, "decides all luck")
}

// registerBatches adds the flags of the Batch APIs.
func (o *simOptions) registerBatches(fs *pflag.FlagSet) {
	b := &o.config.Batches
	fs.DurationVar(&b.Latency, "batch-latency", time.Second, "time from the creation of a batch to its end")
	fs.IntVar(&b.MaxRequests, "batch-requests", 0, "requests that a batch may hold (0: as the provider)")
	fs.IntVar(&b.MaxBytes, "batch-bytes", 0, "bytes that a batch may have (0: as the provider)")
	fs.IntVar(&b.EnqueuedTokens, "batch-tokens", 0, "tokens of a model that may be enqueued in batches (0: no limit)")
	fs.IntVar(&b.Pending, "batch-pending", 0, "requests that may wait in batches, of Anthropic (0: no limit)")
	fs.IntVar(&b.PerHour, "batch-per-hour", 0, "batches in an hour (0: no limit)")
	o.share(fs, &b.Fail, "batch-fail", "share of lines that fail: a third each by 400, 429 and 500")
	fs.IntVar(&b.ExpireEvery, "batch-expire-every", 0, "every so many-th batch expires, half done (0: none)")
	fs.IntVar(&b.FailEvery, "batch-fail-every", 0, "every so many-th batch fails as a whole (0: none)")
	fs.IntVar(&b.CutResults, "batch-cut", 0, "cut the first so many downloads of every file of results")
	fs.BoolVar(&b.LoseResults, "batch-lose-results", false, "files of results are gone, as after their time")
	fs.DurationVar(&b.ListDelay, "batch-list-delay", 0, "time until a new batch or file shows in lists")
	o.share(fs, &b.Drop, "batch-drop", "share of uploads and creations that are carried out and never answered")
}

// share adds a flag that is a share of all.
func (o *simOptions) share(fs *pflag.FlagSet, x *float64, name, usage string) {
	fs.Float64Var(x, name, 0, usage)
	o.shares = append(o.shares, name)
}

// check names the flag whose number makes no sense.
func (o *simOptions) check(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		said := f.Value.String()
		switch kind := f.Value.Type(); {
		case err != nil:
		case kind != "int" && kind != "float64" && kind != "duration":
		case strings.HasPrefix(said, "-"):
			err = fmt.Errorf("--%s %s is below zero", f.Name, said)
		case said == "NaN" || said == "+Inf":
			err = fmt.Errorf("--%s %s is not a number", f.Name, said)
		case slices.Contains(o.shares, f.Name):
			if x, _ := fs.GetFloat64(f.Name); x > 1 {
				err = fmt.Errorf("--%s %s is more than all: a share is from 0 to 1", f.Name, said)
			}
		}
	})
	if err == nil && o.config.DailyHeaders && o.limits.RPD == 0 {
		err = errors.New("--daily-headers needs --rate-limit rpd=N")
	}
	if err == nil && o.limits.TPD > 0 {
		err = errors.New("--rate-limit tpd is not simulated")
	}
	if err != nil {
		return usageError(err, "see sluice sim --help")
	}
	return nil
}

// runSim serves until a signal or the end of ctx.
func runSim(ctx context.Context, s *streams, o simOptions) error {
	server, err := o.server()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return usageError(err, "give a free address of this host, such as --listen 127.0.0.1:0")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := listen(func(sig os.Signal) {
		stats := server.Stats()
		s.errorf("sluice sim: %s after %s calls, %s of them refused\n", sig, group(stats.Requests), group(stats.Throttled))
		cancel()
	}, func(os.Signal) {}, nil)
	defer signals.stop()

	web := &http.Server{
		Handler:           server,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // calls that hang end with it
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	url := "http://" + l.Addr().String()
	if _, err := fmt.Fprintln(s.out, url); err != nil {
		cancel()
	}
	s.errorf("sluice sim listens on %s\n", url)
	key := "any"
	if o.keyEnv != "" {
		key = `"$` + o.keyEnv + `"`
	}
	s.errorf("hint: OPENAI_API_KEY=%s sluice run IN.jsonl -o OUT.jsonl --provider openai --base-url %s/v1\n", key, url)

	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	web.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// server returns the simulator that the flags describe.
func (o *simOptions) server() (*sim.Server, error) {
	c, err := o.described()
	if err != nil {
		return nil, err
	}
	server, err := sim.New(c)
	if err != nil {
		return nil, usageError(err, "see sluice sim --help")
	}
	return server, nil
}

// described is what the flags describe.
func (o *simOptions) described() (c sim.Config, err error) {
	c = o.config
	for d, limit := range c.Limits() {
		*limit = *o.limits.At(d)
	}
	c.Burst, c.Requests, c.Tokens = cmp.Or(o.limits.Burst, time.Minute), o.limits.Requests, o.limits.Tokens
	if c.Latency == 0 {
		c.Latency = -1 // to sim, zero is the default
	}
	if c.Batches.Latency == 0 {
		c.Batches.Latency = -1 // as above
	}
	if c.Charge.UnmarshalText([]byte(o.charge)) != nil {
		return c, usageError(fmt.Errorf("--charge %s is not known", o.charge), "say declared or actual")
	}
	forms := map[string]sim.RetryAfterForm{
		"seconds": sim.RetryAfterSeconds, "ms": sim.RetryAfterMillis, "date": sim.RetryAfterDate, "none": sim.RetryAfterNone,
	}
	form, ok := forms[o.retryAfter]
	if !ok {
		return c, usageError(fmt.Errorf("--retry-after %s is not known", o.retryAfter), "say seconds, ms, date or none")
	}
	c.RetryAfter = form
	for _, text := range o.storms {
		storm, err := parseStorm(text)
		if err != nil {
			return c, usageError(err, "write FROM-TO or FROM-TO:STATUS, such as --storm 3s-7s or --storm 3s-7s:529")
		}
		c.Storms = append(c.Storms, storm)
	}
	for _, text := range o.changes {
		change, err := parseChange(text)
		if err != nil {
			return c, usageError(err, "write AFTER:FACTOR, such as --change 30s:0.5")
		}
		c.Changes = append(c.Changes, change)
	}
	if c.Key = os.Getenv(o.keyEnv); o.keyEnv != "" && c.Key == "" {
		return c, usageError(fmt.Errorf("environment variable %s is not set", o.keyEnv), "export %s=... or leave --key-env out to let any key in", o.keyEnv)
	}
	return c, nil
}

// parseStorm reads FROM-TO[:STATUS].
func parseStorm(text string) (sim.Storm, error) {
	var storm sim.Storm
	span, status, hasStatus := strings.Cut(text, ":")
	from, to, ok := strings.Cut(span, "-")
	err := errors.New("two durations are needed")
	if ok {
		storm.From, err = time.ParseDuration(from)
	}
	if err == nil {
		storm.To, err = time.ParseDuration(to)
	}
	if err == nil && hasStatus {
		storm.Status, err = strconv.Atoi(status)
	}
	if err != nil {
		return storm, fmt.Errorf("--storm %s: %w", text, err)
	}
	return storm, nil
}

// parseChange reads AFTER:FACTOR.
func parseChange(text string) (change sim.Change, err error) {
	after, factor, ok := strings.Cut(text, ":")
	if !ok {
		return change, fmt.Errorf("--change %s: a duration and a factor are needed", text)
	}
	if change.At, err = time.ParseDuration(after); err == nil {
		change.Factor, err = strconv.ParseFloat(factor, 64)
	}
	if err != nil {
		return change, fmt.Errorf("--change %s: %w", text, err)
	}
	return change, nil
}
