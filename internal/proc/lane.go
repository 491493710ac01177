package proc

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/limits"
)

// laterReset is by how much a reset that is stated differs from that of the limit before if it is of another one.
const laterReset = 2 * time.Second

// resetSlack is added to a stated reset that was over when a command started which was rejected: resets are stated to the second at best.
const resetSlack = time.Second

// lane is what is known of the limits of all commands together, beside what the Scheduler knows.
type lane struct {
	cfg *Config

	mu      sync.Mutex
	backoff Backoff
	until   time.Time // the last reset that was stated,
	told    time.Time // and when
	well    time.Time // when a command last ended well
	windows []agents.WindowUse

	stop  context.Context // ends when nothing more is to start
	drain func()          // ends it
}

func newLane(cfg *Config) *lane {
	l := &lane{cfg: cfg}
	l.stop, l.drain = context.WithCancel(context.Background())
	return l
}

// ended takes in how a try ended, and sets in o until when a limit that it met holds. A limit is another one where it holds longer
// than what was told since the try started.
func (l *lane) ended(t *try, o *sluice.Outcome) (another bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.ran || t.answer != nil {
		l.noteLocked(t.meaning.Windows)
	}
	ofCommands := o.Kind == sluice.RateLimit && o.Dimension != limits.Concurrency || o.Kind == sluice.UsageWindow
	waits := ofCommands && o.Until.IsZero() && o.Wait > 0
	if waits {
		o.Until = t.ended.Add(o.Wait) // the Scheduler would test a mere wait, and a test is a whole command
	}
	until := o.Until
	if !until.After(t.started) {
		until = until.Add(resetSlack)
	}
	switch {
	case o.Kind == sluice.OK:
		l.well = t.ended
		l.backoff.Succeeded(t.started)
	case !o.Kind.Throttle():
	case until.After(t.started):
		o.Until = until
		if o.Wait = 0; o.Kind != sluice.UsageWindow { // of which alone the Scheduler takes instants
			o.Wait = o.Until.Sub(t.ended)
		}
		if o.Until.Sub(l.until) >= laterReset {
			another = !waits && t.started.Before(l.told)
			l.until, l.told = o.Until, t.ended
		}
	case ofCommands: // nobody says when, or it was over when the command started and was rejected all the same
		o.Until = l.backoff.Limited(t.started, t.ended)
		o.Wait = o.Until.Sub(t.ended)
	}
	return another
}

// streak counts the rate-limit rejections of an item in a row.
type streak struct {
	count int       // rejections after the reset that the one before stated
	first time.Time // when the first one came
	reset time.Time // of the last one; zero if unknown
}

// An item that is rejected after each of maxResets resets, and for some time, fails: its command prints something else than the state
// of the account.
const (
	maxResets = 5
	minute    = time.Minute      // in any case: APIs limit requests per minute, and state short waits
	crowded   = 10 * time.Minute // if other commands run or succeed, which may use up what a reset gives back
	unstated  = 6 * time.Hour    // if no reset is stated and no command succeeds: longer than a window of 5 hours
)

// bound counts a rejection of an item. Beyond maxResets, it turns the rejection into a failure of the command.
func (l *lane) bound(r *streak, t *try) {
	m := &t.meaning
	if !m.Kind.Throttle() || m.Dimension == limits.Concurrency {
		*r = streak{}
		return
	}
	if r.first.IsZero() {
		r.first = t.ended
	}
	l.mu.Lock()
	well := l.well.After(r.first)
	l.mu.Unlock()
	lasts := minute
	switch {
	case well:
		lasts = crowded
	case t.started.Before(r.reset):
		return
	case m.Kind == sluice.Overloaded || m.Wait == 0 && !m.Until.After(t.ended):
		lasts = unstated
	case l.snapshot().InFlight > 1:
		lasts = crowded
	}
	if r.count < maxResets || t.ended.Sub(r.first) < lasts {
		r.count++
		return
	}
	m.Kind, m.Text = sluice.CommandFailed, fmt.Sprintf("the command reached a limit again after each of %d resets: %s", r.count, m.Text)
}

const (
	firstPause   = time.Minute
	longestPause = 5 * time.Minute
)

// Backoff is how long to pause for a limit that nobody says the end of: min(60·2ⁿ, 300) seconds, where n counts the pauses
// before it that no success has followed. The zero value is ready; it is not safe for concurrent use.
type Backoff struct {
	row   int
	until time.Time // the end of the last pause
}

// Limited takes in that a command which began at an instant met such a limit, and returns when to try again. A command that
// began before the last pause was over tells of the same limit, and lengthens nothing.
func (b *Backoff) Limited(began, now time.Time) time.Time {
	if began.Before(b.until) {
		return b.until
	}
	b.until = now.Add(min(firstPause<<min(b.row, 20), longestPause))
	b.row++
	return b.until
}

// Succeeded takes in that a command which began at an instant ended well. One that began before the last pause was over says
// nothing of what came after.
func (b *Backoff) Succeeded(began time.Time) {
	if !began.Before(b.until) {
		b.row = 0
	}
}

// starting returns a context that ends with ctx, and when nothing more is to start.
func (l *lane) starting(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stay := context.AfterFunc(l.stop, cancel)
	return ctx, func() { stay(); cancel() }
}

// paused reports whether nothing is to start now, as those find that waited for something while they had a permit.
func (l *lane) paused() bool {
	s := l.snapshot()
	return s.Held || s.Until.After(time.Now())
}

// snapshot is how the Scheduler's lane of the commands stands.
func (l *lane) snapshot() limits.LaneSnapshot {
	for _, s := range l.cfg.Limits.Scheduler.Snapshot().Lanes {
		if s.Lane == l.cfg.Limits.Lane {
			return s
		}
	}
	return limits.LaneSnapshot{}
}

// honour has the run wait for a limit that an earlier one met and that is not over.
func (x *Exec) honour() {
	earlier := x.journal.Earlier()
	limit := earlier.RateLimit
	if x.cfg.Limits.IgnorePause {
		return
	}
	x.cfg.Pauses.Recall(earlier)
	if !limit.Until.After(time.Now()) || !limit.Kind.Throttle() {
		return
	}
	limit.Until = limit.Until.Local() // the file has all times in one zone
	o := sluice.Outcome{Kind: sluice.UsageWindow, Until: limit.Until, Dimension: limit.Dimension,
		Err: &EndError{Text: limit.Text, From: "the previous run", Until: limit.Until, stated: limit.Stated}}
	x.pause(o)
	x.probe.again()
}

// pause pauses the lane for a limit that its commands do not tell the Scheduler of.
func (x *Exec) pause(o sluice.Outcome) {
	if err := x.cfg.Limits.Scheduler.PauseLane(x.cfg.Limits.Lane, o); err != nil {
		x.log.Warn("a limit of an earlier run could not be restored", "error", err)
	}
}

// itemDir is the directory of an item.
func (x *Exec) itemDir(line int, id string) itemDir {
	name := directoryOf(line, id)
	return itemDir{name: name, path: filepath.Join(x.dir, name)}
}
