package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// statusOptions are the flags of the status command.
type statusOptions struct {
	shared sharedFlags
	asJSON bool
	watch  bool
}

// exitLeft is the exit code for a run that has ended and left something to do.
const exitLeft = fault.ExitItems

// newStatus returns the command that says how runs stand.
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
	redis := o.shared.flag()
	redis.help, redis.common = "Show the limits and runs that share this Redis", true
	define(cmd, flagGroup{"Output", []flag{
		redis,
		{name: "watch", field: &o.watch, help: "Print the state every second until the run ends", common: true},
		{name: "json", field: &o.asJSON, help: "Print one JSON document; with --watch, one line per second", common: true},
	}})
	return cmd
}

// runStatus is how a run stands, as --json prints it.
type runStatus struct {
	Output string `json:"output"`           // Path of the output.
	Status string `json:"status"`           // Status from the state file, or `killed` if the process was killed.
	Reason string `json:"reason,omitempty"` // Reason for the status.
	Hint   string `json:"hint,omitempty"`   // Next step.
	Alive  bool   `json:"alive"`            // The process of the run exists.

	State *work.State  `json:"state,omitempty"` // Content of the state file.
	Parts []batch.Part `json:"parts,omitempty"` // Batches of `--batch`.

	recorded int // by a run that was killed, as far as its output tells
}

// statusList is the document of several runs.
type statusList struct {
	Runs []*runStatus `json:"runs"` // Runs with state files.
}

// statusKilled is the status of a run that did not say goodbye.
const statusKilled = "killed"

// run is the status command.
func (o *statusOptions) run(ctx context.Context, s *term.Streams, name string) error {
	if o.shared.url != "" {
		if name != "" {
			return fault.New(fault.Conflict, errors.New("--redis and an output cannot be combined"), "omit one of the two")
		}
		return o.runShared(ctx, s)
	}
	if info, err := os.Stat(cmp.Or(name, ".")); err == nil && info.IsDir() && !ofExec(name) {
		return o.list(s, cmp.Or(name, "."))
	}
	l := &looker{s: s, o: o, output: name, warned: make(map[string]bool)}
	if o.watch {
		return l.watch(ctx)
	}
	st, err := stand(l.output, l.warn)
	if err != nil {
		return err
	}
	if err := l.print(st); err != nil {
		return err
	}
	return st.end(s, o.asJSON)
}

// end returns what the command ends with.
func (st *runStatus) end(s *term.Streams, asJSON bool) error {
	if st.Hint != "" && !asJSON {
		s.Errorf("hint: %s\n", st.Hint)
	}
	if st.ended() && (st.Status != string(work.Completed) || st.State.Failed > 0) {
		return fault.Exit(exitLeft)
	}
	return nil
}

// ended reports whether the run does not go on.
func (st *runStatus) ended() bool {
	switch st.Status {
	case string(work.Running), string(work.Paused), string(work.Limited):
		return false
	}
	return true
}

// looker looks at one run, time and again.
type looker struct {
	s      *term.Streams
	o      *statusOptions
	output string
	warned map[string]bool
}

// warn says something once.
func (l *looker) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !l.warned[text] {
		l.warned[text] = true
		l.s.Errorf("sluice: warning: %s\n", text)
	}
}

// stand reads the state of a run.
func stand(output string, warn func(format string, args ...any)) (*runStatus, error) {
	results, path := places(output)
	state, err := work.LoadState(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Code: fault.State, Err: fmt.Errorf("no run has the state file %s", path),
			Hint: "name the output of a run, or list the runs of a directory with sluice status"}
	}
	if err != nil {
		return nil, &fault.Error{Code: fault.State, Err: err, Hint: "run the same command again to write a new state"}
	}
	st := &runStatus{Output: output, Status: string(state.Status), Reason: state.Reason, State: &state}
	if st.Parts, err = batchjob.Read(results + batch.BatchesSuffix); err != nil {
		warn("%v", err)
	}
	if st.ended() {
		st.Hint = cmp.Or(pendingHint(st.Parts), st.leftHint(time.Now()))
		return st, nil
	}
	if st.Alive = lives(results, state, warn); !st.Alive {
		st.Status = statusKilled
		st.Reason = fmt.Sprintf("process %d ended without recording a reason", state.PID)
		n, err := recorded(results)
		if err == nil { // the state is older than that
			st.Reason += fmt.Sprintf("; it recorded %s", prose.Count(n, "result"))
			st.recorded = n
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			st.Hint = st.resumeHint(time.Now())
		}
	}
	return st, nil
}

