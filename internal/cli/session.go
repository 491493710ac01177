package cli

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// session is everything that a command opens to process items. Close it.
type session struct {
	s         *term.Streams
	flags     *watchFlags
	observers []sluice.Observer // complete before the first event
	pauses    *work.Pauses
	notices   runinfo.Notices
	results   runinfo.Results
	watch     *telemetry.Watch
	shared    *account.Shared   // nil: limits are not shared
	accounts  *account.Accounts // nil before openAccounts
	opened    []func() error    // close logs, metrics, Redis and accounts, in the order of opening
}

// openSession opens the log of events, the metrics, OpenTelemetry, and Redis for the command with the name role.
func openSession(ctx context.Context, s *term.Streams, role string, flags *watchFlags, redis string) (*session, error) {
	n := &session{s: s, flags: flags, pauses: &work.Pauses{}}
	n.notices = runinfo.Notices{Verbose: flags.verbose, Shared: redis != "", Pauses: n.pauses}
	n.observers = []sluice.Observer{n.pauses, sluice.ObserverFunc(func(e sluice.Event) { n.print(n.notices.Lines(e)...) })}
	if err := n.open(ctx, role, redis); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *session) open(ctx context.Context, role, redis string) (err error) {
	if n.flags.events != "" {
		log, err := telemetry.OpenLog(n.flags.events, n.s.Redact)
		if err != nil {
			return err
		}
		n.observers, n.opened = append(n.observers, log), append(n.opened, log.Close)
	}
	if n.watch, err = n.flags.open(ctx, n.s); err != nil {
		return err
	}
	n.observers, n.opened = append(n.observers, n.watch), append(n.opened, n.watch.Close)
	if n.shared, err = openShared(ctx, n.s, redis, role, n.flags.verbose); err != nil {
		return err
	}
	n.opened = append(n.opened, n.shared.Close)
	return nil
}

// Observe gives an event to all observers.
func (n *session) Observe(e sluice.Event) {
	for _, o := range n.observers {
		o.Observe(e)
	}
}

// openAccounts opens the accounts of the flags, and their upstreams unless other hosts send the requests.
func (n *session) openAccounts(f *accountFlags) (err error) {
	f.Scheduler.Observer = n
	f.Excluded = func(x provider.Exclusion) { n.print(runinfo.ExclusionLine(x)) }
	if n.accounts, err = f.open(n.s, n.flags.verbose); err != nil {
		return err
	}
	n.opened = append(n.opened, n.accounts.Close)
	n.accounts.Share(n.shared)
	n.notices.Label, n.notices.Foreign = n.accounts.LaneLabel, n.accounts.Settings.Foreign
	if f.Purpose != account.Submit {
		if err = n.accounts.OpenUpstreams(); err != nil {
			return err
		}
	}
	n.watch.Follow(n.accounts)
	return nil
}

// close closes everything. Errors are only warnings: results are recorded even if learned limits or the last events are not.
func (n *session) close() {
	for _, end := range slices.Backward(n.opened) {
		n.s.Warn(end())
	}
}

func (n *session) print(lines ...string) {
	for _, line := range lines {
		n.s.Errorf("%s\n", line)
	}
}

// supervised is work that supervise watches over.
type supervised struct {
	status  func() runinfo.Status
	drain   func() // starts no more items
	abandon func() // aborts open items
}

// supervise runs the work, which can refresh the progress. It shows the progress, and handles signals and changed settings. It returns the
// number of items that were in flight when they were aborted, and the outages.
func (n *session) supervise(w supervised, run func(refresh func())) (aborted int, outages map[string]time.Duration) {
	var meter runinfo.Meter
	display := term.NewDisplay(n.s, n.flags.progress, func() term.Picture {
		st := meter.Measure(w.status())
		return &st
	})
	listener := signals.Listen(signals.Config{
		Reread: n.reread(),
		Drain: func(os.Signal) {
			w.drain()
			meter.Drain()
			display.Refresh()
		},
		Abandon: func(os.Signal) {
			aborted = w.status().InFlight
			w.abandon()
		},
	})
	run(display.Refresh)
	listener.Stop()
	display.Stop()
	return aborted, meter.Outages()
}

// reread applies the limits of changed settings while the command works, and prints the changes.
func (n *session) reread() signals.Reread {
	if n.accounts.Settings.File.Name == "" {
		return signals.Reread{}
	}
	return signals.Reread{Files: n.accounts.Settings.Files, Read: func() signals.Files {
		lines, err := n.accounts.Reread()
		printReread(n.s, "limits", lines, err)
		return nil
	}}
}

// printEnding prints the document of a summary or the summary itself, and the next step.
func (n *session) printEnding(document any, ending *runinfo.Ending, print func()) error {
	if n.flags.json {
		if err := n.s.JSON(document); err != nil {
			return err
		}
	}
	if n.flags.progress != term.ProgressJSON { // else standard error is for programs
		print()
	}
	if ending.Error == "" && ending.Hint != "" {
		n.s.Errorf("hint: %s\n", ending.Hint)
	}
	return nil
}
