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
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/sim"
)

// simOptions are the flags of the sim command.
type simOptions struct {
	listen  string
	config  sim.Config
	limits  sluice.Limits
	headers string
	keyEnv  string
}

// newSim returns the command that serves the simulator of a provider over a socket.
func newSim(s *term.Streams) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate a provider with limits that you choose",
		Long: `Simulate the OpenAI, Anthropic, Gemini and Cohere APIs and their Batch APIs, with limits, latency and faults that you
choose. The path of a request selects the API.

All models and APIs share the limits. The Gemini API counts only input tokens, so use --rate-limit itpm=N. The address
is printed on standard output. GET /stats returns request counts. An interrupt stops the simulator.`,
		Example: `  sluice sim --rpm 500 --tpm 30000
  sluice sim --listen 127.0.0.1:8080 --concurrency 8 --retry-after none
  sluice sim --rpm 3000 --fault 500=0.05 --storm 3s-7s
  sluice sim --rpm 600 --headers none --change 30s:0.5
  sluice sim --batch-latency 20s --batch-limit tokens=90000 --batch-fault expire=5`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSim(cmd.Context(), s, o)
		},
	}
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of sim.
func (o *simOptions) table() []flagGroup {
	c, b := &o.config, &o.config.Batches
	o.listen, o.headers = "127.0.0.1:0", "normal"
	c.Latency, c.OutputTokens, b.Latency = 200*time.Millisecond, 64, time.Second
	return []flagGroup{
		{"Server", []flag{
			{name: "listen", field: &o.listen, metavar: "ADDR", help: "Listen at this address; port 0 picks a free port", common: true},
			{name: "key-env", field: &o.keyEnv, metavar: "NAME", help: "Accept only the API key in this environment variable"},
			{name: "seed", field: &c.Seed, metavar: "N", help: "Set the random seed"},
		}},
		{"Limits", slices.Concat(limitFlags(&o.limits, "no limit"), []flag{
			{name: "queue", field: &c.Queue, metavar: "N", help: "Serve N requests at once, and queue further requests"},
			{name: "fixed-window", field: &c.FixedWindow, help: "Refill token buckets fully when a window ends"},
			{name: "drained", field: &c.Drained, help: "Start with empty token buckets"},
			{name: "change", field: listOf(&c.Changes, "AFTER:FACTOR"), help: "Multiply limits after a time, such as 30s:0.5; repeatable",
				fix: "write --change 30s:0.5"},
			{name: "charge", field: &c.Charge, metavar: "declared|actual", help: "Count max_tokens, or the actual tokens of responses"},
			{name: "charge-rejections", field: &c.ChargeRefusals, help: "Also count rejected requests against request limits"},
		})},
		{"Responses", []flag{
			{name: "latency", field: &c.Latency, metavar: "DURATION", help: "Set the time to the first byte", common: true},
			{name: "per-token", field: &c.PerToken, metavar: "DURATION", help: "Set the time per output token"},
			{name: "jitter", field: &c.Jitter, metavar: "SIGMA", help: "Vary the latency by a lognormal factor"},
			{name: "output-tokens", field: countFrom(&c.OutputTokens, 1), help: "Set the output tokens per response", common: true},
			{name: "retry-after", field: &c.RetryAfter, metavar: "seconds|ms|date|none", help: "Choose the form of the wait time in rejections"},
			{name: "headers", field: &o.headers, metavar: "normal|none|late|daily", help: "Choose the rate limit headers", common: true},
			{name: "vague", field: &c.VagueBodies, help: "Omit the limit and the wait time from rejection bodies"},
		}},
		{"Faults", []flag{
			{name: "fault", field: o.faults(), metavar: "KIND=SHARE", help: "Inject faults: 500, 529, 400, 429, reset, hang or cut", common: true},
			{name: "storm", field: listOf(&c.Storms, "FROM-TO[:STATUS]"), help: "Reject all requests in this period; repeatable",
				fix: "write --storm 3s-7s or --storm 3s-7s:529"},
			{name: "spent-after", field: &c.SpentAfter, metavar: "N", help: "After N responses, reject all requests as out of credit"},
		}},
		{"Batch API", []flag{
			{name: "batch-latency", field: &b.Latency, metavar: "DURATION", help: "Set the duration of a batch"},
			{name: "batch-limit", field: namedValues(nil, []flag{
				{name: "requests", field: &b.MaxRequests}, {name: "bytes", field: &b.MaxBytes}, {name: "tokens", field: &b.EnqueuedTokens},
				{name: "pending", field: &b.Pending}, {name: "per-hour", field: &b.PerHour},
			}), help: "Limit batches by requests, bytes, tokens, pending, per-hour"},
			{name: "batch-fault", field: namedValues(nil, []flag{
				{name: "line", field: shareOf(&b.Fail)}, {name: "expire", field: &b.ExpireEvery}, {name: "fail", field: &b.FailEvery},
				{name: "cut", field: &b.CutResults}, {name: "lost", field: &b.LoseResults}, {name: "list", field: &b.ListDelay}, {name: "drop", field: shareOf(&b.Drop)},
			}), metavar: "KIND=N", help: "Add batch faults: line, expire, fail, cut, lost, list, drop"},
		}},
	}
}

