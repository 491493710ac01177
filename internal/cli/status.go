package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
)

// statusOptions are the flags of the status command.
type statusOptions struct {
	redis  string
	asJSON bool
	watch  bool
}

// newStatus returns the command that prints the state of runs.
func newStatus(s *term.Streams) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [OUT.jsonl|DIR]",
		Short: "Print the state of a run, from another terminal",
		Long: `Print the state of a run, from the output file of run or the directory of exec. Pending batches of a Batch API are also
listed.

Without an argument, all runs in the current directory are listed. With --redis, accounts are listed with their
instances and lanes, and runs with their queues and workers.

Exit code 0 means that the run continues, or all items are done. Exit code 3 means that the run stopped with
remaining or failed items. Exit code 1 means that no state was found.`,
		Example: `  sluice status out.jsonl
  sluice status out.jsonl --watch
  sluice status .sluice-exec
  sluice status --redis redis://10.0.0.5
  sluice status`,
		Args: atMost(1, "one output"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), s, strings.Join(args, ""))
		},
	}
	redis := redisFlag(&o.redis)
	redis.help, redis.common = "Show the limits and runs that share this Redis", true
	define(cmd, flagGroup{"Output", []flag{
		redis,
		{name: "watch", field: &o.watch, help: "Print the state every second until the run ends", common: true},
		{name: "json", field: &o.asJSON, help: "Print one JSON document; with --watch, one line per second", common: true},
	}})
	return cmd
}

// run is the status command.
func (o *statusOptions) run(ctx context.Context, s *term.Streams, name string) error {
	if o.watch || o.redis != "" {
		var end func()
		ctx, end = signals.Interruptible(ctx)
		defer end()
	}
	if o.redis != "" {
		if name != "" {
			return fault.New(fault.Conflict, errors.New("--redis and an output cannot be combined"), "omit one of the two")
		}
		return o.runShared(ctx, s)
	}
	warned := make(map[string]bool)
	warn := func(text string) {
		if !warned[text] {
			warned[text] = true
			s.Errorf("sluice: warning: %s\n", text)
		}
	}
	if info, err := os.Stat(cmp.Or(name, ".")); err == nil && info.IsDir() && !runinfo.IsExecDir(name) {
		return o.list(s, cmp.Or(name, "."), warn)
	}
	var st *runinfo.Stored
	err := o.show(ctx, s, time.Second, func(context.Context) (v view, err error) {
		if st, err = runinfo.Load(name, warn); err != nil {
			return v, err
		}
		now := time.Now()
		return view{document: st, block: statusBlock(st, now), line: []string{st.Line(now)}, ended: st.Status.Ended()}, nil
	})
	if err != nil || st == nil {
		return err
	}
	if st.Hint != "" && !o.asJSON {
		s.Errorf("hint: %s\n", st.Hint)
	}
	if st.Incomplete() {
		return fault.Exit(fault.ExitItems)
	}
	return nil
}

// list prints the states of the runs in a directory.
func (o *statusOptions) list(s *term.Streams, dir string, warn func(string)) error {
	all, err := runinfo.LoadAll(dir, warn)
	if err != nil {
		return err
	}
	var lines []string
	for _, st := range all.Newest() {
		lines = append(lines, st.Line(time.Now()))
	}
	return o.print(s, view{document: all, block: lines})
}

// runShared prints the state of everything in Redis.
func (o *statusOptions) runShared(ctx context.Context, s *term.Streams) error {
	const (
		interval = 2 * time.Second  // of the heartbeats of instances
		timeout  = 30 * time.Second // a scan of a server with millions of other keys takes seconds
	)
	sh, err := openShared(ctx, s, o.redis, "status", false)
	if err != nil {
		return err
	}
	defer sh.Close()
	return o.show(ctx, s, interval, func(ctx context.Context) (view, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		st, err := sh.Status(ctx)
		if err != nil {
			return view{}, account.RedisError(err, "--redis")
		}
		block := sharedBlock(&st)
		return view{document: st, block: block, line: block}, nil
	})
}

// view is a state in all its forms.
type view struct {
	document any
	block    []string
	line     []string // for --watch without a terminal
	ended    bool     // the state does not change any more
}

// show prints a state, with --watch until it ends; on a terminal in one place.
func (o *statusOptions) show(ctx context.Context, s *term.Streams, every time.Duration, look func(context.Context) (view, error)) error {
	if !o.watch {
		v, err := look(ctx)
		if err != nil {
			return err
		}
		return o.print(s, v)
	}
	width, _, tty := s.Out.Size()
	for {
		v, err := look(ctx)
		if ctx.Err() != nil {
			err = fault.Exit(fault.ExitInterrupted)
		}
		if err == nil && tty && !o.asJSON && !v.ended {
			s.Out.Redraw(clipped(v.block, width-1))
		} else {
			s.Out.Redraw(nil)
		}
		switch {
		case err != nil:
			return err
		case o.asJSON:
			err = s.JSONLine(v.document)
		case !tty:
			err = o.print(s, view{block: v.line})
		case v.ended:
			err = o.print(s, v)
		}
		if errors.Is(err, syscall.EPIPE) { // the reader has seen enough
			return nil
		}
		if err != nil || v.ended {
			return err
		}
		_ = wake.In(ctx, every, nil)
	}
}

// print writes a state to standard output.
func (o *statusOptions) print(s *term.Streams, v view) error {
	if o.asJSON {
		return s.JSON(v.document)
	}
	var b strings.Builder
	for _, line := range v.block {
		fmt.Fprintln(&b, term.Escape(line))
	}
	_, err := s.Out.Write([]byte(s.Out.Fit(b.String())))
	return err
}