// recorded counts the results of an output.
func recorded(output string) (n int, err error) {
	f, err := regular.Open(output)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := work.NewLineReader(f, 0)
	for {
		line, err := lines.Next()
		if err == io.EOF || line.Torn {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		n++
	}
}

// leftHint says what to do about what a run left.
func (st *runStatus) leftHint(now time.Time) string {
	switch {
	case st.State.Status == work.CalledOff:
		return "run the command without --cancel to send the remaining items"
	case st.State.Status != work.Completed:
		return st.resumeHint(now)
	case st.State.Failed > 0:
		return fmt.Sprintf("retry the failed items: run the same %s command with --redo failed", st.command())
	}
	return ""
}

// resumeHint names the command that continues a run, and says what it does about a limit that is not over.
func (st *runStatus) resumeHint(now time.Time) string {
	if st.paused(now) {
		return fmt.Sprintf("resume with the same %s command, which waits for the pause, or add --ignore-pause", st.command())
	}
	return fmt.Sprintf("resume with the same %s command", st.command())
}

// command is the command whose run it is.
func (st *runStatus) command() string {
	if _, ok := execDir(st.Output); ok {
		return "exec"
	}
	return "run"
}

// freshState is how old the state of a run that lives is at most: it is written every 30 s in any case.
const freshState = 75 * time.Second

// lives reports whether the run goes on: it has its output locked, which processes of other containers see too, or its process
// is there and wrote the state just now, since the number may be another's by now.
func lives(output string, state work.State, warn func(format string, args ...any)) bool {
	used, err := work.InUse(output)
	if used {
		return true
	}
	if err != nil {
		warn("%v", err)
	}
	return time.Since(state.UpdatedAt) < freshState && processLives(state.PID)
}

// list says how the runs of a directory stand.
func (o *statusOptions) list(s *term.Streams, dir string) error {
	all := []*runStatus{}
	for _, run := range runsIn(dir) {
		st, err := stand(run, func(format string, args ...any) {
			s.Errorf("sluice: warning: %s\n", fmt.Sprintf(format, args...))
		})
		if err != nil {
			s.Errorf("sluice: warning: %s\n", err)
			continue
		}
		all = append(all, st)
	}
	if len(all) == 0 {
		return &fault.Error{Code: fault.State, Err: fmt.Errorf("no run has a state in %s", dir), Hint: "name the output of a run: sluice status OUT.jsonl"}
	}
	if o.asJSON {
		return s.JSON(statusList{all})
	}
	slices.SortStableFunc(all, func(a, b *runStatus) int { return b.State.UpdatedAt.Compare(a.State.UpdatedAt) })
	var b strings.Builder
	for _, st := range all {
		fmt.Fprintln(&b, term.Escape(st.line(time.Now())))
	}
	_, err := s.Out.Write([]byte(s.Out.Fit(b.String())))
	return err
}

// print writes how the run stands to standard output.
func (l *looker) print(st *runStatus) error {
	if l.o.asJSON {
		return l.s.JSON(st)
	}
	_, err := l.s.Out.Write([]byte(l.s.Out.Fit(strings.Join(escaped(st.block(time.Now())), "\n") + "\n")))
	return err
}

// watch prints how the run stands every second, until it has ended: on a terminal in one place.
func (l *looker) watch(ctx context.Context) error {
	ctx, end := signals.Interruptible(ctx)
	defer end()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	width, _, tty := l.s.Out.Size()
	for {
		st, err := stand(l.output, l.warn)
		switch {
		case ctx.Err() != nil:
			l.s.Out.Redraw(nil)
			return fault.Exit(fault.ExitInterrupted)
		case err != nil:
			l.s.Out.Redraw(nil)
			return err
		}
		if tty && !l.o.asJSON && !st.ended() {
			l.s.Out.Redraw(clipped(st.block(time.Now()), width-1))
		} else if err := l.printStep(st, tty); errors.Is(err, syscall.EPIPE) {
			return nil // who read has seen enough
		} else if err != nil {
			return err
		}
		if st.ended() {
			return st.end(l.s, l.o.asJSON)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// printStep writes one of the looks of a watch.
func (l *looker) printStep(st *runStatus, tty bool) error {
	l.s.Out.Redraw(nil)
	if l.o.asJSON {
		return l.s.JSONLine(st)
	}
	if tty {
		return l.print(st)
	}
	_, err := l.s.Out.Write([]byte(term.Escape(st.line(time.Now())) + "\n"))
	return err
}