// faults returns the flag of the shares of requests that fail.
func (o *simOptions) faults() *option {
	f := &o.config.Faults
	return namedValues(nil, []flag{
		{name: "500", field: shareOf(&f.ServerError)}, {name: "529", field: shareOf(&f.Overloaded)},
		{name: "400", field: shareOf(&f.BadRequest)}, {name: "429", field: shareOf(&f.Throttled)},
		{name: "reset", field: shareOf(&f.Reset)}, {name: "hang", field: shareOf(&f.Hang)}, {name: "cut", field: shareOf(&f.Cut)},
	})
}

// runSim serves until a signal or the end of ctx.
func runSim(ctx context.Context, s *term.Streams, o simOptions) error {
	server, err := o.server()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fault.New(fault.Value, err, "use a free address of this host, for example --listen 127.0.0.1:0")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener := signals.Listen(signals.Config{Abandon: func(os.Signal) {}, Drain: func(sig os.Signal) {
		stats := server.Stats()
		s.Errorf("sluice sim: %s after %s requests, including %s rejected requests\n", sig, prose.Group(stats.Requests), prose.Group(stats.Throttled))
		cancel()
	}})
	defer listener.Stop()

	web := &http.Server{
		Handler:           server,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // it ends requests that hang
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	url := "http://" + l.Addr().String()
	_, outErr := fmt.Fprintln(s.Out, url)
	if outErr != nil {
		cancel()
	}
	s.Errorf("sluice sim listens on %s\n", url)
	key := "any"
	if o.keyEnv != "" {
		key = `"$` + o.keyEnv + `"`
	}
	s.Errorf("hint: OPENAI_API_KEY=%s sluice run IN.jsonl -o OUT.jsonl --model sim-small --base-url %s/v1\n", key, url)

	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	web.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return outErr
}

// server returns the simulator that the flags describe.
func (o *simOptions) server() (*sim.Server, error) {
	c, err := o.simulated()
	if err != nil {
		return nil, err
	}
	server, err := sim.New(c)
	if err != nil {
		return nil, fault.New(fault.Value, err, "see sluice sim --help")
	}
	return server, nil
}

// simulated returns the configuration of the simulator.
func (o *simOptions) simulated() (c sim.Config, err error) {
	c = o.config
	l, err := &o.limits, checkLimits(&o.limits)
	switch {
	case err != nil:
		return c, err
	case l.TPD > 0:
		return c, fault.New(fault.Value, errors.New("--rate-limit tpd is not simulated"), "omit it")
	case o.headers == "daily" && l.RPD == 0:
		return c, fault.New(fault.Conflict, errors.New("--headers daily needs --rate-limit rpd=N"), "add --rate-limit rpd=1000")
	}
	c.NoHeaders, c.LateHeaders, c.DailyHeaders = o.headers == "none", o.headers == "late", o.headers == "daily"
	for d, limit := range c.Limits() {
		*limit = *l.At(d)
	}
	c.Concurrency = l.Concurrency
	c.Burst, c.Requests, c.Tokens = cmp.Or(l.Burst, time.Minute), l.Requests, l.Tokens
	if c.Latency == 0 {
		c.Latency = -1 // to sim, zero is the default
	}
	if c.Batches.Latency == 0 {
		c.Batches.Latency = -1 // as above
	}
	if c.Key = os.Getenv(o.keyEnv); o.keyEnv != "" && c.Key == "" {
		return c, fault.New(fault.Key, fmt.Errorf("environment variable %s is not set", o.keyEnv), "export %s=..., or omit --key-env to accept any key", o.keyEnv)
	}
	return c, nil
}
