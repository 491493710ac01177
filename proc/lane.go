package proc

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

// laterReset is by how much a reset that is stated differs from that of the limit before if it is of another one.
const laterReset = 2 * time.Second

// untilMargin is added to stated resets: they are told to the second at best, and a command that comes before is refused again.
const untilMargin = time.Second

// lane is what is known of the limits of all commands together, beside what the Scheduler knows.
type lane struct {
	cfg *Config
	log *slog.Logger

	mu      sync.Mutex
	backoff Backoff
	until   time.Time // the last reset that was stated,
	told    time.Time // and when
	saved   time.Time // when Config.Windows were
	last    time.Time // when the last command started that was paced,
	next    time.Time // and when the next one may

	stop  context.Context // ends when nothing more is to start
	drain func()          // ends it
}

func newLane(cfg *Config, log *slog.Logger) *lane {
	l := &lane{cfg: cfg, log: log}
	l.stop, l.drain = context.WithCancel(context.Background())
	return l
}

// saveEvery is how often what is known of windows is written while commands end. What a crash forgets is no older.
const saveEvery = 10 * time.Second

// ended takes in how a try ended, and says in o for how long a limit that it met holds where nobody else does. A limit is
// another one where it holds longer than what was told since the try began.
func (l *lane) ended(t *try, o *sluice.Outcome) (another bool) {
	l.note(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case o.Kind == sluice.OK:
		l.backoff.Succeeded(t.started)
	case !o.Kind.Throttle():
	case o.Until.Add(untilMargin).After(t.started):
		o.Until = o.Until.Add(untilMargin)
		if o.Kind != sluice.UsageWindow { // of which alone the Scheduler takes instants
			o.Wait = o.Until.Sub(t.ended)
		}
		if o.Until.Sub(l.until) >= laterReset {
			another = t.started.Before(l.told)
			l.until, l.told = o.Until, t.ended
		}
	case o.Kind == sluice.Overloaded, o.Dimension == sluice.Concurrency:
	case o.Wait <= 0: // nobody says when, or it was over when the command began and was refused all the same
		o.Until = l.backoff.Limited(t.started, t.ended)
		o.Wait = o.Until.Sub(t.ended)
	}
	return another
}

// note keeps what a try says of the account's windows.
func (l *lane) note(t *try) {
	w := l.cfg.Windows
	if w == nil || !t.ran && t.answer == nil {
		return
	}
	w.Note(t.ended, &t.meaning)
	every := saveEvery
	if t.meaning.Kind.Throttle() { // a closing is worth keeping, but not once for each command that meets it
		every = time.Second
	}
	l.mu.Lock()
	due := t.ended.Sub(l.saved) > every
	if due {
		l.saved = t.ended
	}
	l.mu.Unlock()
	if due {
		l.saveWindows()
	}
}

func (l *lane) saveWindows() {
	if err := l.cfg.Windows.Save(); err != nil {
		l.log.Warn("what is known of usage windows is not kept", "error", err)
	}
}

// starting returns a context that ends with ctx, and when nothing more is to start.
func (l *lane) starting(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stay := context.AfterFunc(l.stop, cancel)
	return ctx, func() { stay(); cancel() }
}

// paceAgain is how often a command that waits for its turn looks whether that has changed: others report what they used.
const paceAgain = 30 * time.Second

// pace has a command wait so that what a window has left lasts until its reset. It says false where ctx ends before.
func (l *lane) pace(ctx context.Context) bool {
	if !l.cfg.PaceWindow || l.cfg.Windows == nil {
		return true
	}
	for {
		wait := l.turn(time.Now())
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(min(wait, paceAgain))
		select {
		case <-timer.C: // and look again: another command may have come first
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// turn takes the next start, or returns how long it is until there is one.
func (l *lane) turn(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() {
		if l.next = l.cfg.Windows.next(l.last, now); l.next.After(now) {
			return l.next.Sub(now)
		}
	}
	l.last = now
	l.next = l.cfg.Windows.next(now, now)
	return 0
}

// paused reports whether nothing is to start now, as those find that waited for something while they had a permit.
func (l *lane) paused() bool {
	for _, s := range l.cfg.Scheduler.Snapshot().Lanes {
		if s.Lane == l.cfg.Lane {
			return s.Held || s.Until.After(time.Now())
		}
	}
	return false
}

// paced is when the next command may start; zero where that is not known or not so.
func (l *lane) paced() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cfg.PaceWindow {
		return time.Time{}
	}
	return l.next
}

// honour has the run wait for a limit that an earlier one met and that is not over.
func (x *Exec) honour() {
	earlier, _ := x.journal.Earlier()
	limit := earlier.RateLimit
	if x.cfg.Forget || !limit.Until.After(time.Now()) || !limit.Kind.Throttle() {
		return
	}
	limit.Until = limit.Until.Local() // the file has all times in one zone
	o := sluice.Outcome{Kind: sluice.UsageWindow, Until: limit.Until, Dimension: limit.Dimension,
		Err: &EndError{Text: limit.Text, From: "the run before", Until: limit.Until}}
	x.pause(o)
	x.probe.again()
}

// pause pauses the lane for a limit that its commands do not tell the Scheduler of.
func (x *Exec) pause(o sluice.Outcome) {
	if err := x.cfg.Scheduler.PauseLane(x.cfg.Lane, o); err != nil {
		x.log.Warn("a limit is not waited for", "error", err)
	}
}

// recognise returns the CLI that a command is.
func recognise(c *Command) *CLI {
	if c.Shell {
		return nil
	}
	return Recognise(c.Args[0])
}

// itemDir is the directory of an item.
func (x *Exec) itemDir(line int, id string) itemDir {
	name := directoryOf(line, id)
	return itemDir{name: name, path: filepath.Join(x.dir, name)}
}
